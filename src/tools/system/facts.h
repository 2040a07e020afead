// The facts of a machine as one JSON document (schema in docs/doctor.md): GPUs, driver, software, settings, links and why there is no
// GPU. Read from files alone: no GPU library is loaded, no program is run, nothing needs root. Each probe is guarded: what one cannot
// read is in "failed_probes" and the rest stands.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "tools/system/host.h"

namespace pyflame::tools::system {

struct CollectOptions {
  std::optional<int64_t> pid;  // settings of this process instead of one's own
  std::optional<Environment>
      environment;  // this environment instead (of a script); software is still looked for with one's own
  std::string environment_source;                        // with `environment`: how the report calls it, "train.sh"
  std::map<std::string, std::string> environment_lines;  // with `environment`: "train.sh:12" of each variable
};

nlohmann::json collect(const Host& host, const CollectOptions& options = {});

// The part of it that decides whether the kernel offers a GPU to this process. Milliseconds: a few files per GPU.
nlohmann::json device_facts(const Host& host);

}  // namespace pyflame::tools::system
