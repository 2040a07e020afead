// Convolutions by our own kernels (vec_conv.h), from channels-last images of float32.
#pragma once
#include "pyflame/backends/backend.h"
#include "pyflame/backends/cpu/dnn_conv.h"

namespace pyflame::cpu {

// Our own kernel with the library's interface, forward and for the gradient of the input. Null if it does not take the problem, or is not faster.
std::shared_ptr<const DnnConv> find_tap_conv(DnnConv::Pass pass, const DnnConv::Problem& p);

// The reason why the kernel does not take the gradient of the weight that is the group's root, or none.
Refusal refuses_tap_grad_weight(const Problem& p);
std::unique_ptr<Executable> make_tap_grad_weight(const Problem& p);

}  // namespace pyflame::cpu
