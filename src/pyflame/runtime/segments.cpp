// The allocator of a device's memory.
#include "pyflame/runtime/segments.h"

#include <algorithm>

#include "pyflame/base/error.h"
#include "pyflame/base/events.h"

namespace pyflame {

namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kBlockAlign = 512;
constexpr size_t kSmall = kMiB, kSmallSegment = 2 * kMiB;
constexpr size_t kMiddle = 10 * kMiB, kMiddleSegment = 20 * kMiB;
constexpr size_t kLeastLargeRest = kMiB;  // a smaller rest of a large block is not split off

size_t up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

}  // namespace

bool Segments::higher(const Block* a, const Block* b) { return a->data > b->data; }

Segments::Block* Segments::take_free(Free& from, size_t size) {
  Block key{nullptr, size, false};
  const auto it = from.lower_bound(&key);
  if (it == from.end()) return nullptr;
  Block* b = *it;
  // A block that is not split serves requests of about its size only: the rest would be wasted.
  if (is_whole(b) && (size <= split_size_ || b->size - size >= kMiddleSegment)) return nullptr;
  from.erase(it);
  return b;
}

Segments::Block* Segments::new_segment(size_t size, bool small) {
  const size_t bytes = small ? kSmallSegment : size <= kMiddle ? kMiddleSegment : up(size, 2 * kMiB);
  void* p = nullptr;
  for (const size_t n : {bytes, up(size, 2 * kMiB)}) {  // if little memory is left, no more than needed
    if (limit_ && stats_.reserved + n > limit_) continue;
    ++stats_.from_driver;
    const events::Scope log(events::Kind::Allocate, "allocate from the driver", static_cast<int64_t>(n));
    if (!(p = source_.allocate(n))) continue;
    auto block = std::make_unique<Block>(Block{static_cast<char*>(p), n, small});
    Block* b = block.get();
    blocks_.emplace(p, std::move(block));
    stats_.reserved += n;
    stats_.peak_reserved = std::max(stats_.peak_reserved, stats_.reserved);
    ++stats_.segments;
    return b;
  }
  return nullptr;
}

// Splits `size` bytes off the front of a block; the rest becomes free.
void Segments::split(Block* b, size_t size) {
  const size_t rest = b->size - size;
  if (is_whole(b) || rest < (b->small ? kBlockAlign : kLeastLargeRest)) return;
  auto block = std::make_unique<Block>(Block{b->data + size, rest, b->small, true, b, b->after});
  Block* r = block.get();
  if (b->after) b->after->before = r;
  b->after = r;
  b->size = size;
  blocks_.emplace(r->data, std::move(block));
  pool(*r).insert(r);
}

// Merges a free block with its free neighbours.
void Segments::join(Block* b) {
  b->free = true;
  if (Block* a = b->after; a && a->free) {
    pool(*a).erase(a);
    b->size += a->size;
    b->after = a->after;
    if (b->after) b->after->before = b;
    blocks_.erase(a->data);
  }
  if (Block* a = b->before; a && a->free) {
    pool(*a).erase(a);
    a->size += b->size;
    a->after = b->after;
    if (a->after) a->after->before = a;
    blocks_.erase(b->data);
    b = a;
  }
  pool(*b).insert(b);
}

void Segments::join_waiting() {
  for (std::vector<Block*>& list : waiting_) {
    for (Block* b : list) join(b);
    list.clear();
  }
}

std::vector<Segments::Block*>& Segments::waiting(size_t size) {
  if (waiting_.empty()) waiting_.resize(kSmall / kBlockAlign + 1);
  return waiting_[size / kBlockAlign];
}

void* Segments::get(size_t nbytes, size_t* got) {
  Block* b = take(nbytes);
  if (!b) return nullptr;
  stats_.active += b->size;
  if (got) *got = b->size;
  return b->data;
}

Segments::Block* Segments::take(size_t nbytes) {
  const size_t size = up(std::max<size_t>(nbytes, 1), kBlockAlign);
  const bool small = size <= kSmall;
  if (small)
    if (std::vector<Block*>& list = waiting(size); !list.empty()) {
      // The lowest address, so that the choice depends only on which blocks are free, and a loop soon repeats its
      // addresses.
      std::pop_heap(list.begin(), list.end(), higher);
      Block* b = list.back();
      list.pop_back();
      return b;
    }
  Block* b = take_free(small ? small_ : large_, size);
  if (!b) {
    join_waiting();
    b = take_free(small ? small_ : large_, size);
  }
  if (!b) b = new_segment(size, small);
  if (!b) return nullptr;
  b->free = false;
  split(b, size);
  return b;
}

size_t Segments::put(void* p) {
  Block* b = blocks_.at(p).get();
  const size_t size = b->size;
  stats_.active -= size;
  if (!b->small) {
    join(b);
    return size;
  }
  std::vector<Block*>& list = waiting(size);
  list.push_back(b);
  std::push_heap(list.begin(), list.end(), higher);
  return size;
}

void Segments::trim() {
  join_waiting();
  for (Free* pool : {&small_, &large_})
    for (auto it = pool->begin(); it != pool->end();) {
      Block* b = *it;
      if (b->before || b->after) {
        ++it;
        continue;
      }
      it = pool->erase(it);
      stats_.reserved -= b->size;
      --stats_.segments;
      void* data = b->data;
      const size_t size = b->size;
      blocks_.erase(data);
      try {
        source_.release(data, size);
      } catch (const Error&) {  // the device is lost, and its memory with it
      }
    }
}

std::vector<SegmentLayout> Segments::layout() {
  join_waiting();
  std::vector<SegmentLayout> found;
  for (const auto& [data, first] : blocks_) {
    if (first->before) continue;
    SegmentLayout& s = found.emplace_back();
    s.data = data, s.small = first->small;
    for (const Block* b = first.get(); b; b = b->after) {
      s.parts.push_back({b->size, !b->free});
      s.bytes += b->size;
    }
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.data < b.data; });
  return found;
}

Segments::Stats Segments::stats() {
  join_waiting();
  Stats s = stats_;
  s.blocks = blocks_.size();
  for (const Free* pool : {&small_, &large_})
    for (const Block* b : *pool) {
      if (b->before || b->after) s.split += b->size;
      s.largest_hole = std::max<uint64_t>(s.largest_hole, b->size);
    }
  return s;
}

}  // namespace pyflame
