// Allocates memory of the host and of devices. The host's free blocks are kept per size class (four classes per power
// of two, so at most 25 % is wasted), because a training step requests the same sizes again, and fresh pages from the
// operating system cost more than the kernels that fill them. For devices, see segments.h.
#include "pyflame/runtime/allocator.h"

#include <sys/mman.h>
#include <unistd.h>

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
#include "pyflame/runtime/address_space.h"
#include "pyflame/runtime/debug_memory.h"
#include "pyflame/runtime/device.h"
#include "pyflame/runtime/in_flight.h"
#include "pyflame/runtime/memory_log.h"
#include "pyflame/runtime/memory_trace.h"
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

constexpr uint64_t kLeastSplitSize = uint64_t{20} << 20;  // segments of this size are shared by many blocks

void merge(MemorySettings& into, const MemorySettings& from) {
  if (from.fraction || from.limit) into.fraction = from.fraction, into.limit = from.limit;
  if (from.split_size) into.split_size = from.split_size;
  if (from.pinned) into.pinned = from.pinned;
}

// One allocator: size classes for the host, segments for a device.
struct Allocator {
  Device where;
  MemorySettings settings;
  DeviceMemory* device = nullptr;      // null: the host's memory
  std::unique_ptr<Segments> segments;  // of the device
  std::mutex mutex;
  std::unordered_map<size_t, std::vector<void*>> free;
  MemoryStats stats{};
  bool limit_read = false;

  void trim() {
    if (device)
      while (void* raw = debug_memory::raw_to_return(where)) segments->put(raw);
    if (segments) segments->trim();
    for (auto& [size, blocks] : free)
      for (void* p : blocks) std::free(p);
    free.clear();
    stats.cached = 0;
  }

  void read_limit() {
    const bool set = settings.fraction || settings.limit;
    uint64_t limit = settings.limit.value_or(0);
    if (!set && where.type != DeviceType::null && !device) limit = static_cast<uint64_t>(env::memory_limit());
    const double fraction = !device ? 1 : set ? settings.fraction.value_or(1) : env::gpu_memory_fraction();
    if (fraction < 1) {
      size_t free_bytes = 0, total = 0;
      device->room(&free_bytes, &total);
      const auto part = static_cast<uint64_t>(fraction * static_cast<double>(total));
      limit = limit ? std::min(limit, part) : part;
    }
    set_limit(limit);
    limit_read = true;  // set only now, so that a refused value is refused again at the next call
  }
  void configure(const MemorySettings& wanted) {
    merge(settings, wanted);
    if (settings.split_size && segments) segments->set_split_size(*settings.split_size);
    if (wanted.fraction || wanted.limit) read_limit();
  }
  void set_limit(uint64_t bytes) {
    stats.limit = bytes;
    if (segments) segments->set_limit(bytes);
  }

  // `size` becomes the size of the block.
  void* from_cache_or_system(size_t& size) {
    if (segments) {
      void* p = segments->get(size, &size);
      if (p && !device) forget_contents(p, size);
      return p;
    }
    if (const auto it = free.find(size); it != free.end() && !it->second.empty()) {
      void* p = it->second.back();
      it->second.pop_back();
      stats.cached -= size;
      return p;
    }
    ++stats.allocations;
    return from_system(size);
  }

  // `guarded_at`: the line that a block of the debug allocator is for; null: an ordinary block.
  void* new_block(size_t& size, size_t nbytes, const SourceLoc* guarded_at) {
    if (!guarded_at) return from_cache_or_system(size);
    if (!device) return ++stats.allocations, debug_memory::take_host(nbytes, size, *guarded_at);
    size = debug_memory::bytes_on_device(nbytes);
    void* raw = from_cache_or_system(size);
    return debug_memory::take_on_device(where, *device, raw, nbytes, size, *guarded_at);
  }

  // The bytes that were counted for a block, which is freed. A guarded block is kept for a while, or an earlier one is freed for it.
  size_t free_block(void* p, size_t nbytes, bool* cached) {
    if (const auto guarded = debug_memory::give(p)) {
      *cached = false;
      if (guarded->raw) segments->put(guarded->raw);
      return guarded->counted;
    }
    *cached = !segments;
    return segments ? segments->put(p) : size_class(nbytes);
  }

