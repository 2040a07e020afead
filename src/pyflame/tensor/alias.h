// Handles on existing bytes, and the link between a view and the history of its base.
#pragma once
#include "pyflame/tensor/tensor.h"

namespace pyflame {

// Another handle on x's bytes, without autograd history.
Tensor alias(const Tensor& x, const Dims& shape, const Dims& strides, int64_t offset);

// The same for the engine's own use. Nothing may write through it, so x's layout stays free.
Tensor borrow(const Tensor& x);

// Makes a tensor with a free layout row-major. The engine may store results of convolutions, and results computed from them, in
// channels-last order (docs/internals/layout.md). Everything that exposes strides or addresses must call this first. (record/recorder.cpp)
void settle_layout(const Tensor& x);

// Gives a view whose base was written in place its new history: a read of the base (ops/view.cpp).
void remake_view_history(const Tensor& view);

}  // namespace pyflame
