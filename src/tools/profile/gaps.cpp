// Why a device was idle: derived from what the CPU did between the last kernel and the launch of the next one.
#include <algorithm>
#include <map>
#include <set>

#include "tools/profile/analyse.h"

namespace pyflame::tools::profile {

namespace {

constexpr int64_t kShortGap = 20'000, kLaunchJitter = 2'000, kPythonGap = 1'000'000, kDispatchGap = 50'000,
                  kLongCall = 200'000, kInitialisation = 100'000'000;

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
// In traces of pf.profiler: the program's thread could have run.
bool has_no_processor(const std::string& call) { return call == "no processor was free"; }
bool allocates(const std::string& call) {
  return call.starts_with("allocate from ") ||
         contains(call, {"hipMalloc", "cudaMalloc", "hipFree", "cudaFree", "hipHostMalloc", "cudaHostAlloc",
                         "hipHostRegister", "MemCreate", "MemMap"});
}
// "## Call CompiledFxGraph" and "TorchDynamo Cache Lookup" are in each run of a compiled program: they compile nothing.
// PyTorch marks the phases of a compilation with "(dynamo_timed)".
bool compiles(const std::string& name) {
  const bool phase = name.ends_with("(dynamo_timed)") && contains(name, {"compile", "codegen", "GraphLowering"});
  return phase || name == "plan program" || contains(name, {"hiprtcCompile", "nvrtcCompile"});
}
// A Python function that compiles.
bool is_compiler(const std::string& function) {
  return contains(function, {"compile_fx_inner", "triton/compiler/compiler.py"}) && !function.ends_with("__init__");
}
bool loads_code(const std::string& call) {
  return contains(call, {"ModuleLoad", "LibraryLoad", "LazyLoad", "hiprtcLink", "ModuleGetFunction"});
}
bool begins_capture(const std::string& call) { return call.find("StreamBeginCapture") != std::string::npos; }
bool ends_capture(const std::string& call) { return call.find("StreamEndCapture") != std::string::npos; }
bool makes_graph(const std::string& call) {
  return contains(call, {"GraphInstantiate", "GraphGetNodes", "GraphDestroy"});
}
bool is_copy(const ApiCall& c, const Names& names) { return names[c.name].find("Memcpy") != std::string::npos; }

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

bool is_of_pyflame(const std::string& function) { return contains(function, {"/pyflame/"}); }

// Functions of PyTorch and PyFlame that call the program's own.
bool is_wrapper(const std::string& name) {
  return is_of_pyflame(name) ||
         contains(name, {"torch/utils/_", "torch/overrides.py", "torch/nn/modules/module.py", "threading.py"});
}

// What ran for most of a time.
struct Running {
  NameId function = 0;   // the innermost one of the program
  NameId innermost = 0;  // whoever's it is
};

// What ran long on each thread, as a tree: Python functions, operators and ranges.
class Frames {
 public:
  explicit Frames(const Trace& t) : t_(t), all_(t.frames) {
    for (const CpuOp& op : t.ops)
      if (op.end - op.start >= kMinFrame && !t.names[op.name].starts_with("ProfilerStep#"))
        all_.push_back({op.start, op.end, op.name, op.process, op.thread});
    std::stable_sort(all_.begin(), all_.end(), [](const Frame& x, const Frame& y) {
      return x.start < y.start || (x.start == y.start && x.end > y.end);
    });
    for (size_t i = 0; i < all_.size(); ++i) {
      const Frame& f = all_[i];
      Thread& thread = threads_[{f.process, f.thread}];
      while (!thread.open.empty() && node_of(thread, thread.open.back()).end <= f.start) thread.open.pop_back();
      thread.parent.push_back(thread.open.empty() ? -1 : thread.open.back());
      thread.open.push_back(static_cast<int32_t>(thread.frames.size()));
      thread.frames.push_back(static_cast<int32_t>(i));
    }
  }

