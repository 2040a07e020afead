// See blas.h.
#include "pyflame/backends/gpu/blas.h"

#include <map>
#include <mutex>

#include "pyflame/base/error.h"

namespace pyflame::gpu {

namespace {

struct Loaded {
  std::once_flag once;
  Blas blas;
  std::string why;
};

void load(DeviceType type, Loaded& out) {
  const BlasNumbers& numbers = type == DeviceType::rocm ? kRocmBlas : kCudaBlas;
  void* library = open_library(type, numbers.libraries);
  if (!library) {
    out.why = numbers.absent;
    return;
  }
  out.blas.numbers = &numbers;
#define PYFLAME_BLAS_LOAD(member, suffix, parameters)                                          \
  {                                                                                            \
    const std::string name = std::string(numbers.prefix) + (suffix);                           \
    out.blas.member = reinterpret_cast<int(*) parameters>(find_symbol(library, name.c_str())); \
    if (!out.blas.member) out.why = numbers.name + (" lacks " + name);                         \
  }
  PYFLAME_BLAS_FUNCTIONS(PYFLAME_BLAS_LOAD)
#undef PYFLAME_BLAS_LOAD
}

}  // namespace

const Blas* blas(DeviceType type, std::string* why) {
  static Loaded* loaded = new Loaded[2];  // leaked: threads may outlive static destruction
  Loaded& l = loaded[type == DeviceType::rocm ? 0 : 1];
  std::call_once(l.once, [&] { load(type, l); });
  if (!l.why.empty() && why) *why = l.why;
  return l.why.empty() ? &l.blas : nullptr;
}

BlasHandle blas_handle(const Blas& library, GpuDevice& device) {
  static std::mutex mutex;
  static auto* handles = new std::map<const GpuDevice*, BlasHandle>;
  std::lock_guard lock(mutex);
  BlasHandle& handle = (*handles)[&device];
  if (!handle) {
    device.enter();
    const int status = library.create(&handle);
    if (status != 0) handle = nullptr;
    PF_CHECK(status == 0, Runtime, "{}: no handle on {}; got status {}", library.numbers->name, device.arch().name,
             status);
  }
  return handle;
}

}  // namespace pyflame::gpu
