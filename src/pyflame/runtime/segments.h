// The memory of a device, as segments from the driver that are cut into blocks. An allocation by the driver takes a
// millisecond and makes the device wait, so freed memory is kept. Small requests (up to 1 MiB) share segments of 2 MiB,
// middle ones (up to 10 MiB) share segments of 20 MiB, and larger ones get their own segment. The best-fitting free
// block is taken and split; adjacent free blocks are merged. Free small blocks are not merged at once, but wait for the
// next request of their size: a training step requests the same sizes each time, and then gets the same addresses,
// which keeps a GPU graph valid.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <unordered_map>
#include <vector>

#include "pyflame/backends/backend.h"

namespace pyflame {

// Where segments come from.
struct SegmentSource {
  std::function<void*(size_t nbytes)> allocate;  // null if there is no more
  std::function<void(void* p, size_t nbytes)> release;
};

// What lies in a segment: its blocks in the order of their addresses.
struct SegmentLayout {
  const void* data = nullptr;
  uint64_t bytes = 0;
  bool small = false;
  struct Part {
    uint64_t bytes = 0;
    bool used = false;
  };
  std::vector<Part> parts;
};

class Segments {
 public:
  explicit Segments(SegmentSource source) : source_(std::move(source)) {}
  explicit Segments(DeviceMemory& driver)
      : Segments(
            {[&driver](size_t n) { return driver.allocate(n); }, [&driver](void* p, size_t) { driver.release(p); }}) {}
  // Null if neither a free block nor the driver has the memory. `got`: the size of the block, which may be larger.
  void* get(size_t nbytes, size_t* got = nullptr);
  size_t put(void* p);                                                // returns the size of the block
  void trim();                                                        // returns completely free segments to the driver
  void set_limit(size_t reserved_bytes) { limit_ = reserved_bytes; }  // 0: none
  // Larger blocks are never split, so that a small request does not break up what a large one will need. 0: none.
  void set_split_size(size_t bytes) { split_size_ = bytes; }
  void reset_peak() { stats_.peak_reserved = stats_.reserved; }
  size_t size_of(void* p) const { return blocks_.at(p)->size; }

  struct Stats {
    uint64_t reserved = 0, peak_reserved = 0;  // bytes of segments
    uint64_t active = 0;                       // bytes of blocks in use
    uint64_t segments = 0, blocks = 0;
    uint64_t split = 0;         // free bytes in segments that are partly in use: trim() cannot return them
    uint64_t largest_hole = 0;  // the largest free block
    uint64_t from_driver = 0;   // requests that reached the driver
  };
  Stats stats();
  std::vector<SegmentLayout> layout();  // by address

 private:
  struct Block {
    char* data;
    size_t size;
    bool small, free = false;
    Block *before = nullptr, *after = nullptr;  // neighbours in the segment
  };
  struct BySize {
    bool operator()(const Block* a, const Block* b) const {
      return a->size != b->size ? a->size < b->size : a->data < b->data;
    }
  };
  using Free = std::set<Block*, BySize>;
  bool is_whole(const Block* b) const { return !b->small && split_size_ != 0 && b->size > split_size_; }
  static bool higher(const Block* a, const Block* b);
  Block* take(size_t nbytes);
  Block* take_free(Free& from, size_t size);
  std::vector<Block*>& waiting(size_t size);
  Block* new_segment(size_t size, bool small);
  void split(Block* b, size_t size);
  void join(Block* b);
  void join_waiting();
  Free& pool(const Block& b) { return b.small ? small_ : large_; }

  SegmentSource source_;
  std::unordered_map<void*, std::unique_ptr<Block>> blocks_;  // by address
  Free small_, large_;
  std::vector<std::vector<Block*>> waiting_;  // small free blocks that are not merged, by size; each a heap by address
  size_t limit_ = 0, split_size_ = 0;
  Stats stats_;
};

}  // namespace pyflame
