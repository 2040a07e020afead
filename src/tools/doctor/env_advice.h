// `pyflame env`: recommended exports for an architecture and a kind of work, from the "recommend" entries of the rule
// base.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "tools/doctor/rules.h"

namespace pyflame::tools::doctor {

struct AdviceFor {
  std::string gfx;       // "gfx942"
  std::string workload;  // "training", "inference", "multi-gpu", or empty
  std::string rocm;      // "6.3"; empty: a current release. Settings that are defaults of the release are left out
};

// {"schema": "pyflame.env/1", "gfx", "family", "workload", "rocm", "exports": [{"name", "value", "why", "source"}]}.
// `facts` (may be null) describe the machine on which the settings will be used. Throws Error (Value) for an
// unknown architecture.
nlohmann::json env_advice(const AdviceFor& wanted, const nlohmann::json& facts, const RuleBase& base = rules());
std::string env_text(const nlohmann::json& advice);

}  // namespace pyflame::tools::doctor
