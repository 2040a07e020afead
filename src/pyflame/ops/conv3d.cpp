// Convolutions of volumes. Where the backend has no kernels for them (Backend::convolves_volumes), they are those of images: the planes of a
// window along the depth become channels of one image. This copies an input as often as the kernel is deep, which costs little beside the
// products, and every kernel and library for images serves volumes as well. Only the input itself is kept for the gradients.
#include "pyflame/backends/backend.h"
#include "pyflame/ops/autocast.h"
#include "pyflame/ops/helpers.h"
#include "pyflame/ops/windows.h"

namespace pyflame {

namespace {

bool convolves_volumes(const Tensor& x) { return find_backend(x.device().type)->convolves_volumes(); }

ConvAttrs attrs_of(const Dims& stride, const Dims& padding, const Dims& dilation, int64_t groups) {
  return {stride[1], stride[2], padding[1], padding[2], dilation[1], dilation[2],
          groups,    0,         stride[0],  padding[0], dilation[0]};
}
// Those of the planes.
ConvAttrs plane(ConvAttrs a) {
  a.stride_d = 1, a.pad_d = 0, a.dilation_d = 1;
  return a;
}
Windows depth_windows(const ConvAttrs& a, int64_t kernel) { return {kernel, a.stride_d, a.dilation_d, a.pad_d}; }

// [N, C, D, ..] -> [N * D, C, ..] and back.
Tensor planes_of(const Tensor& x) {
  return reshape(transpose(x, 1, 2), {x.size(0) * x.size(2), x.size(1), x.size(3), x.size(4)});
}
Tensor volumes_of(const Tensor& planes, int64_t batch, int64_t depth) {
  return transpose(reshape(planes, {batch, depth, planes.size(1), planes.size(2), planes.size(3)}), 1, 2);
}
// The weight for such images: [O, C, KD, KH, KW] -> [O, C * KD, KH, KW].
Tensor plane_weight(const Tensor& w) { return reshape(w, {w.size(0), w.size(1) * w.size(2), w.size(3), w.size(4)}); }

// The planes that a plane of the result is computed from, as channels: [N * OD, C * KD, H, W].
Tensor images_of(const Tensor& x, int64_t kernel, int64_t depth, const ConvAttrs& a) {
  const Tensor windows = windows_of(x, 2, depth_windows(a, kernel), depth);  // [N, C, KD, OD, H, W]
  return reshape(permute(windows, {0, 3, 1, 2, 4, 5}), {x.size(0) * depth, x.size(1) * kernel, x.size(3), x.size(4)});
}

Tensor grad_input3d(const Tensor& g, const Tensor& w, const Dims& shape, const ConvAttrs& a) {
  if (convolves_volumes(g)) return conv2d_grad_input(g, w, shape, a);
  const int64_t n = shape[0], kernel = w.size(2), depth = g.size(2);
  const Tensor images =
      conv2d_grad_input(planes_of(g), plane_weight(w), {n * depth, shape[1] * kernel, shape[3], shape[4]}, plane(a));
  const Tensor windows = permute(reshape(images, {n, depth, shape[1], kernel, shape[3], shape[4]}), {0, 2, 3, 1, 4, 5});
  return add_windows(windows, 2, depth_windows(a, kernel), shape[2]);
}

Tensor grad_weight3d(const Tensor& g, const Tensor& x, const Tensor& w, const ConvAttrs& a) {
  const Tensor images = images_of(x, w.size(2), g.size(2), a);
  return reshape(conv2d_grad_weight(planes_of(g), images, plane_weight(w), plane(a)), w.shape());
}

Tensor conv3d_of_planes(const Tensor& x, const Tensor& w, int64_t depth, const ConvAttrs& a) {
  Tensor out;
  {
    const grad_mode::Guard off(false);
    const Tensor planes = conv_op(images_of(x, w.size(2), depth, a), plane_weight(w), plane(a));
    out = contiguous(volumes_of(planes, x.size(0), depth));
  }
  attach("conv3d", {out}, {x, w}, {x, w}, [a](GradNode& n, const Tensors& g) -> Tensors {
    const Tensor x0 = n.saved(0), w0 = n.saved(1);
    return {n.needs(0) ? grad_input3d(g[0], w0, x0.shape(), a) : Tensor(),
            n.needs(1) ? grad_weight3d(g[0], x0, w0, a) : Tensor()};
  });
  return out;
}

// Kernels of one row and column, or of one plane and row, need no windows: two dims of the volume are one of an image.
Tensor conv3d_of_lines(const Tensor& x, const Tensor& w, const Tensor& bias, const Dims& size, const ConvAttrs& a) {
  const int64_t n = x.size(0), o = w.size(0), c = w.size(1);
  const Dims out{n, o, size[0], size[1], size[2]};
  const bool one_plane = w.size(2) == 1 && a.stride_d == 1 && a.pad_d == 0,
             one_row = w.size(3) == 1 && a.stride_h == 1 && a.pad_h == 0,
             one_column = w.size(4) == 1 && a.stride_w == 1 && a.pad_w == 0;
  if (one_plane && one_row) {
    const Tensor flat = reshape(x, {n, x.size(1), x.size(2) * x.size(3), x.size(4)});
    return reshape(conv2d(flat, reshape(w, {o, c, 1, w.size(4)}), bias, {1, a.stride_w}, {0, a.pad_w},
                          {1, a.dilation_w}, a.groups),
                   out);
  }
  if (one_row && one_column) {
    const Tensor flat = reshape(x, {n, x.size(1), x.size(2), x.size(3) * x.size(4)});
    return reshape(conv2d(flat, reshape(w, {o, c, w.size(2), 1}), bias, {a.stride_d, 1}, {a.pad_d, 0},
                          {a.dilation_d, 1}, a.groups),
                   out);
  }
  return {};
}

Tensor batch_of(const Tensor& x) { return x.dim() == 4 ? unsqueeze(x, 0) : x; }

}  // namespace

Tensor conv3d(const Tensor& x, const Tensor& weight, const Tensor& bias, const Dims& stride, const Dims& padding,
              const Dims& dilation, int64_t groups) {
  if (autocast::active(x)) {
    const autocast::Off off;
    return conv3d(autocast::operand(OpId::conv2d, x), autocast::operand(OpId::conv2d, weight),
                  autocast::operand(OpId::conv2d, bias), stride, padding, dilation, groups);
  }
  const Dims size = check_conv({"conv3d", x, weight, bias, stride, padding, dilation, {}, groups});
  const ConvAttrs a = attrs_of(stride, padding, dilation, groups);
  const Tensor in = batch_of(x);
  Tensor y = conv3d_of_lines(in, weight, bias, size, a);
  if (!y) {
    y = convolves_volumes(x) ? conv_op(in, weight, a) : conv3d_of_planes(in, weight, size[0], a);
    if (bias) y = add_bias(y, bias);
  }
  return x.dim() == 4 ? squeeze(y, 0) : y;
}

Tensor conv_transpose3d(const Tensor& x, const Tensor& weight, const Tensor& bias, const Dims& stride,
                        const Dims& padding, const Dims& output_padding, int64_t groups, const Dims& dilation) {
  if (autocast::active(x)) {
    const autocast::Off off;
    return conv_transpose3d(
        autocast::operand(OpId::conv2d_grad_input, x), autocast::operand(OpId::conv2d_grad_input, weight),
        autocast::operand(OpId::conv2d_grad_input, bias), stride, padding, output_padding, groups, dilation);
  }
  const ConvCall c{"conv_transpose3d", x, weight, bias, stride, padding, dilation, output_padding, groups};
  const Dims size = check_conv(c);
  const Tensor in = batch_of(x);
  bool larger = false;
  for (int d = 0; d < 3; ++d) larger |= output_padding[d] >= stride[d];
  const ConvAttrs a = attrs_of(stride, larger ? Dims{0, 0, 0} : padding, dilation, groups);
  Dims whole{in.size(0), weight.size(1) * groups};
  for (int d = 0; d < 3; ++d) whole.push_back(larger ? size[d] + 2 * padding[d] - output_padding[d] : size[d]);
  Tensor y = grad_input3d(in, weight, whole, a);
  if (larger) y = cropped(y, padding, output_padding);
  if (bias) y = add_bias(y, bias);
  return x.dim() == 4 ? squeeze(y, 0) : y;
}

}  // namespace pyflame
