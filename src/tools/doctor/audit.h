// The doctor's verdict: facts and rules → one document ("pyflame.doctor/1", docs/doctor.md). Everything that is printed, shown or
// scripted comes from it.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "tools/doctor/rules.h"
#include "tools/system/host.h"

namespace pyflame::tools::doctor {

struct AuditOptions {
  // The environment in the facts is that of a file of settings: only what the file sets is judged, not the machine and not what the
  // file leaves unset.
  bool settings_only = false;
  std::string workload;                // "training", "inference", "multi-gpu", "benchmark", or empty
  const system::Host* host = nullptr;  // where folders named by settings are looked into
};

// `facts` as collect() gives them, or any part of them: what is missing is unknown, and no rule speaks about it. Beside collect()'s
// keys these are read: "env_programs" [{name, where}], "env_repeats" [{name, lines}] and "lint" [{id, detail, mend, where}].
nlohmann::json audit(nlohmann::json facts, const AuditOptions& options = {}, const RuleBase& base = rules());

// 0, or 3, 4, 5 for a worst finding of MED, HIGH, CRIT.
int exit_code(const nlohmann::json& document);

}  // namespace pyflame::tools::doctor
