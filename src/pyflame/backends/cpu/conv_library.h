// Convolutions by oneDNN (dnn_conv.h), on images in either memory format and on volumes. Threads share images, and of volumes also parts.
#pragma once
#include "pyflame/backends/backend.h"
#include "pyflame/backends/cpu/dnn_conv.h"

namespace pyflame::cpu {

// Whether the library has fast kernels for the convolution that is the group's root.
bool library_takes(const Problem& p, DnnConv::Pass pass);
std::unique_ptr<Executable> make_library_conv(const Problem& p);
std::unique_ptr<Executable> make_library_grad_input(const Problem& p);
std::unique_ptr<Executable> make_library_grad_weight(const Problem& p);

}  // namespace pyflame::cpu
