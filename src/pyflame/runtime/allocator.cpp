// Allocates memory of the host and of devices. The host's free blocks are kept per size class (four classes per power
// of two, so at most 25 % is wasted), because a training step requests the same sizes again, and fresh pages from the
// operating system cost more than the kernels that fill them. For devices, see segments.h.
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
#include "pyflame/base/events.h"
#include "pyflame/base/fork.h"
#include "pyflame/record/recorder.h"
#include "pyflame/runtime/device.h"
#include "pyflame/runtime/in_flight.h"
#include "pyflame/runtime/segments.h"

namespace pyflame {

namespace {

constexpr size_t kHostAlign = 64;

size_t size_class(size_t n) {
  if (n <= 1024) return (n + kHostAlign - 1) / kHostAlign * kHostAlign;
  const size_t quarter = size_t{1} << (std::bit_width(n) - 3);
  return (n + quarter - 1) / quarter * quarter;
}

// Large blocks use huge pages: 64 MiB are 16,384 small pages, and the first touch of each is a trap into the kernel.
void* from_system(size_t size) {
  constexpr size_t kHugePage = size_t{2} << 20;
  const events::Scope log(events::Kind::Allocate, "allocate from the system", static_cast<int64_t>(size));
  if (size < 2 * kHugePage) return std::aligned_alloc(kHostAlign, size);
  void* p = std::aligned_alloc(kHugePage, (size + kHugePage - 1) / kHugePage * kHugePage);
#ifdef MADV_HUGEPAGE
  if (p) madvise(p, size, MADV_HUGEPAGE);  // a hint: refusal is harmless
#endif
  return p;
}

std::string gib(uint64_t bytes) {
  if (bytes < 10 << 20) return fmt::format("{} bytes", bytes);
  return bytes < uint64_t{1} << 30 ? fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20))
                                   : fmt::format("{:.2f} GiB", static_cast<double>(bytes) / (1 << 30));
}

// One allocator: size classes for the host, segments for a device.
struct Allocator {
  Device where;
  DeviceMemory* device = nullptr;      // null: the host's memory
  std::unique_ptr<Segments> segments;  // of the device
  std::mutex mutex;
  std::unordered_map<size_t, std::vector<void*>> free;
  MemoryStats stats{};
  bool limit_read = false;

  void trim() {
    if (segments) segments->trim();
    for (auto& [size, blocks] : free)
      for (void* p : blocks) std::free(p);
    free.clear();
    stats.cached = 0;
  }

  void read_limit() {
    if (!device) {
      stats.limit = static_cast<uint64_t>(env::memory_limit());
    } else if (const double fraction = env::gpu_memory_fraction(); fraction < 1) {
      size_t free_bytes = 0, total = 0;
      device->room(&free_bytes, &total);
      set_limit(static_cast<uint64_t>(fraction * static_cast<double>(total)));
    }
    limit_read = true;  // set only now, so that a refused value is refused again at the next call
  }
  void set_limit(uint64_t bytes) {
    stats.limit = bytes;
    if (segments) segments->set_limit(bytes);
  }

  // `size` becomes the size of the block.
  void* from_cache_or_system(size_t& size) {
    if (segments) return segments->get(size, &size);
    if (const auto it = free.find(size); it != free.end() && !it->second.empty()) {
      void* p = it->second.back();
      it->second.pop_back();
      stats.cached -= size;
      return p;
    }
    ++stats.allocations;
    return from_system(size);
  }

  void* get(size_t nbytes, MemoryUse use) {
    std::lock_guard lock(mutex);
    if (!limit_read) read_limit();
    size_t size = segments ? nbytes : size_class(nbytes);
    const bool over = stats.limit && stats.allocated + size > stats.limit;
    void* p = over ? nullptr : from_cache_or_system(size);
    if (!p && !over) {
      trim();
      p = from_cache_or_system(size);
      stats.retries += p != nullptr;
    }
    if (!p) out_of_memory(nbytes, over);
    stats.allocated += size;
    stats.by_use[static_cast<size_t>(use)] += size;
    stats.peak_allocated = std::max(stats.peak_allocated, stats.allocated);
    return p;
  }

