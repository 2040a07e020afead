// scaled_mm: the vendors' libraries, and a kernel of our own for what they do not take. It is recorded only where the device's matrix cores take the
// formats (GpuBackend::multiplies_float8).
#include "pyflame/backends/gpu/jit/kernel.h"
#include "pyflame/backends/gpu/libs/library.h"
#include "pyflame/backends/gpu/ops/impls.h"
#include "pyflame/kernels/matmul/scaled_args.h"

namespace pyflame::gpu {

namespace {

constexpr int kScaledThreads = 256;
constexpr int64_t kScaledTile = 64;

// The struct of a format in kernels/device/scalar.h.
std::string format_of(int64_t dtype) { return fmt::format("pf::{}", dtype_name(static_cast<DType>(dtype))); }

class ScaledProduct final : public Executable {
 public:
  explicit ScaledProduct(const Problem& p)
      : node_(p.root()), kernel_(p.graph.device.type, kScaledThreads, text(p.root())) {
    const Operand &a = node_.ins[0], &b = node_.ins[1], &c = node_.outs[0];
    shape_ = {c.shape[0], c.shape[1], a.shape[1], a.strides[0], a.strides[1], b.strides[0], b.strides[1], c.strides[0]};
  }
  void run(const RunContext& ctx) override {
    const auto tiles = [](int64_t size) { return (size + kScaledTile - 1) / kScaledTile; };
    const auto at = [&](size_t i) { return ctx.bindings[node_.ins[i].binding]; };
    kernel_.launch(ctx.device, {groups_for(tiles(shape_.m) * tiles(shape_.n), 1), 1, 1}, at(0), at(1), at(2), at(3),
                   ctx.bindings[node_.outs[0].binding], shape_);
  }

 private:
  static std::string text(const Node& n) {
    const auto codes = n.attr<ScaledAttrs>();
    const char* result = stored_type(n.outs[0].dtype);
    return kernel_source(
        {"matmul/scaled.h"}, kScaledThreads,
        fmt::format(
            "(const pf::u8* a, const pf::u8* b, const float* sa, const float* sb, {0}* c, pf::ScaledShape p) {{ "
            "pf::scaled_mm<{1}, {2}, {0}, {3}>(a, b, sa, sb, c, p); }}",
            result, format_of(codes.a), format_of(codes.b), kScaledThreads));
  }
  Node node_;
  Kernel kernel_;
  pf::ScaledShape shape_;
};

Refusal accepts_scaled(const Problem& p) {
  const Product g(p.root());
  if (auto no = library_refuses(p, g)) return no;
  if (auto no = library_refuses_epilogue(p)) return no;
  return library_has_no_kernel(p);
}
Refusal accepts_alone(const Problem& p) {
  if (p.size() > 1) return "it computes nothing behind its product";
  return std::nullopt;
}
std::unique_ptr<Executable> make_scaled(const Problem& p) { return make_library(p); }
std::unique_ptr<Executable> make_algorithm_of_scaled(const Problem& p, const std::string& algorithm) {
  return make_library(p, algorithm);
}
constexpr LibraryConfigurations kScaledAlgorithms{library_algorithms, make_algorithm_of_scaled, enumerate_library};
constexpr Impl kScaled[] = {{"gpu.blas", accepts_scaled, make_scaled, &kScaledAlgorithms},
                            {"gpu.scaled_mm", accepts_alone, make_of<ScaledProduct>}};

}  // namespace

std::span<const Impl> scaled_mm_impls(DeviceType) { return kScaled; }

}  // namespace pyflame::gpu
