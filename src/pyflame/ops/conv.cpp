// conv2d, its gradient of the input and its gradient of the weight are three forms of one trilinear function, so the
// gradients of each are the other two, and derivatives of any order need no further ops. The ops take volumes, too, where the backend
// computes them (conv3d.cpp). A signal is an image of one row.
#include <atomic>

#include "pyflame/ops/autocast.h"
#include "pyflame/ops/family.h"
#include "pyflame/ops/windows.h"

namespace pyflame {

namespace {

std::atomic<MatmulPrecision> g_precision{MatmulPrecision::highest};

// A gradient uses the modes of the time when it is recorded, which may differ from those of the forward call.
ConvAttrs as_asked(ConvAttrs a, const Tensor& x) {
  a.any_order = any_order(x.device());
  const bool heeded = x.dtype() == DType::float32 && has_own_memory(x.device().type);
  a.rounded = heeded && float32_conv_precision() != MatmulPrecision::highest;
  return a;
}

Dims pair(Pair p) { return {p.h, p.w}; }

Tensor conv2d_checked(const ConvCall& c) {
  const Dims &s = c.stride, &p = c.padding, &d = c.dilation;
  const bool batched = c.x.dim() == 4;
  Tensor y = conv_op(batched ? c.x : unsqueeze(c.x, 0), c.weight, {s[0], s[1], p[0], p[1], d[0], d[1], c.groups});
  if (c.bias) y = add_bias(y, c.bias);
  return batched ? y : squeeze(y, 0);
}

Tensor conv_transpose2d_checked(const ConvCall& c, const Dims& size) {
  const Dims &s = c.stride, &p = c.padding, &d = c.dilation, &more = c.output_padding;
  const bool batched = c.x.dim() == 4;
  const Tensor in = batched ? c.x : unsqueeze(c.x, 0);
  const int64_t channels = c.weight.size(1) * c.groups;
  const ConvAttrs a{s[0], s[1], p[0], p[1], d[0], d[1], c.groups};
  Tensor y;
  if (more[0] < s[0] && more[1] < s[1]) {
    y = conv2d_grad_input(in, c.weight, {in.size(0), channels, size[0], size[1]}, a);
  } else {  // conv2d of a result with more padding would have more windows than the input has elements
    const ConvAttrs whole{s[0], s[1], 0, 0, d[0], d[1], c.groups};
    const Dims shape{in.size(0), channels, size[0] + 2 * p[0] - more[0], size[1] + 2 * p[1] - more[1]};
    y = cropped(conv2d_grad_input(in, c.weight, shape, whole), p, more);
  }
  if (c.bias) y = add_bias(y, c.bias);
  return batched ? y : squeeze(y, 0);
}

}  // namespace

MatmulPrecision float32_conv_precision() { return g_precision.load(std::memory_order_relaxed); }
void set_float32_conv_precision(MatmulPrecision precision) { g_precision.store(precision, std::memory_order_relaxed); }

Tensor conv_op(const Tensor& x, const Tensor& w, const ConvAttrs& a) {
  const int y = x.dim() - 2;
  Dims shape{x.size(0), w.size(0)};
  if (y == 3) shape.push_back(window_count(x.size(2), w.size(2), a.stride_d, a.pad_d, a.dilation_d));
  shape.push_back(window_count(x.size(y), w.size(y), a.stride_h, a.pad_h, a.dilation_h));
  shape.push_back(window_count(x.size(y + 1), w.size(y + 1), a.stride_w, a.pad_w, a.dilation_w));
  Tensor out = emit(OpId::conv2d, {x, w}, shape, x.dtype(), as_asked(a, x));
  attach(y == 3 ? "conv3d" : "conv2d", {out}, {x, w}, {x, w}, [a](GradNode& n, const Tensors& g) -> Tensors {
    const Tensor x0 = n.saved(0), w0 = n.saved(1);
    return {n.needs(0) ? conv2d_grad_input(g[0], w0, x0.shape(), a) : Tensor(),
            n.needs(1) ? conv2d_grad_weight(g[0], x0, w0, a) : Tensor()};
  });
  return out;
}

Dims check_conv(const ConvCall& c) {
  const auto& [op, x, weight, bias, stride, padding, dilation, output_padding, groups] = c;
  const int spatial = stride.size();
  const bool transposed = !output_padding.empty();
  check_same_device(op, {x, weight});
  PF_CHECK(
      (x.dim() == spatial + 2 || x.dim() == spatial + 1) && weight.dim() == spatial + 2, Value,
      "{}: wrong rank; got input {} and weight {}; expected an input (N, C, ..) or (C, ..) and a weight {} with {} "
      "sizes in place of ..",
      op, x.shape().str(), weight.shape().str(), transposed ? "(C, O / groups, ..)" : "(O, C / groups, ..)", spatial);
  check_same_dtype(op, x, weight);
  check_float(op, x);
  const auto all = [](const Dims& v, int64_t least) { return *std::min_element(v.begin(), v.end()) >= least; };
  PF_CHECK(all(stride, 1), Value, "{}: stride is not positive; got {}; expected > 0", op, stride.str());
  PF_CHECK(all(padding, 0), Value, "{}: padding is negative; got {}; expected >= 0", op, padding.str());
  PF_CHECK(all(dilation, 1), Value, "{}: dilation is not positive; got {}; expected > 0", op, dilation.str());
  const int64_t channels = x.size(-spatial - 1), out_channels = transposed ? weight.size(1) * groups : weight.size(0);
  PF_CHECK(groups > 0 && weight.size(0) % groups == 0, Value,
           "{}: groups does not divide the {} channels; got groups {} and weight {}; expected {} % groups == 0", op,
           transposed ? "input" : "output", groups, weight.shape().str(), weight.size(0));
  const int64_t fits = transposed ? weight.size(0) : weight.size(1) * groups;
  PF_CHECK(
      channels == fits, Value,
      "{}: input channels do not fit the weight; got input {} and weight {} with groups {}; expected {} channels{}", op,
      x.shape().str(), weight.shape().str(), groups, fits,
      x.size(-1) == fits ? "; hint: channels stand before the spatial dims, as in (N, C, H, W); movedim(-1, 1) "
                           "moves those of a batch there"
                         : "");
  Dims size;
  for (int d = 0; d < spatial; ++d) {
    const int64_t in = x.size(d - spatial), kernel = weight.size(d + 2);
    PF_CHECK(kernel > 0, Value, "{}: empty kernel; got weight {}; expected sizes > 0", op, weight.shape().str());
    if (!transposed) {
      size.push_back(window_count(in, kernel, stride[d], padding[d], dilation[d]));
      PF_CHECK(size[d] > 0, Value,
               "{}: the kernel is larger than the padded input; got weight {} with dilation {} for input {} with "
               "padding {}; expected an output of at least 1 along each dim",
               op, weight.shape().str(), dilation.str(), x.shape().str(), padding.str());
      continue;
    }
    const int64_t more = output_padding[d];
    PF_CHECK(more >= 0 && more < std::max(stride[d], dilation[d]), Value,
             "{}: wrong output_padding; got {} with stride {} and dilation {}; expected 0 or more and less than stride "
             "or dilation",
             op, output_padding.str(), stride.str(), dilation.str());
    size.push_back((in - 1) * stride[d] - 2 * padding[d] + dilation[d] * (kernel - 1) + more + 1);
    PF_CHECK(
        size[d] > 0, Value,
        "{}: the result would be empty; got input {}, weight {} and padding {}; expected at least 1 along each dim", op,
        x.shape().str(), weight.shape().str(), padding.str());
  }
  if (bias) {
    check_same_device(op, {x, bias});
    check_same_dtype(op, x, bias);
    PF_CHECK(bias.dim() == 1 && bias.size(0) == out_channels, Value,
             "{}: the bias does not fit; got {}; expected ({},)", op, bias.shape().str(), out_channels);
  }
  return size;
}

// Cuts `padding` off a transposed convolution that was computed without, and adds output_padding at the end.
Tensor cropped(const Tensor& y, const Dims& padding, const Dims& output_padding) {
  Dims change;
  for (int d = padding.size() - 1; d >= 0; --d) {
    change.push_back(-padding[d]);
    change.push_back(output_padding[d] - padding[d]);
  }
  return pad(y, change);
}

Tensor add_bias(const Tensor& y, const Tensor& bias) {
  Dims shape = Dims::filled(y.dim(), 1);
  shape[1] = bias.size(0);
  return add(y, view(bias, shape));
}

Tensor conv2d_grad_input(const Tensor& g, const Tensor& w, const Dims& shape, const ConvAttrs& a) {
  Tensor out = emit(OpId::conv2d_grad_input, {g, w}, shape, g.dtype(), as_asked(a, g));
  attach("conv2d_grad_input", {out}, {g, w}, {g, w}, [a](GradNode& n, const Tensors& u) -> Tensors {
    const Tensor g0 = n.saved(0), w0 = n.saved(1);
    return {n.needs(0) ? conv_op(u[0], w0, a) : Tensor(), n.needs(1) ? conv2d_grad_weight(g0, u[0], w0, a) : Tensor()};
  });
  return out;
}

// The gradient has the weight's layout, which is what an optimizer needs.
Tensor conv2d_grad_weight(const Tensor& g, const Tensor& x, const Tensor& weight, const ConvAttrs& a) {
  const MemoryFormat format = weight.is_channels_last() ? MemoryFormat::channels_last : MemoryFormat::contiguous;
  const OutSpec as_weight{weight.shape(), g.dtype(), strides_of(weight.shape(), format)};
  Tensor out = emit(OpId::conv2d_grad_weight, {g, x}, as_weight, as_asked(a, g));
  attach("conv2d_grad_weight", {out}, {g, x}, {g, x}, [a](GradNode& n, const Tensors& u) -> Tensors {
    const Tensor g0 = n.saved(0), x0 = n.saved(1);
    return {n.needs(0) ? conv_op(x0, u[0], a) : Tensor(),
            n.needs(1) ? conv2d_grad_input(g0, u[0], x0.shape(), a) : Tensor()};
  });
  return out;
}

Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, Pair stride, Pair padding, Pair dilation,
              int64_t groups) {
  if (autocast::active(x)) {
    const autocast::Off off;
    return conv2d(autocast::operand(OpId::conv2d, x), autocast::operand(OpId::conv2d, weight),
                  autocast::operand(OpId::conv2d, bias), stride, padding, dilation, groups);
  }
  const ConvCall c{"conv2d", x, weight, bias, pair(stride), pair(padding), pair(dilation), {}, groups};
  check_conv(c);
  return conv2d_checked(c);
}

Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias, int64_t stride, int64_t padding,
              int64_t dilation, int64_t groups) {
  if (autocast::active(x)) {
    const autocast::Off off;
    return conv1d(autocast::operand(OpId::conv2d, x), autocast::operand(OpId::conv2d, weight),
                  autocast::operand(OpId::conv2d, bias), stride, padding, dilation, groups);
  }
  check_conv({"conv1d", x, weight, bias, {stride}, {padding}, {dilation}, {}, groups});
  return squeeze(conv2d_checked({"conv1d",
                                 unsqueeze(x, -2),
                                 unsqueeze(weight, -2),
                                 bias,
                                 {1, stride},
                                 {0, padding},
                                 {1, dilation},
                                 {},
                                 groups}),
                 -2);
}

Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Tensor& bias, Pair stride, Pair padding,
                        Pair output_padding, int64_t groups, Pair dilation) {
  if (autocast::active(x)) {
    const autocast::Off off;
    return conv_transpose2d(
        autocast::operand(OpId::conv2d_grad_input, x), autocast::operand(OpId::conv2d_grad_input, weight),
        autocast::operand(OpId::conv2d_grad_input, bias), stride, padding, output_padding, groups, dilation);
  }
  const ConvCall c{"conv_transpose2d",   x,     weight, bias, pair(stride), pair(padding), pair(dilation),
                   pair(output_padding), groups};
  return conv_transpose2d_checked(c, check_conv(c));
}

Tensor conv_transpose1d(const Tensor& x, const Tensor& weight, const Tensor& bias, int64_t stride, int64_t padding,
                        int64_t output_padding, int64_t groups, int64_t dilation) {
  if (autocast::active(x)) {
    const autocast::Off off;
    return conv_transpose1d(
        autocast::operand(OpId::conv2d_grad_input, x), autocast::operand(OpId::conv2d_grad_input, weight),
        autocast::operand(OpId::conv2d_grad_input, bias), stride, padding, output_padding, groups, dilation);
  }
  const Dims size =
      check_conv({"conv_transpose1d", x, weight, bias, {stride}, {padding}, {dilation}, {output_padding}, groups});
  const ConvCall row{"conv_transpose1d", unsqueeze(x, -2), unsqueeze(weight, -2), bias,  {1, stride},
                     {0, padding},       {1, dilation},    {0, output_padding},   groups};
  return squeeze(conv_transpose2d_checked(row, {1, size[0]}), -2);
}

}  // namespace pyflame