  // The innermost function that ran for nearly all of [from, to]; Python functions with a source file are preferred. The ends of sampled functions
  // are only known to an interval of the samples, so they need not cover as much.
  Running within(int32_t process, uint64_t thread, int64_t from, int64_t to) const {
    const auto found = threads_.find({process, thread});
    if (found == threads_.end() || to <= from) return {};
    const Thread& th = found->second;
    const int64_t middle = from + (to - from) / 2, needed = (to - from) / 10 * (t_.own ? 3 : 8);
    Running running;
    const auto after = std::upper_bound(th.frames.begin(), th.frames.end(), middle,
                                        [&](int64_t at, int32_t f) { return at < all_[static_cast<size_t>(f)].start; });
    NameId any = 0;
    for (auto i = static_cast<int32_t>(after - th.frames.begin()) - 1; i >= 0; i = th.parent[static_cast<size_t>(i)]) {
      const Frame& f = node_of(th, i);
      if (std::min(f.end, to) - std::max(f.start, from) < needed) continue;
      const std::string& name = t_.names[f.name];
      const bool python = name.find(".py(") != std::string::npos;
      if (python && running.innermost == 0) running.innermost = f.name;
      if (python && !is_wrapper(name)) {
        running.function = f.name;
        return running;
      }
      if (any == 0) any = f.name;
    }
    running.function = any;
    return running;
  }

 private:
  struct Thread {
    std::vector<int32_t> frames, parent, open;
  };
  const Frame& node_of(const Thread& thread, int32_t i) const {
    return all_[static_cast<size_t>(thread.frames[static_cast<size_t>(i)])];
  }
  const Trace& t_;
  std::vector<Frame> all_;
  std::map<std::pair<int32_t, uint64_t>, Thread> threads_;
};

class Explainer {
 public:
  explicit Explainer(const Trace& t) : t_(t), frames_(t) {
    // Threads that never launch also wait for the device, such as watchdogs of collectives. Only threads that launch can delay the device.
    std::map<std::pair<int32_t, uint64_t>, int64_t> launching;
    for (const GpuEvent& e : t.gpu)
      if (e.call >= 0)
        ++launching[{t.calls[static_cast<size_t>(e.call)].process, t.calls[static_cast<size_t>(e.call)].thread}];
    int64_t most = 0;
    for (const auto& [thread, count] : launching)
      if (count > most) {
        most = count;
        main_ = thread;
      }
    std::map<uint64_t, int64_t> captures;  // by thread, since when
    for (const ApiCall& c : t.calls) {
      const std::string& name = t.names[c.name];
      const Span span{c.start, c.end, c.name};
      if (t.own && has_no_processor(name)) {
        ready_.add(c.start, c.end);
        continue;
      }
      if (waits(name) && (launching.empty() || launching.count({c.process, c.thread}) != 0)) waits_.add(span);
      // The first call of a program initialises the runtime, whichever it is.
      if (allocates(name)) (c.end - c.start > kInitialisation ? modules_ : allocations_).add(span);
      if (compiles(name)) compilations_.add(span);
      if (loads_code(name)) modules_.add(span);
      if (makes_graph(name)) captures_.add(c.start, c.end);
      if (begins_capture(name)) captures.try_emplace(c.thread, c.start);
      if (const auto began = captures.find(c.thread); ends_capture(name) && began != captures.end()) {
        captures_.add(began->second, c.end);
        captures.erase(began);
      }
      if (!t.on_host) cover_.add(c.start, c.end);
    }
    for (const CpuOp& op : t.ops) {
      const std::string& name = t.names[op.name];
      if (name.find("DataLoader") != std::string::npos) loading_.add({op.start, op.end, op.name});
      else if (compiles(name)) compilations_.add({op.start, op.end, op.name});
      if (!op.annotation) cover_.add(op.start, op.end);
    }
    for (const Frame& f : t.frames)
      if (is_compiler(t.names[f.name])) compilations_.add({f.start, f.end, f.name});
    for (Spans* s : {&waits_, &allocations_, &compilations_, &loading_, &modules_}) s->close();
    cover_.close();
    captures_.close();
    ready_.close();
  }

  void explain(Gap& g) const {
    if (t_.on_host) {
      explain_on_host(g);
      return;
    }
    explain_by_trace(g);
    if (t_.own && g.cause == GapCause::python) g.cause = GapCause::recording;
    // Where a call is the reason, the function around it is not.
    const bool by_code = g.cause == GapCause::host_code || g.cause == GapCause::python ||
                         g.cause == GapCause::data_loading || g.cause == GapCause::loading ||
                         g.cause == GapCause::compilation;
    if (!by_code) g.frame = 0;
    // The call that launches the next kernel is not what the CPU did before.
    if (g.cause == GapCause::host_code || g.cause == GapCause::unknown || g.cause == GapCause::dependency) g.call = 0;
  }

