// See env_advice.h.
#include "pyflame/doctor/env_advice.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "pyflame/base/error.h"
#include "pyflame/base/gpu_arch.h"
#include "pyflame/view/text.h"

namespace pyflame::doctor {

namespace {

using Json = nlohmann::json;
// Advice that depends on the release is given for this one when none is named.
constexpr const char* kCurrentRocm = "7.2";

std::string comment_lines(const std::string& text) {
  std::string out = view::wrap(text, 110);
  while (!out.empty() && out.back() == '\n') out.pop_back();
  for (size_t p = 0; (p = out.find('\n', p)) != std::string::npos; p += 3) out.insert(p + 1, "# ");
  return "# " + out + "\n";
}

}  // namespace

Json env_advice(const AdviceFor& wanted, const Json& facts, const RuleBase& base) {
  const GpuArch* arch = find_gpu_arch(wanted.gfx);
  PF_CHECK(arch && arch->amd, Value,
           "env: the architecture '{}' is not known; expected one like gfx942, gfx1100 or gfx1201",
           view::clean(wanted.gfx, 60));
  Json context = {{"gfx", std::string(arch->gfx)},
                  {"rocm", {{"version", wanted.rocm.empty() ? kCurrentRocm : wanted.rocm}}}};
  if (!wanted.workload.empty()) context["workload"] = wanted.workload;
  if (facts.is_object() && facts.contains("host")) context["host"] = facts["host"];
  Scope scope;
  scope.facts = &context;
  Json exports = Json::array();
  for (const Recommendation& r : base.recommend) {
    if (r.when.test(scope) != Truth::yes) continue;
    // What a rule calls the default is never advised, whoever wrote the entry.
    const Rule* rule = base.of_variable(r.name);
    bool is_default = false;
    if (rule)
      for (const Variable& v : rule->variables)
        is_default |= v.is(r.name) && v.default_value && same_setting(*v.default_value, r.value);
    if (!is_default) exports.push_back({{"name", r.name}, {"value", r.value}, {"why", r.why}, {"source", r.source}});
  }
  return {{"schema", "pyflame.env/1"},
          {"gfx", std::string(arch->gfx)},
          {"family", std::string(arch->family)},
          {"workload", wanted.workload.empty() ? Json() : Json(wanted.workload)},
          {"rocm", wanted.rocm.empty() ? kCurrentRocm : wanted.rocm},
          {"rocm_assumed", wanted.rocm.empty()},
          {"exports", std::move(exports)}};
}

std::string env_text(const Json& advice) {
  const std::string workload = advice["workload"].is_string() ? ", " + advice["workload"].get<std::string>() : "";
  std::string out =
      fmt::format("# {} ({}){}, ROCm {}{}\n", advice["gfx"].get<std::string>(), advice["family"].get<std::string>(),
                  workload, view::clean(advice["rocm"].get<std::string>(), 40),
                  advice["rocm_assumed"].get<bool>() ? " (--rocm names another release)" : "");
  for (const Json& e : advice["exports"]) {
    const std::string value = e["value"].get<std::string>();
    // A value with a variable in it is meant to be expanded.
    const std::string written = value.find('$') == std::string::npos ? shell_quote(value) : "\"" + value + "\"";
    out += "\n" + comment_lines(e["why"].get<std::string>()) +
           comment_lines("Source: " + e["source"].get<std::string>()) +
           fmt::format("export {}={}\n", e["name"].get<std::string>(), written);
  }
  if (advice["exports"].empty()) out += "# Nothing to set: the defaults are right.\n";
  return out;
}

}  // namespace pyflame::doctor
