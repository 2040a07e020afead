// Makes totals and traces from the log of events. The trace has two tracks per thread: what the thread did, and the
// windows that it recorded. Windows have their own track because spans of one track must nest, and a window begins and
// ends anywhere.
#include "pyflame/runtime/profiler.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <unordered_map>

#include "pyflame/record/recorder.h"
#include "pyflame/runtime/allocator.h"
#include "pyflame/runtime/device.h"
#include "pyflame/version.h"

namespace pyflame::profiler {

using events::Event;
using events::Kind;
using events::LabelText;
using events::Recording;

namespace {

constexpr size_t kPiece = size_t{1} << 20;
constexpr uint32_t kWindowTrack = 100'000;
constexpr int32_t kLaunches = 10'000;  // added to a device whose times are the host's launches

// By thread; outer spans come before the spans inside them.
bool outer_first(const Event& a, const Event& b) {
  return std::tuple(a.thread, a.start, -a.end) < std::tuple(b.thread, b.start, -b.end);
}

std::string quoted(const std::string& s) {
  return nlohmann::json(s).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// The category of a span, for tools that read traces of other frameworks.
const char* category_of(Kind k) {
  switch (k) {
    case Kind::Range: return "user_annotation";
    case Kind::Step: return "kernel";
    case Kind::Launch: return "launch";
    case Kind::Wait: return "wait";
    case Kind::Allocate: return "allocation";
    case Kind::Plan: return "plan";
    case Kind::Window: return "window";
    default: return "cpu_op";
  }
}

class Writer {
 public:
  Writer(const Recording& r, const std::function<void(std::string_view)>& sink) : r_(r), sink_(sink) {}

  void write() {
    head();
    names();
    // Viewers nest spans that begin at the same instant in the order of the file.
    std::vector<Event> events = r_.events;
    std::stable_sort(events.begin(), events.end(), outer_first);
    for (const Event& e : events) event(e);
    out_ += "\n]}\n";
    sink_(out_);
  }

 private:
  double us(int64_t ns) const { return static_cast<double>(ns - r_.start) / 1000; }

  void head() {
    out_ += fmt::format(
        "{{\"pyflame\":{{\"version\":\"{}\",\"device_times\":{},\"dropped\":{}}},\"schemaVersion\":1,"
        "\"displayTimeUnit\":\"ms\",\"baseTimeNanoseconds\":{},\"deviceProperties\":[",
        PYFLAME_VERSION, r_.device_times, r_.dropped, r_.start);
    std::set<int32_t> devices;
    for (const Event& e : r_.events)
      if (e.kind == Kind::Step || e.kind == Kind::Launch) devices.insert(key_of(e));
    bool first = true;
    for (const int32_t d : devices) {
      out_ += fmt::format("{}{{\"id\":{},\"name\":{}}}", first ? "" : ",", d, quoted(device_name(d)));
      first = false;
    }
    out_ += "],\"traceEvents\":[\n";
    out_ +=
        fmt::format("{{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":{},\"args\":{{\"name\":\"PyFlame\"}}}}", pid_);
  }

  int32_t key_of(const Event& e) const {
    const int32_t device = r_.labels[e.label].device;
    return e.kind == Kind::Launch ? device + kLaunches : device;
  }

  void names() {
    for (size_t t = 0; t < r_.threads.size(); ++t) {
      name(static_cast<uint32_t>(t), r_.threads[t], 2 * t);
      name(kWindowTrack + static_cast<uint32_t>(t), fmt::format("thread {}: windows recorded", t), 2 * t + 1);
    }
  }
  void name(uint32_t track, const std::string& text, size_t order) {
    out_ += fmt::format(
        ",\n{{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":{0},\"tid\":{1},\"args\":{{\"name\":{2}}}}},\n"
        "{{\"ph\":\"M\",\"name\":\"thread_sort_index\",\"pid\":{0},\"tid\":{1},\"args\":{{\"sort_index\":{3}}}}}",
        pid_, track, quoted(text), order);
  }

  void event(const Event& e) {
    const LabelText& label = r_.labels[e.label];
    if (e.kind == Kind::Memory) {
      out_ += fmt::format(",\n{{\"ph\":\"C\",\"name\":{},\"pid\":{},\"ts\":{:.3f},\"args\":{{\"bytes\":{}}}}}",
                          quoted(label.name), pid_, us(e.start), e.value);
      flush();
      return;
    }
    const uint32_t track = e.kind == Kind::Window ? kWindowTrack + e.thread : e.thread;
    std::string args = label.args;
    const auto also = [&args](const std::string& more) { args += (args.empty() ? "" : ",") + more; };
    if (e.kind == Kind::Step || e.kind == Kind::Launch) {
      also(fmt::format("\"work\":{},\"bytes\":{},\"device\":{},\"stream\":{}", quoted(label.work), label.bytes,
                       key_of(e), e.thread));
      if (label.flops > 0) also(fmt::format("\"flops\":{:.0f}", label.flops));
    } else if (e.kind == Kind::Allocate) {
      also(fmt::format("\"bytes\":{}", e.value));
    } else if (e.kind == Kind::Window) {
      also(fmt::format("\"ops\":{}", e.value));
    }
    out_ += fmt::format(
        ",\n{{\"ph\":\"X\",\"cat\":\"{}\",\"name\":{},\"pid\":{},\"tid\":{},\"ts\":{:.3f},\"dur\":{:.3f},"
        "\"args\":{{{}}}}}",
        category_of(e.kind), quoted(label.name), pid_, track, us(e.start), static_cast<double>(e.end - e.start) / 1000,
        args);
    if (e.flow != 0 && e.kind == Kind::Window)
      out_ += fmt::format(
          ",\n{{\"ph\":\"s\",\"cat\":\"window\",\"name\":\"cut\",\"id\":{},\"pid\":{},\"tid\":{},\"ts\":{:.3f}}}",
          e.flow, pid_, track, us(std::max(e.start, e.end - 1)));
    if (e.flow != 0 && e.kind == Kind::Run)
      out_ += fmt::format(
          ",\n{{\"ph\":\"f\",\"bp\":\"e\",\"cat\":\"window\",\"name\":\"cut\",\"id\":{},\"pid\":{},\"tid\":{},"
          "\"ts\":{:.3f}}}",
          e.flow, pid_, track, us(e.start));
    flush();
  }

  void flush() {
    if (out_.size() < kPiece) return;
    sink_(out_);
    out_.clear();
  }

  const Recording& r_;
  const std::function<void(std::string_view)>& sink_;
  const int pid_ = static_cast<int>(getpid());
  std::string out_;
};

}  // namespace

std::string device_name(int32_t device) {
  const bool launches = device >= kLaunches;
  const int32_t id = device % kLaunches;
  const Device d{static_cast<DeviceType>(id / 100), static_cast<int8_t>(id % 100)};
  return (launches ? "launches of " : "") + d.str();
}

void start(const events::Options& options) {
  synchronize();
  events::start(options);
}

Recording stop() {
  try {
    synchronize();
  } catch (...) {
    (void)events::stop();
    throw;
  }
  return events::stop();
}

std::vector<Average> averages(const Recording& r, bool by_shapes) {
  std::vector<const Event*> spans;
  for (const Event& e : r.events)
    if (e.kind != Kind::Window && e.kind != Kind::Memory) spans.push_back(&e);
  std::stable_sort(spans.begin(), spans.end(), [](const Event* a, const Event* b) { return outer_first(*a, *b); });
  std::vector<int64_t> self(spans.size());
  std::vector<size_t> open;  // the spans around the current one
  for (size_t i = 0; i < spans.size(); ++i) {
    const Event& e = *spans[i];
    while (!open.empty() && (spans[open.back()]->thread != e.thread || spans[open.back()]->end <= e.start))
      open.pop_back();
    self[i] = e.end - e.start;
    if (!open.empty()) self[open.back()] -= std::min(e.end, spans[open.back()]->end) - e.start;
    open.push_back(i);
  }
  std::map<std::tuple<Kind, std::string, std::string>, Average> groups;
  std::unordered_map<uint64_t, Average*> known;  // by label and kind
  for (size_t i = 0; i < spans.size(); ++i) {
    const Event& e = *spans[i];
    const LabelText& label = r.labels[e.label];
    Average*& a = known[uint64_t{e.label} << 8 | static_cast<uint64_t>(e.kind)];
    if (!a) {
      a = &groups[{e.kind, label.name, by_shapes ? label.args : std::string()}];
      a->name = label.name;
      a->kind = e.kind;
      a->work = label.work;
      if (by_shapes) a->args = label.args;
    }
    ++a->count;
    a->total_ns += e.end - e.start;
    a->self_ns += self[i];
    a->bytes += e.kind == Kind::Allocate ? e.value : label.bytes;
    a->flops += label.flops;
  }
  std::vector<Average> out;
  for (auto& [key, a] : groups) out.push_back(std::move(a));
  std::stable_sort(out.begin(), out.end(), [](const Average& a, const Average& b) { return a.self_ns > b.self_ns; });
  return out;
}

void write_chrome_trace(const Recording& r, const std::function<void(std::string_view)>& sink) {
  Writer(r, sink).write();
}

}  // namespace pyflame::profiler
