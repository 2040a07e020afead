// A log of which line of a program took which memory, for pf.memory.snapshot. It costs one load while it is off.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "pyflame/base/location.h"
#include "pyflame/runtime/allocator.h"

namespace pyflame::memory_log {

// A block that is in use, or the change of the bytes in use when one is taken (positive) or freed (negative).
struct Block {
  Device device;
  const void* data = nullptr;
  uint64_t bytes = 0;
  MemoryUse use = MemoryUse::tensors;
  int64_t time = 0;  // steady clock, ns
  SourceLoc at;
};
struct Change {
  Device device;
  int64_t time = 0, bytes = 0;
};
struct Log {
  int64_t start = 0;            // 0: it is off
  std::vector<Block> blocks;    // taken since the start, and still in use
  std::vector<Change> changes;  // in order; the newest `most` ones
  uint64_t dropped = 0;         // older changes that were forgotten
};

namespace detail {
extern std::atomic<bool> enabled;
}
inline bool on() { return detail::enabled.load(std::memory_order_relaxed); }

void start(size_t most_changes);  // from now on, with an empty log
void stop();                      // nothing more is logged; the log is kept until the next start
Log copy();

// The line for which this thread takes memory, until the object's end. Without one it is the line that called the op.
class Site {
 public:
  explicit Site(SourceLoc at);
  ~Site();
  Site(const Site&) = delete;
  Site& operator=(const Site&) = delete;

 private:
  SourceLoc before_;
  bool had_;
};

// The line to log for memory that this thread takes now. It asks Python, whose garbage collector may then free tensors: never call it with an
// allocator's lock.
SourceLoc site(MemoryUse use);
void taken(const Block& block);                   // at the time of the call
void taken_over(const void* data, SourceLoc at);  // a block is now another storage's
void freed(const void* data);

}  // namespace pyflame::memory_log
