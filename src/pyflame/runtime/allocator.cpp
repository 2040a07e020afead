// Free blocks are kept per size class (powers of two in quarters: at most 25 % is wasted), because a training step asks for the same
// sizes again and fresh pages from the operating system cost more than the kernels that fill them.
#include "pyflame/runtime/allocator.h"

#include <sys/mman.h>

#include <bit>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "pyflame/base/env.h"
#include "pyflame/base/error.h"
#include "pyflame/record/recorder.h"
#include "pyflame/runtime/device.h"

namespace pyflame {

namespace {

constexpr size_t kAlign = 64;

size_t size_class(size_t n) {
  if (n <= 1024) return (n + kAlign - 1) / kAlign * kAlign;
  const size_t quarter = size_t{1} << (std::bit_width(n) - 3);
  return (n + quarter - 1) / quarter * quarter;
}

// Big blocks ask for huge pages: a pass over 64 MiB touches 16,384 small pages, and each first touch is a trap into the kernel.
void* from_system(size_t size) {
  constexpr size_t kHugePage = size_t{2} << 20;
  if (size < 2 * kHugePage) return std::aligned_alloc(kAlign, size);
  void* p = std::aligned_alloc(kHugePage, (size + kHugePage - 1) / kHugePage * kHugePage);
#ifdef MADV_HUGEPAGE
  if (p) madvise(p, size, MADV_HUGEPAGE);  // a hint: refusal costs nothing
#endif
  return p;
}

struct Allocator {
  DeviceMemory* device = nullptr;  // null: the host's memory
  std::mutex mutex;
  std::unordered_map<size_t, std::vector<void*>> free;
  MemoryStats stats{};
  bool limit_read = false;

  void* take(size_t size) { return device ? device->allocate(size) : from_system(size); }
  void give_back(void* p) {
    if (device) device->release(p);
    else std::free(p);
  }

  void trim() {
    for (auto& [size, blocks] : free)
      for (void* p : blocks) give_back(p);
    free.clear();
    stats.cached = 0;
  }

  void* get(size_t nbytes) {
    const size_t size = size_class(nbytes);
    std::lock_guard lock(mutex);
    if (!limit_read && !device) {
      stats.limit = static_cast<uint64_t>(env::memory_limit());
      limit_read = true;
    }
    if (stats.limit && stats.allocated + size > stats.limit)
      PF_FAIL(OutOfMemory,
              "allocate: out of memory; got a request for {} bytes with {} bytes in use; expected at most {} bytes "
              "(the memory limit); "
              "hint: a smaller batch, pf.checkpoint, or a higher PYFLAME_MEMORY_LIMIT",
              nbytes, stats.allocated, stats.limit);
    void* p = nullptr;
    auto it = free.find(size);
    if (it != free.end() && !it->second.empty()) {
      p = it->second.back();
      it->second.pop_back();
      stats.cached -= size;
    } else {
      ++stats.allocations;
      p = take(size);
      if (!p) {
        trim();
        p = take(size);
      }
      PF_CHECK(p, OutOfMemory,
               "allocate: out of memory; got a request for {} bytes with {} bytes in use; expected the system to have "
               "them; hint: a "
               "smaller batch or pf.checkpoint",
               nbytes, stats.allocated);
    }
    stats.allocated += size;
    stats.peak_allocated = std::max(stats.peak_allocated, stats.allocated);
    return p;
  }

  void put(void* p, size_t nbytes) {
    if (!p) return;
    const size_t size = size_class(nbytes);
    std::lock_guard lock(mutex);
    stats.allocated -= size;
    stats.cached += size;
    free[size].push_back(p);
  }
};

struct Allocators {
  std::mutex mutex;
  Allocator host;
  std::vector<std::pair<Device, std::unique_ptr<Allocator>>> devices;
};
Allocators& allocators() {
  static Allocators* a = new Allocators;  // leaked: storages may outlive static destruction
  return *a;
}

Allocator& allocator(Device device) {
  Allocators& all = allocators();
  if (!has_own_memory(device.type)) return all.host;
  std::lock_guard lock(all.mutex);
  for (auto& [d, a] : all.devices)
    if (d == device) return *a;
  auto a = std::make_unique<Allocator>();
  a->device = device_memory(device);
  return *all.devices.emplace_back(device, std::move(a)).second;
}

}  // namespace

void* allocate_raw(Device device, size_t nbytes) { return nbytes ? allocator(device).get(nbytes) : nullptr; }
void free_raw(Device device, void* p, size_t nbytes) {
  if (p) allocator(device).put(p, nbytes);
}

void allocate_data(Storage& s) {
  // Zero-sized storages get an address as well, so that "has bytes" and "is promised" stay apart.
  s.data = allocator(s.device).get(s.nbytes ? s.nbytes : 1);
  s.owned_by_allocator = true;
}

void copy_from_host(Storage& to, const void* from, size_t nbytes) {
  if (DeviceMemory* memory = device_memory(to.device)) memory->from_host(to.data, from, nbytes);
  else if (nbytes > 0) std::memcpy(to.data, from, nbytes);
}

void copy_to_host(void* to, const Storage& from, size_t offset, size_t nbytes) {
  const char* bytes = static_cast<const char*>(from.data) + offset;
  if (DeviceMemory* memory = device_memory(from.device)) memory->to_host(to, bytes, nbytes);
  else if (nbytes > 0) std::memcpy(to, bytes, nbytes);
}

Ref<Storage> allocate_storage(Device device, size_t nbytes) {
  auto s = make_ref<Storage>(device, nbytes);
  try {
    allocate_data(*s);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::OutOfMemory) throw;
    Recorder::current().cut(CutReason::Sync);  // pending work holds on to what it will give back
    allocate_data(*s);
  }
  return s;
}

void Storage::free_data() {
  if (deleter) deleter();
  else if (owned_by_allocator && data) allocator(device).put(data, nbytes ? nbytes : 1);
  deleter = nullptr;
  owned_by_allocator = false;
  data = nullptr;
}

MemoryStats memory_stats(Device device) {
  Allocator& a = allocator(device);
  std::lock_guard lock(a.mutex);
  return a.stats;
}

void reset_peak_memory(Device device) {
  Allocator& a = allocator(device);
  std::lock_guard lock(a.mutex);
  a.stats.peak_allocated = a.stats.allocated;
}

void empty_cache() {
  Allocators& all = allocators();
  {
    std::lock_guard lock(all.host.mutex);
    all.host.trim();
  }
  std::lock_guard lock(all.mutex);
  for (auto& [d, a] : all.devices) {
    std::lock_guard one(a->mutex);
    a->trim();
  }
}

void set_memory_limit(uint64_t bytes, Device device) {
  Allocator& a = allocator(device);
  std::lock_guard lock(a.mutex);
  a.stats.limit = bytes;
  a.limit_read = true;
}

void note_arena(Device device, uint64_t bytes) {
  Allocator& a = allocator(device);
  std::lock_guard lock(a.mutex);
  a.stats.arena = bytes;
}

}  // namespace pyflame
