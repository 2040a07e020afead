// Handles on existing bytes.
#pragma once
#include "pyflame/tensor/tensor.h"

namespace pyflame {

// Another handle on x's bytes, without autograd history.
Tensor alias(const Tensor& x, const Dims& shape, const Dims& strides, int64_t offset);

// The same bytes as elements of another dtype of the same size.
Tensor alias_as(const Tensor& x, DType dtype);

// The same for the engine's own use. Nothing may write through it, so x's layout stays free.
Tensor borrow(const Tensor& x);

}  // namespace pyflame