  void* get(size_t nbytes, MemoryUse use) {
    const bool logged = memory_log::on();
    const bool guarded = debug_memory::blocks() && where.type != DeviceType::null;
    const SourceLoc at = logged || guarded ? memory_log::site(use) : SourceLoc{};
    const SourceLoc* taken_at = guarded ? &at : nullptr;
    std::lock_guard lock(mutex);
    if (!limit_read) read_limit();
    size_t size = segments ? nbytes : size_class(nbytes);
    const bool over = stats.limit && stats.allocated + size > stats.limit;
    void* p = over ? nullptr : new_block(size, nbytes, taken_at);
    if (!p && !over) {
      trim();
      p = new_block(size, nbytes, taken_at);
      stats.retries += p != nullptr;
    }
    if (!p) out_of_memory(nbytes, over);
    stats.allocated += size;
    stats.by_use[static_cast<size_t>(use)] += size;
    stats.peak_allocated = std::max(stats.peak_allocated, stats.allocated);
    if (logged) [[unlikely]]
      memory_log::taken({where, p, size, use, 0, at});
    if (memory_trace::on()) [[unlikely]]
      note(p, static_cast<int64_t>(size), use);
    return p;
  }

  void put(void* p, size_t nbytes, MemoryUse use) {
    if (!p) return;
    std::lock_guard lock(mutex);
    bool to_cache = false;
    const size_t size = free_block(p, nbytes, &to_cache);
    if (memory_log::on()) [[unlikely]]
      memory_log::freed(p);
    stats.allocated -= size;
    stats.by_use[static_cast<size_t>(use)] -= size;
    if (to_cache) {
      stats.cached += size;
      free[size].push_back(p);
    }
    if (memory_trace::on()) [[unlikely]]
      note(p, -static_cast<int64_t>(size), use);
  }

  void note(const void* p, int64_t bytes, MemoryUse use) {
    const uint64_t cached = segments ? now().cached : stats.cached;
    memory_trace::add({0, reinterpret_cast<uint64_t>(p), bytes, cached, where, use, false});
  }

  [[noreturn]] void out_of_memory(size_t nbytes, bool over) {
    ++stats.failures;
    if (segments)
      PF_FAIL(OutOfMemory, "allocate: out of memory on {}; got a request for {}\n{}", where.str(), gib(nbytes),
              report(nbytes));
    PF_CHECK(
        !over, OutOfMemory,
        "allocate: out of memory; got a request for {} with {} in use; expected at most {} (the memory limit); "
        "hint: a smaller batch (pf.find_batch_size), pf.checkpoint_policy, or a higher limit (pf.memory.configure)",
        gib(nbytes), gib(stats.allocated), gib(stats.limit));
    const auto memory = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    PF_FAIL(OutOfMemory,
            "allocate: out of memory; got a request for {} with {} in use by PyFlame; expected less than this machine "
            "and the limits of the process allow (the machine has {}); hint: a smaller batch (pf.find_batch_size), "
            "pf.checkpoint_policy, or float16 or bfloat16 (pf.amp)",
            gib(nbytes), gib(stats.allocated), gib(memory));
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
    if (!device) return text + (s.limit ? fmt::format("  limit {}", gib(s.limit)) : "  addresses without memory");
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
    const char* advice =
        "hint: a smaller batch (pf.find_batch_size), pf.checkpoint_policy, or float16 or bfloat16 (pf.amp)";
    if (s.limit && s.allocated + wanted <= total && s.reserved + wanted > s.limit)
      advice = "hint: the limit is what stops it: pf.memory.configure or PYFLAME_GPU_MEMORY_FRACTION";
    else if (s.cached >= wanted)
      advice = "hint: the free bytes are in pieces: pf.memory.configure(split_size=), or large tensors first";
    else if (others >= wanted) advice = "hint: others hold what is missing: end them, or wait for them";
    return text + "\n  " + advice;
  }
};

