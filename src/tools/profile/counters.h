// What hardware counters say about kernels: the metrics that AMD defines over them, such as the share of L2 accesses that hit.
// The definitions are those of rocprofiler-sdk's counter_defs.yaml.
#pragma once
#include <nlohmann/json_fwd.hpp>

#include "tools/profile/analyse.h"

namespace pyflame::tools::profile {

// {"metrics": [{"id", "title", "unit", "definition"}], "kernels": [{"name", "calls", "mean_us", "metrics", "counters"}],
// "kernel_names", "missing": [{"id", "title", "collect"}], "why_not"}; null if the profile has no counters. Metrics are
// fractions of 1, bytes, or GB/s, and means of the calls. The kernels that take most come first.
nlohmann::json counters_json(const Trace& trace, const Analysis& analysis, int top);

}  // namespace pyflame::tools::profile