  void put(void* p, size_t nbytes, MemoryUse use) {
    if (!p) return;
    std::lock_guard lock(mutex);
    const size_t size = segments ? segments->put(p) : size_class(nbytes);
    stats.allocated -= size;
    stats.by_use[static_cast<size_t>(use)] -= size;
    if (segments) return;
    stats.cached += size;
    free[size].push_back(p);
  }

  [[noreturn]] void out_of_memory(size_t nbytes, bool over) {
    ++stats.failures;
    if (device)
      PF_FAIL(OutOfMemory, "allocate: out of memory on {}; got a request for {}\n{}", where.str(), gib(nbytes),
              report(nbytes));
    PF_CHECK(!over, OutOfMemory,
             "allocate: out of memory; got a request for {} bytes with {} bytes in use; expected at most {} bytes "
             "(the memory limit); "
             "hint: a smaller batch, pf.checkpoint, or a higher PYFLAME_MEMORY_LIMIT",
             nbytes, stats.allocated, stats.limit);
    PF_FAIL(OutOfMemory,
            "allocate: out of memory; got a request for {} bytes with {} bytes in use; expected the system to have "
            "them; hint: a "
            "smaller batch or pf.checkpoint",
            nbytes, stats.allocated);
  }

  MemoryStats now() {
    MemoryStats s = stats;
    s.arena = s.by_use[static_cast<size_t>(MemoryUse::arena)];
    if (!segments) return s;
    const Segments::Stats g = segments->stats();
    s.reserved = g.reserved, s.peak_reserved = g.peak_reserved, s.split = g.split, s.largest_hole = g.largest_hole;
    s.segments = g.segments, s.allocations = g.from_driver, s.cached = g.reserved - g.active;
    return s;
  }

  // `wanted`: the size of the request that failed; 0: none failed.
  std::string report(size_t wanted) {
    const MemoryStats s = now();
    std::string uses;
    for (size_t i = 0; i < kMemoryUses.size(); ++i)
      if (s.by_use[i]) uses += fmt::format("{}{} {}", uses.empty() ? "" : ", ", kMemoryUses[i], gib(s.by_use[i]));
    std::string text = fmt::format("  live: {}{}\n", gib(s.allocated), uses.empty() ? "" : " (" + uses + ")");
    if (!segments) return text + fmt::format("  cached: {}\n", gib(s.cached));
    text +=
        fmt::format("  cached: {}, of it {} beside live blocks; largest hole {}; {} from the driver in {} segments\n",
                    gib(s.cached), gib(s.split), gib(s.largest_hole), gib(s.reserved), s.segments);
    size_t free_bytes = 0, total = 0;
    try {
      device->room(&free_bytes, &total);
    } catch (const Error& e) {
      return text + "  the device does not answer: " + e.what();
    }
    const uint64_t used = total - std::min(total, free_bytes), others = used - std::min<uint64_t>(used, s.reserved);
    text +=
        fmt::format("  device: {} in all, {} free, {} held by other processes, libraries and the driver{}", gib(total),
                    gib(free_bytes), gib(others), s.limit ? fmt::format("; limit {}", gib(s.limit)) : "");
    if (wanted == 0) return text;
    const char* advice = "hint: a smaller batch, pf.checkpoint, or float16 or bfloat16 (pf.amp)";
    if (s.limit && s.allocated + wanted <= total && s.reserved + wanted > s.limit)
      advice = "hint: the limit is what stops it: pf.set_memory_limit or PYFLAME_GPU_MEMORY_FRACTION";
    else if (s.cached >= wanted)
      advice = "hint: the free bytes are in pieces: fewer different sizes, or large tensors first";
    else if (others >= wanted) advice = "hint: others hold what is missing: end them, or wait for them";
    return text + "\n  " + advice;
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

// A thread that wants another allocator's lock must first release its own.
const AtFork g_allocator_at_fork{ForkOrder::Memory,
                                 [] {
                                   Allocators& all = allocators();
                                   all.mutex.lock();
                                   all.host.mutex.lock();
                                   for (auto& [d, a] : all.devices) a->mutex.lock();
                                 },
                                 [](bool) {
                                   Allocators& all = allocators();
                                   for (auto& [d, a] : all.devices) a->mutex.unlock();
                                   all.host.mutex.unlock();
                                   all.mutex.unlock();
                                 }};

Allocator& allocator(Device device) {
  Allocators& all = allocators();
  if (!has_own_memory(device.type)) return all.host;
  // The allocator that this thread used last; few programs alternate between devices.
  thread_local Device last{};
  thread_local Allocator* found = nullptr;
  if (found && last == device) return *found;
  std::lock_guard lock(all.mutex);
  for (auto& [d, a] : all.devices)
    if (d == device) return last = d, *(found = a.get());
  auto a = std::make_unique<Allocator>();
  a->where = device;
  a->device = device_memory(device);
  a->segments = std::make_unique<Segments>(*a->device);
  return *all.devices.emplace_back(device, std::move(a)).second;
}

}  // namespace

void* allocate_raw(Device device, size_t nbytes, MemoryUse use) {
  return nbytes ? allocator(device).get(nbytes, use) : nullptr;
}
void free_raw(Device device, void* p, size_t nbytes, MemoryUse use) {
  if (p) allocator(device).put(p, nbytes, use);
}

void allocate_data(Storage& s) {
  // Storages of size zero get an address as well, so that a null pointer always means "not allocated yet".
  s.data = allocator(s.device).get(s.nbytes ? s.nbytes : 1, MemoryUse::tensors);
  s.owned_by_allocator = true;
}

void copy_from_host(Storage& to, const void* from, size_t nbytes) {
  if (DeviceMemory* memory = device_memory(to.device)) memory->from_host(to.data, from, nbytes);
  else if (nbytes > 0) std::memcpy(to.data, from, nbytes);
}

void copy_to_host(void* to, const Storage& from, size_t offset, size_t nbytes) {
  const char* bytes = static_cast<const char*>(from.data) + offset;
  DeviceMemory* memory = device_memory(from.device);
  if (!memory) {
    if (nbytes > 0) std::memcpy(to, bytes, nbytes);
    return;
  }
  wait_for_device(from.device, *memory, [&] { memory->to_host(to, bytes, nbytes); });
  raise_if_tainted(from);
}

bool copy_between(Storage& to, const Storage& from, size_t offset, size_t nbytes) {
  DeviceMemory *source = device_memory(from.device), *target = device_memory(to.device);
  if (!source || !target || from.device.type != to.device.type) return false;
  wait_for_reports(from.device, *source);
  raise_if_tainted(from);
  return target->copy_from(to.data, *source, static_cast<const char*>(from.data) + offset, nbytes);
}

Ref<Storage> allocate_storage(Device device, size_t nbytes) {
  auto s = make_ref<Storage>(device, nbytes);
  try {
    allocate_data(*s);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::OutOfMemory) throw;
    Recorder::current().cut(CutReason::Sync);  // pending work keeps memory that it will free
    allocate_data(*s);
  }
  return s;
}

