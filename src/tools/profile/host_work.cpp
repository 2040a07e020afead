#include "tools/profile/host_work.h"

#include <algorithm>
#include <map>

#include "tools/profile/classify.h"

namespace pyflame::tools::profile {

namespace {

constexpr int64_t kShortest = 1'000;  // of an operator's own time, in ns
constexpr int64_t kLeastOfOperator =
    5;  // an operator around others works if a fifth of its time is its own in one piece

struct OwnTime {
  int64_t start = 0, end = 0;  // its longest piece without an inner operator
  int64_t reached = 0;         // the end of the inner operators so far
  bool outer = false;          // has inner operators
  int32_t around = -1;         // the operator around it
};

void offer(OwnTime& own, int64_t start, int64_t end) {
  if (end - start > own.end - own.start) own.start = start, own.end = end;
}

// link() has sorted the operators by their start, outer ones first.
std::vector<OwnTime> own_times(const Trace& t) {
  std::vector<OwnTime> own(t.ops.size());
  std::map<std::pair<int32_t, uint64_t>, std::vector<size_t>> open;  // by thread, the operators around the current one
  for (size_t i = 0; i < t.ops.size(); ++i) {
    const CpuOp& op = t.ops[i];
    own[i].reached = own[i].start = own[i].end = op.start;
    if (op.annotation) continue;
    std::vector<size_t>& stack = open[{op.process, op.thread}];
    while (!stack.empty() && t.ops[stack.back()].end <= op.start) stack.pop_back();
    if (!stack.empty()) {
      OwnTime& around = own[stack.back()];
      own[i].around = static_cast<int32_t>(stack.back());
      around.outer = true;
      offer(around, around.reached, op.start);
      around.reached = std::max(around.reached, op.end);
    }
    stack.push_back(i);
  }
  return own;
}

// The kind of an operator is its own, or that of the nearest operator around it.
Category kind_of(const Trace& t, const std::vector<OwnTime>& own, size_t op) {
  constexpr int kNearest = 8;
  auto at = static_cast<int32_t>(op);
  for (int depth = 0; at >= 0 && depth < kNearest; ++depth, at = own[static_cast<size_t>(at)].around)
    if (const Category c = classify_op(t.names[t.ops[static_cast<size_t>(at)].name]); c != Category::other) return c;
  return Category::other;
}

}  // namespace

void use_operators_as_work(Trace& t) {
  const bool has_operators = std::any_of(t.ops.begin(), t.ops.end(), [](const CpuOp& op) { return !op.annotation; });
  if (t.own || !t.gpu.empty() || !t.totals.empty() || !t.counters.empty() || !t.calls.empty() || !has_operators) return;
  std::vector<OwnTime> own = own_times(t);
  std::map<std::pair<int32_t, uint64_t>, int32_t> threads;
  for (size_t i = 0; i < t.ops.size(); ++i) {
    const CpuOp& op = t.ops[i];
    if (op.annotation) continue;
    offer(own[i], own[i].reached, op.end);
    const int64_t length = own[i].end - own[i].start;
    if (length < kShortest || (own[i].outer && length * kLeastOfOperator < op.end - op.start)) continue;
    GpuEvent e;
    e.start = own[i].start;
    e.end = own[i].end;
    e.name = op.name;
    e.stream = threads.try_emplace({op.process, op.thread}, static_cast<int32_t>(threads.size())).first->second;
    e.process = op.process;
    e.op = static_cast<int32_t>(i);
    e.work = t.names.intern(name_of(kind_of(t, own, i)));
    if (!t.add(e)) break;
  }
  if (t.gpu.empty()) return;
  std::stable_sort(t.gpu.begin(), t.gpu.end(), [](const GpuEvent& a, const GpuEvent& b) { return a.start < b.start; });
  t.on_host = t.operators = true;
}

}  // namespace pyflame::tools::profile
