#include "pyflame/base/markers.h"

#include <mutex>
#include <unordered_map>

#include "pyflame/base/fork.h"

namespace pyflame::markers {

namespace detail {
std::atomic<bool> on{false};
}  // namespace detail

namespace {

// The numbers that each library gave to a range that was started.
struct Started {
  std::mutex mutex;
  uint64_t last = 0;
  std::unordered_map<uint64_t, std::vector<uint64_t>> ranges;
};
Started& started() {
  static auto* s = new Started;  // leaked: threads may outlive static destruction
  return *s;
}
const AtFork g_markers_at_fork{ForkOrder::Markers, [] { started().mutex.lock(); },
                               [](bool) { started().mutex.unlock(); }};

std::vector<Sink>& known_sinks() {
  static auto* s = new std::vector<Sink>;
  return *s;
}

}  // namespace

void set_sinks(std::vector<Sink> sinks) { known_sinks() = std::move(sinks); }
const std::vector<Sink>& sinks() { return known_sinks(); }
void emit(bool on) { detail::on.store(on, std::memory_order_relaxed); }

int push(const char* name) {
  int depth = -1;
  for (size_t i = known_sinks().size(); i-- > 0;) depth = known_sinks()[i].push(name);
  return depth;
}

int pop() {
  int depth = -1;
  for (size_t i = known_sinks().size(); i-- > 0;) depth = known_sinks()[i].pop();
  return depth;
}

void mark(const char* name) {
  for (const Sink& s : known_sinks()) s.mark(name);
}

uint64_t start(const char* name) {
  if (known_sinks().empty()) return 0;
  std::vector<uint64_t> numbers;
  for (const Sink& s : known_sinks()) numbers.push_back(s.start(name));
  std::lock_guard lock(started().mutex);
  const uint64_t range = ++started().last;
  started().ranges[range] = std::move(numbers);
  return range;
}

void stop(uint64_t range) {
  std::vector<uint64_t> numbers;
  {
    std::lock_guard lock(started().mutex);
    const auto found = started().ranges.find(range);
    if (found == started().ranges.end()) return;
    numbers = std::move(found->second);
    started().ranges.erase(found);
  }
  for (size_t i = 0; i < numbers.size(); ++i) known_sinks()[i].stop(numbers[i]);
}

}  // namespace pyflame::markers
