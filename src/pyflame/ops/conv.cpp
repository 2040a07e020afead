// conv2d, its gradient of the input and its gradient of the weight are three forms of one trilinear function, so the
// gradients of each are the other two, and derivatives of any order need no further ops. Pooling has such pairs as
// well: avg_pool2d with avg_pool2d_grad, and the selection of max_pool2d with scatter_add and gather.
#include "pyflame/ops/autocast.h"
#include "pyflame/ops/family.h"

namespace pyflame {

namespace {

int64_t window_size(int64_t in, int64_t kernel, int64_t stride, int64_t pad, int64_t dilation) {
  const int64_t span = in + 2 * pad - dilation * (kernel - 1) - 1;
  return span < 0 ? 0 : span / stride + 1;
}

void check_geometry(const char* op, Pair stride, Pair padding, Pair dilation) {
  PF_CHECK(stride.h > 0 && stride.w > 0, Value, "{}: stride is not positive; got ({}, {}); expected > 0", op, stride.h,
           stride.w);
  PF_CHECK(padding.h >= 0 && padding.w >= 0, Value, "{}: padding is negative; got ({}, {}); expected >= 0", op,
           padding.h, padding.w);
  PF_CHECK(dilation.h > 0 && dilation.w > 0, Value, "{}: dilation is not positive; got ({}, {}); expected > 0", op,
           dilation.h, dilation.w);
}

Tensor conv_grad_input(const Tensor& g, const Tensor& w, const Dims& shape, const ConvAttrs& a);
Tensor conv_grad_weight(const Tensor& g, const Tensor& x, const Tensor& weight, const ConvAttrs& a);

// A gradient uses the any_order mode of the time when it is recorded, which may differ from that of the forward call.
ConvAttrs as_asked(ConvAttrs a, const Tensor& x) {
  a.any_order = any_order(x.device());
  return a;
}

Tensor conv_op(const Tensor& x, const Tensor& w, const ConvAttrs& a) {
  const Dims shape{x.size(0), w.size(0), window_size(x.size(2), w.size(2), a.stride_h, a.pad_h, a.dilation_h),
                   window_size(x.size(3), w.size(3), a.stride_w, a.pad_w, a.dilation_w)};
  Tensor out = emit(OpId::conv2d, {x, w}, shape, x.dtype(), as_asked(a, x));
  attach("conv2d", {out}, {x, w}, {x, w}, [a](GradNode& n, const Tensors& g) -> Tensors {
    const Tensor x0 = n.saved(0), w0 = n.saved(1);
    return {n.needs(0) ? conv_grad_input(g[0], w0, x0.shape(), a) : Tensor(),
            n.needs(1) ? conv_grad_weight(g[0], x0, w0, a) : Tensor()};
  });
  return out;
}

Tensor conv_grad_input(const Tensor& g, const Tensor& w, const Dims& shape, const ConvAttrs& a) {
  Tensor out = emit(OpId::conv2d_grad_input, {g, w}, shape, g.dtype(), as_asked(a, g));
  attach("conv2d_grad_input", {out}, {g, w}, {g, w}, [a](GradNode& n, const Tensors& u) -> Tensors {
    const Tensor g0 = n.saved(0), w0 = n.saved(1);
    return {n.needs(0) ? conv_op(u[0], w0, a) : Tensor(), n.needs(1) ? conv_grad_weight(g0, u[0], w0, a) : Tensor()};
  });
  return out;
}

// The gradient has the weight's layout, which is what an optimizer needs.
Tensor conv_grad_weight(const Tensor& g, const Tensor& x, const Tensor& weight, const ConvAttrs& a) {
  const MemoryFormat format = weight.is_channels_last() ? MemoryFormat::channels_last : MemoryFormat::contiguous;
  const OutSpec as_weight{weight.shape(), g.dtype(), strides_of(weight.shape(), format)};
  Tensor out = emit(OpId::conv2d_grad_weight, {g, x}, as_weight, as_asked(a, g));
  attach("conv2d_grad_weight", {out}, {g, x}, {g, x}, [a](GradNode& n, const Tensors& u) -> Tensors {
    const Tensor g0 = n.saved(0), x0 = n.saved(1);
    return {n.needs(0) ? conv_op(x0, u[0], a) : Tensor(),
            n.needs(1) ? conv_grad_input(g0, u[0], x0.shape(), a) : Tensor()};
  });
  return out;
}

// Checks a pooling call and returns the output's size [OH, OW].
Pair pool_size(const char* op, const Tensor& x, Pair kernel, Pair stride, Pair padding, Pair dilation) {
  PF_CHECK(x.dim() == 4 || x.dim() == 3, Value, "{}: wrong rank; got {}; expected (N, C, H, W) or (C, H, W)", op,
           x.shape().str());
  PF_CHECK(kernel.h > 0 && kernel.w > 0, Value, "{}: kernel size is not positive; got ({}, {}); expected > 0", op,
           kernel.h, kernel.w);
  check_float(op, x);
  check_geometry(op, stride, padding, dilation);
  PF_CHECK(padding.h <= (dilation.h * (kernel.h - 1) + 1) / 2 && padding.w <= (dilation.w * (kernel.w - 1) + 1) / 2,
           Value, "{}: too much padding; got padding ({}, {}) for kernel ({}, {}); expected at most half of the kernel",
           op, padding.h, padding.w, kernel.h, kernel.w);
  const Pair out(window_size(x.size(-2), kernel.h, stride.h, padding.h, dilation.h),
                 window_size(x.size(-1), kernel.w, stride.w, padding.w, dilation.w));
  PF_CHECK(out.h > 0 && out.w > 0, Value,
           "{}: the kernel is larger than the padded input; got kernel ({}, {}) for input {} with padding ({}, {}); "
           "expected "
           "an output of at least 1 x 1",
           op, kernel.h, kernel.w, x.shape().str(), padding.h, padding.w);
  return out;
}

Tensor avg_pool_grad(const Tensor& g, const Dims& shape, const PoolAttrs& a);

Tensor avg_pool_op(const Tensor& x, const PoolAttrs& a) {
  const Dims shape{x.size(0), x.size(1), window_size(x.size(2), a.kernel_h, a.stride_h, a.pad_h, 1),
                   window_size(x.size(3), a.kernel_w, a.stride_w, a.pad_w, 1)};
  Tensor out = emit(OpId::avg_pool2d, {x}, shape, x.dtype(), a);
  const Dims from = x.shape();
  attach("avg_pool2d", {out}, {x}, {},
         [a, from](GradNode&, const Tensors& g) -> Tensors { return {avg_pool_grad(g[0], from, a)}; });
  return out;
}

Tensor avg_pool_grad(const Tensor& g, const Dims& shape, const PoolAttrs& a) {
  Tensor out = emit(OpId::avg_pool2d_grad, {g}, shape, g.dtype(), a);
  attach("avg_pool2d_grad", {out}, {g}, {},
         [a](GradNode&, const Tensors& u) -> Tensors { return {avg_pool_op(u[0], a)}; });
  return out;
}

// Means over n windows along a dim. Windows may differ in length by one: shorter ones are extended by an element that
// is then ignored.
Tensor adaptive_means(const Tensor& x, int dim, int64_t n) {
  const int64_t size = x.size(dim), longest = std::min(size, (size + n - 1) / n + 1);
  std::vector<int64_t> index;
  std::vector<uint8_t> counts;
  std::vector<double> lengths;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t begin = i * size / n, end = ((i + 1) * size + n - 1) / n;
    lengths.push_back(static_cast<double>(end - begin));
    for (int64_t k = 0; k < longest; ++k) {
      index.push_back(std::min(begin + k, end - 1));
      counts.push_back(begin + k < end);
    }
  }
  Dims parts = x.shape(), mask, ones;
  parts[dim] = n;
  parts.insert(dim + 1, longest);
  for (int i = 0; i < x.dim(); ++i) ones.push_back(i == dim ? n : 1);
  mask = ones;
  mask.insert(dim + 1, longest);
  const Tensor at = from_host(index.data(), {n * longest}, DType::int64, x.device());
  const Tensor in = from_host(counts.data(), mask, DType::bool_, x.device());
  const Tensor length = cast(from_host(lengths.data(), ones, DType::float64, x.device()), x.dtype());
  return div(sum(where(in, reshape(index_select(x, dim, at), parts), 0.0), {dim + 1}), length);
}

}  // namespace

Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, Pair stride, Pair padding, Pair dilation,
              int64_t groups) {
  if (autocast::active(x)) {
    const autocast::Off off;
    return conv2d(autocast::operand(OpId::conv2d, x), autocast::operand(OpId::conv2d, weight),
                  autocast::operand(OpId::conv2d, bias), stride, padding, dilation, groups);
  }
  check_same_device("conv2d", {x, weight});
  PF_CHECK((x.dim() == 4 || x.dim() == 3) && weight.dim() == 4, Value,
           "conv2d: wrong rank; got input {} and weight {}; expected input (N, C, H, W) or (C, H, W) and weight "
           "(O, C / groups, KH, KW)",
           x.shape().str(), weight.shape().str());
  check_same_dtype("conv2d", x, weight);
  check_float("conv2d", x);
  check_geometry("conv2d", stride, padding, dilation);
  const int64_t out_channels = weight.size(0);
  PF_CHECK(groups > 0 && out_channels % groups == 0, Value,
           "conv2d: groups does not divide the output channels; got groups {} and weight {}; expected {} % groups == 0",
           groups, weight.shape().str(), out_channels);
  PF_CHECK(
      x.size(-3) == weight.size(1) * groups, Value,
      "conv2d: input channels do not fit the weight; got input {} and weight {} with groups {}; expected {} channels",
      x.shape().str(), weight.shape().str(), groups, weight.size(1) * groups);
  PF_CHECK(weight.size(2) > 0 && weight.size(3) > 0, Value, "conv2d: empty kernel; got weight {}; expected KH, KW > 0",
           weight.shape().str());
  PF_CHECK(window_size(x.size(-2), weight.size(2), stride.h, padding.h, dilation.h) > 0 &&
               window_size(x.size(-1), weight.size(3), stride.w, padding.w, dilation.w) > 0,
           Value,
           "conv2d: the kernel is larger than the padded input; got kernel ({}, {}) with dilation ({}, {}) for input "
           "{} with "
           "padding ({}, {}); expected an output of at least 1 x 1",
           weight.size(2), weight.size(3), dilation.h, dilation.w, x.shape().str(), padding.h, padding.w);
  if (bias) {
    check_same_device("conv2d", {x, bias});
    check_same_dtype("conv2d", x, bias);
    PF_CHECK(bias.dim() == 1 && bias.size(0) == out_channels, Value,
             "conv2d: the bias does not fit; got {}; expected ({},)", bias.shape().str(), out_channels);
  }
  const ConvAttrs a{stride.h, stride.w, padding.h, padding.w, dilation.h, dilation.w, groups};
  Tensor out = conv_op(x.dim() == 3 ? unsqueeze(x, 0) : x, weight, a);
  if (bias) out = add(out, view(bias, {1, out_channels, 1, 1}));
  return x.dim() == 3 ? squeeze(out, 0) : out;
}

Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Tensor& bias, Pair stride, Pair padding,
                        Pair output_padding, int64_t groups, Pair dilation) {
  if (autocast::active(x)) {
    const autocast::Off off;
    return conv_transpose2d(
        autocast::operand(OpId::conv2d_grad_input, x), autocast::operand(OpId::conv2d_grad_input, weight),
        autocast::operand(OpId::conv2d_grad_input, bias), stride, padding, output_padding, groups, dilation);
  }
  constexpr const char* kOp = "conv_transpose2d";
  check_same_device(kOp, {x, weight});
  PF_CHECK((x.dim() == 4 || x.dim() == 3) && weight.dim() == 4, Value,
           "{}: wrong rank; got input {} and weight {}; expected input (N, C, H, W) or (C, H, W) and weight "
           "(C, O / groups, KH, KW)",
           kOp, x.shape().str(), weight.shape().str());
  check_same_dtype(kOp, x, weight);
  check_float(kOp, x);
  check_geometry(kOp, stride, padding, dilation);
  PF_CHECK(groups > 0 && weight.size(0) % groups == 0, Value,
           "{}: groups does not divide the input channels; got groups {} and weight {}; expected {} % groups == 0", kOp,
           groups, weight.shape().str(), weight.size(0));
  PF_CHECK(x.size(-3) == weight.size(0), Value,
           "{}: input channels do not fit the weight; got input {} and weight {}; expected {} channels", kOp,
           x.shape().str(), weight.shape().str(), weight.size(0));
  // With more padding, conv2d of the result would have more windows than the input has elements.
  PF_CHECK(output_padding.h >= 0 && output_padding.h < stride.h && output_padding.w >= 0 && output_padding.w < stride.w,
           Value,
           "{}: wrong output_padding; got ({}, {}) with stride ({}, {}); expected 0 or more and less than stride", kOp,
           output_padding.h, output_padding.w, stride.h, stride.w);
  const int64_t out_channels = weight.size(1) * groups;
  const auto size = [](int64_t in, int64_t kernel, int64_t s, int64_t pad, int64_t more, int64_t d) {
    return (in - 1) * s - 2 * pad + d * (kernel - 1) + more + 1;
  };
  const int64_t h = size(x.size(-2), weight.size(2), stride.h, padding.h, output_padding.h, dilation.h);
  const int64_t w = size(x.size(-1), weight.size(3), stride.w, padding.w, output_padding.w, dilation.w);
  PF_CHECK(weight.size(2) > 0 && weight.size(3) > 0 && h > 0 && w > 0, Value,
           "{}: the result would be empty; got input {}, weight {} and padding ({}, {}); expected at least 1 x 1", kOp,
           x.shape().str(), weight.shape().str(), padding.h, padding.w);
  if (bias) {
    check_same_device(kOp, {x, bias});
    check_same_dtype(kOp, x, bias);
    PF_CHECK(bias.dim() == 1 && bias.size(0) == out_channels, Value,
             "{}: the bias does not fit; got {}; expected ({},)", kOp, bias.shape().str(), out_channels);
  }
  const Tensor in = x.dim() == 3 ? unsqueeze(x, 0) : x;
  const ConvAttrs a{stride.h, stride.w, padding.h, padding.w, dilation.h, dilation.w, groups};
  Tensor out = conv_grad_input(in, weight, {in.size(0), out_channels, h, w}, a);
  if (bias) out = add(out, view(bias, {1, out_channels, 1, 1}));
  return x.dim() == 3 ? squeeze(out, 0) : out;
}

