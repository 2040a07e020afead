// softmax and log_softmax: kernels/rows/softmax.h.
#include "pyflame/backends/gpu/impls.h"
#include "pyflame/backends/gpu/kernel.h"
#include "pyflame/base/error.h"

namespace pyflame::gpu {

namespace {

constexpr unsigned kRowThreads = 256;

class Softmax final : public Executable {
 public:
  explicit Softmax(const Problem& p)
      : x_(p.root().ins[0]),
        y_(p.root().outs[0]),
        kernel_(
            p.graph.device.type, kRowThreads,
            kernel_source(
                {"rows/softmax.h"}, kRowThreads,
                fmt::format(
                    "(const {0}* x, {0}* y, pf::i64 rows, pf::i64 n, pf::View xr, pf::i64 xs, pf::View yr, pf::i64 ys) "
                    "{{ pf::softmax<{0}, {1}, {2}>(x, y, rows, n, xr, xs, yr, ys); }}",
                    stored_type(y_.dtype), p.root().op == OpId::log_softmax, kRowThreads))) {}
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

}  // namespace

std::span<const Impl> rows_impls(OpId op) {
  static const Impl softmax{"gpu.softmax", accepts_all, make_of<Softmax>};
  return op == OpId::softmax || op == OpId::log_softmax ? std::span(&softmax, 1) : std::span<const Impl>();
}

}  // namespace pyflame::gpu
