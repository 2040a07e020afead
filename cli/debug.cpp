// `pyflame debug run`: runs a Python program with the debug allocator. Python does it (python/pyflame/_debug), because the program runs there; this file
// checks the command line.
#include <memory>
#include <string>
#include <vector>

#include "commands.h"
#include "pyflame/base/error.h"
#include "python_command.h"

namespace pyflame::apps::cli {

namespace {

struct DebugSettings {
  std::string sanitizer, module, python, json;
  bool guards = false, poison = false, sync = false, no_agent = false;
};

int debug_run(const DebugSettings& s, const std::vector<std::string>& program) {
  PF_CHECK(!program.empty() || !s.module.empty(), Value,
           "debug: there is no program; got no file and no -m; expected FILE.py, or -m MODULE; hint: pyflame debug run "
           "train.py --epochs 1");
  PythonCommand c("debug", "pyflame._debug", s.python);
  if (s.guards) c.add("--guards");
  if (s.poison) c.add("--poison");
  if (s.sync) c.add("--sync");
  if (s.no_agent) c.add("--no-agent");
  if (!s.sanitizer.empty()) c.add("--sanitizer", s.sanitizer);
  if (!s.json.empty()) c.add("--json", s.json);
  if (!s.module.empty()) c.add("--module", s.module);
  c.add_program(program);
  c.start();
}

}  // namespace

void add_debug(CLI::App& app, Run& run) {
  CLI::App* group = app.add_subcommand("debug", "Find wrong accesses to memory");
  group->require_subcommand(1);
  CLI::App* cmd =
      group->add_subcommand("run", "Run a Python program step by step, and name the op of the first wrong access");
  auto s = std::make_shared<DebugSettings>();
  cmd->footer(
      "FILE.py and its arguments follow the options. Without --guards, --poison and --sync, all three are on. The exit "
      "code is 4 if an access was found, otherwise "
      "the program's own.");
  takes_program(cmd);
  cmd->add_option("-m,--module", s->module, "Run this module as a program, as python -m does");
  cmd->add_flag("--guards", s->guards, "Find accesses outside of buffers and to freed ones");
  cmd->add_flag("--poison", s->poison, "Find reads of memory that nothing has written");
  cmd->add_flag("--sync", s->sync, "Wait for the device after each op, and look for nothing else");
  cmd->add_flag("--no-agent", s->no_agent, "Do not load AMD's debug agent");
  cmd->add_option("--sanitizer", s->sanitizer,
                  "Run the program under NVIDIA's compute-sanitizer: memcheck, initcheck, racecheck or synccheck")
      ->check(CLI::IsMember({"memcheck", "initcheck", "racecheck", "synccheck"}));
  cmd->add_option(
         "--json", s->json,
         "Also write what was found into this file, as one JSON document; standard output belongs to the program")
      ->type_name("FILE");
  cmd->add_option(
      "--python", s->python,
      "The Python interpreter that has the package; default: PYFLAME_PYTHON, or the one beside this program");
  cmd->final_callback([&run, s, cmd] { run = [s, program = program_of(cmd)] { return debug_run(*s, program); }; });
}

}  // namespace pyflame::apps::cli
