// Memory for storages and arenas, one allocator for the host and one for each device with memory of its own: aligned to 64 bytes (host)
// or 512 (device), freed blocks kept for the next window. Nothing here is specific to a window; compile/plan_memory.cpp decides what
// needs memory at all.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "pyflame/base/ref.h"
#include "pyflame/tensor/storage.h"

namespace pyflame {

// A storage with its bytes, uninitialised. OutOfMemory error with sizes and advice.
Ref<Storage> allocate_storage(Device device, size_t nbytes);
// Gives a promised storage its bytes.
void allocate_data(Storage& s);

// Bytes between the host and a storage on any device; the storage has its memory.
void copy_from_host(Storage& to, const void* from, size_t nbytes);
// After all that was asked of the device; raises what a kernel reported about this storage (runtime/in_flight.h).
void copy_to_host(void* to, const Storage& from, size_t offset, size_t nbytes);
// False: the two devices have no way but through the host.
bool copy_between(Storage& to, const Storage& from, size_t offset, size_t nbytes);

enum class MemoryUse : uint8_t { tensors, arena, replays };
constexpr std::array<const char*, 3> kMemoryUses = {"tensors", "arena", "replays"};
void* allocate_raw(Device device, size_t nbytes, MemoryUse use);
void free_raw(Device device, void* p, size_t nbytes, MemoryUse use);

struct MemoryStats {
  uint64_t allocated;  // bytes that somebody holds now
  uint64_t peak_allocated;
  uint64_t cached;       // bytes kept for reuse
  uint64_t arena;        // bytes of the window arena (part of allocated)
  uint64_t limit;        // 0: none
  uint64_t allocations;  // calls that reached the operating system or the driver
  // Devices only:
  uint64_t reserved, peak_reserved;      // bytes that the driver gave
  uint64_t split;                        // cached bytes that cannot be given back, because their segment is in use
  uint64_t largest_hole;                 // the largest cached block
  uint64_t segments, retries, failures;  // retries: requests that were met after the cache had been given back
  std::array<uint64_t, kMemoryUses.size()> by_use;
};
MemoryStats memory_stats(Device device = {});
// Where the memory of a device is: what is live and for what, what is cached, what others hold.
std::string memory_report(Device device);
void reset_peak_memory(Device device = {});
void empty_cache();                                         // gives cached blocks of every device back
void set_memory_limit(uint64_t bytes, Device device = {});  // 0: none
// Takes so many bytes from the driver, in one piece, and keeps them for later; pins host memory for uploads of so many.
void warm_up_memory(uint64_t bytes, Device device);
void warm_up_pinned(uint64_t bytes, Device device);
void set_memory_fraction(double fraction, Device device);  // of the device's whole memory

}  // namespace pyflame
