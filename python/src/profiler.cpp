// The core of pyflame.profiler: recordings and named ranges. python/pyflame/profiler has the interface for users.
#include "pyflame/runtime/profiler.h"

#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "casters.h"
#include "label_args.h"
#include "pyflame/runtime/markers.h"
#include "pyflame/runtime/memory_trace.h"

namespace pyflame::python {

std::string args_of(const std::string& members, const std::string& place) {
  nlohmann::json d = nlohmann::json::parse("{" + members + "}");
  if (!place.empty()) d["recorded at"] = place;
  return d.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

namespace {

double microseconds(int64_t ns) { return static_cast<double>(ns) / 1000; }

nb::list events_list(const events::Recording& r) {
  std::vector<std::string> args;
  for (const events::LabelText& label : r.labels) args.push_back(args_of(label.args, label.place));
  nb::list out;
  for (const events::Event& e : r.events) {
    const events::LabelText& label = r.labels[e.label];
    nb::dict d;
    d["name"] = label.name;
    d["kind"] = events::kind_name(e.kind);
    d["start"] = microseconds(e.start - r.start);
    d["end"] = microseconds(e.end - r.start);
    d["thread"] = e.thread;
    d["flow"] = e.flow;
    d["value"] = e.value;
    d["work"] = label.work;
    d["bytes"] = label.bytes;
    d["flops"] = label.flops;
    d["device"] = profiler::device_name(label.device);
    d["args"] = args[e.label];
    out.append(d);
  }
  return out;
}

nb::list averages_list(const events::Recording& r, bool by_shapes, bool by_place) {
  std::vector<profiler::Average> all;
  {
    Unlocked u;
    all = profiler::averages(r, by_shapes, by_place);
  }
  nb::list out;
  for (const profiler::Average& a : all) {
    nb::dict d;
    d["key"] = a.name;
    d["kind"] = events::kind_name(a.kind);
    d["work"] = a.work;
    d["args"] = args_of(a.args, a.place);
    d["count"] = a.count;
    d["cpu_time_total"] = microseconds(a.total_ns);
    d["self_cpu_time_total"] = microseconds(a.self_ns);
    d["device_time_total"] = microseconds(a.device_ns);
    d["self_device_time_total"] = microseconds(a.self_device_ns);
    d["first_time"] = microseconds(a.first_ns);
    d["bytes"] = a.bytes;
    d["flops"] = a.flops;
    out.append(d);
  }
  return out;
}

// Sends SIGPROF to the thread that made it, at regular times. Python's handler then runs between two instructions of the program. A thread of Python
// could not do this: it would run when the program gives up the interpreter's lock, so it would see the same places again and again.
class Ticker {
 public:
  explicit Ticker(double seconds)
      : thread_([this, wait = std::chrono::duration<double>(seconds), target = pthread_self()] {
          std::unique_lock lock(mutex_);
          while (!changed_.wait_for(lock, wait, [this] { return stopped_; })) pthread_kill(target, SIGPROF);
        }) {}
  ~Ticker() { stop(); }
  Ticker(const Ticker&) = delete;
  Ticker& operator=(const Ticker&) = delete;

  void stop() {
    {
      std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopped_ = false;
  std::thread thread_;  // the last member: it uses the others
};

// Ranges for the vendors' profilers. Those that a program pushes by itself need a library, and no switch.
void bind_markers(nb::module_& m) {
  m.def("_markers_on", &markers::on);
  m.def("_markers_emit", &markers::emit, "on"_a);
  m.def("_markers_open", [] {
    std::vector<std::string> names;
    if (markers::open_libraries())
      for (const markers::Sink& s : markers::sinks()) names.push_back(s.name);
    return names;
  });
  m.def("_markers_follow_environment", &markers::follow_environment);
  m.def("_marker_push",
        [](const std::string& name) { return markers::open_libraries() ? markers::push(name.c_str()) : -1; });
  m.def("_marker_pop", [] { return markers::open_libraries() ? markers::pop() : -1; });
  m.def("_marker_mark", [](const std::string& name) {
    if (markers::open_libraries()) markers::mark(name.c_str());
  });
  m.def("_marker_start",
        [](const std::string& name) { return markers::open_libraries() ? markers::start(name.c_str()) : 0; });
  m.def("_marker_stop", &markers::stop);
}

// The allocator's log: (ns, address, bytes, cached bytes, device, use); a negative number of bytes was freed. The use
// "plan" is no block: the bytes of the arena that the program which runs now uses.
nb::list memory_entries() {
  nb::list out;
  for (const memory_trace::Entry& e : memory_trace::stop())
    out.append(nb::make_tuple(e.at, e.block, e.bytes, e.cached, has_own_memory(e.device.type) ? e.device.str() : "cpu",
                              e.plan ? "plan" : kMemoryUses[static_cast<size_t>(e.use)]));
  return out;
}

// (address, bytes) of a tensor's block; None if it has none, or its memory is not the allocator's.
nb::object block_of(const Tensor& t) {
  const Storage& s = *t.storage();
  if (!s.owned_by_allocator || s.data == nullptr) return nb::none();
  return nb::make_tuple(reinterpret_cast<uint64_t>(s.data), block_bytes(s.device, s.nbytes));
}

void bind_memory_trace(nb::module_& m) {
  m.def("_memory_trace_start", &memory_trace::start, "most"_a);
  m.def("_memory_trace_stop", &memory_entries);
  m.def("_block_of", &block_of, "tensor"_a);
}

}  // namespace

void bind_profiler(nb::module_& m) {
  nb::class_<events::Recording>(m, "_Recording", "What a profile recorded.")
      .def("events", &events_list)
      .def("averages", &averages_list, "by_shapes"_a, "by_place"_a)
      .def("write",
           [](const events::Recording& r, const nb::callable& sink, const std::string& further) {
             profiler::write_chrome_trace(
                 r, [&](std::string_view piece) { sink(nb::bytes(piece.data(), piece.size())); }, further);
           })
      .def_ro("start", &events::Recording::start)
      .def_ro("dropped", &events::Recording::dropped)
      .def_prop_ro("microseconds", [](const events::Recording& r) { return microseconds(r.end - r.start); });
  m.def(
      "_profiler_start",
      [](size_t max_events, bool device_times) {
        Unlocked u;
        profiler::start({max_events, device_times});
      },
      "max_events"_a, "device_times"_a);
  m.def("_profiler_stop", [] {
    Unlocked u;
    return profiler::stop();
  });
  nb::class_<Ticker>(m, "_Ticker", "Sends SIGPROF to this thread regularly.")
      .def(nb::init<double>(), "seconds"_a)
      .def("stop", &Ticker::stop);
  m.def("_profiler_on", &events::on);
  m.def("_profiler_now", &events::now);
  m.def("_profiler_thread", &events::thread);
  m.def("_profiler_track", &events::new_track, "name"_a);
  // A Python function that was on the stack of a thread.
  m.def("_profiler_frame", [](const std::string& name, uint32_t track, int64_t start, int64_t end) {
    if (events::on()) events::add_on(track, events::Kind::Frame, events::label(name), start, end);
  });
  // No processor was free for the thread.
  m.def("_profiler_ready", [](uint32_t track, int64_t start, int64_t end) {
    if (events::on()) events::add_on(track, events::Kind::Ready, events::label("no processor was free"), start, end);
  });
  // The start of a range, for _range_end; None if nothing is recorded or passed on.
  m.def("_range_begin", [](const std::string& name) -> nb::object {
    const bool pushed = markers::on();
    if (pushed) markers::push(name.c_str());
    if (!events::on()) return pushed ? nb::object(nb::make_tuple(0, 0, 0, true)) : nb::none();
    const events::Label l = events::label(name);
    return nb::make_tuple(l.recording, l.id, events::now(), pushed);
  });
  m.def("_range_end", [](uint32_t recording, uint32_t id, int64_t start, bool pushed) {
    if (pushed) markers::pop();
    if (recording) events::add(events::Kind::Range, {recording, id}, start, events::now());
  });
  bind_markers(m);
  bind_memory_trace(m);
}

}  // namespace pyflame::python
