// Divides a device's time among kinds of work, waits and idleness.
#include "tools/profile/analyse.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "tools/profile/callers.h"

namespace pyflame::tools::profile {

namespace {

constexpr int64_t kSmallCopy = 64 << 10;
constexpr size_t kMaxGaps = 5'000'000;

// A workgroup runs on one compute unit. 0: the number is unknown.
double compute_units(const Analysis& a) {
  if (a.product != nullptr && a.product->cus > 0) return a.product->cus;
  return a.device != nullptr ? a.device->cus : 0;
}

Category category_named(std::string_view name) {
  for (int c = 0; c < kCategories; ++c)
    if (name == name_of(static_cast<Category>(c))) return static_cast<Category>(c);
  return Category::other;
}

// The part before the dot names the library: "onednn.sgemm matmul+add".
std::string_view library_of_step(std::string_view name) { return name.substr(0, name.find_first_of(". ")); }

// Names repeat: each kernel is classified once for each chain of operators. Python functions and modules around the launch are
// asked last, because a layer has kernels of all kinds.
void classify_events(const Trace& t, Analysis& a) {
  a.classes.resize(t.gpu.size());
  Callers callers(t);
  std::unordered_map<uint64_t, KernelClass> known;
  const auto class_in = [&](NameId name, int32_t chain) {
    const uint64_t key = (static_cast<uint64_t>(name) << 32) | static_cast<uint32_t>(chain);
    auto found = known.find(key);
    if (found == known.end()) found = known.emplace(key, classify_kernel(t.names[name], callers.names(chain))).first;
    return found->second;
  };
  const auto classify = [&](int32_t i) {
    const GpuEvent& e = t.gpu[static_cast<size_t>(i)];
    KernelClass k = class_in(e.name, callers.operators(e.op));
    if (k.category == Category::other && e.kind == GpuKind::kernel && e.call >= 0 && !t.frames.empty())
      k = class_in(e.name, callers.stack(t.calls[static_cast<size_t>(e.call)]));
    if (e.work != 0) k = {category_named(t.names[e.work]), library_of_step(t.names[e.name]), false};
    if (e.collective != 0) k = {Category::communication, t.own ? "" : "RCCL", false};
    if (e.kind != GpuKind::kernel) k = {Category::memory, "", false};
    a.classes[static_cast<size_t>(i)] = k;
  };
  for (int32_t i : a.events) classify(i);
  for (int32_t i : a.foreign) classify(i);
}

struct Edge {
  int64_t at = 0;
  int32_t event = 0;
  bool begin = false;
};
using Edges = std::vector<Edge>;

// The starts and ends of events within each span, in order.
std::vector<Edges> edges_by_span(const Trace& t, const Analysis& a) {
  std::vector<Edges> of(a.spans.size());
  const auto add = [&](int32_t i) {
    const GpuEvent& e = t.gpu[static_cast<size_t>(i)];
    auto span = std::lower_bound(a.spans.begin(), a.spans.end(), e.start,
                                 [](const auto& s, int64_t at) { return s.second <= at; });
    for (; span != a.spans.end() && span->first < e.end; ++span) {
      const int64_t start = std::max(e.start, span->first), end = std::min(e.end, span->second);
      if (end <= start) continue;
      Edges& edges = of[static_cast<size_t>(span - a.spans.begin())];
      edges.push_back({start, i, true});
      edges.push_back({end, i, false});
    }
  };
  for (int32_t i : a.events) add(i);
  for (int32_t i : a.foreign) add(i);
  // At equal times, ends come before starts: back-to-back kernels do not overlap.
  for (Edges& edges : of)
    std::stable_sort(edges.begin(), edges.end(),
                     [](const Edge& x, const Edge& y) { return x.at < y.at || (x.at == y.at && x.begin < y.begin); });
  return of;
}

// Goes through the starts and ends of events in order, so it knows at each instant what runs.
class Sweep {
 public:
  explicit Sweep(Analysis& a) : a_(a) {}

