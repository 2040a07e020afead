// Derived values that conditions need: counts, comparisons, lists of what is missing. They are added to the facts as
// "probe"; the rules use them.
#pragma once
#include <nlohmann/json_fwd.hpp>

#include "tools/doctor/rules.h"
#include "tools/system/host.h"

namespace pyflame::tools::doctor {

// Folders that settings name are looked up on `host`, if it is given. If a probe fails, its part is left out and
// facts["failed_probes"] says so.
nlohmann::json probe(nlohmann::json& facts, const system::Host* host, const RuleBase& base);

}  // namespace pyflame::tools::doctor
