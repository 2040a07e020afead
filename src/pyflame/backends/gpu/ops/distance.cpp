// pdist: kernels/distance/pairs.h.
#include "pyflame/backends/gpu/jit/kernel.h"
#include "pyflame/backends/gpu/ops/impls.h"
#include "pyflame/kernels/distance/pairs_args.h"

namespace pyflame::gpu {

namespace {

constexpr unsigned kPairThreads = 256, kPairSide = 16;

class PairDistances final : public Executable {
 public:
  explicit PairDistances(const Problem& p)
      : x_(p.root().ins[0]),
        y_(p.root().outs[0]),
        kernel_(p.graph.device.type, kPairThreads,
                kernel_source(
                    {"distance/pairs.h"}, kPairThreads,
                    fmt::format("(const {0}* x, {0}* y, pf::PairShape p) {{ pf::pair_distances<{0}, {1}>(x, y, p); }}",
                                stored_type(x_.dtype), kPairThreads))) {
    shape_.rows = x_.shape[0], shape_.width = x_.shape[1];
    shape_.row = x_.strides[0], shape_.column = x_.strides[1], shape_.step = y_.strides[0];
  }
  void run(const RunContext& ctx) override {
    if (y_.numel() == 0) return;
    const int64_t across = (shape_.rows + kPairSide - 1) / kPairSide;
    kernel_.launch(ctx.device, {groups_for(across * across, 1), 1, 1}, ctx.bindings[x_.binding],
                   ctx.bindings[y_.binding], shape_);
  }

 private:
  Operand x_, y_;
  Kernel kernel_;
  pf::PairShape shape_;
};

}  // namespace

std::span<const Impl> pdist_impls(DeviceType) {
  static const Impl impl{"gpu.pairs", accepts_all, make_of<PairDistances>};
  return {&impl, 1};
}

}  // namespace pyflame::gpu
