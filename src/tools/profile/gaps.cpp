// Why a device was idle: derived from what the CPU did between the last kernel and the launch of the next one.
#include <algorithm>
#include <set>

#include "tools/profile/analyse.h"

namespace pyflame::tools::profile {

namespace {

constexpr int64_t kShortGap = 20'000, kLaunchJitter = 2'000, kPythonGap = 1'000'000, kDispatchGap = 50'000;

struct Span {
  int64_t start = 0, end = 0;
  NameId name = 0;
};

bool contains(const std::string& text, std::initializer_list<const char*> words) {
  return std::any_of(words.begin(), words.end(), [&](const char* w) { return text.find(w) != std::string::npos; });
}

bool waits(const std::string& call) {
  // hipMemcpy without Async returns when the copy is done.
  return call.starts_with("wait for ") || contains(call, {"Synchronize", "hipMemcpyWithStream", "hipMemcpyDtoH"}) ||
         call == "hipMemcpy" || call == "cudaMemcpy";
}
bool allocates(const std::string& call) {
  return call.starts_with("allocate from ") ||
         contains(call, {"hipMalloc", "cudaMalloc", "hipFree", "cudaFree", "hipHostMalloc", "cudaHostAlloc",
                         "hipHostRegister", "MemCreate", "MemMap"});
}
bool compiles(const std::string& name) {
  return name == "plan program" ||
         contains(name, {"ModuleLoad", "hiprtc", "nvrtc", "TorchDynamo Cache", "CompiledFxGraph", "compile_fx",
                         "CachingAutotuner", "_compile", "LazyLoad", "hipModuleLoadData"});
}

// Spans of one kind. They can be searched for those within a given time.
class Spans {
 public:
  void add(const Span& s) { spans_.push_back(s); }
  void close() {
    std::sort(spans_.begin(), spans_.end(), [](const Span& x, const Span& y) { return x.end < y.end; });
  }
  // The longest part of [from, to] that a single span covers.
  std::pair<int64_t, NameId> longest(int64_t from, int64_t to) const {
    std::pair<int64_t, NameId> best{0, 0};
    auto it = std::lower_bound(spans_.begin(), spans_.end(), from, [](const Span& s, int64_t t) { return s.end < t; });
    // Spans that start before `from` may cover it; the search for them is limited.
    for (size_t looked = 0; it != spans_.end() && looked < 256; ++it, ++looked) {
      const int64_t covered = std::min(it->end, to) - std::max(it->start, from);
      if (covered > best.first) best = {covered, it->name};
    }
    return best;
  }
  // A span that began before `from` and ended within [from, to]: the CPU waited in it while the device still worked.
  NameId ending(int64_t from, int64_t to) const {
    auto it = std::lower_bound(spans_.begin(), spans_.end(), from, [](const Span& s, int64_t t) { return s.end < t; });
    for (; it != spans_.end() && it->end <= to; ++it)
      if (it->start <= from + kLaunchJitter) return it->name;
    return 0;
  }

 private:
  std::vector<Span> spans_;
};

// The time within a span in which the CPU was in an operator or a call.
class Coverage {
 public:
  void add(int64_t start, int64_t end) { parts_.push_back({start, end, 0}); }
  void close() {
    std::sort(parts_.begin(), parts_.end(), [](const Span& x, const Span& y) { return x.start < y.start; });
    size_t n = 0;
    for (const Span& p : parts_) {
      if (n > 0 && p.start <= parts_[n - 1].end) parts_[n - 1].end = std::max(parts_[n - 1].end, p.end);
      else parts_[n++] = p;
    }
    parts_.resize(n);
    sums_.assign(n + 1, 0);
    for (size_t i = 0; i < n; ++i) sums_[i + 1] = sums_[i] + (parts_[i].end - parts_[i].start);
  }
  int64_t within(int64_t from, int64_t to) const { return to > from ? before(to) - before(from) : 0; }

 private:
  int64_t before(int64_t t) const {
    const auto it =
        std::upper_bound(parts_.begin(), parts_.end(), t, [](int64_t at, const Span& s) { return at < s.start; });
    if (it == parts_.begin()) return 0;
    const auto i = static_cast<size_t>(it - parts_.begin()) - 1;
    return sums_[i] + std::min(parts_[i].end, t) - parts_[i].start;
  }
  std::vector<Span> parts_;
  std::vector<int64_t> sums_;
};

class Explainer {
 public:
  explicit Explainer(const Trace& t) : t_(t) {
    // Threads that never launch also wait for the device, such as watchdogs of collectives. Only threads that launch can delay the device.
    std::set<std::pair<int32_t, uint64_t>> launching;
    for (const GpuEvent& e : t.gpu)
      if (e.call >= 0)
        launching.emplace(t.calls[static_cast<size_t>(e.call)].process, t.calls[static_cast<size_t>(e.call)].thread);
    for (const ApiCall& c : t.calls) {
      const std::string& name = t.names[c.name];
      const Span span{c.start, c.end, c.name};
      if (waits(name) && (launching.empty() || launching.count({c.process, c.thread}) != 0)) waits_.add(span);
      if (allocates(name)) allocations_.add(span);
      if (compiles(name)) compilations_.add(span);
      if (!t.own) cover_.add(c.start, c.end);
    }
    for (const CpuOp& op : t.ops) {
      const std::string& name = t.names[op.name];
      if (name.find("DataLoader") != std::string::npos) loading_.add({op.start, op.end, op.name});
      else if (compiles(name)) compilations_.add({op.start, op.end, op.name});
      if (!op.annotation) cover_.add(op.start, op.end);
    }
    for (Spans* s : {&waits_, &allocations_, &compilations_, &loading_}) s->close();
    cover_.close();
  }

