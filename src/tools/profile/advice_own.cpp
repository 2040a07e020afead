// Rules over traces of pf.profiler. Their steps are the steps of the host, and the remedies are PyFlame's.
#include <fmt/format.h>

#include "tools/profile/advice.h"
#include "tools/view/text.h"

namespace pyflame::tools::profile {

namespace {

using nlohmann::json;
using view::microseconds;
using view::percent;

constexpr const char* kOwn = "docs/profiling.md";
const TraceRule kOwnRules[] = {
    {{.id = "launches-only",
      .severity = Severity::info,
      .title = "The profile has launches only",
      .why = "A GPU works beside the host, and its times are not asked for unless you say so.",
      .fixes = {"Record with pf.profiler.profile(device_times=True): the host then waits after each kernel."},
      .source = kOwn},
     [](const Facts& f) -> std::string {
       if (!f.device_is("launches of")) return "";
       return "The steps are what the host did to launch kernels on a GPU; how long these ran is not in this trace.";
     }},
    {{.id = "data-loading",
      .severity = Severity::high,
      .title = "Nothing runs while data is loaded",
      .why = "A batch is prepared while steps could already run on it.",
      .fixes = {"Prepare batches in workers: DataLoader(num_workers=2, persistent_workers=True)."},
      .source = kOwn},
     [](const Facts& f) -> std::string {
       if (f.gap("data_loading") < 0.03) return "";
       return fmt::format("Nothing runs while data is loaded, in {} of the time.", percent(f.gap("data_loading")));
     }},
    {{.id = "planning",
      .severity = Severity::med,
      .title = "New windows are compiled",
      .why = "A window is planned once and then found in the cache: after the first steps there should be none.",
      .fixes = {"Record after a warm-up: profile(schedule=pf.profiler.schedule(wait=1, warmup=2, active=5)).",
                "Where it goes on: shapes that change with each step; pad them to a few sizes."},
      .source = kOwn},
     [](const Facts& f) -> std::string {
       if (f.gap("compilation") < 0.03) return "";
       return fmt::format("Windows that were new are planned in {} of the time ({:.0f} times).",
                          percent(f.gap("compilation")), f.gap("compilation", "count"));
     }},
    {{.id = "recording",
      .severity = Severity::med,
      .title = "Python and the recording of ops take much of the time",
      .why = "While Python runs nothing is computed; where steps are short it is what counts.",
      .fixes = {"Larger batches: each step then has more to do.",
                "Read values (item(), numpy(), print, if) once in many steps, so that windows become longer."},
      .source = kOwn},
     [](const Facts& f) -> std::string {
       if (f.gap("recording") < 0.2) return "";
       return fmt::format("Python and the recording of ops take {} of the time; steps last {} on average.",
                          percent(f.gap("recording")), microseconds(f.signal("mean_kernel_us")));
     }},
    {{.id = "allocation",
      .severity = Severity::low,
      .title = "Memory is allocated during the steps",
      .why = "Freed memory is kept for the next window: after the first steps there should be little of it.",
      .fixes = {"Record after a warm-up; do not call pf.empty_cache() in the loop."},
      .source = kOwn},
     [](const Facts& f) -> std::string {
       if (f.gap("allocation") < 0.03) return "";
       return fmt::format("Memory is asked of the system in {} of the time.", percent(f.gap("allocation")));
     }},
    {{.id = "unsteady-steps",
      .severity = Severity::info,
      .title = "The steps differ",
      .why = "Averages then describe no step; the first ones plan and allocate.",
      .fixes = {"Choose steady ones with --steps FIRST:LAST, and look at the longest one alone."},
      .source = kOwn},
     [](const Facts& f) -> std::string {
       const json& s = f.d["time"]["steps"];
       if (!s.is_object() || s["count"] < 3 || s["spread"] < 0.5) return "";
       return fmt::format("Steps differ: {} between the shortest and the longest, around a median of {}.",
                          percent(s["spread"].get<double>()), microseconds(s["median_us"].get<double>()));
     }},
};

}  // namespace

std::span<const TraceRule> own_rules() { return kOwnRules; }

}  // namespace pyflame::tools::profile
