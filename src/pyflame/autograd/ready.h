// Gradients of leaves while a backward pass goes on, for those who can use them before its end.
#pragma once
#include <functional>

#include "pyflame/tensor/tensor.h"

namespace pyflame::autograd {

// Registers a function that gets the gradient of a leaf as soon as a backward pass has the whole of it, while those of other leaves may
// still come. It is not called where that is not known before the end: for a leaf with hooks, in a pass with a checkpoint or with
// create_graph. It does not keep the gradient, which becomes .grad. Returns an id.
size_t register_ready_hook(const Tensor& leaf, std::function<void(const Tensor&)> hook);
void remove_ready_hook(const Tensor& leaf, size_t id);

}  // namespace pyflame::autograd
