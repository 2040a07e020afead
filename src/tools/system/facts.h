// The facts of a machine as one JSON document (schema in docs/doctor.md): GPUs, driver, software, settings, links, and
// why there is no GPU. They are read from files only: no GPU library is loaded, no program is run, and root is not
// needed. If a probe fails, its name is in "failed_probes", and the other facts are still there.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "tools/system/host.h"

namespace pyflame::tools::system {

struct CollectOptions {
  std::optional<int64_t> pid;  // the settings of this process instead of one's own
  std::optional<Environment>
      environment;  // this environment instead (of a script); software is still looked for with one's own
  std::string environment_source;                        // with `environment`: its name in the report, "train.sh"
  std::map<std::string, std::string> environment_lines;  // with `environment`: "train.sh:12" of each variable
};

nlohmann::json collect(const Host& host, const CollectOptions& options = {});
// Makes the facts those of a process with this environment: "env", "visible", and the override of each GPU.
void set_environment(nlohmann::json& facts, const Environment& environment);

// The part of the facts that decides whether the kernel offers a GPU to this process. Takes milliseconds: a few files
// per GPU.
nlohmann::json device_facts(const Host& host);

}  // namespace pyflame::tools::system