  void span(int64_t start, int64_t end, const Edges& edges) {
    at_ = start;
    for (const Edge& edge : edges) {
      advance(edge.at, edge.begin ? edge.event : -1);
      const auto c = static_cast<size_t>(a_.classes[static_cast<size_t>(edge.event)].category);
      running_[c] += edge.begin ? 1 : -1;
      total_ += edge.begin ? 1 : -1;
      if (!edge.begin) last_ended_ = edge.event;
    }
    advance(end, -1);
  }

 private:
  void advance(int64_t to, int32_t next) {
    if (to <= at_) return;
    const double dt = us(to - at_);
    constexpr auto communication = static_cast<size_t>(Category::communication);
    if (total_ == 0) {
      if (a_.gaps.size() < kMaxGaps) {
        a_.gaps.emplace_back();
        Gap& g = a_.gaps.back();
        g.start = at_;
        g.end = to;
        g.before = last_ended_;
        g.after = next;
      }
    } else {
      a_.busy_us += dt;
      for (size_t c = 0; c < kCategories; ++c)
        a_.share_us[c] += dt * static_cast<double>(running_[c]) / static_cast<double>(total_);
      if (running_[communication] > 0) {
        a_.communication_us += dt;
        if (running_[communication] < total_) a_.overlapped_us += dt;
      }
    }
    at_ = to;
  }

