// `pyflame tune`: measures which implementations are the fastest for a program. Python does it (python/pyflame/tuning), because the program runs there.
#include <memory>
#include <string>

#include "commands.h"
#include "pyflame/base/error.h"
#include "python_command.h"

namespace pyflame::apps::cli {

namespace {

struct TuneSettings {
  std::string budget = "60s", idle = "20s", hang = "60s", start = "10m", problems, device = "cpu", exported, validators,
              module, entries, python;
  std::vector<std::string> imported;
  int compare = 3;
  bool all_algorithms = false, list = false, json = false;
};

int tune(const TuneSettings& s, const std::vector<std::string>& program) {
  const bool something = !program.empty() || !s.module.empty() || !s.problems.empty() || !s.imported.empty() ||
                         s.list || !s.exported.empty();
  PF_CHECK(something, Value,
           "tune: there is no program; got no file and no -m; expected FILE.py, or -m MODULE; hint: pyflame tune "
           "train.py --epochs 1");
  PythonCommand c("tune", "pyflame.tuning", s.python);
  c.add("--budget", s.budget);
  c.add("--idle", s.idle);
  c.add("--hang", s.hang);
  c.add("--start", s.start);
  c.add("--compare", std::to_string(s.compare));
  if (!s.entries.empty()) c.add("--entries", s.entries);
  if (s.all_algorithms) c.add("--all-algorithms");
  if (!s.problems.empty()) c.add("--problems", s.problems);
  for (const std::string& file : s.imported) c.add("--import", file);
  if (!s.problems.empty() || !s.imported.empty()) c.add("--device", s.device);
  if (!s.exported.empty()) c.add("--export", s.exported);
  if (!s.validators.empty()) c.add("--validators", s.validators);
  if (s.list) c.add("--list");
  if (s.json) c.add("--json");
  if (!s.module.empty()) c.add("--module", s.module);
  c.add_program(program);
  c.start();
}

}  // namespace

void add_tune(CLI::App& app, Run& run) {
  CLI::App* cmd =
      app.add_subcommand("tune", "Measure which implementations are the fastest for a program, and keep them");
  auto s = std::make_shared<TuneSettings>();
  cmd->footer(
      "FILE.py and its arguments follow the options. The program runs several times: once or more while its ops are "
      "measured, then in turns without and with what "
      "was "
      "found.");
  takes_program(cmd, "[FILE.py [ARGUMENT ...]]");
  cmd->add_option("-m,--module", s->module, "Run this module as a program, as python -m does");
  cmd->add_option("--budget", s->budget,
                  "The time for measurements: seconds, or a number with s, m or h. The runs of --compare follow")
      ->capture_default_str();
  cmd->add_option(
         "--compare", s->compare,
         "Pairs of runs that compare the whole program without and with what was found, up to three times as many "
         "where they differ too much or look slower; 0: none")
      ->capture_default_str()
      ->check(kAtLeastZero);
  cmd->add_option("--idle", s->idle,
                  "The program is stopped if nothing new was measured for this time since its first op")
      ->capture_default_str();
  cmd->add_option("--hang", s->hang, "A candidate that runs for longer than this is left out")->capture_default_str();
  cmd->add_option("--start", s->start, "The program is stopped if it has computed nothing for this time")
      ->capture_default_str();
  cmd->add_option("--entries", s->entries,
                  "Measure these entries alone besides PyFlame's own choice, by the names that pyflame explain prints, "
                  "with commas between them (gpu.blas,gpu.matmul_units); default: all");
  cmd->add_flag("--all-algorithms", s->all_algorithms,
                "Try all algorithms that the libraries enumerate for a product, as far as the budget goes, and not "
                "only the usual number");
  cmd->add_option("--problems", s->problems,
                  "Tune a list of products instead of a program: M,N,K[,dtype[,layout]], lines of hipblaslt-bench or "
                  "rocblas-bench, their YAML lists, or TunableOp's CSV");
  cmd->add_option(
         "--import", s->imported,
         "Check and measure what other software has found: results of TunableOp, overrides of hipBLASLt and rocBLAS, "
         "aiter's table of products, MIOpen's find-db and perf-db")
      ->allow_extra_args(false);
  cmd->add_option("--device", s->device, "The device for --problems and --import")->capture_default_str();
  cmd->add_option("--export", s->exported,
                  "Write what is known to a file for other software: tunableop=FILE, hipblaslt=FILE and rocblas=FILE "
                  "(their override "
                  "files), aiter=FILE (its table of products) or miopen=FILE (its find-db)");
  cmd->add_option(
      "--validators", s->validators,
      "A results file of TunableOp, or an override file of hipBLASLt, whose lines about versions the exported file "
      "gets");
  cmd->add_flag("--list", s->list, "Print what is known");
  cmd->add_flag("--json", s->json, "Print what was measured, or is known, as one JSON document");
  cmd->add_option(
      "--python", s->python,
      "The Python interpreter that has the package; default: PYFLAME_PYTHON, or the one beside this program");
  cmd->final_callback([&run, s, cmd] { run = [s, program = program_of(cmd)] { return tune(*s, program); }; });
}

}  // namespace pyflame::apps::cli
