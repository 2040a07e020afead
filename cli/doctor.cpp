// `pyflame doctor`: the audit of this machine, of a process, of a file of settings, of a recorded machine, or of a Python program.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "pyflame/base/error.h"
#include "pyflame/doctor/audit.h"
#include "pyflame/doctor/lint.h"
#include "pyflame/doctor/shell_env.h"
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

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string text(doctor::kSettingsLimit, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  PF_CHECK(in.is_open() && !in.bad() && (in.gcount() > 0 || in.eof()), OS, "doctor: '{}' cannot be read", path);
  text.resize(static_cast<size_t>(in.gcount()));
  return text;
}

// The facts of the machine with the settings of a file in place of the shell's.
Json facts_of_file(const system::Host& host, const std::string& path) {
  const doctor::SettingsFile file = doctor::read_settings(read_file(path), path);
  const auto where = [&](int line) { return fmt::format("{}:{}", path, line); };
  system::CollectOptions collect;
  collect.environment.emplace();
  collect.environment_source = path;
  for (const auto& [name, a] : file.environment) {
    collect.environment->emplace(name, a.value);
    collect.environment_lines[name] = where(a.line);
  }
  Json facts = system::collect(host, collect);
  facts["env_programs"] = facts["env_repeats"] = facts["lint"] = Json::array();
  for (const doctor::Started& p : file.programs) {
    if (!p.lost) facts["env_programs"].push_back({{"name", p.name}, {"where", where(p.line)}});
    else
      facts["lint"].push_back({{"id", "LINT-13"},
                               {"detail", fmt::format("'{}' stands behind export and is never started.", p.name)},
                               {"mend", "Leave out the word export, or put the program on a line of its own."},
                               {"where", where(p.line)}});
  }
  std::map<std::string, std::vector<const doctor::Assignment*>> all;
  for (const doctor::Assignment& a : file.assignments)
    if (system::audited_variable(a.name)) all[a.name].push_back(&a);
  for (const auto& [name, list] : all) {
    if (std::all_of(list.begin(), list.end(), [first = list[0]](const auto* a) { return a->value == first->value; }))
      continue;
    std::string lines;
    for (const auto* a : list) lines += (lines.empty() ? "lines " : ", ") + std::to_string(a->line);
    facts["env_repeats"].push_back({{"name", name}, {"lines", lines}});
  }
  for (const std::string& p : file.problems) facts["failed_probes"].push_back({{"probe", path}, {"why", p}});
  return facts;
}

Json facts_of_program(const system::Host& host, const std::string& path) {
  const Json lint = doctor::lint(path);
  system::CollectOptions collect;
  collect.environment = lint["env"].get<system::Environment>();
  collect.environment_source = path;
  collect.environment_lines = lint["env_lines"].get<std::map<std::string, std::string>>();
  Json facts = system::collect(host, collect);
  facts["lint"] = lint["lint"];
  for (const Json& p : lint["failed_probes"]) facts["failed_probes"].push_back(p);
  return facts;
}

Json examine(const Options& o, const system::Host& host) {
  doctor::AuditOptions audit;
  // A recorded machine has the folders that its own settings name only if they were recorded.
  if (o.root.empty()) audit.host = &host;
  audit.workload = o.workload;
  audit.settings_only = !o.env_file.empty() || !o.lint_file.empty();
  if (!o.lint_file.empty()) return doctor::audit(facts_of_program(host, o.lint_file), audit);
  if (!o.env_file.empty()) return doctor::audit(facts_of_file(host, o.env_file), audit);
  system::CollectOptions collect;
  if (o.pid) collect.pid = o.pid;
  return doctor::audit(system::collect(host, collect), audit);
}

int run_doctor(const Options& o) {
  const auto host = o.root.empty() ? system::this_machine() : system::recorded(o.root);
  if (!o.record.empty()) {
    const int64_t files = system::record(*host, o.record, o.pid ? std::optional(o.pid) : std::nullopt);
    fmt::print("{} files were written to {}; 'pyflame doctor --root {}' shows what is in them\n", files, o.record,
               o.record);
    return kOk;
  }
  const Json document = examine(o, *host);
  const view::Style style = view::Style::of(STDOUT_FILENO);
  if (!o.html.empty()) write_file_atomically("doctor", o.html, view::doctor_page(document));
  if (o.json) {
    fmt::print("{}\n", document.dump(2, ' ', false, Json::error_handler_t::replace));
  } else if (o.fix) {
    fmt::print("{}", doctor::fix_script(document));
  } else if (o.topology) {
    const std::string text = doctor::topology_text(document["facts"], style);
    fmt::print("{}", text.empty() ? "There is no AMD GPU.\n" : text);
  } else {
    fmt::print("{}", doctor::report_text(document, style, {o.verbose, *doctor::severity_of(o.only)}));
    if (!o.html.empty()) fmt::print("The page was written to {}.\n", o.html);
  }
  // A program that could not be parsed and a process that is not there have no findings, which must not pass for being sound.
  const int code = doctor::exit_code(document);
  const bool unread = o.env_file.empty() && document["unread"].is_string();
  return unread && code == kOk ? kFailure : code;
}

}  // namespace

void add_doctor(CLI::App& app, Run& run) {
  CLI::App* cmd =
      app.add_subcommand("doctor", "What is wrong with this machine's GPUs, drivers and settings, and what mends it");
  cmd->footer(
      "Exit code: 0 nothing above LOW, 3 at worst MED, 4 HIGH, 5 CRIT; 1 when a program or the settings of a process "
      "could not be read.");
  auto o = std::make_shared<Options>();
  cmd->add_flag("--json", o->json, "As one JSON document");
  cmd->add_option("--html", o->html, "Also write a page with pictures into this file")->type_name("FILE");
  cmd->add_flag("--fix", o->fix, "Print a shell script that mends what was found; nothing is changed");
  cmd->add_option("--only", o->only, "Leave out what is less severe: crit, high, med, low or info")
      ->check(CLI::IsMember({"crit", "high", "med", "low", "info"}, CLI::ignore_case));
  cmd->add_flag("--verbose", o->verbose, "Findings of the level INFO in full");
  cmd->add_flag("--topology", o->topology, "Only how the GPUs are linked");
  cmd->add_option("--workload", o->workload, "What the GPU will do; some advice depends on it")
      ->check(CLI::IsMember({"training", "inference", "multi-gpu", "benchmark"}));
  CLI::Option* env =
      cmd->add_option("--env", o->env_file,
                      "Judge the settings in a shell script, .env file, Dockerfile, systemd unit or guide")
          ->type_name("FILE");
  cmd->add_option("--pid", o->pid, "The settings of this process instead of those of the shell")
      ->check(CLI::PositiveNumber)
      ->excludes(env);
  cmd->add_option("--root", o->root, "A machine recorded with --record, instead of this one")->type_name("DIR");
  cmd->add_option("--record", o->record, "Write what the doctor reads of this machine into this folder, to send it")
      ->type_name("DIR");
  CLI::App* lint = cmd->add_subcommand("lint", "A PyTorch program: settings and code that cost speed or correctness");
  lint->add_option("file", o->lint_file, "A Python file; it is parsed, not run")->required()->type_name("FILE.py");
  lint->fallthrough();
  cmd->final_callback([&run, o] { run = [o] { return run_doctor(*o); }; });
}

}  // namespace pyflame::cli
