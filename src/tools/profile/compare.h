// Two runs side by side: where the time of the second differs from that of the first.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "tools/view/text.h"

namespace pyflame::tools::profile {

// "pyflame.report.diff/1" from two documents of a report: {"before", "after": {"inputs", "device", "us", "steps",
// "spread"}, "per": "step" or "run", "time": [{"name", "before_us", "after_us", "change_us"}], "kernels": [the same, with
// "before_calls", "after_calls"], "metrics": [{"kernel", "title", "unit", "before", "after"}], "gone", "new": ids of
// advice, "verdict"}. Times are those of a step if both runs have steps. The largest changes come first; at most `top`
// rows of a list.
nlohmann::json compare_reports(const nlohmann::json& before, const nlohmann::json& after, int top);

std::string comparison_text(const nlohmann::json& comparison, const view::Style& style);
std::string comparison_page(const nlohmann::json& comparison);

}  // namespace pyflame::tools::profile
