// Convolutions by oneDNN (dnn_conv.h) or by our own kernels with the same interface, on images in either memory format
// and on volumes. Threads share images, and of volumes also parts.
#pragma once
#include "pyflame/backends/backend.h"
#include "pyflame/backends/cpu/dnn_conv.h"

namespace pyflame::cpu {

// Whose kernels: oneDNN's, or our own (conv_taps.h).
enum class ConvKernels : uint8_t { library, taps, winograd };

// Whether there are fast kernels for the convolution that is the group's root.
bool library_takes(const Problem& p, DnnConv::Pass pass, ConvKernels kernels = ConvKernels::library);
std::unique_ptr<Executable> make_library_conv(const Problem& p);
std::unique_ptr<Executable> make_tap_conv(const Problem& p);
std::unique_ptr<Executable> make_winograd_conv(const Problem& p);
std::unique_ptr<Executable> make_library_grad_input(const Problem& p);
std::unique_ptr<Executable> make_tap_grad_input(const Problem& p);
std::unique_ptr<Executable> make_winograd_grad_input(const Problem& p);
std::unique_ptr<Executable> make_library_grad_weight(const Problem& p);

}  // namespace pyflame::cpu
