// `pyflame profile`: runs a Python program and reports where its time goes. Python does it (python/pyflame/profiler), because the program runs there.
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <string>

#include "commands.h"
#include "pyflame/base/error.h"
#include "python_command.h"

namespace pyflame::apps::cli {

namespace {

struct ProfileSettings {
  std::string out, module, python, json;
  int skip = 10, steps = 20, keep = 0;
  double seconds = 60;
  bool no_stacks = false;
};

int profile(const ProfileSettings& s, const std::vector<std::string>& program) {
  PF_CHECK(!program.empty() || !s.module.empty(), Value,
           "profile: there is no program; got no file and no -m; expected FILE.py, or -m MODULE; hint: pyflame profile "
           "train.py --epochs 1");
  PF_CHECK(
      s.keep == 0 || s.out.empty(), Value,
      "profile: --keep has nothing to delete beside --out; got both; expected one of them; hint: --out writes every "
      "run into one folder");
  PythonCommand c("profile", "pyflame.profiler", s.python);
  if (!s.out.empty()) c.add("--out", s.out);
  if (s.keep > 0) c.add("--keep", std::to_string(s.keep));
  c.add("--skip", std::to_string(s.skip));
  c.add("--steps", std::to_string(s.steps));
  c.add("--seconds", fmt::format("{}", s.seconds));
  if (s.no_stacks) c.add("--no-stacks");
  if (!s.json.empty()) c.add("--json", s.json);
  std::error_code ignored;
  c.add("--pyflame", std::filesystem::read_symlink("/proc/self/exe", ignored).string());
  if (!s.module.empty()) c.add("--module", s.module);
  c.add_program(program);
  c.start();
}

}  // namespace

void add_profile(CLI::App& app, Run& run) {
  CLI::App* cmd = app.add_subcommand("profile", "Run a Python program, and report where its time goes");
  auto s = std::make_shared<ProfileSettings>();
  cmd->footer("FILE.py and its arguments follow the options.");
  takes_program(cmd);
  cmd->add_option("-m,--module", s->module, "Run this module as a program, as python -m does");
  cmd->add_option("--out", s->out, "The folder for the trace and the report; default: profile-PROGRAM-TIME");
  cmd->add_option(
         "--keep", s->keep,
         "When there is a report, delete the oldest folders of profiles in the current directory until this number "
         "remains, this run's included. A folder that holds anything else stays")
      ->check(kAboveZero);
  cmd->add_option("--skip", s->skip,
                  "Steps that are not recorded, because they compile, allocate and try a GPU graph. A step ends with "
                  "an optimizer's step; "
                  "a program without an optimizer is recorded from its start")
      ->capture_default_str()
      ->check(kAtLeastZero);
  cmd->add_option("--steps", s->steps, "Steps to record; the program then goes on without a recording; 0: to its end")
      ->capture_default_str()
      ->check(kAtLeastZero);
  cmd->add_option("--seconds", s->seconds, "The longest time to record")->capture_default_str()->check(kAboveZero);
  cmd->add_flag("--no-stacks", s->no_stacks, "Do not sample the Python stacks");
  cmd->add_option("--json", s->json,
                  "Also write the report into this file, as one JSON document; standard output belongs to the program")
      ->type_name("FILE");
  cmd->add_option(
      "--python", s->python,
      "The Python interpreter that has the package; default: PYFLAME_PYTHON, or the one beside this program");
  cmd->final_callback([&run, s, cmd] { run = [s, program = program_of(cmd)] { return profile(*s, program); }; });
}

}  // namespace pyflame::apps::cli
