// `pyflame diagnose`: watches a running process and says what limits it. Python does it (python/pyflame/profiler/diagnose.py).
#include <fmt/format.h>

#include <memory>
#include <string>

#include "commands.h"
#include "python_command.h"

namespace pyflame::apps::cli {

namespace {

struct DiagnoseSettings {
  int pid = 0;
  double seconds = 5;
  bool json = false;
  std::string python;
};

int diagnose(const DiagnoseSettings& s) {
  PythonCommand c("diagnose", "pyflame.profiler.diagnose", s.python);
  c.add(std::to_string(s.pid));
  c.add("--seconds", fmt::format("{}", s.seconds));
  if (s.json) c.add("--json");
  c.start();
}

}  // namespace

void add_diagnose(CLI::App& app, Run& run) {
  CLI::App* cmd = app.add_subcommand(
      "diagnose", "Watch a running process, and say whether the CPU, its input, memory or the GPU limits it");
  auto s = std::make_shared<DiagnoseSettings>();
  cmd->footer("Any process of this user, of any language. It is not changed and not stopped.");
  cmd->add_option("pid", s->pid, "The number of the process")->required()->check(kAboveZero);
  cmd->add_option("--seconds", s->seconds, "How long to watch it")
      ->capture_default_str()
      ->check(CLI::Range(0.1, 3600.0));
  cmd->add_flag("--json", s->json, "Print one JSON document");
  cmd->add_option(
      "--python", s->python,
      "The Python interpreter that has the package; default: PYFLAME_PYTHON, or the one beside this program");
  cmd->callback([&run, s] { run = [s] { return diagnose(*s); }; });
}

}  // namespace pyflame::apps::cli