  Analysis& a_;
  std::array<int64_t, kCategories> running_ = {};
  int64_t total_ = 0, at_ = 0;
  int32_t last_ended_ = -1;
};

void sweep(const Trace& t, Analysis& a) {
  const std::vector<Edges> edges = edges_by_span(t, a);
  Sweep sweep(a);
  for (size_t i = 0; i < a.spans.size(); ++i) sweep.span(a.spans[i].first, a.spans[i].second, edges[i]);
}

// The time of an operator's kernels of one kind. The operator's work is divided among them.
using OpTimes = std::unordered_map<uint64_t, double>;
uint64_t op_key(int32_t op, Category c) {
  return (static_cast<uint64_t>(static_cast<uint32_t>(op)) << 8) | static_cast<uint64_t>(c);
}

OpTimes operator_times(const Trace& t, const Analysis& a) {
  OpTimes times;
  for (int32_t i : a.events) {
    const GpuEvent& e = t.gpu[static_cast<size_t>(i)];
    if (e.kind == GpuKind::kernel && e.op >= 0)
      times[op_key(e.op, a.classes[static_cast<size_t>(i)].category)] += us(e.end - e.start);
  }
  return times;
}

void add_kernel(const Trace& t, Analysis& a, int32_t i, const OpTimes& times, KernelGroup& g,
                std::map<std::string, double>& ops) {
  const GpuEvent& e = t.gpu[static_cast<size_t>(i)];
  const double d = us(e.end - e.start);
  if (g.calls == 0 || d < g.min_us) g.min_us = d;
  if (d > g.max_us || g.calls == 0) {  // the longest call represents the group
    g.max_us = d;
    g.grid = e.grid;
    g.block = e.block;
    g.vgpr = e.vgpr;
    g.lds = e.lds;
    g.scratch = e.scratch;
    g.full = t.names[e.name];
    g.id = e.name;
  }
  if (std::find(g.names.begin(), g.names.end(), e.name) == g.names.end() && g.names.size() < 64)
    g.names.push_back(e.name);
  ++g.calls;
  g.us += d;
  if (t.own) {
    if (e.collective != 0) return;  // its bytes are not those of the memory
    g.flops += std::max(0.0, e.flops);
    g.bytes += static_cast<double>(std::max<int64_t>(0, e.bytes));
    if (e.bytes >= 0) g.sized_us += d;
    if (g.dtype.empty()) g.dtype = t.names[e.dtype];
    return;
  }
  const double workgroups = static_cast<double>(e.grid[0]) * std::max(1U, e.grid[1]) * std::max(1U, e.grid[2]);
  // A persistent kernel has one workgroup, or a few, for each compute unit. That fills the device.
  if (workgroups > 0 && workgroups < a.compute_units) g.narrow_us += d * (1 - workgroups / a.compute_units);
  if (e.op < 0) return;
  const CpuOp& op = t.ops[static_cast<size_t>(e.op)];
  ops[t.names[op.name]] += d;
  if (op.dims == 0) return;
  const Category c = a.classes[static_cast<size_t>(i)].category;
  const Work w = work_of(t.names[op.name], t.names[op.dims], t.names[op.types], t.names[op.values], c);
  const auto total = times.find(op_key(e.op, c));
  if (!w.known() || total == times.end() || total->second <= 0) return;
  g.flops += w.flops * d / total->second;
  g.bytes += w.bytes * d / total->second;
  g.sized_us += d;
  if (g.dtype.empty()) g.dtype = w.dtype;
}

void group_kernels(const Trace& t, Analysis& a) {
  const OpTimes times = operator_times(t, a);
  std::map<std::pair<std::string, Category>, size_t> index;
  std::unordered_map<NameId, std::string> shorts;
  std::vector<std::map<std::string, double>> ops;
  for (int32_t i : a.events) {
    const GpuEvent& e = t.gpu[static_cast<size_t>(i)];
    const KernelClass& k = a.classes[static_cast<size_t>(i)];
    const auto c = static_cast<size_t>(k.category);
    a.kernel_us[c] += us(e.end - e.start);
    ++a.kernels[c];
    if (e.kind != GpuKind::kernel) continue;
    auto name = shorts.find(e.name);
    if (name == shorts.end())
      name = shorts.emplace(e.name, t.own || t.operators ? t.names[e.name] : short_kernel_name(t.names[e.name])).first;
    const auto [at, fresh] = index.try_emplace({name->second, k.category}, a.groups.size());
    if (fresh) {
      a.groups.emplace_back();
      ops.emplace_back();
      a.groups.back().name = name->second;
      a.groups.back().category = k.category;
      a.groups.back().library = k.library;
    }
    add_kernel(t, a, i, times, a.groups[at->second], ops[at->second]);
  }
  for (size_t i = 0; i < a.groups.size(); ++i) {
    double best = 0;
    for (const auto& [op, spent] : ops[i])
      if (spent > best) {
        best = spent;
        a.groups[i].op = op;
      }
  }
  std::stable_sort(a.groups.begin(), a.groups.end(),
                   [](const KernelGroup& x, const KernelGroup& y) { return x.us > y.us; });
}

void group_copies(const Trace& t, Analysis& a) {
  std::map<std::tuple<GpuKind, Direction, HostMemory>, CopyGroup> groups;
  for (int32_t i : a.events) {
    const GpuEvent& e = t.gpu[static_cast<size_t>(i)];
    if (e.kind == GpuKind::kernel) continue;
    CopyGroup& g = groups[{e.kind, e.direction, e.host}];
    g.kind = e.kind;
    g.direction = e.direction;
    g.host = e.host;
    ++g.calls;
    g.us += us(e.end - e.start);
    if (e.bytes < 0) continue;
    g.bytes += static_cast<double>(e.bytes);
    g.sized_us += us(e.end - e.start);
    g.small += e.bytes < kSmallCopy;
  }
  for (const auto& [key, g] : groups) a.copies.push_back(g);
  std::stable_sort(a.copies.begin(), a.copies.end(),
                   [](const CopyGroup& x, const CopyGroup& y) { return x.us > y.us; });
}

void group_collectives(const Trace& t, Analysis& a) {
  std::map<std::string, CollectiveGroup> groups;
  for (int32_t i : a.events) {
    if (a.classes[static_cast<size_t>(i)].category != Category::communication) continue;
    const GpuEvent& e = t.gpu[static_cast<size_t>(i)];
    const std::string name = e.collective != 0 ? t.names[e.collective] : short_kernel_name(t.names[e.name]);
    CollectiveGroup& g = groups[name];
    g.name = name;
    ++g.calls;
    g.us += us(e.end - e.start);
    if (e.bytes > 0) g.bytes += static_cast<double>(e.bytes);
    g.group = std::max(g.group, e.group);
  }
  for (const auto& [key, g] : groups) a.collectives.push_back(g);
  std::stable_sort(a.collectives.begin(), a.collectives.end(),
                   [](const CollectiveGroup& x, const CollectiveGroup& y) { return x.us > y.us; });
}

// Only calls that launch one kernel, because the launch of a graph is for all of its kernels.
void count_short_kernels(const Trace& t, Analysis& a) {
  std::unordered_map<int32_t, int32_t> launched;
  for (int32_t i : a.events)
    if (const GpuEvent& e = t.gpu[static_cast<size_t>(i)]; e.kind == GpuKind::kernel && e.call >= 0) ++launched[e.call];
  double sum = 0;
  int64_t n = 0;
  for (int32_t i : a.events) {
    const GpuEvent& e = t.gpu[static_cast<size_t>(i)];
    if (e.kind != GpuKind::kernel || e.call < 0 || launched[e.call] != 1) continue;
    const ApiCall& c = t.calls[static_cast<size_t>(e.call)];
    sum += us(c.end - c.start);
    ++n;
    a.short_kernels += e.end - e.start < c.end - c.start;
  }
  if (n > 0) a.mean_launch_us = sum / static_cast<double>(n);
}

// From the first kernel of the steps to the end of the last.
double device_span(const Trace& t, const Analysis& a) {
  if (a.events.empty()) return 0;
  int64_t end = INT64_MIN;
  for (int32_t i : a.events) end = std::max(end, t.gpu[static_cast<size_t>(i)].end);
  return us(end - t.gpu[static_cast<size_t>(a.events.front())].start);
}

// Statistics files have no times of single calls, so shares refer to the sum.
void from_totals(const Trace& t, Analysis& a) {
  std::map<std::pair<std::string, Category>, size_t> index;
  for (const KernelTotal& k : t.totals) {
    KernelClass c = classify_kernel(t.names[k.name]);
    if (k.kind != GpuKind::kernel) c = {Category::memory, "", false};
    const auto i = static_cast<size_t>(c.category);
    const double spent = k.total_ns / 1000;
    a.kernel_us[i] += spent;
    a.share_us[i] += spent;
    a.kernels[i] += k.calls;
    a.busy_us += spent;
    const auto [at, fresh] = index.try_emplace({short_kernel_name(t.names[k.name]), c.category}, a.groups.size());
    if (fresh) {
      a.groups.emplace_back();
      a.groups.back().name = at->first.first;
      a.groups.back().full = t.names[k.name];
      a.groups.back().category = c.category;
      a.groups.back().library = c.library;
      a.groups.back().id = k.name;
      a.groups.back().min_us = k.min_ns / 1000;
    }
    KernelGroup& g = a.groups[at->second];
    g.names.push_back(k.name);
    g.calls += k.calls;
    g.us += spent;
    g.min_us = std::min(g.min_us, k.min_ns / 1000);
    g.max_us = std::max(g.max_us, k.max_ns / 1000);
  }
  a.wall_us = a.busy_us;
  std::stable_sort(a.groups.begin(), a.groups.end(),
                   [](const KernelGroup& x, const KernelGroup& y) { return x.us > y.us; });
}

// What is analysed is the time without this.
void leave_out(const SetUp& once, Analysis& a) {
  std::vector<std::pair<int64_t, int64_t>> spans;
  for (const auto& [start, end] : a.spans) {
    if (once.end <= start || end <= once.start) {
      spans.emplace_back(start, end);
      continue;
    }
    if (start < once.start) spans.emplace_back(start, once.start);
    if (once.end < end) spans.emplace_back(once.end, end);
  }
  a.spans = std::move(spans);
}

}  // namespace

Analysis analyse(const Profile& profile, const Options& options) {
  const Trace& t = profile.trace;
  Analysis a;
  choose_device(t, options, a);
  a.has_calls = !t.calls.empty();
  a.compute_units = compute_units(a);
  if (t.gpu.empty()) {
    from_totals(t, a);
    return a;
  }
  choose_window(t, options, a);
  for (const SetUp& s : profile.set_up) leave_out(s, a);
  for (const auto& [start, end] : a.spans) a.wall_us += us(end - start);
  classify_events(t, a);
  sweep(t, a);
  explain_gaps(t, a);
  a.device_span_us = device_span(t, a);
  group_kernels(t, a);
  group_copies(t, a);
  group_collectives(t, a);
  count_short_kernels(t, a);
  std::stable_sort(a.gaps.begin(), a.gaps.end(),
                   [](const Gap& x, const Gap& y) { return x.end - x.start > y.end - y.start; });
  return a;
}

}  // namespace pyflame::tools::profile
