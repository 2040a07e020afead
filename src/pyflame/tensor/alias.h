// Handles on bytes that exist already, and the tie between a view and the history of its base.
#pragma once
#include "pyflame/tensor/tensor.h"

namespace pyflame {

// Another handle on x's bytes, without history.
Tensor alias(const Tensor& x, const Dims& shape, const Dims& strides, int64_t offset);

// Gives a view whose base was rewritten the history that it has now: reading it out of the base (ops/view.cpp).
void remake_view_history(const Tensor& view);

}  // namespace pyflame
