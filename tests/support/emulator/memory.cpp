// See memory.h.
#include "memory.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>

#include "settings.h"

namespace pyflame::emulator {

namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr size_t kGuard = 0;  // its red zones are better
constexpr size_t kQuarantine = 0;
#else
constexpr size_t kGuard = 256;
constexpr size_t kQuarantine = size_t{32} << 20;
#endif
constexpr size_t kAlign = 256;
constexpr unsigned char kFresh = 0xff;  // NaN in every float type
constexpr unsigned char kFreed = 0xfe, kGuardByte = 0xfd;

struct Block {
  size_t bytes;
  Kind kind;
  int device;
  uint64_t number;  // of the allocation, for messages
};
struct Dead {
  char* p;
  Block block;
};

struct Heap {
  std::map<uintptr_t, Block> live;
  std::deque<Dead> dead;
  size_t dead_bytes = 0;
  size_t used[16] = {};
  uint64_t count = 0;
};
Heap& heap() {
  static Heap* h = new Heap;
  return *h;
}

std::string name(const Block& b) {
  return std::string(b.kind == Kind::device ? "device" : "pinned") + " allocation " + std::to_string(b.number) +
         " of " + std::to_string(b.bytes) + " bytes";
}
std::string address(const void* p) {
  char text[32];
  std::snprintf(text, sizeof text, "%p", p);
  return text;
}

bool all_are(const char* p, size_t bytes, unsigned char value) {
  for (size_t i = 0; i < bytes; ++i)
    if (static_cast<unsigned char>(p[i]) != value) return false;
  return true;
}

std::string check_guard(const char* p, const Block& b) {
  if (!all_are(p - kGuard, kGuard, kGuardByte)) return name(b) + ": something was written before it";
  if (!all_are(p + b.bytes, kGuard, kGuardByte)) return name(b) + ": something was written behind it";
  return {};
}

const Block* block_of(const void* p, uintptr_t* begin = nullptr) {
  const auto at = reinterpret_cast<uintptr_t>(p);
  auto it = heap().live.upper_bound(at);
  if (it == heap().live.begin()) return nullptr;
  --it;
  if (at > it->first + it->second.bytes) return nullptr;
  if (begin) *begin = it->first;
  return &it->second;
}

std::string bury(const Dead& d) {
  std::string wrong;
  if (kQuarantine > 0 && !all_are(d.p, d.block.bytes, kFreed))
    wrong = name(d.block) + ": written to after it was released";
  std::free(d.p - kGuard);
  return wrong;
}

}  // namespace

void* allocate(Kind kind, size_t bytes, int device) {
  Heap& h = heap();
  if (kind == Kind::device && h.used[device] + bytes > settings().memory) return nullptr;
  void* raw = nullptr;
  if (posix_memalign(&raw, kAlign, bytes + 2 * kGuard) != 0) return nullptr;
  char* p = static_cast<char*>(raw) + kGuard;
  std::memset(p - kGuard, kGuardByte, kGuard);
  std::memset(p, kFresh, bytes);
  std::memset(p + bytes, kGuardByte, kGuard);
  h.live[reinterpret_cast<uintptr_t>(p)] = {bytes, kind, device, ++h.count};
  if (kind == Kind::device) h.used[device] += bytes;
  return p;
}

std::string release(Kind kind, void* p) {
  Heap& h = heap();
  const auto it = h.live.find(reinterpret_cast<uintptr_t>(p));
  if (it == h.live.end()) {
    for (const Dead& d : h.dead)
      if (d.p == p) return "released twice: " + name(d.block);
    return "release of " + address(p) + ", which is not the beginning of a live allocation";
  }
  const Block b = it->second;
  if (b.kind != kind) return "release of a " + name(b) + " by the function for the other kind";
  std::string wrong = check_guard(static_cast<char*>(p), b);
  h.live.erase(it);
  if (kind == Kind::device) h.used[b.device] -= b.bytes;
  if (kQuarantine > 0) std::memset(p, kFreed, b.bytes);
  h.dead.push_back({static_cast<char*>(p), b});
  h.dead_bytes += b.bytes;
  while (!h.dead.empty() && h.dead_bytes > kQuarantine) {
    h.dead_bytes -= h.dead.front().block.bytes;
    const std::string late = bury(h.dead.front());
    if (wrong.empty()) wrong = late;
    h.dead.pop_front();
  }
  return wrong;
}

std::string check(Kind kind, const void* p, size_t bytes) {
  uintptr_t begin = 0;
  const Block* b = block_of(p, &begin);
  if (!b || b->kind != kind) {
    for (const Dead& d : heap().dead)
      if (p >= d.p && p < d.p + d.block.bytes) return "use of a released " + name(d.block);
    return "address " + address(p) + " is not in a live " + (kind == Kind::device ? "device" : "pinned") +
           " allocation";
  }
  const size_t offset = reinterpret_cast<uintptr_t>(p) - begin;
  if (offset + bytes > b->bytes)
    return "bytes [" + std::to_string(offset) + ", " + std::to_string(offset + bytes) + ") of a " + name(*b);
  return {};
}

bool is_pinned(const void* p) {
  const Block* b = block_of(p);
  return b && b->kind == Kind::pinned;
}

bool is_reachable(const void* p) { return !p || block_of(p); }

std::string check_guards() {
  if (kGuard == 0) return {};
  for (const auto& [at, b] : heap().live)
    if (std::string wrong = check_guard(reinterpret_cast<const char*>(at), b); !wrong.empty()) return wrong;
  return {};
}

size_t used_memory(int device) { return heap().used[device]; }

}  // namespace pyflame::emulator
