// What the backends rocm and cuda have for each op of the table, without a device: an implementation that takes it, and the texts of its
// kernels for other compilers. (Attention, convolution, pooling, batch_norm, products and fused loops have variants that depend on the device
// or on the group: their own tests write those. argmin is argmax.)
#include <functional>
#include <map>
#include <regex>
#include <set>

#include "gpu_case.h"
#include "gpu_problems.h"
#include "pyflame/backends/gpu/libs/fft_library.h"
#include "pyflame/backends/gpu/loops/loop_source.h"

namespace pyflame {
namespace {

constexpr DType kFloats[] = {DType::bfloat16, DType::float32, DType::float16, DType::float64};

// The last one accepts everything, so every op that is recorded has a kernel.
TEST(GpuOps, EveryOpHasAnImplementation) {
  for (const DeviceType type : {DeviceType::rocm, DeviceType::cuda}) {
    const Backend* backend = find_backend(type);
    if (!backend) continue;  // this build is without it
    for (int i = 0; i < kNumOps; ++i) {
      const auto op = static_cast<OpId>(i);
      if (by_libraries(op)) continue;
      for (const DType d : kFloats) {
        const auto problems = GpuProblems(type, d).of(op);
        EXPECT_FALSE(problems.empty()) << op_name(op) << " has no problem in gpu_problems.h";
        for (const GpuProblem& p : problems) {
          const std::span<const Impl> impls = backend->impls(p.problem());
          ASSERT_FALSE(impls.empty()) << p.name << " on " << backend->name();
          const Refusal why = impls.back().accepts(p.problem());
          EXPECT_FALSE(why) << p.name << " on " << backend->name() << ": " << impls.back().name << " " << *why;
        }
      }
    }
  }
}

// The function of kernels/ that a kernel is.
std::string function_of(const std::string& text) {
  static const std::regex call(R"(\{ (?:pf::await_earlier_kernels\(\); )?(?:return )?pf::(?!await_)(\w+)[<(])");
  const size_t body = text.rfind("PF_KERNEL(");
  std::smatch found;
  const std::string kernel = text.substr(body);
  return std::regex_search(kernel, found, call) ? found[1].str() : "kernel";
}

class Dump {
 public:
  // Each text once, under the first name that it is made for.
  void write(const std::string& name, const std::vector<std::string>& texts, DType dtype) {
    for (const std::string& text : texts) {
      if (!seen_.insert(text).second) continue;
      std::string stem = texts.size() > 1 ? name + "_" + function_of(text) : name;
      stem += "_" + std::string(dtype_name(dtype));
      const int before = count_[stem]++;
      const bool units = text.find("pf::float_units<") != text.npos;  // only for GPUs with matrix cores
      write_text(before ? fmt::format("{}_{}", stem, before) : stem, units ? by_matrix_units(text, "") : text);
    }
  }

