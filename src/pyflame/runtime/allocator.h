// Memory for storages and arenas, one allocator for the host and one for each device with memory of its own: aligned to 64 bytes (host)
// or 256 (device), freed blocks kept in size classes for the next window, an optional cap of the host's (PYFLAME_MEMORY_LIMIT). Nothing here is specific to a window; compile/plan_memory.cpp decides what needs memory at all.
#pragma once
#include <cstddef>
#include <cstdint>

#include "pyflame/base/ref.h"
#include "pyflame/tensor/storage.h"

namespace pyflame {

// A storage with its bytes, uninitialised. OutOfMemory error with sizes and advice.
Ref<Storage> allocate_storage(Device device, size_t nbytes);
// Gives a promised storage its bytes.
void allocate_data(Storage& s);

// Bytes between the host and a storage on any device; the storage has its memory.
void copy_from_host(Storage& to, const void* from, size_t nbytes);
void copy_to_host(void* to, const Storage& from, size_t offset,
                  size_t nbytes);  // after all that was asked of the device

void* allocate_raw(Device device, size_t nbytes);
void free_raw(Device device, void* p, size_t nbytes);

struct MemoryStats {
  uint64_t allocated;  // bytes that somebody holds now
  uint64_t peak_allocated;
  uint64_t cached;       // bytes kept for reuse
  uint64_t arena;        // bytes of the window arena (part of allocated)
  uint64_t limit;        // 0: none
  uint64_t allocations;  // calls that reached the operating system
};
MemoryStats memory_stats(Device device = {});
void reset_peak_memory(Device device = {});
void empty_cache();                                         // gives cached blocks of every device back
void set_memory_limit(uint64_t bytes, Device device = {});  // 0: none
void note_arena(Device device, uint64_t bytes);

}  // namespace pyflame