 private:
  void explain_by_trace(Gap& g) const {
    const ApiCall* launch = nullptr;
    if (g.after >= 0 && t_.gpu[static_cast<size_t>(g.after)].call >= 0)
      launch = &t_.calls[static_cast<size_t>(t_.gpu[static_cast<size_t>(g.after)].call)];
    const auto thread = launch != nullptr ? std::pair{launch->process, launch->thread} : main_;
    const int64_t length = g.end - g.start;
    if (length > kPythonGap) g.frame = frames_.within(thread.first, thread.second, g.start, g.end).function;
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
    const int64_t inside = std::min(launch->end, g.end) - std::max(launch->start, g.start);
    if (inside * 2 >= length && length > kLongCall) {
      explain_inside(g, *launch);
      return;
    }
    explain_by_cpu(g, g.start, std::min(g.end, std::max(g.start + 1, launch->start)));
  }

  void explain_without_launch(Gap& g, int64_t length) const {
    if (!t_.calls.empty() && (g.after < 0 || length > kShortGap)) explain_by_cpu(g, g.start, g.end);
    else g.cause = length <= kShortGap ? GapCause::unknown_short : GapCause::unknown;
  }

  // The call that launched the next event took most of the gap itself.
  void explain_inside(Gap& g, const ApiCall& launch) const {
    const std::string& name = t_.names[launch.name];
    if (explained_by_spans(g)) return;
    if (is_copy(launch, t_.names)) g.cause = GapCause::unseen;
    else g.cause = name.find("Graph") != std::string::npos ? GapCause::launching : GapCause::loading;
  }

  static int64_t needed(const Gap& g) { return std::max<int64_t>(1, (g.end - g.start) / 10 * 3); }
  static bool covered_by(const Spans& spans, GapCause cause, Gap& g) {
    const auto [covered, name] = spans.longest(g.start, g.end);
    if (covered < needed(g)) return false;
    g.cause = cause;
    g.call = name;
    return true;
  }
  bool explained_by_spans(Gap& g) const {
    if (captures_.within(g.start, g.end) >= needed(g)) {
      g.cause = GapCause::capture;
      return true;
    }
    return covered_by(loading_, GapCause::data_loading, g) || covered_by(compilations_, GapCause::compilation, g) ||
           covered_by(modules_, GapCause::loading, g) || covered_by(allocations_, GapCause::allocation, g);
  }

  // Other threads and programs had the processors. What the program did in the rest of the gap does not matter then.
  bool explained_by_load(Gap& g) const {
    if (ready_.within(g.start, g.end) * 2 < g.end - g.start) return false;
    g.cause = GapCause::no_processor;
    return true;
  }

  // A gap between two steps of the host: nothing was queued, and the trace shows all of the time.
  void explain_on_host(Gap& g) const {
    if (explained_by_load(g) || explained_by_spans(g) || covered_by(waits_, GapCause::synchronise, g)) return;
    if (t_.operators) return explain_between_operators(g);
    g.cause = cover_.within(g.start, g.end) * 2 >= g.end - g.start ? GapCause::executor : GapCause::recording;
    if (g.end - g.start <= kPythonGap || t_.frames.empty()) return;
    // The steps of the CPU run on the thread that records them.
    const Frame& first = t_.frames.front();
    const Running running = frames_.within(first.process, first.thread, g.start, g.end);
    g.frame = running.function;
    if (running.innermost != 0 && !is_of_pyflame(t_.names[running.innermost])) g.cause = GapCause::host_code;
  }

  void explain_between_operators(Gap& g) const {
    const bool covered = cover_.within(g.start, g.end) * 2 >= g.end - g.start;
    g.cause = covered ? GapCause::overhead : g.end - g.start > kPythonGap ? GapCause::host_code : GapCause::between;
    if (g.cause != GapCause::host_code || t_.frames.empty()) return;
    const Frame& first = t_.frames.front();
    g.frame = frames_.within(first.process, first.thread, g.start, g.end).function;
  }

