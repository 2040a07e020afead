#include "pyflame/runtime/memory_trace.h"

#include <mutex>
#include <utility>

#include "pyflame/base/events.h"
#include "pyflame/base/fork.h"

namespace pyflame::memory_trace {

namespace detail {
std::atomic<bool> on{false};
}  // namespace detail

namespace {

struct Entries {
  std::mutex mutex;
  size_t most = 0;
  std::vector<Entry> all;
};
Entries& entries() {
  static auto* e = new Entries;  // leaked: threads may outlive static destruction
  return *e;
}
const AtFork g_memory_trace_at_fork{ForkOrder::MemoryTrace, [] { entries().mutex.lock(); },
                                    [](bool) { entries().mutex.unlock(); }};

}  // namespace

void start(size_t most) {
  std::lock_guard lock(entries().mutex);
  entries().all.clear();
  entries().most = most;
  detail::on.store(true, std::memory_order_relaxed);
}

std::vector<Entry> stop() {
  std::lock_guard lock(entries().mutex);
  detail::on.store(false, std::memory_order_relaxed);
  return std::exchange(entries().all, {});
}

void add(const Entry& entry) {
  std::lock_guard lock(entries().mutex);
  if (!on() || entries().all.size() >= entries().most) return;
  entries().all.push_back(entry);
  entries().all.back().at = events::now();
}

}  // namespace pyflame::memory_trace