 private:
  std::set<std::string> seen_;
  std::map<std::string, int> count_;
};

bool of_whole_numbers(OpId op) {
  switch (op) {
    case OpId::argmax:
    case OpId::argmin:
    case OpId::gather:
    case OpId::index_select:
    case OpId::scatter_add:
    case OpId::index_add:
    case OpId::topk:
    case OpId::sort: return true;
    default: return false;
  }
}

using Write = std::function<void(const std::string& name, const std::vector<std::string>& texts, DType dtype)>;

void write_ops(const Backend& backend, const Write& write) {
  static const std::set<OpId> elsewhere{OpId::argmin,          OpId::attention,         OpId::attention_grad,
                                        OpId::varlen_attn,     OpId::varlen_attn_grad,  OpId::matmul,
                                        OpId::conv2d,          OpId::conv2d_grad_input, OpId::conv2d_grad_weight,
                                        OpId::batch_norm,      OpId::batch_norm_grad,   OpId::max_pool2d,
                                        OpId::max_pool2d_grad, OpId::avg_pool2d,        OpId::avg_pool2d_grad};
  for (int i = 0; i < kNumOps; ++i) {
    const auto op = static_cast<OpId>(i);
    if (op_info(op).cls != OpClass::Other || elsewhere.count(op) || on_host(op) || by_libraries(op)) continue;
    std::vector<DType> dtypes{DType::bfloat16, DType::float32, DType::float64};  // float16 differs in loads and stores
    if (of_whole_numbers(op)) dtypes.insert(dtypes.end(), {DType::int64, DType::uint8});
    for (const DType d : dtypes)
      for (const GpuProblem& p : GpuProblems(DeviceType::rocm, d).of(op)) {
        const gpu::KernelTexts made;
        const std::span<const Impl> impls = backend.impls(p.problem());
        impls.back().make(p.problem());
        for (const Impl& impl : impls.first(impls.size() - 1))  // those that are no library's
          if (std::string_view(impl.name).starts_with("gpu.put") && !impl.accepts(p.problem())) impl.make(p.problem());
        ASSERT_FALSE(made.all().empty()) << p.name << " makes no kernel";
        write(p.name, made.all(), d);
      }
  }
  for (const DType d : {DType::float32, DType::float64}) write("fft_scale", {gpu::fft_scale_source(d)}, d);
}

// For the build that compiles kernels for AMD GPUs: PYFLAME_DUMP_KERNELS names the folder.
TEST(GpuOps, SourcesForOtherCompilers) {
  if (!std::getenv("PYFLAME_DUMP_KERNELS")) GTEST_SKIP() << "PYFLAME_DUMP_KERNELS names no folder";
  const Backend* backend = find_backend(DeviceType::rocm);
  if (!backend) GTEST_SKIP() << "this build is without ROCm";
  Dump dump;
  write_ops(*backend, [&](const auto& name, const auto& texts, DType d) { dump.write(name, texts, d); });
}

void write_loops(const Write& to) {
  const auto write = [&](const std::string& name, const GpuProblem& p, DType d) {
    std::vector<std::string> texts;
    for (const bool vectors : {true, false})
      for (const gpu::LoopKernel& k : gpu::plan_loop(p.problem(), vectors).kernels) texts.push_back(k.source);
    for (const std::string& text : texts) to(name, {text}, d);
  };
  for (const DType d : kFloats) {
    const auto problems = [d] { return GpuProblems(DeviceType::rocm, d); };
    write("loop_sources", problems().chain(OpClass::Source), d);
    // PyFlame cuts a loop long before it has as many ops as a class.
    write("loop_unary", problems().chain(OpClass::Unary, OpId{0}, OpId::tan), d);
    write("loop_trigonometric", problems().chain(OpClass::Unary, OpId::tan, OpId::sinh), d);
    write("loop_hyperbolic", problems().chain(OpClass::Unary, OpId::sinh, OpId::erf), d);
    write("loop_activations", problems().chain(OpClass::Unary, OpId::erf), d);
    write("loop_binary", problems().chain(OpClass::Binary, OpId{0}, OpId::atan2), d);
    write("loop_angles", problems().chain(OpClass::Binary, OpId::atan2, OpId::eq), d);
    write("loop_relations", problems().chain(OpClass::Binary, OpId::eq), d);
    write("loop_ternary", problems().chain(OpClass::Ternary), d);
  }
  for (int i = 0; i < kNumOps; ++i) {
    const auto op = static_cast<OpId>(i);
    const OpInfo& info = op_info(op);
    if (info.cls != OpClass::Unary && info.cls != OpClass::Binary) continue;
    if (info.gpu_cost < kLarge && op != OpId::mul_complex && op != OpId::div_complex) continue;
    for (const DType d : {DType::float32, DType::float64, DType::int64}) {
      const bool bits = info.integers_only || info.bits_kept;
      if (bits == is_float(d)) continue;
      write("loop_" + std::string(op_name(op)), GpuProblems(DeviceType::rocm, d).alone(op), d);
    }
  }
  for (const DType d : {DType::int64, DType::uint8}) {
    write("loop_bits", GpuProblems(DeviceType::rocm, d).chain(OpClass::Unary), d);
    write("loop_pairs_of_bits", GpuProblems(DeviceType::rocm, d).chain(OpClass::Binary), d);
  }
  for (int i = 0; i < kNumOps; ++i) {
    const auto op = static_cast<OpId>(i);
    if (op_info(op).cls != OpClass::Reduce) continue;
    for (const DType d : {DType::bfloat16, DType::float32})
      for (const GpuProblem& p : GpuProblems(DeviceType::rocm, d).of(op))
        if (p.group.kind == GroupKind::Loop) write("loop_" + p.name, p, d);
  }
}

TEST(GpuOps, SourcesForOtherCompilersOfLoops) {
  if (!std::getenv("PYFLAME_DUMP_KERNELS")) GTEST_SKIP() << "PYFLAME_DUMP_KERNELS names no folder";
  Dump dump;
  write_loops([&](const auto& name, const auto& texts, DType d) { dump.write(name, texts, d); });
}

TEST(GpuOps, EveryKernelAwaitsEarlierKernels) {
  const Backend* backend = find_backend(DeviceType::rocm);
  if (!backend) GTEST_SKIP() << "this build is without ROCm";
  if (device_count(DeviceType::rocm) > 0) GTEST_SKIP() << "the device's compiler would compile every text";
  std::set<std::string> seen;
  const Write check = [&](const std::string& name, const std::vector<std::string>& texts, DType d) {
    for (const std::string& text : texts)
      if (seen.insert(text).second) expect_waits(fmt::format("{} {}", name, dtype_name(d)), gpu::whole_source(text));
  };
  write_ops(*backend, check);
  write_loops(check);
  EXPECT_GT(seen.size(), 100u);
}

TEST(GpuOps, AKernelThatDoesNotWaitIsFound) {
  const std::string body = "(float* a) { pf::walk<float>(a); }",
                    waits = "PF_DEVICE void walk(S* a) {\n  pf::await_earlier_kernels();\n}\n",
                    does_not = "PF_DEVICE void walk(S* a) {\n}\n";
  const auto made = [&](const std::string& before, gpu::Start start) {
    return gpu::whole_source(gpu::kernel_source({}, 64, body, before, "", start));
  };
  EXPECT_EQ(why_it_does_not_wait(made(does_not, gpu::Start::awaits)), "");
  EXPECT_EQ(why_it_does_not_wait(made(does_not, gpu::Start::after)), "");
  EXPECT_EQ(why_it_does_not_wait(made(waits, gpu::Start::itself)), "");
  EXPECT_EQ(why_it_does_not_wait(made(does_not, gpu::Start::itself)), "its function walk does not");
}

}  // namespace
}  // namespace pyflame
