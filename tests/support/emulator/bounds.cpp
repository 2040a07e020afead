// See bounds.h. Also the functions that -fsanitize=kernel-address calls before each access.
#include "bounds.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "grid.h"
#include "settings.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace pyflame::emulator {

namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr size_t kApart = 0;  // its red zones are better
#else
constexpr size_t kApart = size_t{64} << 10;  // bytes before and behind a tensor that are nobody's
#endif
constexpr size_t kAlign = 256;
constexpr int kNobodys = 0xff;  // NaN in every float type

struct Tensor {
  std::string name;
  void* original;
  size_t bytes;
  bool written;
  std::unique_ptr<char, void (*)(void*)> memory{nullptr, std::free};
  char* data = nullptr;
};
std::vector<Tensor>& tensors() {
  static auto* t = new std::vector<Tensor>;
  return *t;
}

#if !defined(__SANITIZE_ADDRESS__)  // whose own run time has the functions that call this
// How far the access is from the tensor: 0 inside of it.
size_t distance(const Tensor& t, uintptr_t at, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(t.data), end = begin + t.bytes;
  return at < begin ? begin - at : at + bytes > end ? at + bytes - end : 0;
}

void check_access(uintptr_t at, size_t bytes, bool writes) {
  const Tensor* nearest = nullptr;
  for (const Tensor& t : tensors()) {
    if (distance(t, at, bytes) == 0) return;
    if (!nearest || distance(t, at, bytes) < distance(*nearest, at, bytes)) nearest = &t;
  }
  if (!nearest || is_own(reinterpret_cast<const void*>(at))) return;
  const auto begin = reinterpret_cast<uintptr_t>(nearest->data);
  fail_kernel((writes ? "writes " : "reads ") + std::to_string(bytes) + " bytes outside of every tensor, " +
              (at < begin ? std::to_string(begin - at) + " bytes before the begin"
                          : std::to_string(at - begin) + " bytes behind the begin") +
              " of " + nearest->name + ", which has " + std::to_string(nearest->bytes) + " bytes");
}
#endif

void* own(const char* name, void* data, size_t bytes, bool written) {
  if (!settings().bounds) return data;
  for (Tensor& t : tensors())
    if (t.original == data && t.bytes == bytes) {
      t.written |= written;
      return t.data;
    }
  Tensor t{name, data, bytes, written};
  void* raw = nullptr;
  if (posix_memalign(&raw, kAlign, bytes + 2 * kApart) != 0)
    fail_kernel("has no memory of the host for a copy of " + t.name);
  t.memory.reset(static_cast<char*>(raw));
  t.data = t.memory.get() + kApart;
  std::memset(raw, kNobodys, kApart);
  if (bytes > 0) std::memcpy(t.data, data, bytes);
  std::memset(t.data + bytes, kNobodys, kApart);
  return tensors().emplace_back(std::move(t)).data;
}

}  // namespace

OwnTensors::~OwnTensors() {
  for (const Tensor& t : tensors())
    if (t.written && t.bytes > 0) std::memcpy(t.original, t.data, t.bytes);
  tensors().clear();
}

}  // namespace pyflame::emulator

EXPORT void* emulated_tensor(const char* name, void* data, unsigned long bytes, bool written) {
  return pyflame::emulator::own(name, data, bytes, written);
}

#if !defined(__SANITIZE_ADDRESS__)
#define CHECK_ACCESSES(size)                                                                                \
  EXPORT void __asan_load##size##_noabort(uintptr_t p) { pyflame::emulator::check_access(p, size, false); } \
  EXPORT void __asan_store##size##_noabort(uintptr_t p) { pyflame::emulator::check_access(p, size, true); }
CHECK_ACCESSES(1)
CHECK_ACCESSES(2)
CHECK_ACCESSES(4)
CHECK_ACCESSES(8)
CHECK_ACCESSES(16)
EXPORT void __asan_loadN_noabort(uintptr_t p, size_t bytes) { pyflame::emulator::check_access(p, bytes, false); }
EXPORT void __asan_storeN_noabort(uintptr_t p, size_t bytes) { pyflame::emulator::check_access(p, bytes, true); }
EXPORT void __asan_handle_no_return() {}
#endif
