// Asks each library for its version; each has its own way.
#include "pyflame/backends/gpu/libs/versions.h"

#include <map>
#include <mutex>

#include "pyflame/backends/gpu/libs/vendor.h"
#include "pyflame/base/error.h"

namespace pyflame::gpu {

namespace {

std::string compiler_version(DeviceType type) {
  const bool hip = type == DeviceType::rocm;
  void* library = (hip ? kHiprtc : kNvrtc).open().handle;
  const auto get = reinterpret_cast<int (*)(int*, int*)>(find_symbol(library, hip ? "hiprtcVersion" : "nvrtcVersion"));
  int major = 0, minor = 0;
  return get && get(&major, &minor) == 0 ? fmt::format("{} {}.{}", hip ? "hiprtc" : "nvrtc", major, minor) : "";
}

std::string found(GpuDevice& device) {
  const DeviceType type = device.rt().type;
  const Blas* lt = blas(type);
  std::string all;
  for (const std::string& each :
       {compiler_version(type), lt ? blas_version(*lt, device) : std::string(), vendor(type).versions()})
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