std::pair<Tensor, Tensor> max_pool2d_with_indices(const Tensor& x, Pair kernel, std::optional<Pair> stride,
                                                  Pair padding, Pair dilation) {
  const Pair step = stride.value_or(kernel);
  const Pair out = pool_size("max_pool2d", x, kernel, step, padding, dilation);
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

Tensor max_pool2d(const Tensor& x, Pair kernel, std::optional<Pair> stride, Pair padding, Pair dilation) {
  return max_pool2d_with_indices(x, kernel, stride, padding, dilation).first;
}

Tensor avg_pool2d(const Tensor& x, Pair kernel, std::optional<Pair> stride, Pair padding, bool count_include_pad) {
  const Pair step = stride.value_or(kernel);
  pool_size("avg_pool2d", x, kernel, step, padding, 1);
  const PoolAttrs a{kernel.h, kernel.w, step.h, step.w, padding.h, padding.w, 1, 1, count_include_pad ? 1 : 0};
  if (x.dim() == 3) return squeeze(avg_pool_op(unsqueeze(x, 0), a), 0);
  return avg_pool_op(x, a);
}

Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias, int64_t stride, int64_t padding,
              int64_t dilation, int64_t groups) {
  PF_CHECK((x.dim() == 3 || x.dim() == 2) && weight.dim() == 3, Value,
           "conv1d: wrong rank; got input {} and weight {}; expected input (N, C, L) or (C, L) and weight "
           "(O, C / groups, K)",
           x.shape().str(), weight.shape().str());
  return squeeze(
      conv2d(unsqueeze(x, -2), unsqueeze(weight, -2), bias, {1, stride}, {0, padding}, {1, dilation}, groups), -2);
}

Tensor adaptive_avg_pool2d(const Tensor& x, Pair out) {
  PF_CHECK(x.dim() == 4 || x.dim() == 3, Value,
           "adaptive_avg_pool2d: wrong rank; got {}; expected (N, C, H, W) or (C, H, W)", x.shape().str());
  check_float("adaptive_avg_pool2d", x);
  const int64_t h = x.size(-2), w = x.size(-1);
  PF_CHECK(out.h > 0 && out.w > 0 && h > 0 && w > 0, Value,
           "adaptive_avg_pool2d: nothing to average; got output ({}, {}) for input {}; expected sizes > 0", out.h,
           out.w, x.shape().str());
  if (h % out.h == 0 && w % out.w == 0) return avg_pool2d(x, {h / out.h, w / out.w});
  return cast(adaptive_means(adaptive_means(widen(x), x.dim() - 2, out.h), x.dim() - 1, out.w), x.dtype());
}

}  // namespace pyflame
