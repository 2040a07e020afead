// Rules over traces of pf.profiler. Their steps are steps of PyFlame's programs on the host, and the fixes are about PyFlame.
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
      .why = "A GPU works asynchronously. Its times are recorded only on request.",
      .fixes = {"Record with pf.profiler.profile(device_times=True). The host then waits after each kernel."},
      .source = kOwn},
     [](const Facts& f) -> std::string {
       if (!f.device_is("launches of")) return "";
       return "The steps show how the host launched kernels on a GPU. This trace does not have the times of the "
              "kernels.";
     }},
    {{.id = "data-loading",
      .severity = Severity::high,
      .title = "No step runs while data is loaded",
      .why = "A batch is prepared while steps could already run on it.",
      .fixes = {"Prepare batches in workers: DataLoader(num_workers=2, persistent_workers=True)."},
      .source = kOwn},
     [](const Facts& f) -> std::string {
       if (f.gap("data_loading") < 0.03) return "";
       return fmt::format("No step runs while data is loaded, for {} of the time.", percent(f.gap("data_loading")));
     }},
    {{.id = "planning",
      .severity = Severity::med,
      .title = "New windows are compiled",
      .why =
          "A window is compiled once and then found in the cache. After the first steps there should be no new ones.",
      .fixes = {"Record after a warm-up: profile(schedule=pf.profiler.schedule(wait=1, warmup=2, active=5)).",
                "If new windows keep coming, shapes change from step to step: pad them to a few sizes."},
      .source = kOwn},
     [](const Facts& f) -> std::string {
       if (f.gap("compilation") < 0.03) return "";
       return fmt::format("New windows are compiled for {} of the time ({:.0f} times).", percent(f.gap("compilation")),
                          f.gap("compilation", "count"));
     }},
    {{.id = "recording",
      .severity = Severity::med,
      .title = "Python and the recording of ops take much of the time",
      .why = "Nothing is computed while Python runs. This matters if steps are short.",
      .fixes = {"Use larger batches, so that each step has more work.",
                "Read values (item(), numpy(), print, if) rarely, so that windows become longer."},
      .source = kOwn},
     [](const Facts& f) -> std::string {
       if (f.gap("recording") < 0.2) return "";
       return fmt::format("Python and the recording of ops take {} of the time; steps last {} on average.",
                          percent(f.gap("recording")), microseconds(f.signal("mean_kernel_us")));
     }},
    {{.id = "allocation",
      .severity = Severity::low,
      .title = "Memory is allocated during the steps",
      .why = "Freed memory is kept for the next window. After the first steps there should be few new allocations.",
      .fixes = {"Record after a warm-up, and do not call pf.empty_cache() in the loop."},
      .source = kOwn},
     [](const Facts& f) -> std::string {
       if (f.gap("allocation") < 0.03) return "";
       return fmt::format("Memory is requested from the system for {} of the time.", percent(f.gap("allocation")));
     }},
    {{.id = "unsteady-steps",
      .severity = Severity::info,
      .title = "The steps differ",
      .why = "Averages then describe no step. The first steps compile and allocate.",
      .fixes = {"Select similar steps with --steps FIRST:LAST, and inspect the longest one alone."},
      .source = kOwn},
     [](const Facts& f) -> std::string {
       const json& s = f.d["time"]["steps"];
       if (!s.is_object() || s["count"] < 3 || s["spread"] < 0.5) return "";
       return fmt::format("The shortest and the longest step differ by {} of the median, which is {}.",
                          percent(s["spread"].get<double>()), microseconds(s["median_us"].get<double>()));
     }},
};

}  // namespace

std::span<const TraceRule> own_rules() { return kOwnRules; }

}  // namespace pyflame::tools::profile
