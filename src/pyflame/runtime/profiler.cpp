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

#include "pyflame/base/fallbacks.h"
#include "pyflame/record/recorder.h"
#include "pyflame/runtime/allocator.h"
#include "pyflame/runtime/device.h"
#include "pyflame/runtime/device_times.h"
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

// Whether it is the device's time of a step.
bool of_device(const Recording& r, const Event& e) {
  return e.kind == Kind::Step && e.flow != 0 && r.labels[e.label].device != 0;
}

std::string quoted(const std::string& s) {
  return nlohmann::json(s).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// The category of a span, for tools that read traces of other frameworks. A launch is a kernel where the device's times are not known.
const char* category_of(Kind k, bool device_times) {
  switch (k) {
    case Kind::Range: return "user_annotation";
    case Kind::Step: return "kernel";
    case Kind::Launch: return device_times ? "runtime" : "launch";
    case Kind::Frame: return "python_function";
    case Kind::Ready: return "ready";
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

  void write(std::string_view further) {
    head();
    names();
    // Viewers nest spans that begin at the same instant in the order of the file.
    std::vector<Event> events = r_.events;
    std::stable_sort(events.begin(), events.end(), outer_first);
    for (const Event& e : events) event(e);
    out_ += further;
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
      if (is_work(e)) devices.insert(key_of(e));
    bool first = true;
    for (const int32_t d : devices) {
      out_ += fmt::format("{}{{\"id\":{},\"name\":{}}}", first ? "" : ",", d, quoted(own_name(d)));
      first = false;
    }
    out_ += "],";
    if (r_.job.size > 1)
      out_ += fmt::format("\"distributedInfo\":{{\"rank\":{},\"world_size\":{}}},", r_.job.rank, r_.job.size);
    out_ += "\"traceEvents\":[\n";
    out_ +=
        fmt::format("{{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":{},\"args\":{{\"name\":\"PyFlame\"}}}}", pid_);
    for (const std::string& f : r_.fallbacks)
      out_ += fmt::format(",\n{{\"ph\":\"M\",\"name\":\"fallback\",\"pid\":{},\"args\":{{\"fallback\":{}}}}}", pid_,
                          quoted(f));
  }

  // Whether it stands for what a device does.
  bool is_work(const Event& e) const { return e.kind == Kind::Step || (e.kind == Kind::Launch && !r_.device_times); }

  // Of a GPU whose times were recorded, the name of the product, by which the report knows its speed.
  std::string own_name(int32_t key) const {
    const bool gpu = r_.device_times && key >= 100;
    return gpu ? device_info({static_cast<DeviceType>(key / 100), static_cast<int8_t>(key % 100)}).name
               : device_name(key);
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
    if (!label.place.empty()) also("\"recorded at\":" + quoted(label.place));
    if (is_work(e)) {
      also(fmt::format("\"work\":{},\"bytes\":{},\"device\":{},\"stream\":{}", quoted(label.work), label.bytes,
                       key_of(e), e.thread));
      if (label.flops > 0) also(fmt::format("\"flops\":{:.0f}", label.flops));
      if (of_device(r_, e)) also(fmt::format("\"correlation\":{}", e.flow));
      else if (e.flow != 0 && e.kind == Kind::Step) also(fmt::format("\"Seq\":{}", e.flow));
      if (e.value == 1) also("\"time\":\"a share of the replay's\"");
    } else if (e.kind == Kind::Launch) {
      also(fmt::format("\"correlation\":{}", e.flow));
    } else if (e.kind == Kind::Allocate) {
      also(fmt::format("\"bytes\":{}", e.value));
    } else if (e.kind == Kind::Window) {
      also(fmt::format("\"ops\":{}", e.value));
    }
    out_ += fmt::format(
        ",\n{{\"ph\":\"X\",\"cat\":\"{}\",\"name\":{},\"pid\":{},\"tid\":{},\"ts\":{:.3f},\"dur\":{:.3f},"
        "\"args\":{{{}}}}}",
        category_of(e.kind, r_.device_times), quoted(label.name), pid_, track, us(e.start),
        static_cast<double>(e.end - e.start) / 1000, args);
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

void log_memory(Device device) {
  const int64_t now = events::now();
  events::add(events::Kind::Memory, events::label("memory of " + device.str()), now, now,
              static_cast<int64_t>(memory_stats(device).allocated));
}

namespace {
std::vector<Fallback> g_before;  // the ledger of fallbacks when the recording began; one recording runs at a time
}

void start(const events::Options& options) {
  synchronize();
  events::start(options);
  g_before = fallbacks();
  std::set<int32_t> seen;
  for (const Device d : {Device{}, current_device()})
    if (seen.insert(static_cast<int32_t>(d.type) * 100 + d.index).second) log_memory(d);
}

Recording stop() {
  try {
    synchronize();
    add_device_times();
  } catch (...) {
    forget_device_times();
    (void)events::stop();
    throw;
  }
  Recording r = events::stop();
  for (const Fallback& f : fallbacks_since(g_before)) r.fallbacks.push_back(describe_fallback(f));
  return r;
}

namespace {

// The spans of the host by thread, with what each of them contains.
struct Nested {
  const Event* event;
  int64_t self_ns, device_ns;
};

std::vector<Nested> nested_spans(const Recording& r) {
  std::unordered_map<uint32_t, int64_t> device_ns;  // by the flow of the launch
  std::vector<Nested> spans;
  for (const Event& e : r.events) {
    if (e.kind == Kind::Window || e.kind == Kind::Memory || e.kind == Kind::Frame || e.kind == Kind::Ready) continue;
    if (of_device(r, e)) device_ns[e.flow] += e.end - e.start;
    else spans.push_back({&e, e.end - e.start, 0});
  }
  std::stable_sort(spans.begin(), spans.end(),
                   [](const Nested& a, const Nested& b) { return outer_first(*a.event, *b.event); });
  std::vector<size_t> open;  // the spans around the current one
  for (size_t i = 0; i < spans.size(); ++i) {
    const Event& e = *spans[i].event;
    const auto contains = [&](size_t k) { return spans[k].event->thread == e.thread && spans[k].event->end > e.start; };
    while (!open.empty() && !contains(open.back())) open.pop_back();
    if (!open.empty()) spans[open.back()].self_ns -= std::min(e.end, spans[open.back()].event->end) - e.start;
    open.push_back(i);
    const auto ran = e.kind == Kind::Launch ? device_ns.find(e.flow) : device_ns.end();
    if (ran == device_ns.end()) continue;
    for (const size_t k : open) spans[k].device_ns += ran->second;
  }
  return spans;
}

// The rows of a table.
class Totals {
 public:
  Totals(const Recording& r, bool by_shapes, bool by_place) : r_(r), by_shapes_(by_shapes), by_place_(by_place) {}

  Average& row(const Event& e) {
    const LabelText& label = r_.labels[e.label];
    const Kind kind = e.kind == Kind::Launch && r_.device_times ? Kind::Step : e.kind;
    Average*& a = known_[uint64_t{e.label} << 8 | static_cast<uint64_t>(kind)];
    if (!a) {
      const std::string args = by_shapes_ ? label.args : "", place = by_place_ ? label.place : "";
      a = &rows_[{kind, label.name, args, place}];
      a->name = label.name;
      a->kind = kind;
      a->work = label.work;
      a->args = args;
      a->place = place;
    }
    return *a;
  }
  void count(Average& a, const Event& e) {
    ++a.count;
    if (e.start < a.first_start) {
      a.first_start = e.start;
      a.first_ns = e.end - e.start;
    }
    a.bytes += e.kind == Kind::Allocate ? e.value : r_.labels[e.label].bytes;
    a.flops += r_.labels[e.label].flops;
  }
  std::vector<Average> sorted() {
    std::vector<Average> out;
    for (auto& [key, a] : rows_) out.push_back(std::move(a));
    std::stable_sort(out.begin(), out.end(), [](const Average& a, const Average& b) {
      return std::tuple(a.self_device_ns, a.self_ns) > std::tuple(b.self_device_ns, b.self_ns);
    });
    return out;
  }

 private:
  const Recording& r_;
  const bool by_shapes_, by_place_;
  std::map<std::tuple<Kind, std::string, std::string, std::string>, Average> rows_;
  std::unordered_map<uint64_t, Average*> known_;  // by label and kind
};

}  // namespace

std::vector<Average> averages(const Recording& r, bool by_shapes, bool by_place) {
  Totals totals(r, by_shapes, by_place);
  std::set<std::pair<uint32_t, uint32_t>> timed;  // flow and label of launches that have their step's time
  for (const Event& e : r.events) {
    if (!of_device(r, e)) continue;
    timed.emplace(e.flow, e.label);
    Average& a = totals.row(e);
    totals.count(a, e);
    a.device_ns += e.end - e.start;
    a.self_device_ns += e.end - e.start;
  }
  for (const Nested& n : nested_spans(r)) {
    Average& a = totals.row(*n.event);
    a.total_ns += n.event->end - n.event->start;
    a.self_ns += n.self_ns;
    const bool counted = n.event->kind == Kind::Launch && timed.contains({n.event->flow, n.event->label});
    if (counted) continue;
    totals.count(a, *n.event);
    a.device_ns += n.device_ns;
  }
  return totals.sorted();
}

void write_chrome_trace(const Recording& r, const std::function<void(std::string_view)>& sink,
                        std::string_view further) {
  Writer(r, sink).write(further);
}

}  // namespace pyflame::profiler