  void explain(Gap& g) const {
    const int64_t length = g.end - g.start;
    if (t_.own) {
      explain_on_host(g);
      return;
    }
    const ApiCall* launch = nullptr;
    if (g.after >= 0 && t_.gpu[static_cast<size_t>(g.after)].call >= 0)
      launch = &t_.calls[static_cast<size_t>(t_.gpu[static_cast<size_t>(g.after)].call)];
    if (launch == nullptr) {
      explain_without_launch(g, length);
      return;
    }
    g.call = launch->name;
    if (launch->end <= g.start + kLaunchJitter) {
      // The kernel was in the queue already.
      g.cause = length <= kDispatchGap ? GapCause::dispatch : GapCause::dependency;
      return;
    }
    explain_by_cpu(g, g.start, std::min(g.end, std::max(g.start + 1, launch->start)));
  }

 private:
  void explain_without_launch(Gap& g, int64_t length) const {
    if (!t_.calls.empty() && g.after < 0) explain_by_cpu(g, g.start, g.end);
    else if (!t_.calls.empty() && length > kShortGap) explain_by_cpu(g, g.start, g.end);
    else g.cause = length <= kShortGap ? GapCause::unknown_short : GapCause::unknown;
  }

  static int64_t needed(const Gap& g) { return std::max<int64_t>(1, (g.end - g.start) * 3 / 10); }
  static bool covered_by(const Spans& spans, GapCause cause, Gap& g) {
    const auto [covered, name] = spans.longest(g.start, g.end);
    if (covered < needed(g)) return false;
    g.cause = cause;
    g.call = name;
    return true;
  }
  bool explained_by_spans(Gap& g) const {
    return covered_by(loading_, GapCause::data_loading, g) || covered_by(compilations_, GapCause::compilation, g) ||
           covered_by(allocations_, GapCause::allocation, g);
  }

  // A gap between two steps of the host: nothing was queued, and the trace shows all of the time.
  void explain_on_host(Gap& g) const {
    if (explained_by_spans(g) || covered_by(waits_, GapCause::synchronise, g)) return;
    g.cause = cover_.within(g.start, g.end) * 2 >= g.end - g.start ? GapCause::executor : GapCause::recording;
  }

  void explain_by_cpu(Gap& g, int64_t from, int64_t to) const {
    const int64_t need = needed(g);
    if (explained_by_spans(g)) return;
    const bool after_copy =
        g.before >= 0 && t_.gpu[static_cast<size_t>(g.before)].direction == Direction::device_to_host;
    NameId wait = waits_.ending(from - kLaunchJitter, to + kLaunchJitter);
    if (wait == 0 && waits_.longest(g.start, g.end).first >= need) wait = waits_.longest(g.start, g.end).second;
    if (wait != 0) {
      g.cause = after_copy ? GapCause::copy_to_host : GapCause::synchronise;
      g.call = wait;
      return;
    }
    const int64_t covered = cover_.within(from, to);
    if (covered * 2 >= to - from) g.cause = GapCause::launching;
    else g.cause = g.end - g.start <= kPythonGap ? GapCause::python : GapCause::unknown;
  }

  const Trace& t_;
  Spans waits_, allocations_, compilations_, loading_;
  Coverage cover_;
};

}  // namespace

const char* describe(GapCause cause) {
  switch (cause) {
    case GapCause::dispatch:
      return "the next kernel was queued already: this is the time between two kernels of a queue";
    case GapCause::dependency: return "the next kernel was queued already and waited for another stream or device";
    case GapCause::launching: return "the CPU was still in operators and launches, so it is slower than the device";
    case GapCause::python:
      return "the CPU was between operators and calls (Python, or the program's own code), then launched the next "
             "kernel";
    case GapCause::synchronise: return "the CPU had waited for the device (synchronise) and launched only then";
    case GapCause::copy_to_host:
      return "a result was copied to the host and waited for (.item(), .cpu(), print, a Python condition)";
    case GapCause::data_loading: return "the program waited for its data loader";
    case GapCause::allocation: return "device memory was allocated or freed";
    case GapCause::compilation: return "code was compiled or loaded";
    case GapCause::executor: return "PyFlame was between two steps of a program: look-up, memory, addresses";
    case GapCause::recording: return "Python ran, or ops were recorded for the next window";
    case GapCause::unknown_short: return "a short gap; the trace has no calls of the CPU that explain it";
    case GapCause::unknown: break;
  }
  return "not known: the trace shows no operator or call of the CPU at that time";
}

bool is_launch_bound(GapCause c) {
  return c == GapCause::dispatch || c == GapCause::launching || c == GapCause::python || c == GapCause::executor ||
         c == GapCause::recording || c == GapCause::unknown_short;
}

void explain_gaps(const Trace& t, Analysis& a) {
  if (a.gaps.empty()) return;
  const Explainer explainer(t);
  for (Gap& g : a.gaps) {
    explainer.explain(g);
    (is_launch_bound(g.cause) ? a.launch_us : a.idle_us) += us(g.end - g.start);
  }
}

}  // namespace pyflame::tools::profile
