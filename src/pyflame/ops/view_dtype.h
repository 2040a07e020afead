// A view of a tensor's bytes as elements of another dtype.
#pragma once
#include "pyflame/tensor/tensor.h"

namespace pyflame {

// The same bytes, without a gradient. Where the sizes of the elements differ, the last dim grows or shrinks: its stride must be 1, and the
// other strides and the offset must divide. TypeError for bool, ValueError where the bytes do not divide.
Tensor view_dtype(const Tensor& x, DType dtype);

}  // namespace pyflame
