// Rules over traces of PyTorch on the CPU, whose work is the operators.
#include <fmt/format.h>

#include "tools/profile/advice.h"
#include "tools/view/text.h"

namespace pyflame::tools::profile {

namespace {

using view::percent;

constexpr const char* kTuning = "PyTorch's performance tuning guide";
const TraceRule kHostRules[] = {
    {{.id = "data-loading",
      .severity = Severity::high,
      .title = "The program waits for its data loader",
      .why = "No operator runs while a batch is made.",
      .fixes = {"Use more workers (num_workers) and keep them (persistent_workers=True).",
                "Do work that is the same in each epoch once."},
      .source = kTuning},
     [](const Facts& f) -> std::string {
       if (f.gap("data_loading") < 0.03) return "";
       return fmt::format("The program waits for its data loader for {} of the time.", percent(f.gap("data_loading")));
     },
     [](const Facts& f) { return f.gap("data_loading"); }},
    {{.id = "host-code",
      .severity = Severity::high,
      .title = "Other code runs between the operators",
      .why = "The program computes in Python, reads files or sleeps; the operators wait.",
      .fixes = {for_stacks("Record once with with_stack=True to see which function it is."),
                "Move this code out of the step, into workers or another thread, or write it with operators."}},
     [](const Facts& f) -> std::string {
       if (f.gap("host_code") < 0.1) return "";
       const std::string in = f.in("host_code");
       return fmt::format("Other code runs for {} of the time, for more than 1 ms at a time{}.",
                          percent(f.gap("host_code")), in.empty() ? "" : ", in " + in);
     },
     [](const Facts& f) { return f.gap("host_code"); }},
    {{.id = "small-operators",
      .severity = Severity::med,
      .title = "Much time passes between operators",
      .why = "Python, dispatch and autograd take some microseconds for each operator, however small it is.",
      .fixes = {"Use larger batches, so that each operator has more work.",
                "Fuse operators: torch.compile(model), and fused optimizers (fused=True).",
                "For inference use torch.inference_mode()."},
      .source = kTuning},
     [](const Facts& f) -> std::string {
       const double share = f.gap("overhead") + f.gap("between");
       if (share < 0.3) return "";
       return fmt::format("{} of the time is Python, dispatch and autograd; operators last {} on average.",
                          percent(share), view::microseconds(f.signal("mean_kernel_us")));
     },
     [](const Facts& f) { return f.gap("overhead") + f.gap("between"); }},
    {{.id = "products-on-the-cpu",
      .severity = Severity::low,
      .title = "Matrix products and convolutions take most of the time",
      .why = "Their speed depends on the number of threads and on the type: processors with AMX or AVX512-BF16 compute "
             "bfloat16 several times as fast as float32.",
      .fixes =
          {"Compare numbers of threads: torch.set_num_threads, at most one for each core.",
           "Try torch.autocast(\"cpu\", dtype=torch.bfloat16) if the processor has amx_bf16 or avx512_bf16 (lscpu).",
           "For convolutions try memory_format=torch.channels_last."},
      .source = kTuning},
     [](const Facts& f) -> std::string {
       const double share = f.share("GEMM") + f.share("convolution") + f.share("attention");
       return share < 0.4 ? "" : fmt::format("They take {} of the time.", percent(share));
     },
     [](const Facts& f) { return f.share("GEMM") + f.share("convolution") + f.share("attention"); }},
    {{.id = "no-device",
      .severity = Severity::info,
      .title = "The trace has no work of a GPU",
      .why = "If the program uses a GPU, the operators' times here are those of their launches.",
      .fixes =
          {"Record with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA] (ROCm is called CUDA there), or with "
           "rocprofv3 --sys-trace, if the program uses a GPU."}},
     [](const Facts&) -> std::string { return "The report is of the CPU's operators."; }},
};

}  // namespace

std::span<const TraceRule> host_rules() { return kHostRules; }

}  // namespace pyflame::tools::profile
