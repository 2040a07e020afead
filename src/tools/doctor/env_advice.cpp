// Selects and prints the exports of `pyflame env`.
#include "tools/doctor/env_advice.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "pyflame/base/error.h"
#include "pyflame/base/gpu_arch.h"
#include "tools/doctor/text.h"
#include "tools/system/text.h"
#include "tools/view/text.h"

namespace pyflame::tools::doctor {

namespace {

using Json = nlohmann::json;
// The release for which settings are recommended if none is named.
constexpr const char* kCurrentRocm = "7.2";

}  // namespace

Json env_advice(const AdviceFor& wanted, const Json& facts, const RuleBase& base) {
  const GpuArch* arch = find_gpu_arch(wanted.gfx);
  if (!arch || !arch->amd) {
    std::string meant;  // the name of a product: MI300X, "RX 7900 XT"
    for (const GpuProduct& product : gpu_products())
      if (meant.empty() && wanted.gfx.size() > 3 && product.name.starts_with("AMD") &&
          product.name.ends_with(wanted.gfx))
        meant = fmt::format("; {} is {}", product.name, product.gfx);
    PF_FAIL(Value, "env: unknown architecture; got '{}'; expected for example gfx942, gfx1100 or gfx1201{}",
            view::clean(wanted.gfx, 60), meant);
  }
  PF_CHECK(wanted.rocm.empty() || system::parse_version(wanted.rocm), Value,
           "env: this is not a release of ROCm; got '{}'; expected for example 6.3", view::clean(wanted.rocm, 60));
  Json context = {{"gfx", std::string(arch->gfx)},
                  {"rocm", {{"version", wanted.rocm.empty() ? kCurrentRocm : wanted.rocm}}}};
  if (!wanted.workload.empty()) context["workload"] = wanted.workload;
  if (facts.is_object() && facts.contains("host")) context["host"] = facts["host"];
  Scope scope;
  scope.facts = &context;
  Json exports = Json::array();
  for (const Recommendation& r : base.recommend) {
    if (r.when.test(scope) != Truth::yes) continue;
    // A value that a rule calls the default is never recommended.
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
    // A value that contains a variable is not quoted, so that the shell expands it.
    const std::string written = value.find('$') == std::string::npos ? shell_quote(value) : "\"" + value + "\"";
    out += "\n" + shell_comment(e["why"].get<std::string>()) +
           shell_comment("Source: " + e["source"].get<std::string>()) +
           fmt::format("export {}={}\n", e["name"].get<std::string>(), written);
  }
  if (advice["exports"].empty()) out += "# Nothing to set: the defaults are right.\n";
  return out;
}

}  // namespace pyflame::tools::doctor
