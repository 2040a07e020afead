// The core of pyflame.profiler: recordings and named ranges. python/pyflame/profiler.py has the interface for users.
#include "pyflame/runtime/profiler.h"

#include "casters.h"

namespace pyflame::python {

namespace {

double microseconds(int64_t ns) { return static_cast<double>(ns) / 1000; }

nb::list events_list(const events::Recording& r) {
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
    d["args"] = "{" + label.args + "}";
    out.append(d);
  }
  return out;
}

nb::list averages_list(const events::Recording& r, bool by_shapes) {
  std::vector<profiler::Average> all;
  {
    Unlocked u;
    all = profiler::averages(r, by_shapes);
  }
  nb::list out;
  for (const profiler::Average& a : all) {
    nb::dict d;
    d["key"] = a.name;
    d["kind"] = events::kind_name(a.kind);
    d["work"] = a.work;
    d["args"] = "{" + a.args + "}";
    d["count"] = a.count;
    d["cpu_time_total"] = microseconds(a.total_ns);
    d["self_cpu_time_total"] = microseconds(a.self_ns);
    d["bytes"] = a.bytes;
    d["flops"] = a.flops;
    out.append(d);
  }
  return out;
}

}  // namespace

void bind_profiler(nb::module_& m) {
  nb::class_<events::Recording>(m, "_Recording", "What a profile recorded.")
      .def("events", &events_list)
      .def("averages", &averages_list, "by_shapes"_a)
      .def("write",
           [](const events::Recording& r, const nb::callable& sink) {
             profiler::write_chrome_trace(r,
                                          [&](std::string_view piece) { sink(nb::bytes(piece.data(), piece.size())); });
           })
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
  m.def("_profiler_on", &events::on);
  // The start of a range, for _range_end; None if nothing is recorded.
  m.def("_range_begin", [](const std::string& name) -> nb::object {
    if (!events::on()) return nb::none();
    const events::Label l = events::label(name);
    return nb::make_tuple(l.recording, l.id, events::now());
  });
  m.def("_range_end", [](uint32_t recording, uint32_t id, int64_t start) {
    events::add(events::Kind::Range, {recording, id}, start, events::now());
  });
}

}  // namespace pyflame::python
