// Keeps the log of memory that is taken and freed.
#include "pyflame/runtime/memory_log.h"

#include <chrono>
#include <deque>
#include <mutex>
#include <unordered_map>

#include "pyflame/base/fork.h"

namespace pyflame::memory_log {

std::atomic<bool> detail::enabled{false};

namespace {

struct Kept {
  std::mutex mutex;
  size_t most = 0;
  int64_t start = 0;
  std::unordered_map<const void*, Block> blocks;
  std::deque<Change> changes;
  uint64_t dropped = 0;

  void change(Device device, int64_t time, int64_t bytes) {
    changes.push_back({device, time, bytes});
    if (changes.size() <= most) return;
    changes.pop_front();
    ++dropped;
  }
};
Kept& kept() {
  static Kept* k = new Kept;  // leaked: storages may outlive static destruction
  return *k;
}
// A thread that holds this lock takes no other one.
const AtFork g_memory_log_at_fork{ForkOrder::MemoryLog, [] { kept().mutex.lock(); },
                                  [](bool) { kept().mutex.unlock(); }};

thread_local SourceLoc t_site;
thread_local bool t_has_site = false;

int64_t now() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

}  // namespace

void start(size_t most_changes) {
  Kept& k = kept();
  std::lock_guard lock(k.mutex);
  k.most = most_changes;
  k.start = now();
  k.blocks.clear();
  k.changes.clear();
  k.dropped = 0;
  detail::enabled = true;
}

void stop() { detail::enabled = false; }

Log copy() {
  Kept& k = kept();
  std::lock_guard lock(k.mutex);
  Log log{k.start, {}, {k.changes.begin(), k.changes.end()}, k.dropped};
  for (const auto& [data, block] : k.blocks) log.blocks.push_back(block);
  return log;
}

Site::Site(SourceLoc at) : before_(t_site), had_(t_has_site) { t_site = at, t_has_site = true; }
Site::~Site() { t_site = before_, t_has_site = had_; }

SourceLoc site(MemoryUse use) {
  if (use != MemoryUse::tensors) return {};
  return t_has_site ? t_site : current_location();
}

void taken(const Block& block) {
  Kept& k = kept();
  std::lock_guard lock(k.mutex);
  Block& b = k.blocks[block.data] = block;
  b.time = now();
  k.change(b.device, b.time, static_cast<int64_t>(b.bytes));
}

void taken_over(const void* data, SourceLoc at) {
  Kept& k = kept();
  std::lock_guard lock(k.mutex);
  if (const auto it = k.blocks.find(data); it != k.blocks.end()) it->second.at = at, it->second.time = now();
}

void freed(const void* data) {
  Kept& k = kept();
  std::lock_guard lock(k.mutex);
  const auto it = k.blocks.find(data);
  if (it == k.blocks.end()) return;  // taken before the start
  k.change(it->second.device, now(), -static_cast<int64_t>(it->second.bytes));
  k.blocks.erase(it);
}

}  // namespace pyflame::memory_log
