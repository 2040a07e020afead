// A ring of bytes in shared memory with one writer and one reader, each in a process of its own. Positions only grow. Who must wait says so with
// a flag, looks once more, and sleeps on a socket; the other one takes the flag and writes a byte to that socket. Positions are written, and flags
// are read and written, in one order for both processes (seq_cst): so one of the two sees what the other one did last.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace pyflame::distributed {

struct Ring {
  static constexpr size_t kBytes = size_t{1} << 20;
  static constexpr uint64_t kThroughRings = 1;

  alignas(128) std::atomic<uint64_t> written;
  alignas(128) std::atomic<uint64_t> taken;
  alignas(128) std::atomic<uint32_t> reader_waits;
  alignas(128) std::atomic<uint32_t> writer_waits;
  // The call of the writer that is under way: where its data are that the reader may read and write directly; kThroughRings, where they cannot
  // be reached so; 0 between such calls.
  alignas(128) std::atomic<uint64_t> open;
  alignas(
      128) std::atomic<uint32_t> reaching;  // the writer is about to write into the open memory of the reader, or does
  alignas(128) char bytes[kBytes];

  size_t write(const char* from, size_t most) {
    const uint64_t at = written.load(std::memory_order_relaxed);
    const size_t n = std::min<size_t>(most, kBytes - (at - taken.load(std::memory_order_acquire)));
    const size_t begin = at % kBytes, first = std::min(n, kBytes - begin);
    std::memcpy(bytes + begin, from, first);
    std::memcpy(bytes, from + first, n - first);
    written.store(at + n);
    return n;
  }
  size_t take(char* to, size_t most) {
    const uint64_t at = taken.load(std::memory_order_relaxed);
    const size_t n = std::min<size_t>(most, written.load(std::memory_order_acquire) - at);
    const size_t begin = at % kBytes, first = std::min(n, kBytes - begin);
    std::memcpy(to, bytes + begin, first);
    std::memcpy(to + first, bytes, n - first);
    taken.store(at + n);
    return n;
  }
  bool empty() const { return written.load() == taken.load(std::memory_order_relaxed); }
  bool full() const { return written.load(std::memory_order_relaxed) - taken.load() == kBytes; }
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

}  // namespace pyflame::distributed
