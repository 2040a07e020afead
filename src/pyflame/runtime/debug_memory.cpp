// Keeps the list of guarded blocks and of freed ones, and checks them.
#include "pyflame/runtime/debug_memory.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "pyflame/base/env.h"
#include "pyflame/base/error.h"
#include "pyflame/base/fork.h"
#include "pyflame/runtime/guard_pages.h"

namespace pyflame::debug_memory {

std::atomic<uint8_t> detail::flags{detail::kUnread};

namespace {

using guard_pages::Band;

constexpr size_t kAlign = 64;                     // of a host block
constexpr size_t kKeptOnHost = 4096;              // freed blocks whose addresses are not used again yet
constexpr size_t kKeptOnDevice = 32;              // freed blocks of a device
constexpr size_t kLargestKept = size_t{1} << 20;  // a larger one goes back at once
constexpr size_t kAtOnce = size_t{1} << 16;  // bytes of a pattern that are copied to a device; the rest is copied there
constexpr uint16_t kStale = 0xfff5;          // fills freed blocks of a device: NaN as well

struct Block {
  Device device;
  DeviceMemory* memory = nullptr;  // null: the host
  char* data = nullptr;
  size_t bytes = 0, counted = 0;
  char* raw = nullptr;  // with the guards
  size_t raw_bytes = 0;
  SourceLoc at;
  Band band;
};

struct All {
  std::mutex mutex;
  std::map<const char*, Block> live;  // by the first byte of raw
  std::map<const void*, const char*> by_data;
  std::deque<Block> kept_on_host, kept_on_device;
  std::atomic<size_t> blocks{0};  // live ones
  uint64_t taken = 0;             // blocks so far
  std::string first;
};
All& all() {
  static All* a = new All;  // leaked: storages may outlive static destruction
  return *a;
}
const AtFork g_debug_memory_at_fork{ForkOrder::DebugMemory, [] { all().mutex.lock(); },
                                    [](bool) { all().mutex.unlock(); }};

// Another one for each block: the golden ratio and odd factors mix the block's number into all bytes.
Band next_band(All& a) {
  uint64_t x = ++a.taken * 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93;
  return {x ^ (x >> 32)};
}

size_t rounded(size_t n, size_t to) { return (n + to - 1) / to * to; }

void fill_host(void* p, size_t n, uint16_t pattern) {
  auto* bytes = static_cast<char*>(p);
  for (size_t i = 0; i + 1 < n; i += 2) std::memcpy(bytes + i, &pattern, 2);
  if (n % 2) std::memcpy(bytes + n - 1, &pattern, 1);
}

// The host writes the first bytes, and the device doubles them.
void fill_device(DeviceMemory& m, char* p, size_t n, uint16_t pattern) {
  std::vector<char> first(std::min(n, kAtOnce));
  fill_host(first.data(), first.size(), pattern);
  m.from_host(p, first.data(), first.size());
  for (size_t done = first.size(); done < n; done *= 2) m.copy(p + done, p, std::min(done, n - done));
}

// Writes the band to n bytes of a device, of which there are few.
void fill_band(DeviceMemory& m, Band band, char* p, size_t n) {
  std::vector<char> bytes(n);
  for (size_t i = 0; i < n; ++i) bytes[i] = band.at(p + i);
  m.from_host(p, bytes.data(), n);
}

void insert(All& a, const Block& b) {
  a.live[b.raw] = b;
  a.by_data[b.data] = b.raw;
  a.blocks = a.live.size();
}

// First and last byte of n that differ from the band. `p`: the bytes; `address`: where they are from.
struct Changed {
  size_t first = 0, last = 0, count = 0;
};
Changed changed_in(Band band, const char* p, size_t n, const char* address) {
  Changed c;
  for (size_t i = 0; i < n; ++i) {
    if (p[i] == band.at(address + i)) continue;
    if (c.count++ == 0) c.first = i;
    c.last = i;
  }
  return c;
}

// The bands of a block: from raw to data, and behind its last byte.
std::optional<Violation> damage(const Block& b, const char* front, size_t front_bytes, const char* back,
                                size_t back_bytes) {
  Violation v;
  v.data = b.data, v.bytes = b.bytes, v.at = b.at;
  if (const Changed c = changed_in(b.band, back, back_bytes, b.data + b.bytes); c.count) {
    v.side = Violation::Behind, v.offset = c.first, v.count = c.count;
    return v;
  }
  if (const Changed c = changed_in(b.band, front, front_bytes, b.data - front_bytes); c.count) {
    v.side = Violation::Before, v.offset = front_bytes - c.last, v.count = c.count;
    return v;
  }
  return {};
}

std::optional<Violation> check_on_device(const Block& b) {
  const auto front = static_cast<size_t>(b.data - b.raw), back = b.raw_bytes - front - b.bytes;
  std::vector<char> bands(front + back);
  b.memory->to_host(bands.data(), b.raw, front);
  b.memory->to_host(bands.data() + front, b.data + b.bytes, back);
  auto v = damage(b, bands.data(), front, bands.data() + front, back);
  if (!v) return v;
  fill_band(*b.memory, b.band, b.raw, front);
  fill_band(*b.memory, b.band, b.data + b.bytes, back);
  return v;
}

// What lies between a block and its guard pages. The pages themselves are looked at where an access trapped.
std::optional<Violation> check_on_host(const Block& b) {
  char *inside = b.raw + guard_pages::page(), *end = b.raw + b.raw_bytes - guard_pages::page();
  const auto front = static_cast<size_t>(b.data - inside), back = static_cast<size_t>(end - b.data) - b.bytes;
  auto v = damage(b, inside, front, b.data + b.bytes, back);
  if (!v) return v;
  b.band.fill(inside, front);
  b.band.fill(b.data + b.bytes, back);
  return v;
}

std::optional<Violation> check_freed(const Block& b) {
  std::vector<char> now(b.bytes), expected(b.bytes);
  b.memory->to_host(now.data(), b.data, b.bytes);
  fill_host(expected.data(), b.bytes, kStale);
  const auto differs = [&](size_t i) { return now[i] != expected[i]; };
  size_t first = 0, count = 0;
  for (size_t i = b.bytes; i-- > 0;)
    if (differs(i)) first = i, ++count;
  if (!count) return {};
  fill_device(*b.memory, b.data, b.bytes, kStale);
  Violation v;
  v.side = Violation::Freed, v.data = b.data, v.bytes = b.bytes, v.at = b.at;
  v.offset = first, v.count = count;
  return v;
}

const Block* block_at(const All& a, const char* address) {
  auto it = a.live.upper_bound(address);
  if (it == a.live.begin()) return nullptr;
  const Block& b = (--it)->second;
  return address < b.raw + b.raw_bytes ? &b : nullptr;
}

Violation of_trap(const All& a, const guard_pages::Trap& t) {
  using guard_pages::Trap;
  Violation v;
  v.kind = t.access == Trap::Write ? Violation::Written : t.access == Trap::Read ? Violation::Read : Violation::Touched;
  v.side = Violation::Nowhere;
  if (const Block* b = block_at(a, t.address)) {
    v.data = b->data, v.bytes = b->bytes, v.at = b->at;
    const bool behind = t.address >= b->data + b->bytes;
    v.side = behind ? Violation::Behind : Violation::Before;
    v.offset = static_cast<size_t>(behind ? t.address - (b->data + b->bytes) : b->data - t.address);
    char* guard = behind ? b->raw + b->raw_bytes - guard_pages::page() : b->raw;
    if (v.kind != Violation::Read) v.count = changed_in(b->band, guard, guard_pages::page(), guard).count;
    b->band.fill(guard, guard_pages::page());
    return v;
  }
  for (const Block& b : a.kept_on_host)
    if (t.address >= b.raw && t.address < b.raw + b.raw_bytes) {
      v.side = Violation::Freed, v.data = b.data, v.bytes = b.bytes, v.at = b.at;
      v.offset = static_cast<size_t>(std::max<std::ptrdiff_t>(0, t.address - b.data));
    }
  return v;
}

void* release_oldest(All& a, size_t at = 0) {
  const auto it = a.kept_on_device.begin() + static_cast<std::ptrdiff_t>(at);
  void* raw = it->raw;
  a.kept_on_device.erase(it);
  return raw;
}

}  // namespace

uint8_t detail::read_environment() {
  const std::string& word = env::debug_allocator();
  configure(
      {.guards = word == "guards" || word == "1", .poison = word == "poison" || word == "1", .sync = word == "sync"});
  return flags;
}

Settings settings() {
  const uint8_t f = detail::now();
  return {(f & detail::kGuards) != 0, (f & detail::kPoison) != 0, (f & detail::kSync) != 0};
}

void configure(Settings s) {
  detail::flags = static_cast<uint8_t>((s.guards ? detail::kGuards : 0) | (s.poison ? detail::kPoison : 0) |
                                       (s.sync ? detail::kSync : 0));
}

void* take_host(size_t nbytes, size_t counted, SourceLoc at) {
  All& a = all();
  std::lock_guard lock(a.mutex);
  const size_t page = guard_pages::page(), inside = rounded(nbytes, page);
  const Band band = next_band(a);
  const guard_pages::Range r = guard_pages::open(inside, band);
  if (!r.begin) return nullptr;
  char *first = r.begin + page, *data = first + inside - rounded(nbytes, kAlign);
  band.fill(first, static_cast<size_t>(data - first));
  band.fill(data + nbytes, static_cast<size_t>(first + inside - data) - nbytes);
  if (fills()) fill_host(data, nbytes, kFresh);
  insert(a, {{}, nullptr, data, nbytes, counted, r.begin, r.bytes, at, band});
  return data;
}

void* take_on_device(Device device, DeviceMemory& memory, void* raw, size_t nbytes, size_t counted, SourceLoc at) {
  if (!raw) return nullptr;
  All& a = all();
  std::lock_guard lock(a.mutex);
  const Block b{device,
                &memory,
                static_cast<char*>(raw) + kBandBytes,
                nbytes,
                counted,
                static_cast<char*>(raw),
                bytes_on_device(nbytes),
                at,
                next_band(a)};
  fill_band(memory, b.band, b.raw, kBandBytes);
  fill_band(memory, b.band, b.data + nbytes, b.raw_bytes - kBandBytes - nbytes);
  if (fills()) fill_device(memory, b.data, nbytes, kFresh);
  insert(a, b);
  return b.data;
}

std::optional<Freed> give(void* data) {
  All& a = all();
  if (a.blocks == 0) return {};
  std::lock_guard lock(a.mutex);
  const auto found = a.by_data.find(data);
  if (found == a.by_data.end()) return {};
  const auto it = a.live.find(found->second);
  const Block b = it->second;
  a.live.erase(it);
  a.by_data.erase(found);
  a.blocks = a.live.size();
  if (!b.memory) {
    guard_pages::close({b.raw, b.raw_bytes});
    a.kept_on_host.push_back(b);
    if (a.kept_on_host.size() > kKeptOnHost) {
      guard_pages::reuse({a.kept_on_host.front().raw, a.kept_on_host.front().raw_bytes});
      a.kept_on_host.pop_front();
    }
    return Freed{b.counted, nullptr};
  }
  if (b.bytes > kLargestKept || !blocks()) return Freed{b.counted, b.raw};
  try {
    fill_device(*b.memory, b.data, b.bytes, kStale);
  } catch (const Error&) {  // the device is lost, and nobody will access the block
    return Freed{b.counted, b.raw};
  }
  a.kept_on_device.push_back(b);
  size_t of_device = 0, oldest = a.kept_on_device.size();
  for (size_t i = a.kept_on_device.size(); i-- > 0;)
    if (a.kept_on_device[i].device == b.device) ++of_device, oldest = i;
  return Freed{b.counted, of_device > kKeptOnDevice ? release_oldest(a, oldest) : nullptr};
}

void* raw_to_return(Device device) {
  All& a = all();
  std::lock_guard lock(a.mutex);
  for (size_t i = 0; i < a.kept_on_device.size(); ++i)
    if (a.kept_on_device[i].device == device) return release_oldest(a, i);
  return nullptr;
}

std::optional<Violation> check() {
  All& a = all();
  std::lock_guard lock(a.mutex);
  std::optional<Violation> first;
  const auto add = [&](const std::optional<Violation>& v) {
    if (!v) return;
    if (!first) first = v;
    else if (first->data != v->data) ++first->more;
  };
  const std::vector<guard_pages::Trap> traps = guard_pages::traps();
  for (const guard_pages::Trap& t : traps) add(of_trap(a, t));
  for (const guard_pages::Trap& t : traps) guard_pages::shut(t.address);
  for (const auto& [raw, b] : a.live) add(b.memory ? check_on_device(b) : check_on_host(b));
  for (const Block& b : a.kept_on_device) add(check_freed(b));
  return first;
}

void found(const std::string& text) {
  All& a = all();
  std::lock_guard lock(a.mutex);
  if (a.first.empty()) a.first = text;
}

std::string first_found() {
  All& a = all();
  std::lock_guard lock(a.mutex);
  return a.first;
}

void running(const char* text) {
  if (text) guard_pages::install();  // others may have installed theirs since
  guard_pages::running(text);
}

}  // namespace pyflame::debug_memory
