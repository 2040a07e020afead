// What to do next: rules over the document, each with its condition, reason and remedy as data. They follow the decision flow of the
// MI300X workload guide (find the bottleneck; GEMM: TunableOp; convolution: MIOpen; own kernels: Triton; several devices: RCCL) and
// the kernel-optimization skill's ladder (compile first, then the largest category), with what is known to be wrong in both left out.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>

#include "tools/profile/document.h"
#include "tools/view/text.h"

namespace pyflame::tools::profile {

namespace {

using nlohmann::json;
using view::microseconds;
using view::percent;

constexpr const char* kGuide = "MI300X workload guide";
constexpr const char* kSkill = "kernel-optimization skill";

// The document, as rules ask it.
struct Facts {
  const json& d;

  double share(const char* category) const {
    for (const json& c : d["categories"])
      if (c["name"] == category) return c["share"];
    return 0;
  }
  double gap(const char* code, const char* key = "share") const {
    for (const json& g : d["gap_reasons"])
      if (g["code"] == code) return g[key];
    return 0;
  }
  double signal(const char* name) const {
    return d["signals"][name].is_number() ? d["signals"][name].get<double>() : 0;
  }
  bool flag(const char* name) const { return d["signals"][name].is_boolean() && d["signals"][name].get<bool>(); }
  bool amd() const { return d["device"].is_null() || d["device"]["amd"].get<bool>(); }
  std::string gfx() const {
    return d["device"].is_object() && d["device"]["gfx"].is_string() ? d["device"]["gfx"].get<std::string>() : "";
  }
  bool gfx_is(std::initializer_list<const char*> prefixes) const {
    const std::string g = gfx();
    return std::any_of(prefixes.begin(), prefixes.end(), [&](const char* p) { return g.starts_with(p); });
  }
  bool device_is(const char* prefix) const {
    return d["device"].is_object() && d["device"]["name"].is_string() &&
           d["device"]["name"].get_ref<const std::string&>().starts_with(prefix);
  }
  double steps() const { return d["time"]["steps"].is_object() ? d["time"]["steps"]["count"].get<double>() : 0; }
  double wall() const { return d["time"]["wall_us"]; }
  bool timeline() const { return d["time"]["timeline"]; }
  bool traced() const { return wall() > 0; }
};

// A remedy; one that speaks of AMD's software is not given for another vendor's device.
struct Action {
  const char* text;
  bool amd_only = false;
  Action(const char* t, bool amd = false) : text(t), amd_only(amd) {}  // NOLINT: a text is a remedy
};
Action on_amd(const char* text) { return {text, true}; }

struct Rule {
  const char* id;
  const char* severity;
  std::string (*what)(const Facts&);  // what was found, with the values; empty: does not apply
  const char* why;
  std::vector<Action> actions;
  Action command;  // nullptr: none
  const char* source;
};

const Rule kRules[] = {
    {"data-loading",
     "HIGH",
     [](const Facts& f) -> std::string {
       if (f.gap("data_loading") < 0.03) return "";
       return fmt::format("The device waits for the data loader in {} of the time, {:.0f} times.",
                          percent(f.gap("data_loading")), f.gap("data_loading", "count"));
     },
     "A batch is prepared while the device could already work on it.",
     {"Prepare batches in workers ahead of time: DataLoader(num_workers=8, pin_memory=True, persistent_workers=True, "
      "prefetch_factor=4).",
      "Copy with .to(device, non_blocking=True), and move decoding and augmentation to the device where they "
      "dominate."},
     nullptr,
     "ROCm 6.3 reference (RX 7900)"},
    {"compilation",
     "HIGH",
     [](const Facts& f) -> std::string {
       if (f.gap("compilation") < 0.03) return "";
       return fmt::format("Code is compiled or loaded in {} of the recorded time.", percent(f.gap("compilation")));
     },
     "The first runs of a shape compile kernels, and libraries such as MIOpen search for them: that is not the "
     "steady state.",
     {"Record after a warm-up of several steps (torch.profiler.schedule(wait=1, warmup=3, active=3)).",
      on_amd("Keep the caches between runs: MIOPEN_USER_DB_PATH on a local disk (a home on a network file system is "
             "replaced by a temporary folder), and Triton's cache folder.")},
     nullptr,
     kSkill},
    {"launch-bound",
     "HIGH",
     [](const Facts& f) -> std::string {
       if (f.share("launch-bound") < 0.2 || f.flag("python_stacks")) return "";
       return fmt::format(
           "In {} of the step the device waits for the next launch; kernels last {} on average, {:.0f} of {:.0f} "
           "less than 10 us.",
           percent(f.share("launch-bound")), microseconds(f.signal("mean_kernel_us")), f.signal("under_10us"),
           f.signal("kernels"));
     },
     "Each kernel costs the CPU some microseconds to launch, whatever its size; many small ones leave the device "
     "empty between them.",
     {"Fuse: torch.compile(model, mode=\"default\"), and mend graph breaks (TORCH_LOGS=graph_breaks) before anything "
      "else.",
      "Give each launch more work: larger batches, sequences packed together, fused optimizers (fused=True).",
      "Where it is compiled already: TORCHINDUCTOR_CPP_WRAPPER=1, or one graph for the whole step. ROCm 7.2.0 to "
      "7.2.3 on MI300X can corrupt results in graph replay: compare the outputs with eager ones first.",
      on_amd("On ROCm before 6.2 set HIP_FORCE_DEV_KERNARG=1 (2 to 3 us a kernel); later versions do it by "
             "themselves.")},
     "TORCH_LOGS=graph_breaks python your_script.py",
     kSkill},
    {"profiler-overhead",
     "INFO",
     [](const Facts& f) -> std::string {
       if (!f.flag("python_stacks")) return "";
       return fmt::format(
           "The trace was recorded with Python stacks (with_stack=True), which slow the CPU down; {} of the step "
           "counts as launch-bound.",
           percent(f.share("launch-bound")));
     },
     "The recorder's own work shows as gaps on the device.",
     {"Record once more without with_stack and profile_memory before acting on gaps and launch overhead."},
     nullptr,
     kSkill},
    {"host-sync",
     "MED",
     [](const Facts& f) -> std::string {
       const double count = f.gap("copy_to_host", "count") + f.gap("synchronise", "count"),
                    part = f.gap("copy_to_host") + f.gap("synchronise");
       const bool each_step = f.steps() > 0 && count >= f.steps() && part >= 0.01;
       if (part < 0.05 && !each_step) return "";
       return fmt::format(
           "The CPU waited for the device {:.0f} times, and the device then had nothing to do for {} of the time.",
           count, percent(part));
     },
     "After a synchronisation the queue is empty: the device idles until the CPU has launched again.",
     {"Remove .item(), .cpu(), print(tensor), `if tensor` and boolean indexing from the step; log the loss each N "
      "steps.",
      "Copies from and to pageable memory wait as well: pin_memory=True in the DataLoader, and .to(device, "
      "non_blocking=True).",
      "Let copies to the host run beside: pinned memory and non_blocking=True, and read the value one step later."},
     nullptr,
     kGuide},
    {"allocation",
     "MED",
     [](const Facts& f) -> std::string {
       if (f.gap("allocation") < 0.02) return "";
       return fmt::format("Device memory is allocated or freed in {} of the time ({:.0f} gaps).",
                          percent(f.gap("allocation")), f.gap("allocation", "count"));
     },
     "Allocating and freeing device memory waits for the whole device.",
     {"Warm the allocator up; keep shapes constant or padded to a few sizes.",
      "Do not call torch.cuda.empty_cache() in the loop: it returns memory that is asked for again at once.",
      "Do not combine expandable_segments:True with max_split_size_mb: live tensors were seen to read zeros."},
     nullptr,
     kGuide},
    {"naive-convolution",
     "HIGH",
     [](const Facts& f) -> std::string {
       if (f.signal("naive_conv_share") < 0.005) return "";
       return fmt::format("MIOpen's naive_conv kernels take {} of the time.", percent(f.signal("naive_conv_share")));
     },
     "They are the reference that any shape falls back to, many times slower than the others; during a search they "
     "are timed as well.",
     {"See whether they also run after the first step; if only there, it is MIOpen's search: warm up, and keep its "
      "database.",
      "Tune these shapes once: MIOPEN_FIND_ENFORCE=3 for one run (minutes to hours), then unset it; the result stays "
      "in MIOPEN_USER_DB_PATH.",
      "Try memory_format=torch.channels_last with PYTORCH_MIOPEN_SUGGEST_NHWC=1, and bf16 or fp16: other kernels "
      "become applicable."},
     "MIOPEN_FIND_ENFORCE=3 MIOPEN_USER_DB_PATH=$HOME/.config/miopen python your_script.py",
     kGuide},
    {"convolution",
     "MED",
     [](const Facts& f) -> std::string {
       if (f.share("convolution") < 0.2 || !f.amd() || f.signal("naive_conv_share") >= 0.1) return "";
       return fmt::format("Convolutions take {} of the time.", percent(f.share("convolution")));
     },
     "MIOpen chooses a kernel by shape from its databases, and for some devices (RX 7900 among them) none are "
     "shipped.",
     {"Tune once with MIOPEN_FIND_ENFORCE=3, then run without it. MIOPEN_FIND_MODE=2 (FAST) starts sooner, but was "
      "seen to choose badly for backward passes.",
      "channels_last (torch: model.to(memory_format=torch.channels_last), PYTORCH_MIOPEN_SUGGEST_NHWC=1) saves the "
      "transposes.",
      "pyflame report on MIOpen's database shows what was chosen."},
     "MIOPEN_FIND_ENFORCE=3 python your_script.py",
     kGuide},
    {"layout",
     "MED",
     [](const Facts& f) -> std::string {
       if (f.signal("transpose_share") < 0.02) return "";
       return fmt::format("Layout transposes around convolutions (batched_transpose) take {} of the time.",
                          percent(f.signal("transpose_share")));
     },
     "MIOpen converts NCHW to NHWC and back for kernels that want the other layout.",
     {"Use channels_last throughout, with PYTORCH_MIOPEN_SUGGEST_NHWC=1."},
     nullptr,
     kGuide},
    {"math-attention-rdna",
     "HIGH",
     [](const Facts& f) -> std::string {
       const bool math = f.flag("math_attention") ||
                         (f.share("attention") == 0 && f.signal("softmax_share") >= 0.03 && f.share("GEMM") > 0);
       if (!math || !f.gfx_is({"gfx11", "gfx12"})) return "";
       return fmt::format(
           "Attention runs as matrix products and a softmax on {}; the softmax alone takes {} of the time.", f.gfx(),
           percent(f.signal("softmax_share")));
     },
     "On RDNA 3 and 4 PyTorch uses its flash attention only when asked to; without it scores of all pairs go through "
     "memory (at length 4,096 486 ms against 41 ms were reported).",
     {"Set TORCH_ROCM_AOTRITON_ENABLE_EXPERIMENTAL=1 before Python starts, and use scaled_dot_product_attention."},
     "TORCH_ROCM_AOTRITON_ENABLE_EXPERIMENTAL=1 python your_script.py",
     kSkill},
    {"math-attention",
     "HIGH",
     [](const Facts& f) -> std::string {
       const bool math = f.flag("math_attention") ||
                         (f.share("attention") == 0 && f.signal("softmax_share") >= 0.05 && f.share("GEMM") > 0);
       if (!math || f.gfx_is({"gfx11", "gfx12"})) return "";
       return fmt::format("Attention seems to run as matrix products and a softmax ({} of the time in softmax).",
                          percent(f.signal("softmax_share")));
     },
     "The scores of all pairs go through memory; a fused kernel keeps them on the chip.",
     {"Use torch.nn.functional.scaled_dot_product_attention with a mask that flash attention understands "
      "(is_causal=True rather than a matrix).",
      on_amd("On MI200 and MI300 series flash attention of aiter or CK is faster still.")},
     nullptr,
     kSkill},
    {"attention",
     "LOW",
     [](const Facts& f) -> std::string {
       if (f.share("attention") < 0.3 || !f.gfx_is({"gfx942", "gfx950"})) return "";
       return fmt::format("Attention takes {} of the time.", percent(f.share("attention")));
     },
     "It is the largest part that a better kernel can shorten.",
     {"Compare aiter's flash attention (torch.ops.aiter.*, which torch.compile can see through).",
      "In vLLM: VLLM_ROCM_USE_AITER=1, which is off unless set. VLLM_USE_TRITON_FLASH_ATTN does nothing any more."},
     nullptr,
     kSkill},
    {"gemm",
     "MED",
     [](const Facts& f) -> std::string {
       if (f.share("GEMM") < 0.25 || !f.amd()) return "";
       const json& roof = f.d["signals"]["gemm_of_peak"];
       if (roof.is_number() && roof.get<double>() >= 0.7) return "";
       return fmt::format("Matrix products take {} of the time{}.", percent(f.share("GEMM")),
                          roof.is_number() ? fmt::format(", at {} of what the device could reach for these sizes",
                                                         percent(roof.get<double>()))
                                           : "");
     },
     "rocBLAS and hipBLASLt choose a kernel by size class; the best one for a given size is often another.",
     {"Tune once with TunableOp, then run with tuning off: new sizes would otherwise be tuned in production.",
      "Versions of PyTorch and ROCm are written into the results file: after an update it is discarded as a whole, "
      "so keep the file of each version.",
      on_amd("pyflame report tunableop_results0.csv shows what was chosen and how near to the roofline it is."),
      "For sizes whose rows are a multiple of 512 bytes apart (K % 256 == 0 in fp16, MI300X), pad the leading "
      "dimension by 128 elements."},
     "PYTORCH_TUNABLEOP_ENABLED=1 python your_script.py   # then:  PYTORCH_TUNABLEOP_ENABLED=1 "
     "PYTORCH_TUNABLEOP_TUNING=0 python your_script.py",
     kGuide},
    {"fp32-gemm",
     "HIGH",
     [](const Facts& f) -> std::string {
       if (f.signal("fp32_gemm_share") < 0.15) return "";
       return fmt::format("Matrix products in float32 take {} of the time.", percent(f.signal("fp32_gemm_share")));
     },
     "Matrix units are several times faster in 16 bits; on RDNA they do not do float32 at all.",
     {"Run the model in bf16: torch.autocast(\"cuda\", dtype=torch.bfloat16). bf16 needs no GradScaler.",
      "torch.set_float32_matmul_precision(\"high\") uses xf32 on MI300X (gfx942, there with HIPBLASLT_ALLOW_TF32=1) "
      "and TF32 on NVIDIA; it changes "
      "results slightly and has no effect on MI350 (gfx950) and Radeon."},
     nullptr,
     kSkill},
    {"eager-kernels",
     "MED",
     [](const Facts& f) -> std::string {
       if (f.signal("eager_share") < 0.25) return "";
       return fmt::format("Unfused elementwise, copy and reduction kernels of PyTorch take {} of the time.",
                          percent(f.signal("eager_share")));
     },
     "Each reads its inputs from memory and writes them back; fused, most of that traffic goes.",
     {"torch.compile(model, mode=\"default\"); the first run takes minutes.",
      "Avoid casts: keep weights in the type that is computed in, instead of autocast copying them each step.",
      "What the compiler leaves: Triton kernels for RMSNorm, SiLU and multiply, add and norm."},
     nullptr,
     kSkill},
    {"triton",
     "LOW",
     [](const Facts& f) -> std::string {
       if (f.signal("triton_share") < 0.3) return "";
       return fmt::format("Triton kernels take {} of the time.", percent(f.signal("triton_share")));
     },
     "Their tile sizes, warps and stages decide how many waves a compute unit holds.",
     {on_amd("Let pyflame inspect ~/.triton/cache show registers, spills and what would reach the next wave."),
      "Autotune BLOCK sizes, num_warps and num_stages.",
      on_amd("Autotune waves_per_eu too; num_stages=2 for kernels with one matrix product, 1 where two are fused "
             "(since Triton 3.2; before it 0 and 1)."),
      on_amd("matrix_instr_nonkdim=16 is mostly the better one for products on MI300X.")},
     on_amd("pyflame inspect ~/.triton/cache"),
     kGuide},
    {"exposed-communication",
     "HIGH",
     [](const Facts& f) -> std::string {
       if (!f.d["communication"].is_object()) return "";
       const double exposed = f.d["communication"]["exposed_share"];
       if (exposed < 0.1) return "";
       return fmt::format("Communication that nothing hides takes {} of the time ({} in all).", percent(exposed),
                          microseconds(f.d["communication"]["us"].get<double>()));
     },
     "While ranks exchange data the compute units wait.",
     {"Overlap: gradient buckets (DDP bucket_cap_mb), prefetch in FSDP; check that each rank reaches the collective "
      "at the same time: a slow rank shows as communication on all others.",
      on_amd("TORCH_NCCL_HIGH_PRIORITY=1 with GPU_MAX_HW_QUEUES=2 helped FSDP on MI300X; measure, programs with many "
             "streams lose."),
      on_amd("One process per device; /proc/sys/kernel/numa_balancing 0; iommu=pt (pyflame doctor looks at these)."),
      on_amd("NCCL_MIN_NCHANNELS=112 only with all 8 devices of an MI300X node: with fewer ranks it is ignored.")},
     on_amd("pyflame doctor"),
     kGuide},
    {"partial-node",
     "MED",
     [](const Facts& f) -> std::string {
       if (!f.d["communication"].is_object() || !f.gfx_is({"gfx942", "gfx950"})) return "";
       for (const json& c : f.d["communication"]["collectives"])
         if (c["ranks"].is_number() && c["ranks"] > 1 && c["ranks"] < 8 && f.share("communication") >= 0.05)
           return fmt::format("Collectives run among {} devices, and take {} of the time.", c["ranks"].get<int>(),
                              percent(f.share("communication")));
       return "";
     },
     "In a node of eight, each pair has its own link: among 2 or 4 devices most links lie idle.",
     {"Use one device (no collective) or all eight of the node."},
     nullptr,
     kGuide},
    {"narrow-grids",
     "MED",
     [](const Facts& f) -> std::string {
       if (f.signal("narrow_share") < 0.1) return "";
       return fmt::format("{} of the time goes to kernels with fewer than {:.0f} workgroups.",
                          percent(f.signal("narrow_share")), f.signal("wanted_workgroups"));
     },
     "They cannot fill the compute units of this device.",
     {"Split along K (split-K, stream-K), use smaller tiles, batch more.",
      "For decoding with small batches this is in the nature of the work: then bandwidth is what counts (fp8 or "
      "quantised weights)."},
     nullptr,
     kGuide},
    {"scratch",
     "MED",
     [](const Facts& f) -> std::string {
       if (f.signal("scratch_share") < 0.05) return "";
       return fmt::format("Kernels that use scratch memory (spilled registers or arrays) take {} of the time.",
                          percent(f.signal("scratch_share")));
     },
     "Scratch is device memory: a spill in a loop costs as much as a load.",
     {on_amd("pyflame inspect on the program or the cache shows registers, spills and where they are.")},
     on_amd("pyflame inspect FILE"),
     kGuide},
    {"pageable-copies",
     "MED",
     [](const Facts& f) -> std::string {
       for (const json& c : f.d["copies"])
         if (c["host_memory"] == "pageable" && c["us"].get<double>() >= 0.01 * f.wall())
           return fmt::format("Copies ({}) from or to pageable memory take {}{}.", c["direction"].get<std::string>(),
                              microseconds(c["us"].get<double>()),
                              c["gbs"].is_number() ? fmt::format(", at {:.1f} GB/s", c["gbs"].get<double>()) : "");
       return "";
     },
     "Pageable memory is copied twice, and the call waits.",
     {"pin_memory=True in the DataLoader (or tensor.pin_memory()), and non_blocking=True."},
     nullptr,
     "ROCm 6.3 reference (RX 7900)"},
    {"idle-unknown",
     "MED",
     [](const Facts& f) -> std::string {
       if (!f.timeline() || f.gap("unknown") < 0.2) return "";
       return fmt::format("The device is idle in {} of the time, and the trace does not show what the CPU did then.",
                          percent(f.gap("unknown")));
     },
     "Without the CPU's side the reason cannot be told: data, Python, another process.",
     {"PyTorch: record with ProfilerActivity.CPU and ProfilerActivity.CUDA. Other programs: rocprofv3 --sys-trace "
      "--output-format csv."},
     on_amd("rocprofv3 --sys-trace --output-format csv -- python your_script.py"),
     kGuide},
    {"unsteady-steps",
     "INFO",
     [](const Facts& f) -> std::string {
       const json& s = f.d["time"]["steps"];
       if (!s.is_object() || s["count"] < 3 || s["spread"] < 0.5) return "";
       return fmt::format("Steps differ: {} between the shortest and the longest, around a median of {}.",
                          percent(s["spread"].get<double>()), microseconds(s["median_us"].get<double>()));
     },
     "Averages then describe no step; the first ones compile, allocate and search.",
     {"Choose steady ones with --steps FIRST:LAST, and look at the longest one alone."},
     nullptr,
     kSkill},
    {"statistics-only",
     "INFO",
     [](const Facts& f) -> std::string {
       if (f.timeline() || f.wall() <= 0) return "";
       return "The input has totals per kernel and no times: idle time, gaps and overlap cannot be told.";
     },
     "Shares are of the kernels' time, not of the step.",
     {"Record a trace: rocprofv3 --sys-trace --output-format csv, or torch.profiler."},
     on_amd("rocprofv3 --sys-trace --output-format csv -- python your_script.py"),
     kGuide},
};

// For traces of pf.profiler: their steps are the host's, and what mends them is PyFlame's.
constexpr const char* kOwn = "docs/profiling.md";
const Rule kOwnRules[] = {
    {"launches-only",
     "INFO",
     [](const Facts& f) -> std::string {
       if (!f.device_is("launches of")) return "";
       return "The steps are what the host did to launch kernels on a GPU; how long these ran is not in this trace.";
     },
     "A GPU works beside the host, and its times are not asked for unless you say so.",
     {"Record with pf.profiler.profile(device_times=True): the host then waits after each kernel."},
     nullptr,
     kOwn},
    {"data-loading",
     "HIGH",
     [](const Facts& f) -> std::string {
       if (f.gap("data_loading") < 0.03) return "";
       return fmt::format("Nothing runs while data is loaded, in {} of the time.", percent(f.gap("data_loading")));
     },
     "A batch is prepared while steps could already run on it.",
     {"Prepare batches in workers: DataLoader(num_workers=2, persistent_workers=True)."},
     nullptr,
     kOwn},
    {"planning",
     "MED",
     [](const Facts& f) -> std::string {
       if (f.gap("compilation") < 0.03) return "";
       return fmt::format("Windows that were new are planned in {} of the time ({:.0f} times).",
                          percent(f.gap("compilation")), f.gap("compilation", "count"));
     },
     "A window is planned once and then found in the cache: after the first steps there should be none.",
     {"Record after a warm-up: profile(schedule=pf.profiler.schedule(wait=1, warmup=2, active=5)).",
      "Where it goes on: shapes that change with each step; pad them to a few sizes."},
     nullptr,
     kOwn},
    {"recording",
     "MED",
     [](const Facts& f) -> std::string {
       if (f.gap("recording") < 0.2) return "";
       return fmt::format("Python and the recording of ops take {} of the time; steps last {} on average.",
                          percent(f.gap("recording")), microseconds(f.signal("mean_kernel_us")));
     },
     "While Python runs nothing is computed; where steps are short it is what counts.",
     {"Larger batches: each step then has more to do.",
      "Read values (item(), numpy(), print, if) once in many steps, so that windows become longer."},
     nullptr,
     kOwn},
    {"allocation",
     "LOW",
     [](const Facts& f) -> std::string {
       if (f.gap("allocation") < 0.03) return "";
       return fmt::format("Memory is asked of the system in {} of the time.", percent(f.gap("allocation")));
     },
     "Freed memory is kept for the next window: after the first steps there should be little of it.",
     {"Record after a warm-up; do not call pf.empty_cache() in the loop."},
     nullptr,
     kOwn},
    {"unsteady-steps",
     "INFO",
     [](const Facts& f) -> std::string {
       const json& s = f.d["time"]["steps"];
       if (!s.is_object() || s["count"] < 3 || s["spread"] < 0.5) return "";
       return fmt::format("Steps differ: {} between the shortest and the longest, around a median of {}.",
                          percent(s["spread"].get<double>()), microseconds(s["median_us"].get<double>()));
     },
     "Averages then describe no step; the first ones plan and allocate.",
     {"Choose steady ones with --steps FIRST:LAST, and look at the longest one alone."},
     nullptr,
     kOwn},
};

// What stands for a category in a sentence, and what to do about it when no rule has said more.
struct Bound {
  const char* category;
  const char* sentence;
  const char* next;
};
constexpr Bound kBounds[] = {
    {"launch-bound", "The CPU's launches bound it", "fewer and larger kernels: torch.compile, larger batches"},
    {"idle", "The device is idle", "find out what the program waits for (the gaps below)"},
    {"GEMM", "Matrix products bound it", "tune them (TunableOp) and see whether a lower precision will do"},
    {"convolution", "Convolutions bound it", "let MIOpen tune these shapes, and try channels_last"},
    {"attention", "Attention bounds it", "compare the attention kernels that there are for this device"},
    {"normalisation", "Normalisations bound it", "fuse them: torch.compile, or a Triton kernel"},
    {"elementwise", "Elementwise kernels bound it, which means memory bandwidth", "fuse them: torch.compile"},
    {"reduction", "Reductions bound it, which means memory bandwidth", "fuse them: torch.compile"},
    {"memory", "Copies and changes of layout bound it", "avoid casts, copies and transposes"},
    {"communication", "Communication bounds it", "overlap it with compute, and look at the links (pyflame doctor)"},
    {"other", "Kernels of a kind that is not known bound it", "look at the longest of them (pyflame inspect)"},
};

constexpr Bound kOwnBounds[] = {
    {"launch-bound", "Python, recording and the executor bound it", "larger batches, values read less often"},
    {"idle", "Nothing runs most of the time", "find out what the program waits for (between the steps, below)"},
    {"GEMM", "Matrix products bound it", "fewer or smaller ones, or bfloat16 where the machine is faster with it"},
    {"convolution", "Convolutions bound it", "see which entry runs them (pf.explain)"},
    {"attention", "Attention bounds it", "shorter contexts, or causal attention where it will do"},
    {"normalisation", "Normalisations bound it", "see with what they could be fused (pf.explain)"},
    {"elementwise", "Elementwise loops bound it, which means memory bandwidth", "see what splits them (pf.explain)"},
    {"reduction", "Reductions bound it, which means memory bandwidth",
     "see with what they could be fused (pf.explain)"},
    {"memory", "Copies and look-ups bound it", "avoid casts, copies and changes of layout"},
    {"communication", "Communication bounds it", "overlap it with compute"},
    {"other", "Sorts and other rare ops bound it", "look at the longest of them below"},
};

// The host waits, because the device works.
constexpr Bound kLaunchesIdle = {"idle", "The host waits for the device to do its work",
                                 "record with device_times=True to see which kernels take it"};

}  // namespace

json make_advice(const json& document) {
  const Facts facts{document};
  json out = json::array();
  if (!facts.traced()) return out;
  const std::span<const Rule> rules =
      facts.flag("own") ? std::span<const Rule>(kOwnRules) : std::span<const Rule>(kRules);
  for (const Rule& r : rules) {
    const std::string what = r.what(facts);
    if (what.empty()) continue;
    const auto given = [&](const Action& a) { return a.text != nullptr && (facts.amd() || !a.amd_only); };
    json actions = json::array();
    for (const Action& a : r.actions)
      if (given(a)) actions.push_back(a.text);
    out.push_back({{"id", r.id},
                   {"severity", r.severity},
                   {"what", what},
                   {"why", r.why},
                   {"do", std::move(actions)},
                   {"command", given(r.command) ? json(r.command.text) : json(nullptr)},
                   {"source", r.source}});
  }
  return out;
}

std::string make_verdict(const json& d) {
  const Facts facts{d};
  if (!facts.traced()) {
    if (facts.flag("own")) return "No step ran in this profile.";
    if (facts.flag("has_ops") || facts.flag("has_calls"))
      return "The profile has the CPU's side only, and no work of a device. Next: record with "
             "activities=[ProfilerActivity.CPU, "
             "ProfilerActivity.CUDA] (ROCm too is CUDA there), or with rocprofv3 --sys-trace.";
    return "There is no work of a device in this profile.";
  }
  const Bound* best = nullptr;
  double most = -1;
  const bool own = facts.flag("own");
  for (const Bound& b : own ? kOwnBounds : kBounds) {
    const double share = facts.share(b.category);
    if (share > most) {
      most = share;
      best = &b;
    }
  }
  if (own && best->category == std::string_view("idle") && facts.device_is("launches of")) best = &kLaunchesIdle;
  const std::string of =
      facts.timeline() ? (facts.steps() > 0 ? "of the step" : "of the time") : "of the kernels' time";
  std::string text = fmt::format("{}: {} {}", best->sentence, percent(most), of);
  const double waiting = facts.share("launch-bound") + facts.share("idle");
  const std::string_view name = best->category;
  const bool says_it = best == &kLaunchesIdle;
  if (!says_it && (name == "launch-bound" || name == "idle"))
    text += fmt::format(" ({} in {})", own ? "steps run" : "the device works", percent(std::max(0.0, 1 - waiting)));
  else if (!says_it && waiting >= 0.1)
    text += fmt::format("; in {} {}", percent(waiting), own ? "no step runs" : "the device waits");
  return text + fmt::format(". Next: {}.", best->next);
}

}  // namespace pyflame::tools::profile
