// What to do next: rules over the document, each with its condition, reason and remedy as data. They follow the decision flow of the
// MI300X workload guide (find the bottleneck; GEMM: TunableOp; convolution: MIOpen; own kernels: Triton; several devices: RCCL) and
// the kernel-optimization skill's ladder (compile first, then the largest category), with what is known to be wrong in both left out.
#include <fmt/format.h>

#include "tools/profile/advice.h"
#include "tools/view/text.h"

namespace pyflame::tools::profile {

namespace {

using nlohmann::json;
using view::microseconds;
using view::percent;

constexpr const char* kGuide = "MI300X workload guide";
constexpr const char* kSkill = "kernel-optimization skill";

// The rules for all traces but our own. To add one, add an entry here, a row to docs/report.md and a case to
// tests/profile/test_report.py.
const TraceRule kRules[] = {
    {{.id = "data-loading",
      .severity = Severity::high,
      .title = "The device waits for the data loader",
      .why = "A batch is prepared while the device could already work on it.",
      .fixes = {"Prepare batches in workers ahead of time: DataLoader(num_workers=8, pin_memory=True, "
                "persistent_workers=True, prefetch_factor=4).",
                "Copy with .to(device, non_blocking=True), and move decoding and augmentation to the device where they "
                "dominate."},
      .source = "ROCm 6.3 reference (RX 7900)"},
     [](const Facts& f) -> std::string {
       if (f.gap("data_loading") < 0.03) return "";
       return fmt::format("The device waits for the data loader in {} of the time, {:.0f} times.",
                          percent(f.gap("data_loading")), f.gap("data_loading", "count"));
     }},
    {{.id = "compilation",
      .severity = Severity::high,
      .title = "Code is compiled or loaded",
      .why = "The first runs of a shape compile kernels, and libraries such as MIOpen search for them: that is not the "
             "steady state.",
      .fixes = {"Record after a warm-up of several steps (torch.profiler.schedule(wait=1, warmup=3, active=3)).",
                on_amd("Keep the caches between runs: MIOPEN_USER_DB_PATH on a local disk (a home on a network file "
                       "system is replaced by a temporary folder), and Triton's cache folder.")},
      .source = kSkill},
     [](const Facts& f) -> std::string {
       if (f.gap("compilation") < 0.03) return "";
       return fmt::format("Code is compiled or loaded in {} of the recorded time.", percent(f.gap("compilation")));
     }},
    {{.id = "launch-bound",
      .severity = Severity::high,
      .title = "The device waits for launches",
      .why = "Each kernel costs the CPU some microseconds to launch, whatever its size; many small ones leave the "
             "device empty between them.",
      .fixes =
          {"Fuse: torch.compile(model, mode=\"default\"), and mend graph breaks (TORCH_LOGS=graph_breaks) before "
           "anything else.",
           "Give each launch more work: larger batches, sequences packed together, fused optimizers (fused=True).",
           "Where it is compiled already: TORCHINDUCTOR_CPP_WRAPPER=1, or one graph for the whole step. ROCm 7.2.0 to "
           "7.2.3 on MI300X can corrupt results in graph replay: compare the outputs with eager ones first.",
           on_amd("On ROCm before 6.2 set HIP_FORCE_DEV_KERNARG=1 (2 to 3 us a kernel); later versions do it by "
                  "themselves.")},
      .command = "TORCH_LOGS=graph_breaks python your_script.py",
      .source = kSkill},
     [](const Facts& f) -> std::string {
       if (f.share("launch-bound") < 0.2 || f.flag("python_stacks")) return "";
       return fmt::format(
           "In {} of the step the device waits for the next launch; kernels last {} on average, {:.0f} of {:.0f} less "
           "than 10 us.",
           percent(f.share("launch-bound")), microseconds(f.signal("mean_kernel_us")), f.signal("under_10us"),
           f.signal("kernels"));
     }},
    {{.id = "profiler-overhead",
      .severity = Severity::info,
      .title = "The profiler slows the CPU down",
      .why = "The recorder's own work shows as gaps on the device.",
      .fixes = {"Record once more without with_stack and profile_memory before acting on gaps and launch overhead."},
      .source = kSkill},
     [](const Facts& f) -> std::string {
       if (!f.flag("python_stacks")) return "";
       return fmt::format(
           "The trace was recorded with Python stacks (with_stack=True), which slow the CPU down; {} of the step "
           "counts as launch-bound.",
           percent(f.share("launch-bound")));
     }},
    {{.id = "host-sync",
      .severity = Severity::med,
      .title = "The CPU waits for the device",
      .why = "After a synchronisation the queue is empty: the device idles until the CPU has launched again.",
      .fixes = {"Remove .item(), .cpu(), print(tensor), `if tensor` and boolean indexing from the step; log the loss "
                "each N steps.",
                "Copies from and to pageable memory wait as well: pin_memory=True in the DataLoader, and .to(device, "
                "non_blocking=True).",
                "Let copies to the host run beside: pinned memory and non_blocking=True, and read the value one step "
                "later."},
      .source = kGuide},
     [](const Facts& f) -> std::string {
       const double count = f.gap("copy_to_host", "count") + f.gap("synchronise", "count"),
                    part = f.gap("copy_to_host") + f.gap("synchronise");
       const bool each_step = f.steps() > 0 && count >= f.steps() && part >= 0.01;
       if (part < 0.05 && !each_step) return "";
       return fmt::format(
           "The CPU waited for the device {:.0f} times, and the device then had nothing to do for {} of the time.",
           count, percent(part));
     }},
    {{.id = "allocation",
      .severity = Severity::med,
      .title = "Device memory is allocated during the steps",
      .why = "Allocating and freeing device memory waits for the whole device.",
      .fixes =
          {"Warm the allocator up; keep shapes constant or padded to a few sizes.",
           "Do not call torch.cuda.empty_cache() in the loop: it returns memory that is asked for again at once.",
           "Do not combine expandable_segments:True with max_split_size_mb: live tensors were seen to read zeros."},
      .source = kGuide},
     [](const Facts& f) -> std::string {
       if (f.gap("allocation") < 0.02) return "";
       return fmt::format("Device memory is allocated or freed in {} of the time ({:.0f} gaps).",
                          percent(f.gap("allocation")), f.gap("allocation", "count"));
     }},
    {{.id = "naive-convolution",
      .severity = Severity::high,
      .title = "MIOpen's naive convolutions run",
      .why = "They are the reference that any shape falls back to, many times slower than the others; during a search "
             "they are timed as well.",
      .fixes = {"See whether they also run after the first step; if only there, it is MIOpen's search: warm up, and "
                "keep its database.",
                "Tune these shapes once: MIOPEN_FIND_ENFORCE=3 for one run (minutes to hours), then unset it; the "
                "result stays in MIOPEN_USER_DB_PATH.",
                "Try memory_format=torch.channels_last with PYTORCH_MIOPEN_SUGGEST_NHWC=1, and bf16 or fp16: other "
                "kernels become applicable."},
      .command = "MIOPEN_FIND_ENFORCE=3 MIOPEN_USER_DB_PATH=$HOME/.config/miopen python your_script.py",
      .source = kGuide},
     [](const Facts& f) -> std::string {
       if (f.signal("naive_conv_share") < 0.005) return "";
       return fmt::format("MIOpen's naive_conv kernels take {} of the time.", percent(f.signal("naive_conv_share")));
     }},
    {{.id = "convolution",
      .severity = Severity::med,
      .title = "Convolutions take much of the time",
      .why = "MIOpen chooses a kernel by shape from its databases, and for some devices (RX 7900 among them) none are "
             "shipped.",
      .fixes = {"Tune once with MIOPEN_FIND_ENFORCE=3, then run without it. MIOPEN_FIND_MODE=2 (FAST) starts sooner, "
                "but was seen to choose badly for backward passes.",
                "channels_last (torch: model.to(memory_format=torch.channels_last), PYTORCH_MIOPEN_SUGGEST_NHWC=1) "
                "saves the transposes.",
                "pyflame report on MIOpen's database shows what was chosen."},
      .command = "MIOPEN_FIND_ENFORCE=3 python your_script.py",
      .source = kGuide},
     [](const Facts& f) -> std::string {
       if (f.share("convolution") < 0.2 || !f.amd() || f.signal("naive_conv_share") >= 0.1) return "";
       return fmt::format("Convolutions take {} of the time.", percent(f.share("convolution")));
     }},
    {{.id = "layout",
      .severity = Severity::med,
      .title = "Transposes around convolutions",
      .why = "MIOpen converts NCHW to NHWC and back for kernels that want the other layout.",
      .fixes = {"Use channels_last throughout, with PYTORCH_MIOPEN_SUGGEST_NHWC=1."},
      .source = kGuide},
     [](const Facts& f) -> std::string {
       if (f.signal("transpose_share") < 0.02) return "";
       return fmt::format("Layout transposes around convolutions (batched_transpose) take {} of the time.",
                          percent(f.signal("transpose_share")));
     }},
    {{.id = "math-attention-rdna",
      .severity = Severity::high,
      .title = "Attention without a fused kernel",
      .why = "On RDNA 3 and 4 PyTorch uses its flash attention only when asked to; without it scores of all pairs go "
             "through memory (at length 4,096 486 ms against 41 ms were reported).",
      .fixes =
          {"Set TORCH_ROCM_AOTRITON_ENABLE_EXPERIMENTAL=1 before Python starts, and use scaled_dot_product_attention."},
      .command = "TORCH_ROCM_AOTRITON_ENABLE_EXPERIMENTAL=1 python your_script.py",
      .source = kSkill},
     [](const Facts& f) -> std::string {
       const bool math = f.flag("math_attention") ||
                         (f.share("attention") == 0 && f.signal("softmax_share") >= 0.03 && f.share("GEMM") > 0);
       if (!math || !f.gfx_is({"gfx11", "gfx12"})) return "";
       return fmt::format(
           "Attention runs as matrix products and a softmax on {}; the softmax alone takes {} of the time.", f.gfx(),
           percent(f.signal("softmax_share")));
     }},
    {{.id = "math-attention",
      .severity = Severity::high,
      .title = "Attention without a fused kernel",
      .why = "The scores of all pairs go through memory; a fused kernel keeps them on the chip.",
      .fixes = {"Use torch.nn.functional.scaled_dot_product_attention with a mask that flash attention understands "
                "(is_causal=True rather than a matrix).",
                on_amd("On MI200 and MI300 series flash attention of aiter or CK is faster still.")},
      .source = kSkill},
     [](const Facts& f) -> std::string {
       const bool math = f.flag("math_attention") ||
                         (f.share("attention") == 0 && f.signal("softmax_share") >= 0.05 && f.share("GEMM") > 0);
       if (!math || f.gfx_is({"gfx11", "gfx12"})) return "";
       return fmt::format("Attention seems to run as matrix products and a softmax ({} of the time in softmax).",
                          percent(f.signal("softmax_share")));
     }},
    {{.id = "attention",
      .severity = Severity::low,
      .title = "Attention takes much of the time",
      .why = "It is the largest part that a better kernel can shorten.",
      .fixes = {"Compare aiter's flash attention (torch.ops.aiter.*, which torch.compile can see through).",
                "In vLLM: VLLM_ROCM_USE_AITER=1, which is off unless set. VLLM_USE_TRITON_FLASH_ATTN does nothing any "
                "more."},
      .source = kSkill},
     [](const Facts& f) -> std::string {
       if (f.share("attention") < 0.3 || !f.gfx_is({"gfx942", "gfx950"})) return "";
       return fmt::format("Attention takes {} of the time.", percent(f.share("attention")));
     }},
    {{.id = "gemm",
      .severity = Severity::med,
      .title = "Matrix products take much of the time",
      .why = "rocBLAS and hipBLASLt choose a kernel by size class; the best one for a given size is often another.",
      .fixes = {"Tune once with TunableOp, then run with tuning off: new sizes would otherwise be tuned in production.",
                "Versions of PyTorch and ROCm are written into the results file: after an update it is discarded as a "
                "whole, so keep the file of each version.",
                on_amd(
                    "pyflame report tunableop_results0.csv shows what was chosen and how near to the roofline it is."),
                "For sizes whose rows are a multiple of 512 bytes apart (K % 256 == 0 in fp16, MI300X), pad the "
                "leading dimension by 128 elements."},
      .command = "PYTORCH_TUNABLEOP_ENABLED=1 python your_script.py   # then:  PYTORCH_TUNABLEOP_ENABLED=1 "
                 "PYTORCH_TUNABLEOP_TUNING=0 python your_script.py",
      .source = kGuide},
     [](const Facts& f) -> std::string {
       if (f.share("GEMM") < 0.25 || !f.amd()) return "";
       const json& roof = f.d["signals"]["gemm_of_peak"];
       if (roof.is_number() && roof.get<double>() >= 0.7) return "";
       return fmt::format("Matrix products take {} of the time{}.", percent(f.share("GEMM")),
                          roof.is_number() ? fmt::format(", at {} of what the device could reach for these sizes",
                                                         percent(roof.get<double>()))
                                           : "");
     }},
    {{.id = "fp32-gemm",
      .severity = Severity::high,
      .title = "Matrix products in float32",
      .why = "Matrix units are several times faster in 16 bits; on RDNA they do not do float32 at all.",
      .fixes = {"Run the model in bf16: torch.autocast(\"cuda\", dtype=torch.bfloat16). bf16 needs no GradScaler.",
                "torch.set_float32_matmul_precision(\"high\") uses xf32 on MI300X (gfx942, there with "
                "HIPBLASLT_ALLOW_TF32=1) and TF32 on NVIDIA; it changes results slightly and has no effect on MI350 "
                "(gfx950) and Radeon."},
      .source = kSkill},
     [](const Facts& f) -> std::string {
       if (f.signal("fp32_gemm_share") < 0.15) return "";
       return fmt::format("Matrix products in float32 take {} of the time.", percent(f.signal("fp32_gemm_share")));
     }},
    {{.id = "eager-kernels",
      .severity = Severity::med,
      .title = "Unfused kernels of PyTorch",
      .why = "Each reads its inputs from memory and writes them back; fused, most of that traffic goes.",
      .fixes =
          {"torch.compile(model, mode=\"default\"); the first run takes minutes.",
           "Avoid casts: keep weights in the type that is computed in, instead of autocast copying them each step.",
           "What the compiler leaves: Triton kernels for RMSNorm, SiLU and multiply, add and norm."},
      .source = kSkill},
     [](const Facts& f) -> std::string {
       if (f.signal("eager_share") < 0.25) return "";
       return fmt::format("Unfused elementwise, copy and reduction kernels of PyTorch take {} of the time.",
                          percent(f.signal("eager_share")));
     }},
    {{.id = "triton",
      .severity = Severity::low,
      .title = "Triton kernels take much of the time",
      .why = "Their tile sizes, warps and stages decide how many waves a compute unit holds.",
      .fixes = {on_amd(
                    "Let pyflame inspect ~/.triton/cache show registers, spills and what would reach the next wave."),
                "Autotune BLOCK sizes, num_warps and num_stages.",
                on_amd("Autotune waves_per_eu too; num_stages=2 for kernels with one matrix product, 1 where two are "
                       "fused (since Triton 3.2; before it 0 and 1)."),
                on_amd("matrix_instr_nonkdim=16 is mostly the better one for products on MI300X.")},
      .command = on_amd("pyflame inspect ~/.triton/cache"),
      .source = kGuide},
     [](const Facts& f) -> std::string {
       if (f.signal("triton_share") < 0.3) return "";
       return fmt::format("Triton kernels take {} of the time.", percent(f.signal("triton_share")));
     }},
    {{.id = "exposed-communication",
      .severity = Severity::high,
      .title = "Communication that no compute hides",
      .why = "While ranks exchange data the compute units wait.",
      .fixes =
          {"Overlap: gradient buckets (DDP bucket_cap_mb), prefetch in FSDP; check that each rank reaches the "
           "collective at the same time: a slow rank shows as communication on all others.",
           on_amd("TORCH_NCCL_HIGH_PRIORITY=1 with GPU_MAX_HW_QUEUES=2 helped FSDP on MI300X; measure, programs with "
                  "many streams lose."),
           on_amd(
               "One process per device; /proc/sys/kernel/numa_balancing 0; iommu=pt (pyflame doctor looks at these)."),
           on_amd("NCCL_MIN_NCHANNELS=112 only with all 8 devices of an MI300X node: with fewer ranks it is ignored.")},
      .command = on_amd("pyflame doctor"),
      .source = kGuide},
     [](const Facts& f) -> std::string {
       if (!f.d["communication"].is_object()) return "";
       const double exposed = f.d["communication"]["exposed_share"];
       if (exposed < 0.1) return "";
       return fmt::format("Communication that nothing hides takes {} of the time ({} in all).", percent(exposed),
                          microseconds(f.d["communication"]["us"].get<double>()));
     }},
    {{.id = "partial-node",
      .severity = Severity::med,
      .title = "Collectives among a part of the node",
      .why = "In a node of eight, each pair has its own link: among 2 or 4 devices most links lie idle.",
      .fixes = {"Use one device (no collective) or all eight of the node."},
      .source = kGuide},
     [](const Facts& f) -> std::string {
       if (!f.d["communication"].is_object() || !f.gfx_is({"gfx942", "gfx950"})) return "";
       for (const json& c : f.d["communication"]["collectives"])
         if (c["ranks"].is_number() && c["ranks"] > 1 && c["ranks"] < 8 && f.share("communication") >= 0.05)
           return fmt::format("Collectives run among {} devices, and take {} of the time.", c["ranks"].get<int>(),
                              percent(f.share("communication")));
       return "";
     }},
    {{.id = "narrow-grids",
      .severity = Severity::med,
      .title = "Kernels with too few workgroups",
      .why = "They cannot fill the compute units of this device.",
      .fixes = {"Split along K (split-K, stream-K), use smaller tiles, batch more.",
                "For decoding with small batches this is in the nature of the work: then bandwidth is what counts (fp8 "
                "or quantised weights)."},
      .source = kGuide},
     [](const Facts& f) -> std::string {
       if (f.signal("narrow_share") < 0.1) return "";
       return fmt::format("{} of the time goes to kernels with fewer than {:.0f} workgroups.",
                          percent(f.signal("narrow_share")), f.signal("wanted_workgroups"));
     }},
    {{.id = "scratch",
      .severity = Severity::med,
      .title = "Kernels that use scratch memory",
      .why = "Scratch is device memory: a spill in a loop costs as much as a load.",
      .fixes = {on_amd("pyflame inspect on the program or the cache shows registers, spills and where they are.")},
      .command = on_amd("pyflame inspect FILE"),
      .source = kGuide},
     [](const Facts& f) -> std::string {
       if (f.signal("scratch_share") < 0.05) return "";
       return fmt::format("Kernels that use scratch memory (spilled registers or arrays) take {} of the time.",
                          percent(f.signal("scratch_share")));
     }},
    {{.id = "pageable-copies",
      .severity = Severity::med,
      .title = "Copies from or to pageable memory",
      .why = "Pageable memory is copied twice, and the call waits.",
      .fixes = {"pin_memory=True in the DataLoader (or tensor.pin_memory()), and non_blocking=True."},
      .source = "ROCm 6.3 reference (RX 7900)"},
     [](const Facts& f) -> std::string {
       for (const json& c : f.d["copies"])
         if (c["host_memory"] == "pageable" && c["us"].get<double>() >= 0.01 * f.wall())
           return fmt::format("Copies ({}) from or to pageable memory take {}{}.", c["direction"].get<std::string>(),
                              microseconds(c["us"].get<double>()),
                              c["gbs"].is_number() ? fmt::format(", at {:.1f} GB/s", c["gbs"].get<double>()) : "");
       return "";
     }},
    {{.id = "idle-unknown",
      .severity = Severity::med,
      .title = "The device is idle for an unknown reason",
      .why = "Without the CPU's side the reason cannot be told: data, Python, another process.",
      .fixes = {"PyTorch: record with ProfilerActivity.CPU and ProfilerActivity.CUDA. Other programs: rocprofv3 "
                "--sys-trace --output-format csv."},
      .command = on_amd("rocprofv3 --sys-trace --output-format csv -- python your_script.py"),
      .source = kGuide},
     [](const Facts& f) -> std::string {
       if (!f.timeline() || f.gap("unknown") < 0.2) return "";
       return fmt::format("The device is idle in {} of the time, and the trace does not show what the CPU did then.",
                          percent(f.gap("unknown")));
     }},
    {{.id = "unsteady-steps",
      .severity = Severity::info,
      .title = "The steps differ",
      .why = "Averages then describe no step; the first ones compile, allocate and search.",
      .fixes = {"Choose steady ones with --steps FIRST:LAST, and look at the longest one alone."},
      .source = kSkill},
     [](const Facts& f) -> std::string {
       const json& s = f.d["time"]["steps"];
       if (!s.is_object() || s["count"] < 3 || s["spread"] < 0.5) return "";
       return fmt::format("Steps differ: {} between the shortest and the longest, around a median of {}.",
                          percent(s["spread"].get<double>()), microseconds(s["median_us"].get<double>()));
     }},
    {{.id = "statistics-only",
      .severity = Severity::info,
      .title = "The input has no timeline",
      .why = "Shares are of the kernels' time, not of the step.",
      .fixes = {"Record a trace: rocprofv3 --sys-trace --output-format csv, or torch.profiler."},
      .command = on_amd("rocprofv3 --sys-trace --output-format csv -- python your_script.py"),
      .source = kGuide},
     [](const Facts& f) -> std::string {
       if (f.timeline() || f.wall() <= 0) return "";
       return "The input has totals per kernel and no times: idle time, gaps and overlap cannot be told.";
     }},
};

}  // namespace

std::span<const TraceRule> trace_rules() { return kRules; }

}  // namespace pyflame::tools::profile
