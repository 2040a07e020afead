// The part of a report on hardware counters, as text and as HTML. Both show what counters.h computed.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "tools/view/html.h"
#include "tools/view/text.h"

namespace pyflame::tools::profile {

// `counters` is the document's part of this name; empty if it is null.
std::string counters_text(const nlohmann::json& counters, const view::Style& style);
view::Html counters_html(const nlohmann::json& counters);
// One value: "12.3 %", "1.5 MiB", "812.0"; "-" if it is null.
std::string metric_text(const nlohmann::json& value, const std::string& unit);

}  // namespace pyflame::tools::profile
