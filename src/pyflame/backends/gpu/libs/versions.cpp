// Asks each library for its version; each has its own way.
#include "pyflame/backends/gpu/libs/versions.h"

#include <array>
#include <map>
#include <mutex>

#include "pyflame/backends/gpu/libs/blas.h"
#include "pyflame/base/error.h"

namespace pyflame::gpu {

namespace {

constexpr const char* kHiprtc[] = {"libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so", nullptr};
constexpr const char* kNvrtc[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so", nullptr};
constexpr const char* kCudnn[] = {"libcudnn.so.9", nullptr};
constexpr const char* kMiopen[] = {"libMIOpen.so.1", "libMIOpen.so", nullptr};

std::string compiler_version(DeviceType type) {
  const bool hip = type == DeviceType::rocm;
  void* library = open_library(type, hip ? kHiprtc : kNvrtc);
  const auto get = reinterpret_cast<int (*)(int*, int*)>(find_symbol(library, hip ? "hiprtcVersion" : "nvrtcVersion"));
  int major = 0, minor = 0;
  return get && get(&major, &minor) == 0 ? fmt::format("{} {}.{}", hip ? "hiprtc" : "nvrtc", major, minor) : "";
}

std::string cudnn_version() {
  void* library = open_library(DeviceType::cuda, kCudnn);
  const auto get = reinterpret_cast<size_t (*)()>(find_symbol(library, "cudnnGetVersion"));
  return get ? fmt::format("cudnn {}", get()) : "";
}

std::string miopen_version() {
  void* library = open_library(DeviceType::rocm, kMiopen);
  const auto get = reinterpret_cast<int (*)(size_t*, size_t*, size_t*)>(find_symbol(library, "miopenGetVersion"));
  size_t major = 0, minor = 0, patch = 0;
  return get && get(&major, &minor, &patch) == 0 ? fmt::format("miopen {}.{}.{}", major, minor, patch) : "";
}

std::string rocblas_version() {
  const RocBlas* library = rocblas();
  std::array<char, 128> text{};
  return library && library->version(text.data(), text.size()) == 0 ? fmt::format("rocblas {}", text.data()) : "";
}

std::string found(GpuDevice& device) {
  const DeviceType type = device.rt().type;
  const Blas* lt = blas(type);
  std::string all;
  for (const std::string& each : {compiler_version(type), lt ? blas_version(*lt, device) : std::string(),
                                  type == DeviceType::rocm ? rocblas_version() : std::string(),
                                  type == DeviceType::rocm ? miopen_version() : cudnn_version()})
    if (!each.empty()) all += (all.empty() ? "" : "; ") + each;
  return all;
}

}  // namespace

std::string library_versions(GpuDevice& device) {
  static std::mutex mutex;
  static auto* known = new std::map<const GpuDevice*, std::string>;
  std::lock_guard lock(mutex);
  const auto [at, fresh] = known->try_emplace(&device);
  if (fresh) at->second = found(device);
  return at->second;
}

}  // namespace pyflame::gpu
