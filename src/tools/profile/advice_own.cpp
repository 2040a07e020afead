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
      .fixes = {"Leave out activities=, or name ProfilerActivity.CUDA there: any GPU is called CUDA."},
      .source = kOwn},
     [](const Facts& f) -> std::string {
       if (!f.device_is("launches of")) return "";
       return "The steps show how the host launched kernels on a GPU. This trace does not have the times of the "
              "kernels.";
     }},
    {{.id = "launch-bound",
      .severity = Severity::high,
      .title = "The device waits for launches",
      .why = "The host launches kernels one after the other, and each is shorter than its launch.",
      .fixes = {"Keep shapes constant: a program that ran some times is replayed as one graph. pf.explain(fn) says why "
                "one is not.",
                "Use larger batches, so that each kernel has more work."},
      .source = kOwn},
     [](const Facts& f) -> std::string {
       if (f.gap("launching") < 0.2) return "";
       return fmt::format("The device waits for launches for {} of the time; kernels last {} on average.",
                          percent(f.gap("launching")), microseconds(f.signal("mean_kernel_us")));
     },
     [](const Facts& f) -> double { return f.gap("launching"); }},
    {{.id = "reads-values",
      .severity = Severity::med,
      .title = "The host waits for values, and the device then waits for the host",
      .why = "Reading a value (item(), numpy(), print, if) waits until the device has computed it. Nothing is queued "
             "meanwhile.",
      .fixes = {"Read values rarely: keep the loss as a tensor, and read it every hundred steps."},
      .source = kOwn},
     [](const Facts& f) -> std::string {
       const double waits = f.gap("synchronise") + f.gap("copy_to_host");
       if (waits < 0.1) return "";
       return fmt::format("The device is idle for {} of the time after the host waited for it.", percent(waits));
     },
     [](const Facts& f) -> double { return f.gap("synchronise") + f.gap("copy_to_host"); }},
    {{.id = "host-code",
      .severity = Severity::high,
      .title = "Other code runs while the device is idle",
      .why = "The program computes on the host, reads files or sleeps between steps.",
      .fixes = {"Move this code out of the step, into a loader's workers or another thread.",
                for_stacks("Record with with_stack=True, or with pyflame profile without --no-stacks, to see which "
                           "function it is.")},
      .source = kOwn},
     [](const Facts& f) -> std::string {
       if (f.gap("host_code") + f.gap("unknown") < 0.1) return "";
       const std::string where = f.in("host_code");
       return fmt::format("Other code runs for {} of the time while the device is idle{}.",
                          percent(f.gap("host_code") + f.gap("unknown")), where.empty() ? "" : ", in " + where);
     },
     [](const Facts& f) -> double { return f.gap("host_code") + f.gap("unknown"); }},
    {{.id = "no-processor",
      .severity = Severity::med,
      .title = "No processor was free for the program",
      .why = "The program's thread could have run, but other programs, or other threads of this one, had all "
             "processors. Nothing in its code is the reason, and other times of this profile may be too long, too.",
      .fixes =
          {"Measure again when no other program runs; top shows which do.",
           "Use fewer threads in all: pf.set_num_threads, num_workers of a DataLoader, processes on this machine."},
      .source = kOwn},
     [](const Facts& f) -> std::string {
       if (f.gap("no_processor") < 0.05) return "";
       return fmt::format("In {} of the time no step ran, and no processor was free for the program's thread.",
                          percent(f.gap("no_processor")));
     },
     [](const Facts& f) -> double { return f.gap("no_processor"); }},
    {{.id = "data-loading",
      .severity = Severity::high,
      .title = "No step runs while data is loaded",
      .why = "A batch is prepared while steps could already run on it.",
      .fixes =
          {"Where an item takes long (files, images): DataLoader(num_workers=2, persistent_workers=True), made once.",
           "Where items are tensors in memory, workers cost more than they save: use larger batches."},
      .source = kOwn},
     [](const Facts& f) -> std::string {
       if (f.gap("data_loading") < 0.03) return "";
       return fmt::format("No step runs while data is loaded, for {} of the time.", percent(f.gap("data_loading")));
     },
     [](const Facts& f) -> double { return f.gap("data_loading"); }},
    {{.id = "fallbacks",
      .severity = Severity::med,
      .title = "Ops ran slower, or elsewhere, than asked",
      .why = "No better implementation took them. The counts and times are those of the whole process.",
      .fixes = {"pf.fallbacks() lists all of them, and pf.explain(fn) shows which step each one is.",
                "Use another dtype, layout or op where the reason names one."},
      .source = kOwn},
     [](const Facts& f) -> std::string {
       const json& all = f.d["fallbacks"];
       if (all.empty()) return "";
       std::string text = all.size() == 1 ? "One op fell back: " : fmt::format("{} kinds of fallback: ", all.size());
       for (size_t k = 0; k < all.size() && k < 3; ++k)
         text += fmt::format("{}{}", k ? "; " : "", all[k].get<std::string>());
       return text + ".";
     }},
    {{.id = "planning",
      .severity = Severity::med,
      .title = "New windows are compiled",
      .why =
          "A window is compiled once and then found in the cache. After the first steps there should be no new ones.",
      .fixes =
          {"Record after a warm-up: profile(schedule=pf.profiler.schedule(wait=1, warmup=2, active=5)).",
           "If new windows keep coming, shapes change from step to step: pad them to a few sizes.",
           "Slices of one tensor that sometimes start at the same place are new windows, too, if the window writes "
           "the tensor: copy them (clone())."},
      .source = kOwn},
     [](const Facts& f) -> std::string {
       if (f.gap("compilation") < 0.03 || f.after_warm_up("compilation")) return "";
       return fmt::format("New windows are compiled for {} of the time ({:.0f} times).", percent(f.gap("compilation")),
                          f.gap("compilation", "count"));
     },
     [](const Facts& f) -> double { return f.gap("compilation"); }},
    {{.id = "new-windows",
      .severity = Severity::med,
      .title = "New windows are compiled after the warm-up, too",
      .why =
          "A window is compiled once and then found in the cache. A step that records other ops or other shapes than "
          "the steps before has windows of its own.",
      .fixes = {"Pad what changes from step to step, such as the length of texts, to a few sizes.",
                "PYFLAME_DEBUG=4 prints the steps of each new program: compare two of them."},
      .source = kOwn},
     [](const Facts& f) -> std::string {
       if (f.gap("compilation") < 0.03 || !f.after_warm_up("compilation")) return "";
       return fmt::format(
           "New windows are compiled for {} of the time ({:.0f} times), though a warm-up had run before.",
           percent(f.gap("compilation")), f.gap("compilation", "count"));
     },
     [](const Facts& f) -> double { return f.gap("compilation"); }},
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
     },
     [](const Facts& f) -> double { return f.gap("recording"); }},
    {{.id = "slow-products",
      .severity = Severity::med,
      .title = "Matrix products are far below what the device can do",
      .why = "Products of 16-bit values are fast if each row of the operands begins at a multiple of 16 bytes, so if "
             "the sizes are multiples of 8. Small "
             "ones do not fill the device.",
      .fixes = {"See which sizes they are: prof.key_averages(group_by_input_shape=True).",
                "Pad odd sizes to a multiple of 8 or more, such as a vocabulary of 50257 to 50304.",
                "Try a lower precision where 32 bits are not needed."},
      .source = kOwn},
     [](const Facts& f) -> std::string {
       const double of_peak = f.signal("gemm_of_peak");
       if (f.share("GEMM") < 0.2 || of_peak <= 0 || of_peak > 0.4) return "";
       return fmt::format("Matrix products take {} of the time and reach {} of the roofline.", percent(f.share("GEMM")),
                          percent(of_peak));
     },
     [](const Facts& f) -> double { return f.share("GEMM") * (1 - f.signal("gemm_of_peak")); }},
    {{.id = "allocation",
      .severity = Severity::low,
      .title = "Memory is allocated during the steps",
      .why = "Freed memory is kept for the next window. After the first steps there should be few new allocations.",
      .fixes = {"Record after a warm-up, and do not call pf.empty_cache() in the loop."},
      .source = kOwn},
     [](const Facts& f) -> std::string {
       if (f.gap("allocation") < 0.03) return "";
       return fmt::format("Memory is requested from the system for {} of the time.", percent(f.gap("allocation")));
     },
     [](const Facts& f) -> double { return f.gap("allocation"); }},
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
