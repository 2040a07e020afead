// `pyflame doctor`: the audit of this machine, of a process, of a file of settings, of a recorded machine, or of a Python program.
#include <fmt/core.h>
#include <unistd.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "pyflame/base/error.h"
#include "pyflame/doctor/audit.h"
#include "pyflame/doctor/text.h"
#include "pyflame/io/atomic_file.h"
#include "pyflame/system/facts.h"
#include "pyflame/view/page.h"

namespace pyflame::cli {

namespace {

using Json = nlohmann::json;

struct Options {
  bool json = false, fix = false, verbose = false, topology = false;
  std::string html, env_file, root, record, only = "info", workload, lint_file;
  int64_t pid = 0;
};

std::unique_ptr<system::Host> host_of(const Options& o) {
  return o.root.empty() ? system::this_machine() : system::recorded(o.root);
}

int run_doctor(const Options& o) {
  const auto host = host_of(o);
  if (!o.record.empty()) {
    const int64_t files = system::record(*host, o.record, o.pid ? std::optional(o.pid) : std::nullopt);
    fmt::print("{} files were written to {}; pyflame doctor --root {} shows what is in them\n", files, o.record,
               o.record);
    return kOk;
  }
  system::CollectOptions collect;
  doctor::AuditOptions audit;
  audit.host = host.get();
  audit.workload = o.workload;
  if (o.pid) collect.pid = o.pid;
  const Json document = doctor::audit(system::collect(*host, collect), audit);
  const view::Style style = view::Style::of(STDOUT_FILENO);
  if (o.json) fmt::print("{}\n", document.dump(2));
  else if (o.fix) fmt::print("{}", doctor::fix_script(document));
  else if (o.topology) {
    const std::string text = doctor::topology_text(document["facts"], style);
    fmt::print("{}", text.empty() ? "no AMD GPU\n" : text);
  } else {
    fmt::print("{}", doctor::report_text(document, style, {o.verbose, *doctor::severity_of(o.only)}));
  }
  return doctor::exit_code(document);
}

}  // namespace

void add_doctor(CLI::App& app, Run& run) {
  CLI::App* cmd =
      app.add_subcommand("doctor", "What is wrong with this machine's GPUs, drivers and settings, and what mends it");
  auto o = std::make_shared<Options>();
  cmd->add_flag("--json", o->json, "As one JSON document");
  cmd->add_flag("--fix", o->fix, "Print a shell script that mends what was found; nothing is changed");
  cmd->add_flag("--verbose", o->verbose, "Findings of the level INFO in full");
  cmd->add_option("--pid", o->pid, "The settings of this process instead of those of the shell")
      ->check(CLI::PositiveNumber);
  cmd->add_option("--root", o->root, "A machine recorded with --record, instead of this one");
  cmd->add_option("--record", o->record, "Write what the doctor reads of this machine into this folder, to send it");
  cmd->add_flag("--topology", o->topology, "Only how the GPUs are linked");
  cmd->final_callback([&run, o] { run = [o] { return run_doctor(*o); }; });
}

}  // namespace pyflame::cli
