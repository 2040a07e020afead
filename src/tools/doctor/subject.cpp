// Reads a file of settings or a Python program as the facts that the doctor checks.
#include "tools/doctor/subject.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "pyflame/base/error.h"
#include "tools/base/text.h"
#include "tools/doctor/lint.h"
#include "tools/doctor/shell_env.h"
#include "tools/system/facts.h"

namespace pyflame::tools::doctor {

namespace {

using Json = nlohmann::json;
constexpr size_t kMostRepeats = 100;

// Variables that the file sets several times, to different values, where one run reaches both.
Json repeats_of(const SettingsFile& file) {
  Json out = Json::array();
  std::map<std::string, std::vector<const Assignment*>> all;
  for (const Assignment& a : file.assignments)
    if (!a.unset && system::audited_variable(a.name) && all[a.name].size() < kMostRepeats) all[a.name].push_back(&a);
  // A=$A:more goes on with what was there.
  const auto grows = [](const std::string& from, const std::string& to) {
    return to.find(from) != to.npos && to.find_first_of(": ,;") != to.npos;
  };
  const auto differ = [&](const Assignment& a, const Assignment& b) {
    return a.value != b.value && !grows(a.value, b.value) && !grows(b.value, a.value) && same_place(a, b);
  };
  for (const auto& [name, list] : all) {
    std::vector<const Assignment*> clash;
    for (const auto* a : list)
      if (std::any_of(list.begin(), list.end(), [&](const auto* b) { return differ(*a, *b); })) clash.push_back(a);
    std::string lines;
    for (const auto* a : clash) lines += (lines.empty() ? "lines " : ", ") + std::to_string(a->line);
    if (!clash.empty()) out.push_back({{"name", name}, {"lines", lines}});
  }
  return out;
}

// Words with which people say why a setting is there, apart from hopes for speed, which the doctor judges itself.
bool gives_reason(std::string_view text) {
  static constexpr std::array<std::string_view, 41> kWords = {
      "because",      "workaround", "work around", "work-around", "avoid",   "bug",       "issue",
      "hang",         "deadlock",   "crash",       "segfault",    "fail",    "fault",     "error",
      "broken",       "corrupt",    "require",     "needed",      "needs",   "necessary", "must",
      "otherwise",    "prevent",    "stabil",      "unstable",    "flaky",   "debug",     "diagnos",
      "troubleshoot", "verbose",    "trace",       "profil",      "logging", "compar",    "baseline",
      "measure",      "experiment", "ablation",    "single",      "://",     "temporar"};
  const std::string low = lower(text);
  return std::any_of(kWords.begin(), kWords.end(), [&](std::string_view w) { return low.find(w) != low.npos; });
}

// A program for tests: what it switches on for finding faults is not left over. Folders further up may be the user's own.
bool is_test(const std::string& path) {
  const std::string low = lower(path);
  const std::vector<std::string_view> parts = split(low, '/');
  const std::string_view name = parts.back(), folder = parts.size() > 1 ? parts[parts.size() - 2] : "";
  return folder == "tests" || folder == "test" || name.starts_with("test");
}

// Variables to which the file gives different values, for one command each or in a guide: it compares them.
std::set<std::string> compared(const SettingsFile& file) {
  std::map<std::string, std::string> first;
  std::set<std::string> out;
  for (const Assignment& a : file.assignments)
    if ((file.guide || a.one_command) && !a.unset && first.emplace(a.name, a.value).first->second != a.value)
      out.insert(a.name);
  return out;
}

std::string where(const std::string& path, int line) { return fmt::format("{}:{}", path, line); }

// One of the environments that the file makes, as the facts that depend on it.
Json environment_facts(Json& facts, const SettingsFile& file, const Settings& settings, const std::string& path) {
  system::Environment environment;
  const std::set<std::string> in_comparison = compared(file);
  Json lines = Json::object(), reasons = Json::object(), temporary = Json::array(), mentioned = Json::array();
  for (const auto& [name, a] : settings) {
    environment.emplace(name, a.value);
    lines[name] = where(path, a.line);
    if (gives_reason(a.reason)) reasons[name] = a.reason;
    if (file.guide || a.one_command || is_test(path) ||
        std::any_of(a.path.begin(), a.path.end(), [](const Branch& b) { return !b.scope; }))
      temporary.push_back(name);
    if (a.mentioned || ((file.guide || a.one_command) && in_comparison.count(name))) mentioned.push_back(name);
  }
  system::set_environment(facts, environment);
  if (!facts["gpus"].empty() && facts["gpus"][0].contains("assumed")) {
    // How many GPUs there are is not known, so no list of indices is wrong.
    facts["visible"] = {{"steps", Json::array()}, {"gpus", Json::array()}};
    for (size_t i = 0; i < facts["gpus"].size(); ++i) facts["visible"]["gpus"].push_back(i);
  }
  return {{"env", facts["env"]},
          {"env_lines", std::move(lines)},
          {"visible", facts["visible"]},
          {"gpus", facts["gpus"]},
          {"env_reasons", std::move(reasons)},
          {"env_at_times", std::move(temporary)},
          {"env_mentioned", std::move(mentioned)}};
}

// Text has no zero bytes. UTF-16 has one in every second place.
void check_text(std::string_view text, const std::string& path) {
  const bool utf16 = text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff");
  const bool binary = text.find('\0') != std::string_view::npos;
  PF_CHECK(!utf16 && !binary, Value, "doctor: '{}' is not a file of settings; got {}; expected text in UTF-8{}", path,
           utf16 ? "text in UTF-16" : "a binary file", utf16 ? "; hint: iconv -f utf-16 -t utf-8" : "");
}

}  // namespace

Json facts_of_settings(const system::Host& host, std::string_view text, const std::string& path, const Target& wanted) {
  check_text(text, path);
  const SettingsFile file = read_settings(text, path);
  system::CollectOptions collect;
  collect.environment.emplace();
  collect.environment_source = path;
  for (const auto& [name, a] : file.environment) {
    collect.environment->emplace(name, a.value);
    collect.environment_lines[name] = where(path, a.line);
  }
  Json facts = system::collect(host, collect);
  Target target = target_of(text, path);
  // A file for the GPU that this machine has is judged on this machine.
  if (std::any_of(facts["gpus"].begin(), facts["gpus"].end(),
                  [&](const Json& gpu) { return gpu["gfx"] == target.gfx; }))
    target.gfx.clear();
  if (!wanted.gfx.empty()) target.gfx = wanted.gfx;
  if (!wanted.rocm.empty()) target.rocm = wanted.rocm;
  if (!wanted.workload.empty()) target.workload = wanted.workload;
  aim_at(facts, target);
  if (!target.workload.empty()) facts["workload"] = target.workload;
  facts["target"] = {{"gfx", target.gfx}, {"rocm", target.rocm}, {"workload", target.workload}};
  facts["program"] = {{"pytorch", uses_pytorch(text)},
                      {"unified_memory", uses_unified_memory(text, path)},
                      {"one_gpu", uses_one_gpu(text, path)}};
  facts["wheels"] = wheels_of(text);
  facts["env_reads"] = file.reads;
  facts["env_programs"] = facts["lint"] = Json::array();
  for (const Started& p : file.programs) {
    if (!p.lost) facts["env_programs"].push_back({{"name", p.name}, {"where", where(path, p.line)}});
    else
      facts["lint"].push_back({{"id", "LINT-13"},
                               {"what", fmt::format("'{}' follows export, so it is never started.", p.name)},
                               {"fix", "Leave out the word export, or put the program on a line of its own."},
                               {"where", where(path, p.line)}});
  }
  facts["env_repeats"] = repeats_of(file);
  for (const std::string& p : file.problems) facts["failed_probes"].push_back({{"probe", path}, {"why", p}});
  const Json env = facts["env"], visible = facts["visible"];
  Json worlds = Json::array();
  for (const Settings& settings :
       alternatives(file, [](std::string_view name) { return system::audited_variable(std::string(name)); }))
    worlds.push_back(environment_facts(facts, file, settings, path));
  facts["env"] = env;
  facts["visible"] = visible;
  facts["alternatives"] = std::move(worlds);
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

}  // namespace pyflame::tools::doctor
