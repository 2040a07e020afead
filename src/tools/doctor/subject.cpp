// Reads a file of settings or a Python program as the facts that the doctor checks.
#include "tools/doctor/subject.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "tools/doctor/lint.h"
#include "tools/doctor/shell_env.h"
#include "tools/system/facts.h"

namespace pyflame::tools::doctor {

namespace {

using Json = nlohmann::json;

// Variables that the file sets several times, to different values.
Json repeats_of(const SettingsFile& file) {
  Json out = Json::array();
  std::map<std::string, std::vector<const Assignment*>> all;
  for (const Assignment& a : file.assignments)
    if (system::audited_variable(a.name)) all[a.name].push_back(&a);
  for (const auto& [name, list] : all) {
    if (std::all_of(list.begin(), list.end(), [first = list[0]](const auto* a) { return a->value == first->value; }))
      continue;
    std::string lines;
    for (const auto* a : list) lines += (lines.empty() ? "lines " : ", ") + std::to_string(a->line);
    out.push_back({{"name", name}, {"lines", lines}});
  }
  return out;
}

}  // namespace

Json facts_of_settings(const system::Host& host, std::string_view text, const std::string& path) {
  const SettingsFile file = read_settings(text, path);
  const auto where = [&](int line) { return fmt::format("{}:{}", path, line); };
  system::CollectOptions collect;
  collect.environment.emplace();
  collect.environment_source = path;
  for (const auto& [name, a] : file.environment) {
    collect.environment->emplace(name, a.value);
    collect.environment_lines[name] = where(a.line);
  }
  Json facts = system::collect(host, collect);
  facts["env_programs"] = facts["lint"] = Json::array();
  for (const Started& p : file.programs) {
    if (!p.lost) facts["env_programs"].push_back({{"name", p.name}, {"where", where(p.line)}});
    else
      facts["lint"].push_back({{"id", "LINT-13"},
                               {"what", fmt::format("'{}' follows export, so it is never started.", p.name)},
                               {"fix", "Leave out the word export, or put the program on a line of its own."},
                               {"where", where(p.line)}});
  }
  facts["env_repeats"] = repeats_of(file);
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

}  // namespace pyflame::tools::doctor
