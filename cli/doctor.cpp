// `pyflame doctor`: the audit of this machine, of a process, of a file of settings, of a recorded machine, or of a Python program.
#include <fmt/core.h>
#include <unistd.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "output.h"
#include "python_command.h"
#include "tools/doctor/audit.h"
#include "tools/doctor/page.h"
#include "tools/doctor/shell_env.h"
#include "tools/doctor/subject.h"
#include "tools/doctor/text.h"
#include "tools/system/facts.h"

namespace pyflame::apps::cli {

namespace {

using Json = nlohmann::json;

struct Options {
  bool json = false, fix = false, verbose = false, topology = false, comm = false;
  std::string nproc = "gpu", python;
  std::string html, env_file, root, record, only = "info", workload, lint_file, arch, rocm;
  int64_t pid = 0;
};

Json examine(const Options& o, const tools::system::Host& host) {
  tools::doctor::AuditOptions audit;
  // Folders that the settings name are looked up on a real machine only: a recording need not contain them.
  if (o.root.empty()) audit.host = &host;
  audit.workload = o.workload;
  audit.settings_only = !o.env_file.empty() || !o.lint_file.empty();
  if (!o.lint_file.empty()) return tools::doctor::audit(tools::doctor::facts_of_program(host, o.lint_file), audit);
  if (!o.env_file.empty()) {
    const std::string text = read_text_file("doctor", o.env_file, tools::doctor::kSettingsLimit);
    return tools::doctor::audit(tools::doctor::facts_of_settings(host, text, o.env_file, {o.arch, o.rocm, o.workload}),
                                audit);
  }
  tools::system::CollectOptions collect;
  if (o.pid) collect.pid = o.pid;
  return tools::doctor::audit(tools::system::collect(host, collect), audit);
}

// One process for each GPU; python/pyflame/distributed/check.py checks the paths between them.
int check_paths(const Options& o) {
  PythonCommand c("doctor", "pyflame.distributed.check", o.python);
  c.add("--launch", o.nproc);
  if (o.json) c.add("--json");
  c.start();
}

int run_doctor(const Options& o) {
  if (o.comm) return check_paths(o);
  const auto host = o.root.empty() ? tools::system::this_machine() : tools::system::recorded(o.root);
  if (!o.record.empty()) {
    const int64_t files = tools::system::record(*host, o.record, o.pid ? std::optional(o.pid) : std::nullopt);
    fmt::print("{} files were written to {}; 'pyflame doctor --root {}' shows what is in them\n", files, o.record,
               o.record);
    return kOk;
  }
  const Json document = examine(o, *host);
  const tools::view::Style style = tools::view::Style::of(STDOUT_FILENO);
  if (!o.html.empty()) write_page("doctor", o.html, tools::doctor::html_page(document));
  if (o.json) {
    print_json(document);
  } else if (o.fix) {
    print(tools::doctor::fix_script(document));
  } else if (o.topology) {
    const std::string text = tools::doctor::topology_text(document["facts"], style);
    print(text.empty() ? "There is no AMD GPU.\n" : text);
  } else {
    print(tools::doctor::report_text(document, style, {o.verbose, *tools::severity_of(o.only)}));
  }
  // A program that could not be parsed, or a process that does not exist, has no findings. Exit code 0 would say that all is well.
  const int code = tools::doctor::exit_code(document);
  const bool unread = o.env_file.empty() && document["unread"].is_string();
  return unread && code == kOk ? kFailure : code;
}

}  // namespace

void add_doctor(CLI::App& app, Run& run) {
  CLI::App* cmd = app.add_subcommand(
      "doctor", "Find what is wrong with this machine's GPUs, drivers and settings, and how to fix it");
  cmd->footer(
      "Exit code: 3, 4 or 5 if the worst finding is MED, HIGH or CRIT; 1 if a program or the settings of a process "
      "could not be read; 0 otherwise.");
  auto o = std::make_shared<Options>();
  cmd->add_flag("--json", o->json, "Print one JSON document");
  cmd->add_option("--html", o->html, "Also write a page with charts into this file")->type_name("FILE");
  cmd->add_flag("--fix", o->fix, "Print a shell script that fixes what was found; the doctor itself changes nothing");
  cmd->add_option("--only", o->only, "Show only findings of this severity or above: crit, high, med, low or info")
      ->check(CLI::IsMember({"crit", "high", "med", "low", "info"}, CLI::ignore_case));
  cmd->add_flag("-v,--verbose", o->verbose, "Show findings of the level INFO in full, and the values of the settings");
  cmd->add_flag("--topology", o->topology, "Show only how the GPUs are linked");
  CLI::Option* comm = cmd->add_flag(
      "--comm", o->comm,
      "Check the paths between the GPUs: each two send each other numbers, and all add numbers whose sum is known; "
      "latency and bandwidth of each path, and whether that is what it should give. Exit code 1 if anything came "
      "otherwise. Without a GPU two processes on the CPU do so");
  cmd->add_option("--nproc", o->nproc, "With --comm: this many processes on the CPU, instead of one for each GPU")
      ->needs(comm)
      ->type_name("N");
  cmd->add_option("--python", o->python, "With --comm: the Python interpreter that has PyFlame")
      ->needs(comm)
      ->type_name("FILE");
  cmd->add_option("--workload", o->workload, "What the GPU will do; some advice depends on it")
      ->check(CLI::IsMember({"training", "inference", "multi-gpu", "benchmark"}));
  CLI::Option* env =
      cmd->add_option("--env", o->env_file,
                      "Check the settings in a shell script, .env file, Dockerfile, systemd unit or guide")
          ->type_name("FILE");
  cmd->add_option(
         "--arch", o->arch,
         "With --env: the GPU that the file is for, such as gfx942; default: what the file says, or this machine's")
      ->type_name("GFX")
      ->needs(env);
  cmd->add_option("--rocm", o->rocm,
                  "With --env: the release of ROCm, such as 6.3; default: what the file says, or this machine's")
      ->type_name("VERSION")
      ->needs(env);
  cmd->add_option("--pid", o->pid, "Check the settings of this process instead of those of the shell")
      ->check(kAboveZero)
      ->excludes(env);
  cmd->add_option("--root", o->root, "Check a machine that was recorded with --record, instead of this one")
      ->type_name("DIR");
  cmd->add_option("--record", o->record,
                  "Record what the doctor reads on this machine in this folder, so that it can be sent")
      ->type_name("DIR");
  CLI::App* lint =
      cmd->add_subcommand("lint", "Find settings and code in a PyTorch program that cost speed or correctness");
  lint->add_option("file", o->lint_file, "A Python file; it is parsed, not run")->required()->type_name("FILE.py");
  lint->add_flag("--json", o->json, "Print one JSON document");
  lint->fallthrough();
  cmd->final_callback([&run, o] { run = [o] { return run_doctor(*o); }; });
}

}  // namespace pyflame::apps::cli
