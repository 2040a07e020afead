// A convolution as its implementations see it. The three ops are variants of one product of an image, a weight and a
// result; they differ in which of the three is computed.
#pragma once
#include "pyflame/backends/backend.h"

// The kernels' headers are included in this order, because run-time compilers see them as one text.
#include "pyflame/kernels/device/launch.h"

#include "pyflame/kernels/device/scalar.h"

#include "pyflame/kernels/conv/conv.h"

namespace pyflame::gpu {

enum class ConvPass {
  forward,
  grad_input,
  grad_weight
};  // which of the three convolutions; it computes result, image, weight

struct ConvCase {
  explicit ConvCase(const Problem& p);
  ConvPass pass;
  DType dtype;
  ConvAttrs attrs;
  Operand image, weight, result;  // (N, C, H, W), (O, C / groups, KH, KW), (N, O, OH, OW)
  const Operand& made() const {
    return pass == ConvPass::forward ? result : pass == ConvPass::grad_input ? image : weight;
  }
  bool fits_int() const;      // whether every size fits an int
  bool few_channels() const;  // per group: depthwise convolution, or nearly
  // In the form that the kernels of kernels/conv take.
  pf::Conv kernel_case() const;
};

// Whether the result of a convolution is best made channels-last whatever its inputs' layout. rounded: matrix cores
// compute float32, too.
bool prefers_channels_last(const ImageResult& r, bool rounded);

}  // namespace pyflame::gpu
