// Host memory for storages and arenas: 64-byte aligned, freed blocks kept in size classes for the next window, an optional cap
// (PYFLAME_MEMORY_LIMIT). Nothing here is specific to a window; compile/plan_memory.cpp decides what needs memory at all.
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

void* allocate_raw(size_t nbytes);
void free_raw(void* p, size_t nbytes);

struct MemoryStats {
  uint64_t allocated;  // bytes that somebody holds now
  uint64_t peak_allocated;
  uint64_t cached;       // bytes kept for reuse
  uint64_t arena;        // bytes of the window arena (part of allocated)
  uint64_t limit;        // 0: none
  uint64_t allocations;  // calls that reached the operating system
};
MemoryStats memory_stats();
void reset_peak_memory();
void empty_cache();                     // gives cached blocks back to the operating system
void set_memory_limit(uint64_t bytes);  // 0: none
void note_arena(uint64_t bytes);

}  // namespace pyflame
