// `pyflame optimize`: finds settings with which a program is faster, and verifies each of them. Python does it (python/pyflame/optimizing), because the
// program runs there; this file checks the command line.
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "commands.h"
#include "pyflame/base/error.h"
#include "python_command.h"

namespace pyflame::apps::cli {

namespace {

struct OptimizeSettings {
  std::string metric = "step time", budget = "30m", out, hang = "10m", plugins, module, python;
  int level = 4, pairs = 5;
  bool allow_noise = false, resume = false, list = false, json = false;
};

int optimize(const OptimizeSettings& s, const std::vector<std::string>& program) {
  PF_CHECK(s.list || !program.empty() || !s.module.empty(), Value,
           "optimize: there is no program; got no file and no -m; expected FILE.py, or -m MODULE; hint: pyflame "
           "optimize train.py --epochs 1");
  PythonCommand c("optimize", "pyflame.optimizing", s.python);
  c.add("--metric", s.metric);
  c.add("--budget", s.budget);
  c.add("--level", std::to_string(s.level));
  c.add("--pairs", std::to_string(s.pairs));
  c.add("--hang", s.hang);
  std::error_code ignored;
  c.add("--pyflame", std::filesystem::read_symlink("/proc/self/exe", ignored).string());
  if (!s.plugins.empty()) c.add("--plugins", s.plugins);
  if (!s.out.empty()) c.add("--out", s.out);
  if (s.allow_noise) c.add("--allow-noise");
  if (s.resume) c.add("--resume");
  if (s.list) c.add("--list");
  if (s.json) c.add("--json");
  if (!s.module.empty()) c.add("--module", s.module);
  c.add_program(program);
  c.start();
}

}  // namespace

void add_optimize(CLI::App& app, Run& run) {
  CLI::App* cmd =
      app.add_subcommand("optimize", "Find settings with which a program is faster, and verify each of them");
  auto s = std::make_shared<OptimizeSettings>();
  cmd->footer(
      "FILE.py and its arguments follow the options. The program runs many times: as it is, then with one change after "
      "the other. A change is kept if the program "
      "computes the same and is faster. The result is a file of settings: PYFLAME_SETTINGS=FILE python train.py. No "
      "file of yours is changed.");
  takes_program(cmd, "[FILE.py [ARGUMENT ...]]");
  cmd->add_option("-m,--module", s->module, "Run this module as a program, as python -m does");
  cmd->add_option("--metric", s->metric,
                  "What counts: 'step time', or a rate that the program prints as a number before or after this text "
                  "(such as 'tokens/s'), where more is better")
      ->capture_default_str();
  cmd->add_option("--budget", s->budget, "The time for all of it: seconds, or a number with s, m or h")
      ->capture_default_str();
  cmd->add_option("--level", s->level,
                  "Up to which level changes are tried: 1 environment, 2 settings of the engine, 3 rewrites of the "
                  "model, 4 measured kernels, 5 kernels of plug-ins")
      ->capture_default_str()
      ->check(CLI::Range(1, 5));
  cmd->add_option("--pairs", s->pairs, "Pairs of runs that compare the program without and with a change")
      ->capture_default_str()
      ->check(CLI::Range(3, 1000));
  cmd->add_option("--hang", s->hang, "A run that takes longer than this is ended")->capture_default_str();
  cmd->add_option("--plugins", s->plugins,
                  "With --level 5: Python modules that register entries of plug-ins (pf.tuning.register), with commas "
                  "between them");
  cmd->add_option("--out", s->out, "The folder of the results; default: optimize-PROGRAM");
  cmd->add_flag("--allow-noise", s->allow_noise,
                "Go on where the program's own figures spread over more than 10 %: a change is compared in up to eight "
                "times as many pairs of runs");
  cmd->add_flag("--resume", s->resume, "Go on with the journal in the folder of the results");
  cmd->add_flag("--list", s->list, "Print the changes that can be tried, and stop");
  cmd->add_flag("--json", s->json, "Print the result, or the changes of --list, as one JSON document");
  cmd->add_option(
      "--python", s->python,
      "The Python interpreter that has the package; default: PYFLAME_PYTHON, or the one beside this program");
  cmd->final_callback([&run, s, cmd] { run = [s, program = program_of(cmd)] { return optimize(*s, program); }; });
}

}  // namespace pyflame::apps::cli
