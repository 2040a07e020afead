// resample: kernels/resample/resample.h.
#include "pyflame/backends/gpu/jit/kernel.h"
#include "pyflame/backends/gpu/ops/impls.h"
#include "pyflame/backends/gpu/shapes/walk.h"
#include "pyflame/kernels/resample/resample_args.h"

namespace pyflame::gpu {

namespace {

constexpr unsigned kResampleThreads = 256, kResampleEach = 4;
constexpr int64_t kMostKnownTaps = 4, kMostRowsOfGroups = 65535;

class Resample final : public Executable {
 public:
  explicit Resample(const Problem& p)
      : x_(p.root().ins[0]),
        begin_(p.root().ins[1]),
        weight_(p.root().ins[2]),
        y_(p.root().outs[0]),
        kernel_(p.graph.device.type, kResampleThreads,
                kernel_source({"device/divider.h", "index/walk.h", "resample/resample.h"}, kResampleThreads,
                              fmt::format("(const {0}* x, const pf::i64* begin, const {1}* weight, {0}* y, "
                                          "pf::ResampleShape<{6}> p) {{ pf::resample<{0}, {1}, {2}, {3}, {4}, {5}, "
                                          "{6}>(x, begin, weight, y, p); "
                                          "}}",
                                          stored_type(x_.dtype), stored_type(weight_.dtype), kResampleThreads,
                                          kResampleEach, weight_.shape[1] <= kMostKnownTaps ? weight_.shape[1] : 0,
                                          along(p), starts_of(p).wide()))) {
    const int d = static_cast<int>(p.root().attr<DimAttrs>().dim);
    shape_.n = y_.shape[d], shape_.lines = shape_.n ? y_.numel() / shape_.n : 0, shape_.taps = weight_.shape[1];
    shape_.x_step = x_.strides[d], shape_.y_step = y_.strides[d], shape_.begin_step = begin_.strides[0];
    shape_.starts = starts_of(p);
    const int64_t fast = along(p) ? shape_.n : shape_.lines, slow = along(p) ? shape_.lines : shape_.n;
    while ((1 << shape_.row_bits) < std::min<int64_t>(fast, kResampleThreads)) ++shape_.row_bits;
    const int64_t rows = int64_t{kResampleThreads} >> shape_.row_bits;
    groups_ = {static_cast<unsigned>(ceil_div(fast, int64_t{1} << shape_.row_bits)),
               static_cast<unsigned>(std::min<int64_t>(ceil_div(slow, rows * kResampleEach), kMostRowsOfGroups)), 1};
  }
  void run(const RunContext& ctx) override {
    if (y_.numel() == 0) return;
    kernel_.launch(ctx.device, groups_, ctx.bindings[x_.binding], ctx.bindings[begin_.binding],
                   ctx.bindings[weight_.binding], ctx.bindings[y_.binding], shape_);
  }

 private:
  // Whether neighbours in memory are results of one line.
  static bool along(const Problem& p) {
    return p.root().outs[0].strides[static_cast<int>(p.root().attr<DimAttrs>().dim)] == 1;
  }

  static Walk<2> starts_of(const Problem& p) {
    const Operand &x = p.root().ins[0], &y = p.root().outs[0];
    const int d = static_cast<int>(p.root().attr<DimAttrs>().dim);
    Dims shape = x.shape, x_strides = x.strides, y_strides = y.strides;
    shape.erase(d), x_strides.erase(d), y_strides.erase(d);
    return Walk<2>(shape, {x_strides, y_strides});
  }

  Operand x_, begin_, weight_, y_;
  Kernel kernel_;
  pf::ResampleShape<false> shape_;
  std::array<unsigned, 3> groups_{};
};

Refusal accepts_tables(const Problem& p) {
  if (!p.root().ins[2].contiguous) return "takes a table without gaps";
  return std::nullopt;
}

}  // namespace

std::span<const Impl> resample_impls(DeviceType) {
  static const Impl impl{"gpu.resample", accepts_tables, make_of<Resample>};
  return {&impl, 1};
}

}  // namespace pyflame::gpu
