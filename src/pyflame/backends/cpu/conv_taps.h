// The gradient of a convolution's weight by our own kernel (vec_conv.h), from channels-last images of float32.
#pragma once
#include "pyflame/backends/backend.h"

namespace pyflame::cpu {

// The reason why the kernel does not take the convolution that is the group's root, or none.
Refusal refuses_tap_grad_weight(const Problem& p);
std::unique_ptr<Executable> make_tap_grad_weight(const Problem& p);

}  // namespace pyflame::cpu
