// matmul: kernels/matmul/matmul.h.
#include "pyflame/backends/gpu/impls.h"
#include "pyflame/backends/gpu/kernel.h"
#include "pyflame/base/error.h"

namespace pyflame::gpu {

namespace {

constexpr int kTile = 64, kDepth = 16, kEach = 4;
constexpr unsigned kMatmulThreads = (kTile / kEach) * (kTile / kEach);

class Matmul final : public Executable {
 public:
  explicit Matmul(const Problem& p)
      : a_(p.root().ins[0]),
        b_(p.root().ins[1]),
        c_(p.root().outs[0]),
        kernel_(p.graph.device.type, kMatmulThreads,
                kernel_source({"matmul/matmul.h"}, kMatmulThreads,
                              fmt::format("(const {0}* a, const {0}* b, {0}* c, pf::MatmulShape p) {{ pf::matmul<{0}, "
                                          "{1}, {2}, {3}>(a, b, c, p); }}",
                                          stored_type(c_.dtype), kTile, kDepth, kEach))) {
    const int r = c_.shape.size();
    const Dims batch = leading(c_.shape, 2);
    shape_.m = c_.shape[r - 2], shape_.n = c_.shape[r - 1], shape_.k = a_.shape.back();
    shape_.a_row = a_.strides[r - 2], shape_.a_col = a_.strides[r - 1];
    shape_.b_row = b_.strides[r - 2], shape_.b_col = b_.strides[r - 1];
    shape_.c_row = c_.strides[r - 2], shape_.c_col = c_.strides[r - 1];
    shape_.a_batch = view_of(batch, over(a_, batch, 2));
    shape_.b_batch = view_of(batch, over(b_, batch, 2));
    shape_.c_batch = view_of(batch, leading(c_.strides, 2));
    batches_ = batch.numel();
  }
  void run(const RunContext& ctx) override {
    if (c_.shape.numel() == 0) return;
    constexpr int64_t kMostBatches = 65535;
    PF_CHECK(batches_ <= kMostBatches, NotImplemented,
             "matmul: too many matrices for one launch; got {}; expected at most {}", batches_, kMostBatches);
    kernel_.launch(ctx.device,
                   {groups_for(shape_.n, kTile), groups_for(shape_.m, kTile), static_cast<unsigned>(batches_)},
                   ctx.bindings[a_.index], ctx.bindings[b_.index], ctx.bindings[c_.index], shape_);
  }

 private:
  struct Shape {  // pf::MatmulShape
    int64_t m, n, k, a_row, a_col, b_row, b_col, c_row, c_col;
    View a_batch, b_batch, c_batch;
  };
  Operand a_, b_, c_;
  Kernel kernel_;
  Shape shape_{};
  int64_t batches_ = 1;
};

Refusal accepts_matmul(const Problem& p) {
  if (p.root().outs[0].shape.size() < 2 || p.root().ins[0].shape.size() != p.root().outs[0].shape.size())
    return "not a matrix";
  return std::nullopt;
}

}  // namespace

std::span<const Impl> matmul_impls(OpId op) {
  static const Impl own{"gpu.matmul", accepts_matmul, make_of<Matmul>};
  return op == OpId::matmul ? std::span(&own, 1) : std::span<const Impl>();
}

std::span<const Impl> epilogue_impls(OpId) { return {}; }

}  // namespace pyflame::gpu
