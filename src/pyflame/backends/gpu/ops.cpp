// See ops.h.
#include "pyflame/backends/gpu/ops.h"

#include <algorithm>

#include "pyflame/backends/gpu/kernel.h"
#include "pyflame/base/error.h"

namespace pyflame::gpu {

namespace {

unsigned groups_for(int64_t n, int64_t each) {
  return static_cast<unsigned>(std::clamp<int64_t>((n + each - 1) / each, 1, 1 << 20));
}

Dims leading(const Dims& d, int drop) { return Dims(std::span(d.begin(), static_cast<size_t>(d.size() - drop))); }

Dims over(const Operand& o, const Dims& shape, int drop) {
  return broadcast_strides(leading(o.shape, drop), leading(o.strides, drop), shape);
}

// --- matmul: kernels/matmul/matmul.h

constexpr int kTile = 64, kDepth = 16, kEach = 4;
constexpr unsigned kMatmulThreads = (kTile / kEach) * (kTile / kEach);

class Matmul final : public Executable {
 public:
  Matmul(DeviceType type, const Node& n)
      : a_(n.ins[0]),
        b_(n.ins[1]),
        c_(n.outs[0]),
        kernel_(type, kMatmulThreads,
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

// --- softmax and log_softmax: kernels/rows/softmax.h

constexpr unsigned kRowThreads = 256;

class Softmax final : public Executable {
 public:
  Softmax(DeviceType type, const Node& n)
      : x_(n.ins[0]),
        y_(n.outs[0]),
        kernel_(
            type, kRowThreads,
            kernel_source(
                {"rows/softmax.h"}, kRowThreads,
                fmt::format(
                    "(const {0}* x, {0}* y, pf::i64 rows, pf::i64 n, pf::View xr, pf::i64 xs, pf::View yr, pf::i64 ys) "
                    "{{ pf::softmax<{0}, {1}, {2}>(x, y, rows, n, xr, xs, yr, ys); }}",
                    stored_type(y_.dtype), n.op == OpId::log_softmax, kRowThreads))) {}
  void run(const RunContext& ctx) override {
    const bool scalar = y_.shape.size() == 0;
    const Dims rows = scalar ? Dims() : leading(y_.shape, 1);
    const int64_t count = rows.numel(), n = scalar ? 1 : y_.shape.back();
    if (count == 0 || n == 0) return;
    const int64_t xs = scalar ? 1 : x_.strides.back(), ys = scalar ? 1 : y_.strides.back();
    kernel_.launch(ctx.device, {groups_for(count, 1), 1, 1}, ctx.bindings[x_.index], ctx.bindings[y_.index], count, n,
                   view_of(rows, scalar ? Dims() : leading(x_.strides, 1)), xs,
                   view_of(rows, scalar ? Dims() : leading(y_.strides, 1)), ys);
  }

 private:
  Operand x_, y_;
  Kernel kernel_;
};

Refusal accepts_all(const Problem&) { return std::nullopt; }

template <class E, DeviceType kType>
std::unique_ptr<Executable> make(const Problem& p) {
  return std::make_unique<E>(kType, p.root());
}

// One line per op: the same list for both vendors.
template <DeviceType kType>
std::span<const Impl> list(OpId op) {
  static const Impl matmul{"gpu.matmul", accepts_matmul, make<Matmul, kType>};
  static const Impl softmax{"gpu.softmax", accepts_all, make<Softmax, kType>};
  switch (op) {
    case OpId::matmul: return {&matmul, 1};
    case OpId::softmax:
    case OpId::log_softmax: return {&softmax, 1};
    default: return {};
  }
}

}  // namespace

std::span<const Impl> op_impls(DeviceType type, OpId op) {
  return type == DeviceType::rocm ? list<DeviceType::rocm>(op) : list<DeviceType::cuda>(op);
}

}  // namespace pyflame::gpu
