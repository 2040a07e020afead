// `pyflame info`: what a bug report needs.
#include <fmt/core.h>
#include <unistd.h>

#include <climits>
#include <nlohmann/json.hpp>

#include "apps/help.h"
#include "commands.h"
#include "output.h"
#include "pyflame/base/env.h"
#include "pyflame/base/threads.h"
#include "pyflame/runtime/device.h"
#include "pyflame/runtime/libraries.h"
#include "pyflame/version.h"

namespace pyflame::apps::cli {

namespace {

using Ordered = nlohmann::ordered_json;

Ordered describe_device(DeviceType type, const char* name) {
  Ordered d = {{"name", name}, {"available", device_available(type)}};
  if (!device_available(type)) {
    d["reason"] = unavailable_reason(type);
    return d;
  }
  d["count"] = device_count(type);
  const DeviceInfo info = device_info({type, 0});
  d["description"] = info.name;
  d["architecture"] = info.architecture;
  d["total_memory"] = info.total_memory;
  d["compute_units"] = info.compute_units;
  for (const auto& [key, value] : info.extra) d[key] = value;
  return d;
}

Ordered collect() {
  Ordered j;
  j["version"] = PYFLAME_VERSION;
  j["build_type"] = build_type();
  j["compiler"] = compiler();
  j["threads"] = num_threads();
  j["devices"] = {describe_device(DeviceType::cpu, "cpu"), describe_device(DeviceType::rocm, "rocm"),
                  describe_device(DeviceType::cuda, "cuda")};
  for (const auto& [name, version] : library_versions()) j["libraries"][name] = version;
  j["cache_dir"] = env::cache_dir();
  return j;
}

void print_text(const Ordered& j) {
  // Lines of any length where a program reads them.
  const int width = isatty(STDOUT_FILENO) != 0 ? help_width() : INT_MAX;
  const auto line = [width](const std::string& key, const std::string& value) {
    print(wrap_help(fmt::format("{:<12} {}\n", key, value), width));
  };
  line("pyflame", fmt::format("{} ({}, {})", j["version"].get<std::string>(), j["build_type"].get<std::string>(),
                              j["compiler"].get<std::string>()));
  line("threads", std::to_string(j["threads"].get<int>()));
  for (const Ordered& d : j["devices"]) {
    if (d["available"].get<bool>()) {
      line(d["name"], fmt::format("{}, {}, {} compute units, {:.1f} GiB", d["description"].get<std::string>(),
                                  d["architecture"].get<std::string>(), d["compute_units"].get<int64_t>(),
                                  static_cast<double>(d["total_memory"].get<uint64_t>()) / (1 << 30)));
    } else {
      line(d["name"], "not available: " + d["reason"].get<std::string>());
    }
  }
  for (const auto& [name, version] : j["libraries"].items()) line(name, version.get<std::string>());
  line("cache", j["cache_dir"].get<std::string>());
}

}  // namespace

void add_info(CLI::App& app, Run& run) {
  CLI::App* sub = app.add_subcommand("info", "Show versions, devices, libraries and paths");
  auto as_json = std::make_shared<bool>(false);
  sub->add_flag("--json", *as_json, "Print one JSON object");
  sub->callback([&run, as_json] {
    run = [as_json] {
      const Ordered j = collect();
      if (*as_json) fmt::print("{}\n", j.dump(2));
      else print_text(j);
      return kOk;
    };
  });
}

}  // namespace pyflame::apps::cli
