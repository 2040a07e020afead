// What the allocators gave and took back, for the memory timeline of a profile. While nothing is recorded, a request costs one
// relaxed load more.
#pragma once
#include <atomic>
#include <cstdint>
#include <vector>

#include "pyflame/runtime/allocator.h"

namespace pyflame::memory_trace {

struct Entry {
  int64_t at = 0;       // ns of the steady clock
  uint64_t block = 0;   // its address
  int64_t bytes = 0;    // of the block; negative: it was freed
  uint64_t cached = 0;  // bytes that the allocator keeps for reuse, from now on
  Device device;
  MemoryUse use = MemoryUse::tensors;
  bool plan = false;  // not a block: the bytes of the arena that the program which runs now uses
};

namespace detail {
extern std::atomic<bool> on;
}  // namespace detail
inline bool on() { return detail::on.load(std::memory_order_relaxed); }

// Later entries than `most` are dropped.
void start(size_t most);
std::vector<Entry> stop();
void add(const Entry& entry);

}  // namespace pyflame::memory_trace
