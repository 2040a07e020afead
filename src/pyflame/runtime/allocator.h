// Memory for storages and arenas: one allocator for the host, one for each device with its own memory, and one for the null
// device, which gives addresses without memory (address_space.h). Blocks are
// aligned to 64 bytes (host) or 512 bytes (device). Freed blocks are kept for the next window. compile/plan_memory.cpp
// decides what needs memory.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "pyflame/base/ref.h"
#include "pyflame/tensor/storage.h"

namespace pyflame {

// Makes a storage with uninitialised bytes. If there is no memory, the OutOfMemory error has sizes and advice.
Ref<Storage> allocate_storage(Device device, size_t nbytes);
// Allocates the bytes of a storage that has none yet.
void allocate_data(Storage& s);
// Takes them back.
void free_data(Storage& s);

// Copies bytes between the host and a storage on any device; the storage must have its memory.
void copy_from_host(Storage& to, const void* from, size_t nbytes);
// Waits for all earlier work of the device; raises what a kernel reported about this storage (runtime/in_flight.h).
void copy_to_host(void* to, const Storage& from, size_t offset, size_t nbytes);
// Copies directly between two devices; false if that is possible only through the host.
bool copy_between(Storage& to, const Storage& from, size_t offset, size_t nbytes);

// The bytes that a request takes in the allocator.
size_t block_bytes(Device device, size_t nbytes);

enum class MemoryUse : uint8_t { tensors, arena, replays };
constexpr std::array<const char*, 3> kMemoryUses = {"tensors", "arena", "replays"};
void* allocate_raw(Device device, size_t nbytes, MemoryUse use);
void free_raw(Device device, void* p, size_t nbytes, MemoryUse use);

struct MemoryStats {
  uint64_t allocated;  // bytes in use
  uint64_t peak_allocated;
  uint64_t cached;       // bytes kept for reuse
  uint64_t arena;        // bytes of the window arena (part of allocated)
  uint64_t limit;        // 0: none
  uint64_t allocations;  // requests that reached the operating system or the driver
  // Devices only:
  uint64_t reserved, peak_reserved;      // bytes obtained from the driver
  uint64_t split;                        // cached bytes that cannot be returned, because their segment is partly in use
  uint64_t largest_hole;                 // the largest free block
  uint64_t segments, retries, failures;  // retries: requests that succeeded after the cache had been freed
  std::array<uint64_t, kMemoryUses.size()> by_use;
};
MemoryStats memory_stats(Device device = {});
struct SegmentLayout;                                       // segments.h
std::vector<SegmentLayout> memory_segments(Device device);  // empty for the host, which has none
// A text on the memory of a device: what is live and for which use, what is cached, what other processes hold.
std::string memory_report(Device device);
void reset_peak_memory(Device device = {});
void empty_cache();                                         // returns cached blocks of all devices
void set_memory_limit(uint64_t bytes, Device device = {});  // 0: none
// Takes this many bytes from the driver, in one piece, and keeps them for later; pins host memory for uploads of this size.
void warm_up_memory(uint64_t bytes, Device device);
void warm_up_pinned(uint64_t bytes, Device device);
void set_memory_fraction(double fraction, Device device);  // of the device's total memory

// What a program sets; what is empty stays as it is. A device that nobody has used yet is not opened: it gets its settings when it is.
struct MemorySettings {
  // These two replace each other, and the environment's. If both are given, the smaller one holds.
  std::optional<double> fraction = {};  // of the total memory, in (0, 1]; 1: no limit; GPUs only
  std::optional<uint64_t> limit = {};   // bytes; 0: none

  std::optional<uint64_t> split_size = {};  // free blocks that are larger are not split; 0: all are; not on the host
  std::optional<uint64_t> pinned = {};      // bytes of pinned host memory that are kept ready; GPUs only
};
void configure_memory(Device device, const MemorySettings& settings);

}  // namespace pyflame
