// Derives values from the facts. Facts may come from a recorded folder of unknown origin, so their types are not trusted.
#include "tools/doctor/probes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <functional>
#include <nlohmann/json.hpp>

#include "pyflame/base/env.h"
#include "tools/base/text.h"
#include "tools/system/probes.h"

namespace pyflame::tools::doctor {

namespace {

using Json = nlohmann::json;

const Json& at(const Json& j, std::string_view path) {
  static const Json kNone;
  Scope scope;
  scope.facts = &j;
  const Json* found = scope.find(path);
  return found ? *found : kNone;
}
const Json& list(const Json& j, std::string_view path) {
  static const Json kEmpty = Json::array();
  const Json& found = at(j, path);
  return found.is_array() ? found : kEmpty;
}
std::string fact_text(const Json& j, std::string_view path) {
  const Json& found = at(j, path);
  return found.is_string() ? found.get<std::string>() : "";
}
bool is_true(const Json& j, std::string_view path) {
  const Json& found = at(j, path);
  return found.is_boolean() && found.get<bool>();
}
bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

// The GPUs that the program sees, in its order.
Json visible_gpus(const Json& facts) {
  const Json &gpus = list(facts, "gpus"), &seen = at(facts, "visible.gpus");
  if (!seen.is_array()) return gpus;
  Json out = Json::array();
  for (const Json& i : seen)
    if (i.is_number_unsigned() || (i.is_number_integer() && i.get<int64_t>() >= 0))
      if (const size_t n = i.get<size_t>(); n < gpus.size()) out.push_back(gpus[n]);
  return out;
}

void visibility(const Json& facts, Json& out) {
  const Json& gpus = list(facts, "gpus");
  out["visible"] = visible_gpus(facts);
  out["visible_count"] = out["visible"].size();
  out["discrete"] = std::count_if(gpus.begin(), gpus.end(), [](const Json& g) { return !is_true(g, "integrated"); });
  out["filters"] = Json::array();
  for (const char* name : {"ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"})
    if (!fact_text(facts, std::string("env.") + name).empty()) out["filters"].push_back(name);
  std::string chain;
  for (const Json& step : list(facts, "visible.steps")) {
    if (!chain.empty()) chain += ", then ";
    chain += fmt::format("{}={} leaves {} of {} GPUs", fact_text(step, "variable"), fact_text(step, "value"),
                         list(step, "after").size(), list(step, "before").size());
    if (const std::string note = fact_text(step, "note"); !note.empty()) chain += " (" + note + ")";
  }
  out["chain"] = chain;
  out["all_hidden"] = !gpus.empty() && out["visible"].empty() && !chain.empty();
}

// An integrated GPU that is visible next to discrete ones, and the list of indices without it. Indices count the GPUs that ROCr has left, as HIP's do.
void integrated(const Json& facts, Json& out) {
  const Json visible = visible_gpus(facts);
  std::vector<int64_t> base;
  for (size_t i = 0; i < list(facts, "gpus").size(); ++i) base.push_back(static_cast<int64_t>(i));
  for (const Json& step : list(facts, "visible.steps"))
    if (fact_text(step, "variable") == "ROCR_VISIBLE_DEVICES") base = list(step, "after").get<std::vector<int64_t>>();
  std::string names, others;
  for (const Json& gpu : visible) {
    if (is_true(gpu, "integrated")) {
      names += fmt::format("{}GPU {} ({}, {})", names.empty() ? "" : ", ", at(gpu, "index").dump(),
                           fact_text(gpu, "name"), fact_text(gpu, "gfx"));
    } else {
      const auto it = std::find_if(base.begin(), base.end(), [&](int64_t i) { return at(gpu, "index") == i; });
      if (it != base.end()) others += (others.empty() ? "" : ",") + std::to_string(it - base.begin());
    }
  }
  out["integrated_device"] = {
      {"beside_discrete", !names.empty() && !others.empty()},
      {"text", names + " is integrated and visible beside " + (contains(others, ",") ? "cards" : "a card")},
      {"others", others}};
}

void allocator(const Json& facts, Json& out) {
  out["alloc_conf"] = Json::array();
  for (const char* name : {"PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"}) {
    std::string value = fact_text(facts, std::string("env.") + name);
    if (value.empty()) continue;
    std::erase_if(value, [](char c) { return c == ' '; });
    value = lower(value);
    out["alloc_conf"].push_back({{"name", name},
                                 {"expandable", contains(value, "expandable_segments:true")},
                                 {"split", contains(value, "max_split_size_mb:")}});
  }
}

// The HIP runtimes that a program may load, and whether their version is known exactly. PyTorch names the version of its own runtime by two numbers only.
void runtimes(const Json& facts, Json& out) {
  const std::string system = fact_text(facts, "rocm.version");
  out["runtimes"] = out["bundles"] = Json::array();
  if (!system.empty()) out["runtimes"].push_back({{"where", "the system"}, {"version", system}, {"exact", true}});
  for (const Json& f : list(facts, "frameworks")) {
    const std::string version = fact_text(f, "version"), name = fact_text(f, "name");
    if (!is_true(f, "bundled_rocm")) continue;
    std::string rocm;
    if (const size_t plus = version.find("+rocm"); plus != std::string::npos) rocm = version.substr(plus + 5);
    else if (contains(name, "rocm")) rocm = version;
    else rocm = fact_text(f, "hip");
    if (rocm.empty()) continue;
    // "7.2.53211" is a build of HIP, whose third number is not that of ROCm.
    const auto dots = std::count(rocm.begin(), rocm.end(), '.');
    const bool exact = dots >= 2 && rocm.size() - rocm.rfind('.') <= 3;
    out["runtimes"].push_back({{"where", name + " " + version}, {"version", rocm}, {"exact", exact}});
    if (system.empty()) continue;
    const auto two = [](const std::string& v) { return v.substr(0, v.find('.', v.find('.') + 1)); };
    out["bundles"].push_back({{"name", name + " " + version},
                              {"bundled", rocm},
                              {"system", system},
                              {"same", compare_versions(two(rocm), two(system)) == 0}});
  }
}

void driver_gap(const Json& facts, Json& out) {
  static constexpr const char* kReleases[] = {"5.5", "5.6", "5.7", "6.0", "6.1", "6.2",
                                              "6.3", "6.4", "7.0", "7.1", "7.2"};
  const std::string driver = fact_text(facts, "driver.version"), rocm = fact_text(facts, "rocm.version");
  if (driver.empty() || rocm.empty()) return;
  const std::string of_driver = system::rocm_of_driver(driver);
  const auto place = [&](const std::string& version) {
    int n = -1;
    for (const char* release : kReleases)
      if (compare_versions(version, release) >= 0) ++n;
    return n;
  };
  if (of_driver.empty() || place(rocm) < 0 || place(of_driver) < 0) return;
  out["driver_gap"] = {{"driver_rocm", of_driver}, {"releases", std::abs(place(rocm) - place(of_driver))}};
}

void machine(const Json& facts, Json& out) {
  out["slow_governors"] = Json::array();
  if (const Json& governors = at(facts, "host.governors"); governors.is_object())
    for (const auto& [name, count] : governors.items())
      if (name != "performance") out["slow_governors"].push_back(name);
  out["hot"] = Json::array();
  for (const Json& gpu : list(facts, "gpus"))
    for (const Json& t : list(gpu, "temperatures")) {
      const Json &c = at(t, "c"), &limit = at(t, "limit_c");
      if (c.is_number() && limit.is_number() && limit.get<double>() > 20 && c.get<double>() >= limit.get<double>() - 10)
        out["hot"].push_back(
            {{"gpu", at(gpu, "index")}, {"label", fact_text(t, "label")}, {"c", c}, {"limit_c", limit}});
    }
}

// The architectures of visible GPUs that are not in a list of shipped architectures. A GPU with an override is looked up under the architecture that it appears as.
Json lacking(const Json& gpus, const Json& shipped) {
  Json out = Json::array();
  for (const Json& gpu : gpus) {
    const std::string as = fact_text(gpu, "override.gfx"), gfx = as.empty() ? fact_text(gpu, "gfx") : as;
    if (gfx.empty()) continue;
    const bool there = std::any_of(shipped.begin(), shipped.end(), [&](const Json& s) {
      return s.is_string() && s.get_ref<const std::string&>().starts_with(gfx);
    });
    if (!there && std::find(out.begin(), out.end(), Json(gfx)) == out.end()) out.push_back(gfx);
  }
  return out;
}

void libraries(const Json& facts, const system::Host* host, Json& out) {
  // An integrated GPU next to a discrete one should not be used (ENV-08), so it needs no kernels.
  Json visible = visible_gpus(facts);
  if (std::any_of(visible.begin(), visible.end(), [](const Json& g) { return !is_true(g, "integrated"); }))
    visible.erase(
        std::remove_if(visible.begin(), visible.end(), [](const Json& g) { return is_true(g, "integrated"); }),
        visible.end());
  out["rocblas_lacks"] = lacking(visible, list(facts, "rocm.rocblas_archs"));
  out["miopen_lacks"] = lacking(visible, list(facts, "rocm.miopen_db"));
  const std::string folder = fact_text(facts, "env.ROCBLAS_TENSILE_LIBPATH");
  if (!host || folder.empty()) return;
  const std::vector<std::string> names = host->list(folder);
  out["tensile"] = {{"missing_folder", names.empty()}, {"lacks", Json::array()}};
  if (names.empty()) return;
  for (const Json& gpu : visible) {
    const std::string gfx = fact_text(gpu, "gfx");
    if (!gfx.empty() &&
        std::none_of(names.begin(), names.end(), [&](const std::string& n) { return contains(n, gfx); }))
      out["tensile"]["lacks"].push_back(gfx);
  }
}

// Variables that no known component reads, each with the name that was probably meant.
void unknown_names(const Json& facts, const RuleBase& base, Json& out) {
  out["unknown"] = Json::array();
  const Json& environment = at(facts, "env");
  if (!environment.is_object()) return;
  const Json& own = list(facts, "env_reads");
  std::vector<std::string> all(base.known.begin(), base.known.end());
  for (const Rule& r : base.rules)
    for (const Variable& v : r.variables) all.push_back(v.name);
  for (const env::Variable& v : env::table()) all.push_back(v.name);
  for (const auto& [name, value] : environment.items()) {
    const auto begins = [&, n = name](const std::string& p) { return n.starts_with(p); };
    // A script that uses a variable itself needs no component that reads it.
    if (std::find(own.begin(), own.end(), name) != own.end()) continue;
    if (base.knows(name) || std::none_of(base.prefixes.begin(), base.prefixes.end(), begins)) continue;
    if (out["unknown"].size() >= 100) break;
    const std::string* best = meant(name, all, name.size() < 10 ? 1 : 2);
    out["unknown"].push_back({{"name", name}, {"meant", best ? Json(*best) : Json()}});
  }
}

void programs(const Json& facts, Json& out) {
  out["old_profilers"] = Json::array();
  const auto old = [&](std::string name, const std::string& where) {
    name = name.substr(name.rfind('/') + 1);
    static constexpr std::array kOld = {"rocprof", "rocprofv2", "roctracer", "omniperf", "omnitrace"};
    if (std::find(kOld.begin(), kOld.end(), name) != kOld.end())
      out["old_profilers"].push_back({{"name", name}, {"where", where}});
  };
  for (const Json& p : list(facts, "env_programs")) old(fact_text(p, "name"), fact_text(p, "where"));
  const std::string tool = fact_text(facts, "env.HSA_TOOLS_LIB");
  for (const auto& [part, name] : {std::pair{"librocprofiler64", "rocprof"}, {"libroctracer", "roctracer"}})
    if (contains(tool, part)) old(name, "HSA_TOOLS_LIB=" + tool);
  out["repeats"] = list(facts, "env_repeats");
  out["wheels"] = list(facts, "wheels");
}

}  // namespace

Json probe(Json& facts, const system::Host* host, const RuleBase& base) {
  Json out = Json::object();
  const auto guarded = [&](const char* name, const std::function<void()>& run) {
    try {
      run();
    } catch (const std::exception& e) {
      facts["failed_probes"].push_back({{"probe", name}, {"why", e.what()}});
    }
  };
  guarded("visibility", [&] { visibility(facts, out); });
  guarded("integrated GPU", [&] { integrated(facts, out); });
  guarded("allocator", [&] { allocator(facts, out); });
  guarded("runtimes", [&] { runtimes(facts, out); });
  guarded("driver", [&] { driver_gap(facts, out); });
  guarded("machine", [&] { machine(facts, out); });
  guarded("libraries", [&] { libraries(facts, host, out); });
  guarded("names", [&] { unknown_names(facts, base, out); });
  guarded("programs", [&] { programs(facts, out); });
  return out;
}

}  // namespace pyflame::tools::doctor
