// What conditions need and the facts do not say directly: counts, comparisons, lists of what is missing. The result is in the facts as
// "probe"; the rules judge it.
#pragma once
#include <nlohmann/json_fwd.hpp>

#include "tools/doctor/rules.h"
#include "tools/system/host.h"

namespace pyflame::tools::doctor {

// `host` is where folders named by settings are looked into; nullptr: nowhere. Each probe is guarded: one that fails leaves its part
// out and is told in facts["failed_probes"].
nlohmann::json probe(nlohmann::json& facts, const system::Host* host, const RuleBase& base);

// The number of single-character changes between two names, at most `limit` + 1.
int edit_distance(std::string_view a, std::string_view b, int limit);

}  // namespace pyflame::tools::doctor
