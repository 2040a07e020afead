// Convolutions by our own kernels (vec_conv.h), from channels-last images of float32.
#pragma once
#include "pyflame/backends/backend.h"
#include "pyflame/backends/cpu/dnn_conv.h"

namespace pyflame::cpu {

// Our own kernel with the library's interface, forward and for the gradient of the input. Null if it does not take the problem, or is not faster.
std::shared_ptr<const DnnConv> find_tap_conv(DnnConv::Pass pass, const DnnConv::Problem& p);

// The same by Winograd's algorithm, for 3x3 taps and stride 1; `calls` run with the same weights.
std::shared_ptr<const DnnConv> find_winograd_conv(DnnConv::Pass pass, const DnnConv::Problem& p, int64_t calls);

// The reason why the kernel does not take the gradient of the weight that is the group's root, or none.
Refusal refuses_tap_grad_weight(const Problem& p);
std::unique_ptr<Executable> make_tap_grad_weight(const Problem& p);

}  // namespace pyflame::cpu
