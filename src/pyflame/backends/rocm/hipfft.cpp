// The files and the names of hipFFT, and of rocFFT, which it calls.
#include "pyflame/backends/rocm/libraries.h"

namespace pyflame::gpu {

namespace {
constexpr const char* kRocfftFiles[] = {"librocfft.so.0", "librocfft.so", nullptr};
constexpr const char* kHipfftFiles[] = {"libhipfft.so.0", "libhipfft.so", nullptr};
const Dylib kRocfft = {.name = "rocFFT",
                       .type = DeviceType::rocm,
                       .files = kRocfftFiles,
                       .absent = "rocFFT (librocfft.so) was not found; install ROCm's rocfft package",
                       .computes = true};
const Dylib* const kHipfftNeeds[] = {&kRocfft, nullptr};
}  // namespace

const Dylib kHipfft = {.name = "hipFFT",
                       .type = DeviceType::rocm,
                       .files = kHipfftFiles,
                       .absent = "hipFFT (libhipfft.so) was not found; install ROCm's hipfft package",
                       .computes = true,
                       .needs = kHipfftNeeds};

const FftNames kHipfftNames = {.library = &kHipfft, .name = "hipfft", .prefix = "hipfft", .plan_is_int = false};

}  // namespace pyflame::gpu