struct Allocators {
  std::mutex mutex;
  Allocator host;
  std::vector<std::pair<Device, std::unique_ptr<Allocator>>> devices;
  std::vector<std::pair<Device, MemorySettings>> wanted;  // for devices that nobody has used yet
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

bool on_host(Device device) { return !has_own_memory(device.type) && device.type != DeviceType::null; }

std::unique_ptr<Allocator> new_allocator(Device device) {
  auto a = std::make_unique<Allocator>();
  a->where = device;
  if (device.type == DeviceType::null) {
    a->segments = std::make_unique<Segments>(SegmentSource{reserve_addresses, release_addresses});
    return a;
  }
  a->device = device_memory(device);
  a->segments = std::make_unique<Segments>(*a->device);
  return a;
}

Allocator& allocator(Device device) {
  Allocators& all = allocators();
  if (on_host(device)) return all.host;
  // The allocator that this thread used last; few programs alternate between devices.
  thread_local Device last{};
  thread_local Allocator* found = nullptr;
  if (found && last == device) return *found;
  std::lock_guard lock(all.mutex);
  for (auto& [d, a] : all.devices)
    if (d == device) return last = d, *(found = a.get());
  auto a = new_allocator(device);
  for (const auto& [d, settings] : all.wanted)
    if (d == device) {
      a->configure(settings);
      if (settings.pinned && *settings.pinned) a->device->pin_ahead(*settings.pinned);
    }
  return *all.devices.emplace_back(device, std::move(a)).second;
}

}  // namespace

size_t block_bytes(Device device, size_t nbytes) {
  constexpr size_t kDeviceAlign = 512;
  nbytes = std::max<size_t>(1, nbytes);
  return has_own_memory(device.type) ? (nbytes + kDeviceAlign - 1) / kDeviceAlign * kDeviceAlign : size_class(nbytes);
}

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
  if (to.device.type == DeviceType::null) may_be_written();
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

std::vector<SegmentLayout> memory_segments(Device device) {
  Allocator& a = allocator(device);
  std::lock_guard lock(a.mutex);
  return a.segments ? a.segments->layout() : std::vector<SegmentLayout>{};
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
  if (a.segments) a.segments->reset_peak();
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
  allocator(device);  // DeviceError if it is not there
  configure_memory(device, {.limit = bytes});
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
  configure_memory(device, {.fraction = fraction});
}

namespace {

void check(const MemorySettings& s, Device device) {
  PF_CHECK(!s.fraction || (*s.fraction > 0 && *s.fraction <= 1), Value,
           "configure: fraction is not a fraction; got {}; expected more than 0 and at most 1", *s.fraction);
  PF_CHECK(!s.fraction || has_own_memory(device.type), Value,
           "configure: fraction is of a device with its own memory; got {}; hint: limit=", device.str());
  PF_CHECK(!s.split_size || !on_host(device), Value,
           "configure: the host's memory has no blocks to split; got split_size={} for {}; expected a GPU",
           *s.split_size, device.str());
  PF_CHECK(!s.split_size || *s.split_size == 0 || *s.split_size >= kLeastSplitSize, Value,
           "configure: split_size is too small; got {} bytes; expected 0, or at least {} (20 MiB)", *s.split_size,
           kLeastSplitSize);
  PF_CHECK(!s.pinned || has_own_memory(device.type), Value,
           "configure: pinned memory serves copies to a GPU; got pinned={} for {}; expected a GPU", *s.pinned,
           device.str());
}

// The allocator if the device is in use; otherwise null, and the settings are kept for later.
Allocator* opened_or_later(Device device, const MemorySettings& settings) {
  Allocators& all = allocators();
  if (on_host(device)) return &all.host;
  std::lock_guard lock(all.mutex);
  for (auto& [d, a] : all.devices)
    if (d == device) return a.get();
  for (auto& [d, wanted] : all.wanted)
    if (d == device) return merge(wanted, settings), nullptr;
  all.wanted.emplace_back(device, settings);
  return nullptr;
}

}  // namespace

void configure_memory(Device device, const MemorySettings& settings) {
  check(settings, device);
  Allocator* a = opened_or_later(device, settings);
  if (!a) return;
  {
    std::lock_guard lock(a->mutex);
    a->configure(settings);
  }
  if (settings.pinned && *settings.pinned) a->device->pin_ahead(*settings.pinned);
}

}  // namespace pyflame