  // The CPU waited for the device. In a long gap, either the wait ended when the gap began, and then it is not what
  // the gap was spent on; or it lasted, and then the CPU waited for something that the trace does not have.
  bool explained_by_wait(Gap& g, int64_t from, int64_t to) const {
    const int64_t length = g.end - g.start;
    const auto [covered, name] = waits_.longest(g.start, g.end);
    if (length > kPythonGap) {
      if (covered * 2 < length) return false;
      g.cause = GapCause::unseen;
      g.call = name;
      return true;
    }
    NameId wait = waits_.ending(from - kLaunchJitter, to + kLaunchJitter);
    if (wait == 0 && covered >= needed(g)) wait = name;
    if (wait == 0) return false;
    const bool after_copy =
        g.before >= 0 && t_.gpu[static_cast<size_t>(g.before)].direction == Direction::device_to_host;
    g.cause = after_copy ? GapCause::copy_to_host : GapCause::synchronise;
    g.call = wait;
    return true;
  }

  void explain_by_cpu(Gap& g, int64_t from, int64_t to) const {
    if (explained_by_load(g) || explained_by_spans(g) || explained_by_wait(g, from, to)) return;
    const bool covered = cover_.within(from, to) * 2 >= to - from;
    if (g.end - g.start <= kPythonGap) g.cause = covered ? GapCause::launching : GapCause::python;
    else g.cause = covered || g.frame != 0 ? GapCause::host_code : GapCause::unknown;
  }

  const Trace& t_;
  Frames frames_;
  std::pair<int32_t, uint64_t> main_;  // the thread that launches most
  Spans waits_, allocations_, compilations_, loading_, modules_;
  Coverage cover_, captures_, ready_;
};

}  // namespace

const char* describe(GapCause cause, bool operators) {
  if (operators && cause == GapCause::host_code) return "Python, or the program's own code, ran for more than 1 ms";
  switch (cause) {
    case GapCause::dispatch:
      return "the next kernel was queued already: this is the time between two kernels of a queue";
    case GapCause::dependency:
      return "the next kernel was queued already and waited: for another stream or device, or for work that the trace "
             "does not have";
    case GapCause::launching: return "the CPU was still in operators and launches, so it is slower than the device";
    case GapCause::python:
      return "the CPU was between operators and calls (Python, or the program's own code), then launched the next "
             "kernel";
    case GapCause::synchronise: return "the CPU had waited for the device (synchronise) and launched only then";
    case GapCause::copy_to_host:
      return "a result was copied to the host and waited for (.item(), .cpu(), print, a Python condition)";
    case GapCause::data_loading: return "the program waited for its data loader";
    case GapCause::allocation: return "device memory was allocated or freed";
    case GapCause::host_code:
      return "the CPU ran other code for more than 1 ms (Python, or operators on the CPU), and launched only then";
    case GapCause::compilation: return "code was compiled";
    case GapCause::loading:
      return "code was loaded onto the device (a module, the first launch of a kernel, the start of the runtime)";
    case GapCause::capture: return "a graph was captured: its kernels are recorded and do not run";
    case GapCause::unseen:
      return "the CPU waited in a call, but the trace has no work of the device then: it may be of another process, "
             "or from before the recording";
    case GapCause::executor: return "PyFlame was between two steps of a program: look-up, memory, addresses";
    case GapCause::recording: return "Python ran, or ops were recorded for the next window";
    case GapCause::overhead: return "an operator or autograd prepared others: dispatch, views, allocation";
    case GapCause::between: return "Python, or the program's own code, ran between two operators";
    case GapCause::no_processor:
      return "no processor was free for the program's thread: other programs, or its own threads, had all of them";
    case GapCause::unknown_short: return "a short gap; the trace has no calls of the CPU that explain it";
    case GapCause::unknown: break;
  }
  return "not known: the trace shows no operator or call of the CPU at that time";
}

bool is_launch_bound(GapCause c) {
  return c == GapCause::dispatch || c == GapCause::launching || c == GapCause::python || c == GapCause::executor ||
         c == GapCause::recording || c == GapCause::overhead || c == GapCause::between || c == GapCause::unknown_short;
}

bool has_capture(const Trace& t) {
  return std::any_of(t.calls.begin(), t.calls.end(), [&](const ApiCall& c) { return begins_capture(t.names[c.name]); });
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
