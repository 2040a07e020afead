// Free blocks are kept per size class (powers of two in quarters: at most 25 % is wasted), because a training step asks for the same
// sizes again and fresh pages from the operating system cost more than the kernels that fill them.
#include "pyflame/runtime/allocator.h"

#include <sys/mman.h>

#include <bit>
#include <cstdlib>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "pyflame/base/env.h"
#include "pyflame/base/error.h"
#include "pyflame/record/recorder.h"

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
  std::mutex mutex;
  std::unordered_map<size_t, std::vector<void*>> free;
  MemoryStats stats{};
  bool limit_read = false;

  void trim() {
    for (auto& [size, blocks] : free)
      for (void* p : blocks) std::free(p);
    free.clear();
    stats.cached = 0;
  }

  void* get(size_t nbytes) {
    const size_t size = size_class(nbytes);
    std::lock_guard lock(mutex);
    if (!limit_read) {
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
      p = from_system(size);
      if (!p) {
        trim();
        p = from_system(size);
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

Allocator& allocator() {
  static Allocator* a = new Allocator;  // leaked: storages may outlive static destruction
  return *a;
}

}  // namespace

void* allocate_raw(size_t nbytes) { return nbytes ? allocator().get(nbytes) : nullptr; }
void free_raw(void* p, size_t nbytes) { allocator().put(p, nbytes); }

void allocate_data(Storage& s) {
  // Zero-sized storages get an address as well, so that "has bytes" and "is promised" stay apart.
  s.data = allocator().get(s.nbytes ? s.nbytes : 1);
  s.owned_by_allocator = true;
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
  else if (owned_by_allocator && data) allocator().put(data, nbytes ? nbytes : 1);
  deleter = nullptr;
  owned_by_allocator = false;
  data = nullptr;
}

MemoryStats memory_stats() {
  Allocator& a = allocator();
  std::lock_guard lock(a.mutex);
  return a.stats;
}

void reset_peak_memory() {
  Allocator& a = allocator();
  std::lock_guard lock(a.mutex);
  a.stats.peak_allocated = a.stats.allocated;
}

void empty_cache() {
  Allocator& a = allocator();
  std::lock_guard lock(a.mutex);
  a.trim();
}

void set_memory_limit(uint64_t bytes) {
  Allocator& a = allocator();
  std::lock_guard lock(a.mutex);
  a.stats.limit = bytes;
  a.limit_read = true;
}

void note_arena(uint64_t bytes) {
  Allocator& a = allocator();
  std::lock_guard lock(a.mutex);
  a.stats.arena = bytes;
}

}  // namespace pyflame
