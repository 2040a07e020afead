// A convolution as its implementations see it: the three ops are faces of one product of an image, a weight and a result, told apart by
// which of them is made.
#pragma once
#include "pyflame/backends/backend.h"

// The kernels' own headers, in this order: the run-time compilers see one text.
#include "pyflame/kernels/device/launch.h"

#include "pyflame/kernels/device/scalar.h"

#include "pyflame/kernels/conv/conv.h"

namespace pyflame::gpu {

enum class ConvFace { result, image, weight };  // the one that is made

struct ConvCase {
  explicit ConvCase(const Problem& p);
  ConvFace face;
  DType dtype;
  ConvAttrs attrs;
  Operand image, weight, result;  // (N, C, H, W), (O, C / groups, KH, KW), (N, O, OH, OW)
  const Operand& made() const { return face == ConvFace::result ? result : face == ConvFace::image ? image : weight; }
  bool fits_int() const;      // every size does
  bool few_channels() const;  // in a group: depthwise and near it
  // As the kernels of kernels/conv take it.
  pf::Conv kernel_case() const;
};

// The two ways in which images and weights lie, where they lie densely.
enum class Order { channels_first, channels_last };
Dims strides_of(const Dims& shape, Order order);
bool lies(const Operand& o, Order order);

}  // namespace pyflame::gpu
