// Handles on bytes that exist already, and the tie between a view and the history of its base.
#pragma once
#include "pyflame/tensor/tensor.h"

namespace pyflame {

// Another handle on x's bytes, without history.
Tensor alias(const Tensor& x, const Dims& shape, const Dims& strides, int64_t offset);

// The same for the engine's own use: never written through, so that x's layout stays free.
Tensor borrow(const Tensor& x);

// Results of convolutions, and what is made of them element by element, may lie channels-last where nobody asked for it. Whoever makes a
// view or asks for strides or addresses must find them row-major: from here on x does. (record/recorder.cpp)
void settle_layout(const Tensor& x);

// Gives a view whose base was rewritten the history that it has now: reading it out of the base (ops/view.cpp).
void remake_view_history(const Tensor& view);

}  // namespace pyflame
