// Windows along a dim, and their adjoint: what unfold, fold and convolutions of volumes are made of.
#pragma once
#include "pyflame/ops/attrs.h"
#include "pyflame/ops/ops.h"

namespace pyflame {

// Window i has the elements i * step + t * dilation - before for the taps t < size. Elements outside of the dim are 0.
struct Windows {
  int64_t size, step, dilation, before;
};

// The windows of a dim as two dims in its place: [.., length, ..] -> [.., size, count, ..]. A view where nothing is outside.
Tensor windows_of(const Tensor& x, int dim, const Windows& w, int64_t count);
// Each element of windows [.., size, count, ..] is added to the element that it was read from: [.., length, ..].
Tensor add_windows(const Tensor& g, int dim, const Windows& w, int64_t length);

// How many windows fit a padded dim; with `ceil` also one that is cut off by the end, if it begins before the padding there.
int64_t window_count(int64_t in, int64_t kernel, int64_t stride, int64_t pad, int64_t dilation, bool ceil = false);

// conv2d without checks, and its gradients; shape: the input's. (conv.cpp)
Tensor conv_op(const Tensor& x, const Tensor& w, const ConvAttrs& a);
Tensor conv2d_grad_input(const Tensor& g, const Tensor& w, const Dims& shape, const ConvAttrs& a);
Tensor conv2d_grad_weight(const Tensor& g, const Tensor& x, const Tensor& weight, const ConvAttrs& a);

// The arguments of a convolution over any number of spatial dims.
struct ConvCall {
  const char* op;
  Tensor x, weight, bias;
  Dims stride, padding, dilation, output_padding;  // one number for each spatial dim; output_padding: transposed ones
  int64_t groups;
};
// Checks them, and returns the spatial sizes of the result.
Dims check_conv(const ConvCall& c);
// Cuts `padding` off a transposed convolution that was computed without it, and adds output_padding at the end.
Tensor cropped(const Tensor& y, const Dims& padding, const Dims& output_padding);
// Adds a number for each channel of [N, C, ..].
Tensor add_bias(const Tensor& y, const Tensor& bias);

}  // namespace pyflame
