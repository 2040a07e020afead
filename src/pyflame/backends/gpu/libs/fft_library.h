// The vendors' libraries of Fourier transforms, cuFFT and hipFFT, loaded at run time. Their functions have the same parameters and their enums
// the same numbers; the names differ, and the type of a plan.
#pragma once
#include <memory>
#include <string>

#include "pyflame/backends/gpu/driver/device.h"

namespace pyflame::gpu {

constexpr int kFftRealToComplex32 = 0x2a, kFftComplex32 = 0x29, kFftRealToComplex64 = 0x6a, kFftComplex64 = 0x69;
constexpr int kFftForward = -1, kFftBackward = 1;

struct FftNames {
  const Dylib* library;
  const char* name;    // of the implementation, "cufft"
  const char* prefix;  // of its functions
  bool plan_is_int;    // a plan is an int, or else a pointer
};

// Why the library cannot compute a transform; empty if it can. Transforms to real numbers are not its task: there it may overwrite its input.
Refusal fft_library_refuses(const Problem& p);
// `own` runs if the library fails, and for pointers that lack the alignment of a pair. It may be null if there is no such kernel.
std::unique_ptr<Executable> make_fft_library(const Problem& p, std::unique_ptr<Executable> own);

// The kernel that scales what the library has written.
std::string fft_scale_source(DType dtype);

}  // namespace pyflame::gpu
