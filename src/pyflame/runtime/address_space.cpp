// Reserves addresses without memory.
#include "pyflame/runtime/address_space.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <utility>

namespace pyflame {

void* reserve_addresses(size_t nbytes) {
  void* p = mmap(nullptr, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return nullptr;
#ifdef MADV_NOHUGEPAGE
  madvise(p, nbytes, MADV_NOHUGEPAGE);  // a hint: reading one value shall not take two megabytes
#endif
  return p;
}

namespace {
std::atomic<bool> g_written{false};
thread_local bool t_reads_are_zeros = false;
}  // namespace

void may_be_written() {
  if (!g_written.load(std::memory_order_relaxed)) g_written = true;
}

bool reads_are_zeros() { return t_reads_are_zeros; }
bool set_reads_are_zeros(bool on) { return std::exchange(t_reads_are_zeros, on); }

void release_addresses(void* p, size_t nbytes) { munmap(p, nbytes); }

void forget_contents(void* p, size_t nbytes) {
  if (!g_written.load(std::memory_order_relaxed)) return;
  static const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(p), end = begin + nbytes;
  const uintptr_t first = (begin + page - 1) / page * page, last = end / page * page;
  if (first >= last) {
    std::memset(p, 0, nbytes);
    return;
  }
  madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
  if (begin < first) std::memset(p, 0, first - begin);
  if (last < end) std::memset(reinterpret_cast<void*>(last), 0, end - last);
}

}  // namespace pyflame
