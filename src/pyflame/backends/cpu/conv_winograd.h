// The gradient of the weights of a convolution with 3x3 taps and stride 1 by Winograd's algorithm (vec_winograd.h), from channels-last images of float32.
#pragma once
#include "pyflame/backends/backend.h"

namespace pyflame::cpu {

// The reason why the kernel does not take the gradient of the weight that is the group's root, or none.
Refusal refuses_winograd_grad_weight(const Problem& p);
std::unique_ptr<Executable> make_winograd_grad_weight(const Problem& p);

}  // namespace pyflame::cpu
