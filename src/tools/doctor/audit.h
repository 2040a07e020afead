// The doctor's result: facts and rules become one document ("pyflame.doctor/1", docs/doctor.md). All printed text,
// pages and scripts are made from it.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "tools/doctor/rules.h"
#include "tools/system/host.h"

namespace pyflame::tools::doctor {

struct AuditOptions {
  // The environment in the facts comes from a file of settings. Only the settings of the file are checked: neither the machine, nor variables that the file does not set.
  bool settings_only = false;
  std::string workload;                // "training", "inference", "multi-gpu", "benchmark", or empty
  const system::Host* host = nullptr;  // the machine on which folders that settings name are looked up
};

// `facts` is the result of collect(), or any part of it. Missing facts are unknown, and no rule reports them. In
// addition to collect()'s keys, these are read: "env_programs" [{name, where}], "env_repeats" [{name, lines}] and
// "lint" [{id, what, fix, where}]; and of a file with several environments, "alternatives": for each the facts that it has instead (env,
// env_lines, visible, gpus, env_reasons {variable: text}, env_at_times and env_mentioned [variable]).
nlohmann::json audit(nlohmann::json facts, const AuditOptions& options = {}, const RuleBase& base = rules());

// 0, or 3, 4, 5 if the worst finding is MED, HIGH, CRIT.
int exit_code(const nlohmann::json& document);

}  // namespace pyflame::tools::doctor
