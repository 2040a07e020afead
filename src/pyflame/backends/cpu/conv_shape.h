// The geometry of a convolution on the CPU. An image is a volume of one plane.
#pragma once
#include <algorithm>

#include "pyflame/backends/backend.h"
#include "pyflame/backends/cpu/common.h"

namespace pyflame::cpu {

struct ConvShape {
  ConvAttrs a;
  bool volume;
  int64_t n = 0, ic = 0, oc = 0;  // ic and oc of one group
  int64_t d = 1, h = 0, w = 0, kd = 1, kh = 0, kw = 0, od = 1, oh = 0, ow = 0;
  ConvShape(const ConvAttrs& attrs, const Dims& input, const Dims& weight, const Dims& output)
      : a(attrs), volume(input.size() == 5) {
    n = input[0], ic = weight[1], oc = a.groups ? weight[0] / a.groups : 0;
    if (volume) d = input[2], kd = weight[2], od = output[2];
    const int y = volume ? 3 : 2, x = y + 1;
    h = input[y], w = input[x], kh = weight[y], kw = weight[x], oh = output[y], ow = output[x];
  }
  static ConvShape forward(const Node& n) {
    return {n.attr<ConvAttrs>(), n.ins[0].shape, n.ins[1].shape, n.outs[0].shape};
  }
  static ConvShape grad_input(const Node& n) {
    return {n.attr<ConvAttrs>(), n.outs[0].shape, n.ins[1].shape, n.ins[0].shape};
  }
  static ConvShape grad_weight(const Node& n) {
    return {n.attr<ConvAttrs>(), n.ins[1].shape, n.outs[0].shape, n.ins[0].shape};
  }
  int64_t taps() const { return ic * kd * kh * kw; }
  int64_t rows() const { return od * oh; }
  int64_t pixels() const { return od * oh * ow; }
  int64_t in_plane() const { return ic * d * h * w; }
  int64_t out_plane() const { return oc * pixels(); }
  bool pointwise() const {
    return kd * kh * kw == 1 && a.stride_d * a.stride_h * a.stride_w == 1 && a.pad_d + a.pad_h + a.pad_w == 0;
  }
  // Parallel chunks of so many units of `rows` output rows pay off.
  int64_t grain(int64_t rows) const {
    const double flops = 2.0 * static_cast<double>(taps() * oc) * static_cast<double>(rows * ow);
    return std::max<int64_t>(1, static_cast<int64_t>(1e6 / std::max(1.0, flops)));
  }
};

}  // namespace pyflame::cpu
