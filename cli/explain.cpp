// `pyflame explain`: runs a Python program, and says how it was computed. Python does it (python/pyflame/_explain), because the program
// runs there; this file checks the command line.
#include <memory>
#include <string>
#include <vector>

#include "commands.h"
#include "pyflame/base/error.h"
#include "python_command.h"

namespace pyflame::apps::cli {

namespace {

struct ExplainSettings {
  std::string out, html, json, kernels, module, python;
  bool no_times = false, measure = false;
};

int explain(const ExplainSettings& s, const std::vector<std::string>& program) {
  PF_CHECK(!program.empty() || !s.module.empty(), Value,
           "explain: there is no program; got no file and no -m; expected FILE.py, or -m MODULE; hint: pyflame explain "
           "train.py --epochs 1");
  PythonCommand c("explain", "pyflame._explain", s.python);
  if (!s.out.empty()) c.add("--out", s.out);
  if (!s.html.empty()) c.add("--html", s.html);
  if (!s.json.empty()) c.add("--json", s.json);
  if (!s.kernels.empty()) c.add("--kernels", s.kernels);
  if (s.no_times) c.add("--no-times");
  if (s.measure) c.add("--measure");
  if (!s.module.empty()) c.add("--module", s.module);
  c.add_program(program);
  c.start();
}

}  // namespace

void add_explain(CLI::App& app, Run& run) {
  CLI::App* cmd = app.add_subcommand("explain", "Run a Python program, and say how it was computed and why");
  auto s = std::make_shared<ExplainSettings>();
  cmd->footer(
      "FILE.py and its arguments follow the options. The text says first what costs most, where windows were cut and "
      "why, where fusion ends and what it costs, and "
      "what "
      "ran on a fallback. Then each program follows, the most expensive one first.");
  takes_program(cmd);
  cmd->add_option("-m,--module", s->module, "Run this module as a program, as python -m does");
  cmd->add_option(
      "--out", s->out,
      "Write the whole text to this file; default: to standard output behind what the program wrote, without "
      "steps if they are many");
  cmd->add_option("--html", s->html, "Also write a page to this file");
  cmd->add_option("--json", s->json, "Also write the document that both are made of to this file");
  cmd->add_option("--kernels", s->kernels,
                  "Also write the source and the code object of every GPU kernel that the program uses to this folder");
  cmd->add_flag("--no-times", s->no_times, "Do not measure the steps");
  cmd->add_flag("--measure", s->measure, "Measure the device's ceilings again");
  cmd->add_option(
      "--python", s->python,
      "The Python interpreter that has the package; default: PYFLAME_PYTHON, or the one beside this program");
  cmd->final_callback([&run, s, cmd] { run = [s, program = program_of(cmd)] { return explain(*s, program); }; });
}

}  // namespace pyflame::apps::cli
