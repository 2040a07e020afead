// The rules over traces. They follow the MI300X workload guide (find the bottleneck; GEMM: TunableOp; convolution: MIOpen; own kernels: Triton; several devices: RCCL) and the kernel-optimization skill (compile first, then work on the largest category). Advice of these guides that is known to be wrong is left out.
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
constexpr const char* kTraces = "public traces, docs/decisions/0012-what-a-report-says.md";

// The rules for all traces except those of pf.profiler. To add one, add an entry here, a row to docs/report.md and a case to
// tests/profile/test_report.py.
const TraceRule kRules[] = {
    {{.id = "data-loading",
      .severity = Severity::high,
      .title = "The device waits for the data loader",
      .why = "The next batch is prepared only when the device could already work on it.",
      .fixes =
          {"Prepare batches in workers ahead of time: DataLoader(num_workers=8, pin_memory=True, "
           "persistent_workers=True, prefetch_factor=4).",
           "Copy with .to(device, non_blocking=True). If decoding and augmentation dominate, move them to the device."},
      .source = "ROCm 6.3 reference (RX 7900)"},
     [](const Facts& f) -> std::string {
       if (f.gap("data_loading") < 0.03) return "";
       return fmt::format("The device waits for the data loader in {} of the time, {:.0f} times.",
                          percent(f.gap("data_loading")), f.gap("data_loading", "count"));
     }},
    {{.id = "graph-capture",
      .severity = Severity::high,
      .title = "The trace records the capture of graphs",
      .why = "While a graph is captured, its kernels are recorded and do not run. The device is empty, and no figure "
             "of this trace describes a step.",
      .fixes = {"Record later, when the graphs are replayed. Serving engines capture when they start."},
      .source = kTraces},
     [](const Facts& f) -> std::string {
       if (f.gap("capture") < 0.1) return "";
       return fmt::format("Graphs are captured in {} of the recorded time.", percent(f.gap("capture")));
     }},
    {{.id = "code-loading",
      .severity = Severity::high,
      .title = "Code is loaded onto the device",
      .why = "The first launch of a kernel loads its module, and libraries may compile or search for kernels then. "
             "That is not the steady state.",
      .fixes = {"Record after a warm-up of several steps (torch.profiler.schedule(wait=1, warmup=3, active=3)).",
                on_amd("Keep the caches between runs: MIOPEN_USER_DB_PATH on a local disk. (If the home folder is on a "
                       "network file system, MIOpen uses a temporary folder instead.)")},
      .source = kTraces},
     [](const Facts& f) -> std::string {
       if (f.gap("loading") < 0.03 || f.after_warm_up("loading")) return "";
       return fmt::format("The device waits in {} of the recorded time while code is loaded: {:.0f} times.",
                          percent(f.gap("loading")), f.gap("loading", "count"));
     }},
    {{.id = "compilation",
      .severity = Severity::high,
      .title = "Code is compiled",
      .why = "In the first runs of a shape kernels are compiled, and libraries search for the best ones. That is not "
             "the steady state.",
      .fixes = {"Record after a warm-up of several steps (torch.profiler.schedule(wait=1, warmup=3, active=3)).",
                on_amd("Keep the caches between runs: Triton's cache folder, and MIOPEN_USER_DB_PATH on a local disk. "
                       "(If the home folder is on a network file system, MIOpen uses a temporary folder instead.)")},
      .source = kSkill},
     [](const Facts& f) -> std::string {
       if (f.gap("compilation") < 0.03 || f.after_warm_up("compilation")) return "";
       return fmt::format("Code is compiled in {} of the recorded time.", percent(f.gap("compilation")));
     }},
    {{.id = "new-code",
      .severity = Severity::high,
      .title = "Code is compiled or loaded after the warm-up, too",
      .why = "Something is new in these steps: a shape that no step before had, or a kernel that only some steps run.",
      .fixes = {"Pad what changes from step to step to a few sizes, or compile for all of them: torch.compile(model, "
                "dynamic=True).",
                "See whether guards fail: TORCH_LOGS=recompiles."},
      .command = "TORCH_LOGS=recompiles python your_script.py",
      .source = kTraces},
     [](const Facts& f) -> std::string {
       double share = 0;
       for (const char* code : {"compilation", "loading"})
         if (f.after_warm_up(code)) share += f.gap(code);
       if (share < 0.03) return "";
       return fmt::format(
           "The device waits in {} of the recorded time while code is compiled or loaded, though a warm-up "
           "had run before.",
           percent(share));
     }},
    {{.id = "launch-bound",
      .severity = Severity::high,
      .title = "The device waits for launches",
      .why = "A launch costs the CPU some microseconds, however small the kernel is. Between many small kernels the "
             "device is empty.",
      .fixes =
          {"Fuse kernels: use torch.compile(model, mode=\"default\"), and fix graph breaks (TORCH_LOGS=graph_breaks) "
           "first.",
           "Give each launch more work: larger batches, sequences packed together, fused optimizers (fused=True).",
           "If the model is compiled already, use TORCHINDUCTOR_CPP_WRAPPER=1, or one graph for the whole step.",
           on_amd("ROCm 7.2.0 to 7.2.3 on MI300X can corrupt results in graph replay: first compare the outputs with "
                  "those of eager mode."),
           on_amd("On ROCm before 6.2 set HIP_FORCE_DEV_KERNARG=1 (2 to 3 us a kernel). It is the default of later "
                  "versions.")},
      .command = "TORCH_LOGS=graph_breaks python your_script.py",
      .source = kSkill},
     [](const Facts& f) -> std::string {
       // Stacks make the CPU slower by a factor. Where the device is empty for most of the time, it is so without them.
       const bool stacks = f.flag("python_stacks");
       if (f.share("launch-bound") < (stacks ? 0.6 : 0.2)) return "";
       return fmt::format(
           "The device waits for the next launch in {} of the step{}. Kernels last {} on average; {:.0f} of {:.0f} "
           "last "
           "less than 10 us.",
           percent(f.share("launch-bound")), stacks ? ", a part of it because Python stacks were recorded" : "",
           microseconds(f.signal("mean_kernel_us")), f.signal("under_10us"), f.signal("kernels"));
     },
     [](const Facts& f) -> double { return f.share("launch-bound"); }},
    {{.id = "host-code",
      .severity = Severity::high,
      .title = "The device waits for other code of the program",
      .why = "The CPU runs Python or operators on the CPU, and launches nothing meanwhile.",
      .fixes =
          {"Prepare inputs ahead of time, in another thread or process, while the device works on the step before.",
           "Do preprocessing such as resizing and normalising on the device.",
           "Read and postprocess results one step later."},
      .source = kTraces},
     [](const Facts& f) -> std::string {
       if (f.gap("host_code") < 0.2) return "";
       const std::string in = f.in("host_code");
       return fmt::format("The CPU runs code that launches nothing in {} of the time{}.", percent(f.gap("host_code")),
                          in.empty() ? "" : fmt::format(", longest in {}", in));
     },
     [](const Facts& f) -> double { return f.gap("host_code"); }},
    {{.id = "queue-wait",
      .severity = Severity::high,
      .title = "Kernels wait in the queue while the device does nothing",
      .why = "They wait for an event of another stream or device. If those have no work in the trace either, the trace "
             "lacks a part of the device's work, and its shares are too small.",
      .fixes = {"See on the timeline (--html FILE) what the other streams did at that time.",
                "If they did nothing, the trace lacks work: record again, without graphs if possible.",
                "Remove waits between streams that need no order (events instead of "
                "synchronisations)."},
      .source = kTraces},
     [](const Facts& f) -> std::string {
       if (f.gap("dependency") < 0.2) return "";
       return fmt::format(
           "In {} of the time the next kernel was in the queue and did not start, and the device had "
           "nothing else to do.",
           percent(f.gap("dependency")));
     },
     [](const Facts& f) -> double { return f.gap("dependency"); }},
    {{.id = "unrecorded-work",
      .severity = Severity::high,
      .title = "The CPU waits, and the trace shows no work of the device",
      .why = "A copy or a synchronisation ends when the device is done with earlier work. The trace does not have this "
             "work: it began before the recording, or another process used the device.",
      .fixes = {"Record from an earlier point, or more than one step.",
                "Check whether other processes use the device."},
      .source = kTraces},
     [](const Facts& f) -> std::string {
       if (f.gap("unseen") < 0.1) return "";
       return fmt::format(
           "In {} of the time the CPU waited in {} while the device, as far as the trace shows, had "
           "nothing to do.",
           percent(f.gap("unseen")), f.in("unseen").empty() ? "a call" : f.in("unseen"));
     }},
    {{.id = "idle-unknown",
      .severity = Severity::high,
      .title = "The device is idle for an unknown reason",
      .why = "Without events of the CPU the reason is not known: it may be data loading, Python, or another process.",
      .fixes = {for_stacks(
                    "If the trace has operators, record once with with_stack=True: it shows the Python functions."),
                "Record PyTorch with ProfilerActivity.CPU and ProfilerActivity.CUDA.",
                on_amd("Record other programs with rocprofv3 --sys-trace --output-format csv.")},
      .command = on_amd("rocprofv3 --sys-trace --output-format csv -- python your_script.py"),
      .source = kGuide},
     [](const Facts& f) -> std::string {
       if (!f.timeline() || f.gap("unknown") < 0.2) return "";
       return fmt::format("The device is idle in {} of the time, and the trace does not show what the CPU did then.",
                          percent(f.gap("unknown")));
     }},
    {{.id = "profiler-overhead",
      .severity = Severity::info,
      .title = "The profiler slows the CPU down",
      .why = "The profiler's own work appears as gaps on the device.",
      .fixes = {"Record again without with_stack and profile_memory before you act on gaps and launch overhead."},
      .source = kSkill},
     [](const Facts& f) -> std::string {
       if (!f.flag("python_stacks")) return "";
       return fmt::format(
           "The trace was recorded with Python stacks (with_stack=True), which slow the CPU down. {} of the step "
           "counts as launch-bound.",
           percent(f.share("launch-bound")));
     }},
    {{.id = "host-sync",
      .severity = Severity::med,
      .title = "The CPU waits for the device",
      .why = "After a synchronisation the queue is empty. The device is idle until the CPU launches the next kernel.",
      .fixes = {"Remove .item(), .cpu(), print(tensor), `if tensor` and boolean indexing from the step. Log the loss "
                "every N steps.",
                "Copies from and to pageable memory wait as well: use pin_memory=True in the DataLoader, and "
                ".to(device, non_blocking=True).",
                "Let copies to the host overlap with compute: use pinned memory and non_blocking=True, and read the "
                "value one step later."},
      .source = kGuide},
     [](const Facts& f) -> std::string {
       const double count = f.gap("copy_to_host", "count") + f.gap("synchronise", "count"),
                    part = f.gap("copy_to_host") + f.gap("synchronise");
       const bool each_step = f.steps() > 0 && count >= f.steps() && part >= 0.03;
       if (part < 0.05 && !each_step) return "";
       return fmt::format(
           "The CPU waited for the device {:.0f} times, and the device then had nothing to do for {} of the time.",
           count, percent(part));
     }},
    {{.id = "allocation",
      .severity = Severity::med,
      .title = "Device memory is allocated during the steps",
      .why = "An allocation or release of device memory waits for the whole device.",
      .fixes =
          {"Warm the allocator up. Keep shapes constant, or pad them to a few sizes.",
           "Do not call torch.cuda.empty_cache() in the loop: it returns memory that the next step needs again.",
           "Do not combine expandable_segments:True with max_split_size_mb: live tensors have read back as zeros."},
      .source = kGuide},
     [](const Facts& f) -> std::string {
       if (f.gap("allocation") < 0.02) return "";
       return fmt::format("Device memory is allocated or freed in {} of the time ({:.0f} gaps).",
                          percent(f.gap("allocation")), f.gap("allocation", "count"));
     }},
    {{.id = "naive-convolution",
      .severity = Severity::high,
      .title = "MIOpen's naive convolutions run",
      .why =
          "They are the fallback for any shape and many times slower than other kernels. A search also measures them.",
      .fixes = {"Check whether they also run after the first step. If not, they belong to MIOpen's search: warm up, "
                "and keep its database.",
                "Tune these shapes once: set MIOPEN_FIND_ENFORCE=3 for one run (minutes to hours), then unset it. The "
                "result stays in MIOPEN_USER_DB_PATH.",
                "Try memory_format=torch.channels_last with PYTORCH_MIOPEN_SUGGEST_NHWC=1, and bf16 or fp16. Then "
                "other kernels can be used."},
      .command = "MIOPEN_FIND_ENFORCE=3 MIOPEN_USER_DB_PATH=$HOME/.config/miopen python your_script.py",
      .source = kGuide},
     [](const Facts& f) -> std::string {
       if (f.signal("naive_conv_share") < 0.005) return "";
       return fmt::format("MIOpen's naive_conv kernels take {} of the time.", percent(f.signal("naive_conv_share")));
     },
     [](const Facts& f) -> double { return f.signal("naive_conv_share"); }},
    {{.id = "convolution",
      .severity = Severity::med,
      .title = "Convolutions take much of the time",
      .why =
          "MIOpen chooses a kernel by shape from its databases. For some devices, such as the RX 7900, it ships none.",
      .fixes = {"Tune once with MIOPEN_FIND_ENFORCE=3, then run without it. MIOPEN_FIND_MODE=2 (FAST) starts sooner, "
                "but has selected slow kernels for backward passes.",
                "Use channels_last (model.to(memory_format=torch.channels_last), PYTORCH_MIOPEN_SUGGEST_NHWC=1). It "
                "avoids transposes.",
                "Run pyflame report on MIOpen's database to see which kernels were selected."},
      .command = "MIOPEN_FIND_ENFORCE=3 python your_script.py",
      .source = kGuide},
     [](const Facts& f) -> std::string {
       if (f.share("convolution") < 0.2 || !f.amd() || f.signal("naive_conv_share") >= 0.1) return "";
       return fmt::format("Convolutions take {} of the time.", percent(f.share("convolution")));
     }},
    {{.id = "layout",
      .severity = Severity::med,
      .title = "Transposes around convolutions",
      .why = "MIOpen converts NCHW to NHWC and back for kernels that need the other layout.",
      .fixes = {"Use channels_last everywhere, with PYTORCH_MIOPEN_SUGGEST_NHWC=1."},
      .source = kGuide},
     [](const Facts& f) -> std::string {
       if (f.signal("transpose_share") < 0.02) return "";
       return fmt::format("Layout transposes around convolutions (batched_transpose) take {} of the time.",
                          percent(f.signal("transpose_share")));
     }},
    {{.id = "math-attention-rdna",
      .severity = Severity::high,
      .title = "Attention without a fused kernel",
      .why =
          "On most GPUs of RDNA 3 and 4 PyTorch uses its flash attention only if a variable is set. Without it, the "
          "scores of all pairs go through memory (486 ms instead of 41 ms were reported for 4,096 tokens on gfx1200).",
      .fixes =
          {"Set TORCH_ROCM_AOTRITON_ENABLE_EXPERIMENTAL=1 before Python starts, and use scaled_dot_product_attention."},
      .command = "TORCH_ROCM_AOTRITON_ENABLE_EXPERIMENTAL=1 python your_script.py",
      .source = kSkill},
     [](const Facts& f) -> std::string {
       const bool math = f.flag("math_attention") ||
                         (f.share("attention") == 0 && f.signal("softmax_share") >= 0.03 && f.share("GEMM") > 0);
       if (!math || !f.gfx_is({"gfx11", "gfx12"})) return "";
       return fmt::format(
           "On {} attention runs as matrix products and a softmax. The softmax alone takes {} of the time.", f.gfx(),
           percent(f.signal("softmax_share")));
     }},
    {{.id = "math-attention",
      .severity = Severity::high,
      .title = "Attention without a fused kernel",
      .why = "The scores of all pairs go through memory. A fused kernel keeps them on the chip.",
      .fixes = {"Use torch.nn.functional.scaled_dot_product_attention with a mask that flash attention understands "
                "(is_causal=True rather than a matrix).",
                on_amd("On the MI200 and MI300 series, the flash attention of aiter or CK is even faster.")},
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
      .fixes = {"Compare aiter's flash attention (torch.ops.aiter.*; torch.compile supports it).",
                "In vLLM, set VLLM_ROCM_USE_AITER=1; it is off by default. VLLM_USE_TRITON_FLASH_ATTN has no effect "
                "any more."},
      .source = kSkill},
     [](const Facts& f) -> std::string {
       if (f.share("attention") < 0.3 || !f.gfx_is({"gfx942", "gfx950"})) return "";
       return fmt::format("Attention takes {} of the time.", percent(f.share("attention")));
     }},
    {{.id = "gemm",
      .severity = Severity::med,
      .title = "Matrix products take much of the time",
      .why =
          "rocBLAS and hipBLASLt choose a kernel by classes of sizes. For a given size another kernel is often faster.",
      .fixes = {"Tune once with TunableOp, then run with tuning off. Otherwise new sizes are tuned in production. The "
                "trace does not show whether TunableOp is on already.",
                "The results file contains the versions of PyTorch and ROCm. After an update the whole file is "
                "ignored, so keep one file for each version.",
                on_amd("Run pyflame report tunableop_results0.csv to see the selected kernels and how close to the "
                       "roofline they are."),
                "If the stride of the rows is a multiple of 512 bytes (K % 256 == 0 in fp16, on MI300X), pad the "
                "leading dimension by 128 elements."},
      .command = "PYTORCH_TUNABLEOP_ENABLED=1 python your_script.py   # then:  PYTORCH_TUNABLEOP_ENABLED=1 "
                 "PYTORCH_TUNABLEOP_TUNING=0 python your_script.py",
      .source = kGuide},
     [](const Facts& f) -> std::string {
       const json& products = f.d["signals"]["products"];
       const double share = products["tunable_share"];
       if (share < 0.25 || !f.amd() || products["tunable_op"].get<bool>()) return "";
       const json& roof = f.d["signals"]["gemm_of_peak"];
       if (roof.is_number() && roof.get<double>() >= 0.7) return "";
       return fmt::format("Matrix products of rocBLAS and hipBLASLt take {} of the time{}.", percent(share),
                          roof.is_number() ? fmt::format(", at {} of what the device could reach for these sizes",
                                                         percent(roof.get<double>()))
                                           : "");
     }},
    {{.id = "other-gemm",
      .severity = Severity::low,
      .title = "Matrix products that TunableOp does not reach",
      .why = "Products of Triton, aiter and CK are chosen by tables and settings of their own. TunableOp chooses among "
             "the kernels of rocBLAS and hipBLASLt only.",
      .fixes =
          {"For aiter look for these sizes in its tables (aiter/configs), and tune the missing ones with its tuner. "
           "Run pyflame report on such a table to see how close to the roofline its kernels are.",
           "For Triton autotune the tiles, num_warps, num_stages and waves_per_eu for these sizes."},
      .source = "aiter's configurations"},
     [](const Facts& f) -> std::string {
       const double share = f.d["signals"]["products"]["other_share"];
       if (share < 0.25 || !f.amd()) return "";
       return fmt::format("Matrix products of other libraries than rocBLAS and hipBLASLt take {} of the time.",
                          percent(share));
     }},
    {{.id = "fp32-gemm",
      .severity = Severity::high,
      .title = "Matrix products in float32",
      .why = "Matrix cores are several times faster in 16 bits.",
      .fixes =
          {"Run the model in bf16: torch.autocast(\"cuda\", dtype=torch.bfloat16). bf16 needs no GradScaler.",
           "torch.set_float32_matmul_precision(\"high\") multiplies in fewer bits where the device can. It changes "
           "results "
           "slightly.",
           on_amd("set_float32_matmul_precision uses xf32 on MI300X (gfx942, with HIPBLASLT_ALLOW_TF32=1), and has no "
                  "effect on MI350 "
                  "(gfx950) and Radeon. Matrix cores of RDNA do not support float32.")},
      .source = kSkill},
     [](const Facts& f) -> std::string {
       if (f.signal("fp32_gemm_share") < 0.15) return "";
       return fmt::format("Matrix products in float32 take {} of the time.", percent(f.signal("fp32_gemm_share")));
     },
     [](const Facts& f) -> double { return f.signal("fp32_gemm_share"); }},
    {{.id = "eager-kernels",
      .severity = Severity::med,
      .title = "Unfused kernels of PyTorch",
      .why = "Each kernel reads its inputs from memory and writes its result back. Fusion avoids most of that traffic.",
      .fixes = {"Use torch.compile(model, mode=\"default\"). The first run takes minutes.",
                "Avoid casts: keep the weights in the type of the computation, so that autocast need not copy them in "
                "each step.",
                "For what the compiler does not fuse, write Triton kernels: RMSNorm, SiLU and multiply, add and norm."},
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
      .fixes = {on_amd("Run pyflame inspect ~/.triton/cache to see registers, spills, and the next step to a higher "
                       "occupancy."),
                "Autotune BLOCK sizes, num_warps and num_stages.",
                on_amd("Autotune waves_per_eu too. Use num_stages=2 for kernels with one matrix product and 1 if two "
                       "are fused (0 and 1 before Triton 3.2)."),
                on_amd("matrix_instr_nonkdim=16 is usually better for matrix products on MI300X.")},
      .command = on_amd("pyflame inspect ~/.triton/cache"),
      .source = kGuide},
     [](const Facts& f) -> std::string {
       if (f.signal("triton_share") < 0.3) return "";
       return fmt::format("Triton kernels take {} of the time.", percent(f.signal("triton_share")));
     }},
    {{.id = "exposed-communication",
      .severity = Severity::high,
      .title = "Communication that no compute hides",
      .why = "The compute units wait while ranks exchange data.",
      .fixes =
          {"Overlap communication with compute: gradient buckets (DDP bucket_cap_mb), prefetch in FSDP. Check that all "
           "ranks reach a collective at the same time: a slow rank appears as communication on all others.",
           on_amd("TORCH_NCCL_HIGH_PRIORITY=1 with GPU_MAX_HW_QUEUES=2 helped FSDP on MI300X. Measure it, because "
                  "programs with many streams become slower."),
           on_amd("Use one process per device, set /proc/sys/kernel/numa_balancing to 0, and use iommu=pt (pyflame "
                  "doctor checks these)."),
           on_amd("Set NCCL_MIN_NCHANNELS=112 only with all 8 devices of an MI300X node. With fewer ranks it is "
                  "ignored.")},
      .command = on_amd("pyflame doctor"),
      .source = kGuide},
     [](const Facts& f) -> std::string {
       if (!f.d["communication"].is_object()) return "";
       const double exposed = f.d["communication"]["exposed_share"];
       if (exposed < 0.1) return "";
       // With several ranks, what is mostly waiting has its own rules.
       const json& ranks = f.d["ranks"];
       if (ranks.is_object())
         for (const json& r : ranks["rows"])
           if (r["rank"] == ranks["reported"] && r["waiting_us"] > r["transfer_us"]) return "";
       return fmt::format("Communication without simultaneous compute takes {} of the time ({} in all).{}",
                          percent(exposed), microseconds(f.d["communication"]["us"].get<double>()),
                          f.one_rank_of_several() ? " The trace of one rank does not tell whether this is transfer or "
                                                    "waiting for a slower rank; the traces of all ranks do."
                                                  : "");
     },
     [](const Facts& f) -> double { return f.d["communication"]["exposed_share"].get<double>(); }},
    {{.id = "partial-node",
      .severity = Severity::med,
      .title = "Collectives among a part of the node",
      .why = "In a node of eight devices, each pair has its own link. With 2 or 4 devices most links are idle.",
      .fixes = {"Use one device (no collectives), or all eight of the node."},
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
      .why = "A workgroup runs on one compute unit, whatever its size. The others have nothing to do meanwhile.",
      .fixes = {"Split the depth (split-K, stream-K), use smaller tiles or larger batches.",
                "Decoding with small batches cannot avoid this. There, memory bandwidth is the limit: use fp8 or "
                "quantised weights."},
      .source = kGuide},
     [](const Facts& f) -> std::string {
       if (f.signal("narrow_share") < 0.1) return "";
       return fmt::format(
           "Kernels with fewer workgroups than the {:.0f} compute units of the device leave {} of its time unused.",
           f.signal("compute_units"), percent(f.signal("narrow_share")));
     }},
    {{.id = "scratch",
      .severity = Severity::med,
      .title = "Kernels that use scratch memory",
      .why = "Scratch memory is device memory. A spill in a loop costs as much as a load.",
      .fixes = {on_amd("Run pyflame inspect on the program or the cache to see registers, and where spills are.")},
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
      .why = "Data in pageable memory is copied twice, and the call waits for the copy.",
      .fixes = {"Use pin_memory=True in the DataLoader (or tensor.pin_memory()), and non_blocking=True."},
      .source = "ROCm 6.3 reference (RX 7900)"},
     [](const Facts& f) -> std::string {
       for (const json& c : f.d["copies"])
         if (c["host_memory"] == "pageable" && c["us"].get<double>() >= 0.01 * f.wall())
           return fmt::format("Copies ({}) from or to pageable memory take {}{}.", c["direction"].get<std::string>(),
                              microseconds(c["us"].get<double>()),
                              c["gbs"].is_number() ? fmt::format(", at {:.1f} GB/s", c["gbs"].get<double>()) : "");
       return "";
     }},
    {{.id = "unsteady-steps",
      .severity = Severity::info,
      .title = "The steps differ",
      .why = "Averages then describe no step. The first steps compile, allocate and search.",
      .fixes = {"Select similar steps with --steps FIRST:LAST, and inspect the longest one alone."},
      .source = kSkill},
     [](const Facts& f) -> std::string {
       const json& s = f.d["time"]["steps"];
       if (!s.is_object() || s["count"] < 3 || s["spread"] < 0.5) return "";
       return fmt::format("The shortest and the longest step differ by {} of the median, which is {}.",
                          percent(s["spread"].get<double>()), microseconds(s["median_us"].get<double>()));
     }},
    {{.id = "statistics-only",
      .severity = Severity::info,
      .title = "The input has no timeline",
      .why = "Shares refer to the time of the kernels, not to the step.",
      .fixes = {"Record a trace with torch.profiler.",
                on_amd("Record a trace with rocprofv3 --sys-trace --output-format csv.")},
      .command = on_amd("rocprofv3 --sys-trace --output-format csv -- python your_script.py"),
      .source = kGuide},
     [](const Facts& f) -> std::string {
       if (f.timeline() || f.wall() <= 0) return "";
       return "The input has totals per kernel and no times, so idle time, gaps and overlap are not known.";
     }},
};

}  // namespace

std::span<const TraceRule> trace_rules() { return kRules; }

}  // namespace pyflame::tools::profile
