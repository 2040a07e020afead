// Loads cuBLASLt and hipBLASLt.
#include "pyflame/backends/gpu/libs/blas.h"

#include <map>
#include <mutex>
#include <string>

#include "pyflame/backends/gpu/libs/vendor.h"
#include "pyflame/base/error.h"

namespace pyflame::gpu {

namespace {

struct Loaded {
  std::once_flag once;
  Blas blas;
  std::string why;
};

void load(DeviceType type, Loaded& out) {
  const BlasNumbers& numbers = vendor(type).blas;
  const Dylib::Opened& opened = numbers.library->open();
  void* library = opened.handle;
  out.why = opened.why;
  if (!library) return;
  out.blas.numbers = &numbers;
#define PYFLAME_BLAS_LOAD(member, suffix, parameters)                                          \
  {                                                                                            \
    const std::string name = std::string(numbers.prefix) + (suffix);                           \
    out.blas.member = reinterpret_cast<int(*) parameters>(find_symbol(library, name.c_str())); \
    if (!out.blas.member) out.why = numbers.name + (" lacks " + name);                         \
  }
  PYFLAME_BLAS_FUNCTIONS(PYFLAME_BLAS_LOAD)
  out.blas.version = find_symbol(library, (std::string(numbers.prefix) + "GetVersion").c_str());
#undef PYFLAME_BLAS_LOAD
  if (numbers.index_function)
    out.blas.index_of = reinterpret_cast<int (*)(void*)>(find_symbol(library, numbers.index_function));
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

std::string blas_version(const Blas& library, GpuDevice& device) {
  std::string name = library.numbers->name;
  if (!library.version) return name;
  if (!library.numbers->version_by_handle)
    return fmt::format("{} {}", name, reinterpret_cast<size_t (*)()>(library.version)());
  try {
    int version = 0;
    const auto get = reinterpret_cast<int (*)(BlasHandle, int*)>(library.version);
    if (get(blas_handle(library, device), &version) == 0) return fmt::format("{} {}", name, version);
  } catch (const Error&) {  // without a handle the library cannot compute either
  }
  return name;
}

}  // namespace pyflame::gpu
