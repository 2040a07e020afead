// The file and the names of cuFFT.
#include "pyflame/backends/cuda/libraries.h"

namespace pyflame::gpu {

namespace {
constexpr const char* kCufftFiles[] = {"libcufft.so.12", "libcufft.so.11", "libcufft.so", nullptr};
const Dylib* const kCufftNeeds[] = {&kNvrtc, nullptr};
}  // namespace

const Dylib kCufft = {
    .name = "cuFFT",
    .type = DeviceType::cuda,
    .files = kCufftFiles,
    .absent = "cuFFT (libcufft.so) was not found; install it with pip (nvidia-cufft) or with the CUDA toolkit",
    .computes = true,
    .needs = kCufftNeeds};

const FftNames kCufftNames = {.library = &kCufft, .name = "cufft", .prefix = "cufft", .plan_is_int = true};

}  // namespace pyflame::gpu
