// resample: kernels/resample/resample.h.
#include "pyflame/backends/gpu/jit/kernel.h"
#include "pyflame/backends/gpu/ops/impls.h"
#include "pyflame/kernels/resample/resample_args.h"

namespace pyflame::gpu {

namespace {

constexpr unsigned kResampleThreads = 256, kResampleEach = 4;

class Resample final : public Executable {
 public:
  explicit Resample(const Problem& p)
      : x_(p.root().ins[0]),
        begin_(p.root().ins[1]),
        weight_(p.root().ins[2]),
        y_(p.root().outs[0]),
        kernel_(p.graph.device.type, kResampleThreads,
                kernel_source(
                    {"resample/resample.h"}, kResampleThreads,
                    fmt::format("(const {0}* x, const pf::i64* begin, const {1}* weight, {0}* y, "
                                "pf::ResampleShape p) {{ pf::resample<{0}, {1}, {2}, {3}>(x, begin, weight, y, p); }}",
                                stored_type(x_.dtype), stored_type(weight_.dtype), kResampleThreads, kResampleEach))) {
    const int d = static_cast<int>(p.root().attr<DimAttrs>().dim);
    shape_.n = y_.shape[d], shape_.lines = shape_.n ? y_.numel() / shape_.n : 0, shape_.taps = weight_.shape[1];
    shape_.x_step = x_.strides[d], shape_.y_step = y_.strides[d], shape_.begin_step = begin_.strides[0];
    shape_.along = y_.strides[d] == 1;
    Dims shape = x_.shape, x_strides = x_.strides, y_strides = y_.strides;
    shape.erase(d), x_strides.erase(d), y_strides.erase(d);
    shape_.x_lines = collapsed_view(shape, x_strides), shape_.y_lines = collapsed_view(shape, y_strides);
  }
  void run(const RunContext& ctx) override {
    if (y_.numel() == 0) return;
    kernel_.launch(ctx.device, {groups_for(y_.numel(), kResampleThreads * kResampleEach), 1, 1},
                   ctx.bindings[x_.binding], ctx.bindings[begin_.binding], ctx.bindings[weight_.binding],
                   ctx.bindings[y_.binding], shape_);
  }

 private:
  Operand x_, begin_, weight_, y_;
  Kernel kernel_;
  pf::ResampleShape shape_;
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