void free_data(Storage& s) { allocator(s.device).put(s.data, s.nbytes ? s.nbytes : 1, MemoryUse::tensors); }

MemoryStats memory_stats(Device device) {
  Allocator& a = allocator(device);
  std::lock_guard lock(a.mutex);
  return a.now();
}

std::string memory_report(Device device) {
  Allocator& a = allocator(device);
  std::lock_guard lock(a.mutex);
  return fmt::format("memory of {}:\n{}", device.str(), a.report(0));
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
  a.set_limit(bytes);
  a.limit_read = true;
}

void warm_up_memory(uint64_t bytes, Device device) {
  free_raw(device, allocate_raw(device, bytes, MemoryUse::tensors), bytes, MemoryUse::tensors);
}

void warm_up_pinned(uint64_t bytes, Device device) {
  DeviceMemory* memory = device_memory(device);
  PF_CHECK(memory, Value, "warmup: the device has no memory of its own; got {}; expected a GPU", device.str());
  memory->pin_ahead(bytes);
}

void set_memory_fraction(double fraction, Device device) {
  PF_CHECK(fraction > 0 && fraction <= 1, Value,
           "set_memory_fraction: not a fraction; got {}; expected more than 0 and at most 1", fraction);
  DeviceMemory* memory = device_memory(device);
  PF_CHECK(memory, Value, "set_memory_fraction: the device has no memory of its own; got {}; hint: set_memory_limit",
           device.str());
  size_t free_bytes = 0, total = 0;
  memory->room(&free_bytes, &total);
  set_memory_limit(fraction < 1 ? static_cast<uint64_t>(fraction * static_cast<double>(total)) : 0, device);
}

}  // namespace pyflame
