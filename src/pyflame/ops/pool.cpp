// Pooling. The gradient of avg_pool2d is linear, as it is itself, and each is the other's gradient; the selection of max_pool2d is undone by
// scatter_add and gather.
#include "pyflame/ops/family.h"
#include "pyflame/ops/helpers.h"
#include "pyflame/ops/windows.h"

namespace pyflame {

namespace {

struct PoolCall {
  const char* op;
  Pair kernel, stride, padding, dilation;
  bool ceil;
};

// Checks a pooling call and returns the output's size [OH, OW].
Pair pool_size(const PoolCall& c, const Tensor& x) {
  const auto& [op, kernel, stride, padding, dilation, ceil] = c;
  PF_CHECK(x.dim() == 4 || x.dim() == 3, Value, "{}: wrong rank; got {}; expected (N, C, H, W) or (C, H, W)", op,
           x.shape().str());
  PF_CHECK(kernel.h > 0 && kernel.w > 0, Value, "{}: kernel size is not positive; got ({}, {}); expected > 0", op,
           kernel.h, kernel.w);
  check_float(op, x);
  PF_CHECK(stride.h > 0 && stride.w > 0, Value, "{}: stride is not positive; got ({}, {}); expected > 0", op, stride.h,
           stride.w);
  PF_CHECK(padding.h >= 0 && padding.w >= 0, Value, "{}: padding is negative; got ({}, {}); expected >= 0", op,
           padding.h, padding.w);
  PF_CHECK(dilation.h > 0 && dilation.w > 0, Value, "{}: dilation is not positive; got ({}, {}); expected > 0", op,
           dilation.h, dilation.w);
  PF_CHECK(padding.h <= (dilation.h * (kernel.h - 1) + 1) / 2 && padding.w <= (dilation.w * (kernel.w - 1) + 1) / 2,
           Value, "{}: too much padding; got padding ({}, {}) for kernel ({}, {}); expected at most half of the kernel",
           op, padding.h, padding.w, kernel.h, kernel.w);
  const Pair out(window_count(x.size(-2), kernel.h, stride.h, padding.h, dilation.h, ceil),
                 window_count(x.size(-1), kernel.w, stride.w, padding.w, dilation.w, ceil));
  PF_CHECK(out.h > 0 && out.w > 0, Value,
           "{}: the kernel is larger than the padded input; got kernel ({}, {}) for input {} with padding ({}, {}); "
           "expected an output of at least 1 x 1",
           op, kernel.h, kernel.w, x.shape().str(), padding.h, padding.w);
  return out;
}

Tensor avg_pool_grad(const Tensor& g, const Dims& shape, const PoolAttrs& a);

Tensor avg_pool_op(const Tensor& x, Pair size, const PoolAttrs& a) {
  Tensor out = emit(OpId::avg_pool2d, {x}, {x.size(0), x.size(1), size.h, size.w}, x.dtype(), a);
  const Dims from = x.shape();
  attach("avg_pool2d", {out}, {x}, {},
         [a, from](GradNode&, const Tensors& g) -> Tensors { return {avg_pool_grad(g[0], from, a)}; });
  return out;
}

Tensor avg_pool_grad(const Tensor& g, const Dims& shape, const PoolAttrs& a) {
  Tensor out = emit(OpId::avg_pool2d_grad, {g}, shape, g.dtype(), a);
  const Pair size(g.size(2), g.size(3));
  attach("avg_pool2d_grad", {out}, {g}, {},
         [a, size](GradNode&, const Tensors& u) -> Tensors { return {avg_pool_op(u[0], size, a)}; });
  return out;
}

Tensor adaptive_means(const Tensor& x, int dim, int64_t n) {
  return x.size(dim) == n ? x : resample(x, dim, n, "area");
}

}  // namespace

std::pair<Tensor, Tensor> max_pool2d_with_indices(const Tensor& x, Pair kernel, std::optional<Pair> stride,
                                                  Pair padding, Pair dilation, bool ceil_mode) {
  const Pair step = stride.value_or(kernel);
  const Pair out = pool_size({"max_pool2d", kernel, step, padding, dilation, ceil_mode}, x);
  const PoolAttrs a{kernel.h, kernel.w, step.h, step.w, padding.h, padding.w, dilation.h, dilation.w, 1};
  const Tensor in = x.dim() == 3 ? unsqueeze(x, 0) : x;
  const Dims shape{in.size(0), in.size(1), out.h, out.w};
  const Arg ins[] = {in};
  const OutSpec outs[] = {{shape, x.dtype()}, {shape, DType::int64}};
  Tensors r = emit_many(OpId::max_pool2d, ins, outs, a);
  const Dims from = in.shape();
  attach("max_pool2d", {r[0]}, {in}, {r[1]}, [from, a](GradNode& n, const Tensors& g) -> Tensors {
    // Without create_graph, a kernel that knows the windows is faster than a scatter.
    if (!grad_mode::enabled()) return {emit(OpId::max_pool2d_grad, {g[0], n.saved(0)}, from, g[0].dtype(), a)};
    const int64_t planes = from[0] * from[1];
    const Dims flat{planes, g[0].size(2) * g[0].size(3)};
    return {reshape(scatter_add_zeros(reshape(n.saved(0), flat), reshape(g[0], flat), {planes, from[2] * from[3]}, 1),
                    from)};
  });
  if (x.dim() == 3) return {squeeze(r[0], 0), squeeze(r[1], 0)};
  return {r[0], r[1]};
}

Tensor max_pool2d(const Tensor& x, Pair kernel, std::optional<Pair> stride, Pair padding, Pair dilation,
                  bool ceil_mode) {
  return max_pool2d_with_indices(x, kernel, stride, padding, dilation, ceil_mode).first;
}

Tensor avg_pool2d(const Tensor& x, Pair kernel, std::optional<Pair> stride, Pair padding, bool count_include_pad,
                  bool ceil_mode) {
  const Pair step = stride.value_or(kernel);
  const Pair size = pool_size({"avg_pool2d", kernel, step, padding, 1, ceil_mode}, x);
  const PoolAttrs a{kernel.h, kernel.w, step.h, step.w, padding.h, padding.w, 1, 1, count_include_pad ? 1 : 0};
  if (x.dim() == 3) return squeeze(avg_pool_op(unsqueeze(x, 0), size, a), 0);
  return avg_pool_op(x, size, a);
}

Tensor adaptive_avg_pool2d(const Tensor& x, Pair out) {
  PF_CHECK(x.dim() == 4 || x.dim() == 3, Value,
           "adaptive_avg_pool2d: wrong rank; got {}; expected (N, C, H, W) or (C, H, W)", x.shape().str());
  if (x.numel() > 0 || has_gradient(x.dtype())) check_float("adaptive_avg_pool2d", x);
  const int64_t h = x.size(-2), w = x.size(-1);
  PF_CHECK(out.h > 0 && out.w > 0 && h > 0 && w > 0, Value,
           "adaptive_avg_pool2d: nothing to average; got output ({}, {}) for input {}; expected sizes > 0", out.h,
           out.w, x.shape().str());
  if (!has_gradient(x.dtype())) {
    Dims shape = x.shape();
    shape[x.dim() - 2] = out.h, shape[x.dim() - 1] = out.w;
    return empty(shape, x.dtype(), x.device());
  }
  if (h % out.h == 0 && w % out.w == 0) return avg_pool2d(x, {h / out.h, w / out.w});
  return cast(adaptive_means(adaptive_means(widen(x), x.dim() - 2, out.h), x.dim() - 1, out.w), x.dtype());
}

}  // namespace pyflame
