// Copies between host and device through pinned memory.
#include "pyflame/backends/gpu/driver/pinned.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "pyflame/backends/gpu/driver/device.h"
#include "pyflame/base/threads.h"

namespace pyflame::gpu {

namespace {
constexpr size_t kAlign = 256;

// One thread copies a fifth of what the bus can transfer, so several threads copy.
void copy_bytes(char* to, const char* from, size_t nbytes) {
  constexpr int64_t kPiece = 256 << 10;
  parallel_for((static_cast<int64_t>(nbytes) + kPiece - 1) / kPiece, 2, [&](int64_t begin, int64_t end) {
    const auto first = static_cast<size_t>(begin * kPiece), last = std::min(nbytes, static_cast<size_t>(end * kPiece));
    std::memcpy(to + first, from + first, last - first);
  });
}
}  // namespace

void* Transfers::pin(size_t nbytes) {
  void* p = nullptr;
  device_.check(device_.rt().host_allocate(&p, nbytes, kPortable), "allocating pinned memory");
  pinned_bytes_ += nbytes;
  return p;
}

Transfers::Block Transfers::make_block() {
  Block b;
  b.pinned = static_cast<char*>(pin(kBlock));
  b.copied = device_.take_event();
  return b;
}

// Returns the oldest block if it is free again; otherwise a new one while more are allowed; otherwise it waits for the
// oldest.
Transfers::Block& Transfers::next_block() {
  const Rt& rt = device_.rt();
  if (!blocks_.empty()) {
    Block& oldest = blocks_[next_];
    const Result r = oldest.used ? rt.event_query(oldest.copied) : 0;
    if (r != 0 && r != kNotReady) device_.check(r, "looking for free pinned memory");
    if (r == 0 || blocks_.size() == kMostBlocks) {
      if (r != 0) {
        ++stats_.waits;
        device_.check(rt.event_wait(oldest.copied), "waiting for pinned memory");
      }
      next_ = (next_ + 1) % blocks_.size();
      return oldest;
    }
  }
  // The new block is the newest: it is inserted in front of the oldest, which is next.
  Block& fresh = *blocks_.insert(blocks_.begin() + static_cast<std::ptrdiff_t>(next_), make_block());
  next_ = (next_ + 1) % blocks_.size();
  return fresh;
}

void Transfers::upload_small(void* to, const void* from, size_t nbytes) {
  const Rt& rt = device_.rt();
  if (!ring_) {
    ring_ = static_cast<char*>(pin(kSection * kSections));
    for (Event& e : left_) e = device_.take_event();
  }
  const size_t need = (nbytes + kAlign - 1) / kAlign * kAlign;
  const size_t section = at_ / kSection;
  if (at_ % kSection + need > kSection || (at_ % kSection == 0 && busy_[section])) {
    size_t next = section;
    if (at_ % kSection != 0) {
      device_.check(rt.event_record(left_[section], device_.own_stream()), "marking the stream");
      busy_[section] = true;
      next = (section + 1) % kSections;
    }
    if (busy_[next]) {
      if (rt.event_query(left_[next]) != 0) {
        ++stats_.waits;
        device_.check(rt.event_wait(left_[next]), "waiting for pinned memory");
      }
      busy_[next] = false;
    }
    at_ = next * kSection;
  }
  std::memcpy(ring_ + at_, from, nbytes);
  device_.check(rt.copy_in(to, ring_ + at_, nbytes, device_.own_stream()), "copying to the device");
  at_ += need;
  // A section that is completely full is closed here; the next small copy begins a new one.
  if (at_ % kSection == 0) {
    const size_t full = at_ / kSection - 1;
    device_.check(rt.event_record(left_[full], device_.own_stream()), "marking the stream");
    busy_[full] = true;
    at_ %= kSection * kSections;
  }
}

void Transfers::upload_blocks(void* to, const void* from, size_t nbytes) {
  const Rt& rt = device_.rt();
  const bool overlap = nbytes >= kOverlap;
  if (overlap && !copies_) device_.check(rt.stream_create(&copies_, kNonBlockingStream), "making a stream");
  for (size_t at = 0; at < nbytes; at += kBlock) {
    const size_t n = std::min(kBlock, nbytes - at);
    char* target = static_cast<char*>(to) + at;
    Block& b = next_block();
    b.used = false;  // until the copy is queued
    copy_bytes(b.pinned, static_cast<const char*>(from) + at, n);
    if (overlap && !b.staging && rt.allocate(&b.staging, kBlock) != 0) b.staging = nullptr;
    if (!overlap || !b.staging) {
      device_.check(rt.copy_in(target, b.pinned, n, device_.own_stream()), "copying to the device");
      device_.check(rt.event_record(b.copied, device_.own_stream()), "marking the stream");
      b.used = true;
      continue;
    }
    if (!b.moved) b.moved = device_.take_event();
    if (b.staged) device_.check(rt.stream_after(copies_, b.moved, 0), "ordering two streams");
    device_.check(rt.copy_in(b.staging, b.pinned, n, copies_), "copying to the device");
    device_.check(rt.event_record(b.copied, copies_), "marking the stream");
    b.used = true;
    device_.check(rt.stream_after(device_.own_stream(), b.copied, 0), "ordering two streams");
    device_.check(rt.copy(target, b.staging, n, device_.own_stream()), "copying on the device");
    device_.check(rt.event_record(b.moved, device_.own_stream()), "marking the stream");
    b.staged = true;
  }
}

void Transfers::upload(void* to, const void* from, size_t nbytes) {
  if (nbytes == 0) return;
  std::lock_guard lock(upload_mutex_);
  ++stats_.uploads;
  if (nbytes <= kSmall) upload_small(to, from, nbytes);
  else upload_blocks(to, from, nbytes);
}

// Several pieces are in flight while the oldest is copied to its destination. Even without bytes to copy, it waits for
// earlier work.
void Transfers::download(void* to, const void* from, size_t nbytes) {
  const Rt& rt = device_.rt();
  std::lock_guard lock(download_mutex_);
  ++stats_.downloads;
  const size_t pieces = std::max<size_t>(1, (nbytes + kBlock - 1) / kBlock);
  while (down_.size() < std::min(pieces, kDownloads)) down_.push_back(make_block());
  const auto size = [&](size_t i) { return std::min(kBlock, nbytes - std::min(nbytes, i * kBlock)); };
  for (size_t asked = 0, done = 0; done < pieces; ++done) {
    for (; asked < pieces && asked < done + down_.size(); ++asked) {
      Block& b = down_[asked % down_.size()];
      if (size(asked) > 0)
        device_.check(
            rt.copy_out(b.pinned, static_cast<const char*>(from) + asked * kBlock, size(asked), device_.own_stream()),
            "copying from the device");
      device_.check(rt.event_record(b.copied, device_.own_stream()), "marking the stream");
    }
    Block& b = down_[done % down_.size()];
    device_.check(rt.event_wait(b.copied), "waiting for the device");
    if (size(done) > 0) copy_bytes(static_cast<char*>(to) + done * kBlock, b.pinned, size(done));
  }
}

// One that is large enough, and no larger than it must be. A copy into one that was given back unread is still in stream order before the next.
Transfers::Landing Transfers::take_landing(size_t nbytes) {
  std::lock_guard lock(download_mutex_);
  ++stats_.downloads;
  const auto end = landings_.end();
  auto best = end;
  for (auto it = landings_.begin(); it != end; ++it)
    if (it->bytes >= nbytes && (best == end || it->bytes < best->bytes)) best = it;
  if (best != end) {
    const Landing l = *best;
    landings_.erase(best);
    return l;
  }
  const size_t bytes = std::max<size_t>(4096, std::bit_ceil(nbytes));
  return {static_cast<char*>(pin(bytes)), bytes, device_.take_event()};
}

void Transfers::give_landing(const Landing& l) {
  std::lock_guard lock(download_mutex_);
  landings_.push_back(l);
}

void Transfers::warmup(size_t nbytes) {
  std::lock_guard lock(upload_mutex_);
  const size_t wanted = std::min(kMostBlocks, (nbytes + kBlock - 1) / kBlock);
  while (blocks_.size() < wanted) blocks_.push_back(make_block());
}

PinnedStats Transfers::stats() {
  std::scoped_lock lock(upload_mutex_, download_mutex_);
  PinnedStats s = stats_;
  s.bytes = pinned_bytes_;
  return s;
}

}  // namespace pyflame::gpu
