#include "tools/profile/set_up.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace pyflame::tools::profile {

namespace {

// A first run that is longer by less may just have been interrupted.
constexpr int64_t kLeast = 1'000'000;
constexpr int64_t kTimes = 2;
constexpr size_t kRuns = 3;

// Such a recording begins after first steps of the program, or has the first one as a step of its own.
bool has_steps(const Trace& t) {
  return std::any_of(t.ops.begin(), t.ops.end(),
                     [&](const CpuOp& op) { return op.annotation && t.names[op.name].starts_with("ProfilerStep#"); });
}

int64_t duration_of(const GpuEvent& e) { return e.end - e.start; }

// Sorted by start, without overlaps: what two threads wait for at the same time is one set-up.
std::vector<SetUp> merged(std::vector<SetUp> found) {
  std::sort(found.begin(), found.end(), [](const SetUp& x, const SetUp& y) { return x.start < y.start; });
  std::vector<SetUp> out;
  for (SetUp& s : found) {
    if (!out.empty() && s.start < out.back().end) {
      if (s.end <= out.back().end) continue;
      s.start = out.back().end;
    }
    out.push_back(std::move(s));
  }
  return out;
}

}  // namespace

std::vector<SetUp> take_set_up(Trace& t) {
  if (!t.own || !t.on_host || has_steps(t)) return {};
  using Key = std::tuple<int32_t, int32_t, NameId, int64_t, double>;  // equal steps
  std::map<Key, std::vector<size_t>> runs;
  for (size_t i = 0; i < t.gpu.size(); ++i) {
    const GpuEvent& e = t.gpu[i];
    if (e.collective != 0) continue;  // it may have waited for other ranks
    runs[{e.process, e.device, e.name, e.bytes, e.flops}].push_back(i);
  }
  std::vector<SetUp> found;
  for (auto& [key, events] : runs) {
    if (events.size() < kRuns) continue;
    const auto earlier = [&](size_t x, size_t y) { return t.gpu[x].start < t.gpu[y].start; };
    std::iter_swap(events.begin(), std::min_element(events.begin(), events.end(), earlier));
    std::vector<int64_t> later;
    for (size_t k = 1; k < events.size(); ++k) later.push_back(duration_of(t.gpu[events[k]]));
    std::nth_element(later.begin(), later.begin() + static_cast<std::ptrdiff_t>(later.size() / 2), later.end());
    const int64_t usual = later[later.size() / 2];
    GpuEvent& first = t.gpu[events[0]];
    if (duration_of(first) < kTimes * usual || duration_of(first) - usual < kLeast) continue;
    found.push_back({t.names[first.name], first.start, first.end - usual});
    first.start = first.end - usual;
  }
  return merged(std::move(found));
}

}  // namespace pyflame::tools::profile
