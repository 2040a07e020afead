// The core of pf.explain: what was found, as lists and dicts. python/pyflame/_explain has the interface for users.
#include "pyflame/runtime/explain.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "casters.h"
#include "label_args.h"
#include "pyflame/base/gpu_peaks.h"
#include "pyflame/base/location.h"
#include "pyflame/compile/choices.h"
#include "pyflame/compile/fusion_ends.h"
#include "pyflame/compile/rewrites.h"
#include "pyflame/compile/work.h"
#include "pyflame/record/cut_cause.h"
#include "pyflame/runtime/device.h"
#include "pyflame/runtime/profiler.h"

namespace pyflame::python {

namespace {

std::string place_of(const Node& n) { return n.loc.code ? describe_location(n.loc) : std::string(); }

nb::dict end_dict(const Program& p, const FusionEnd& e) {
  const Node &writer = p.graph.nodes[e.writer], &reader = p.graph.nodes[e.reader];
  nb::dict d;
  d["from"] = e.from;
  d["writer"] = std::string(op_name(writer.op));
  d["writer_place"] = place_of(writer);
  d["reader"] = std::string(op_name(reader.op));
  d["place"] = place_of(reader);
  d["why"] = e.why;
  d["saves"] = e.saves;
  return d;
}

nb::dict step_dict(const Program& p, size_t k) {
  const Step& step = p.steps[k];
  const GroupWork work = work_of(p.graph, step.group);
  const events::LabelText label = profiler::text_of(p, step);
  nb::dict d;
  d["title"] = describe_step(p, k);
  d["lines"] = describe_members(p, k);
  d["impl"] = step.impl;
  // As the tuning database names them.
  const Problem problem{p.graph, step.group};
  d["op"] = std::string(op_name(problem.root().op));
  d["problem"] = problem_key(problem);
  d["entry"] = step.impl + (step.configuration.empty() ? std::string() : ":" + step.configuration);
  d["place"] = label.place;
  d["work"] = std::string(work_name(work.kind));
  d["bytes"] = work.bytes;
  d["flops"] = work.flops;
  d["dtype"] = std::string(dtype_name(work.dtype));
  // With these a profile's rows are found.
  d["name"] = label.name;
  d["args"] = args_of(label.args, "");
  d["ends"] = nb::list();
  return d;
}

nb::list notes_list(const Explained::Run& run) {
  nb::list notes;
  for (const RewriteNote& n : run.notes) {
    nb::dict d;
    d["rewrite"] = std::string(rewrite_info(n.rewrite).name);
    d["fired"] = n.fired;
    d["place"] = place_of(run.program->graph.nodes[n.at]);
    d["text"] = n.text;
    notes.append(d);
  }
  return notes;
}

nb::dict program_dict(const Explained::Run& run) {
  const Program& p = *run.program;
  nb::list steps;
  for (size_t k = 0; k < p.steps.size(); ++k) steps.append(step_dict(p, k));
  for (const FusionEnd& e : fusion_ends(p)) nb::cast<nb::list>(steps[e.to]["ends"]).append(end_dict(p, e));
  nb::dict d;
  d["runs"] = run.count;
  d["device"] = p.graph.device.str();
  d["totals"] = describe_totals(p);
  d["ops"] = count_ops(p.graph);
  d["replay"] = run.replay;
  d["steps"] = steps;
  d["rewrites"] = notes_list(run);
  return d;
}

nb::dict window_dict(const Explained::Window& w) {
  nb::dict d;
  d["program"] = w.program;
  d["reason"] = w.reason;
  d["cause"] = w.cause;
  d["place"] = w.place;
  d["last_op"] = w.last_op;
  d["cached"] = w.cached;
  d["plan_us"] = w.plan_us;
  d["count"] = w.count;
  d["saves"] = w.saves;
  d["across"] = w.across;
  return d;
}

nb::dict explained_dict(const Explained& x) {
  nb::list programs, windows;
  for (const Explained::Run& run : x.programs) programs.append(program_dict(run));
  for (const Explained::Window& w : x.windows) windows.append(window_dict(w));
  nb::dict d;
  d["programs"] = programs;
  d["windows"] = windows;
  d["order"] = x.order;
  d["total"] = x.total;
  d["left_out"] = x.left_out;
  return d;
}

constexpr const char* kEightBits[] = {"int8", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"};

// Whether a device has units for products of a dtype. A CPU has none for 8-bit floats, and its vector units take the others. A GPU's vector units take all but those of 8 bits, which
// need matrix cores. An architecture that is not known counts as one that has them.
bool has_units(nb::handle device, const std::string& dtype) {
  if (std::find(std::begin(kEightBits), std::end(kEightBits), dtype) == std::end(kEightBits)) return true;
  const Device d = device_from(device);
  if (!has_own_memory(d.type)) return dtype == "int8";
  const GpuArch* arch = find_gpu_arch(device_info(d).architecture);
  return arch == nullptr || multiplies_8_bits(*arch, dtype);
}

// The figures of the data sheet of a GPU; None if the product is not known.
nb::object gpu_peaks(nb::handle device) {
  const Device d = device_from(device);
  if (!has_own_memory(d.type)) return nb::none();
  const DeviceInfo info = device_info(d);
  const GpuProduct* product = find_gpu_product(info.architecture, info.name, info.compute_units);
  if (!product || product->bandwidth_gbs <= 0) return nb::none();
  nb::dict tflops;
  tflops["float64"] = product->fp64_tflops;
  tflops["float32"] = product->fp32_tflops;
  tflops["float16"] = product->fp16_tflops;
  tflops["bfloat16"] = product->bf16_tflops;
  if (const GpuArch* arch = find_gpu_arch(product->gfx))
    for (const char* name : kEightBits)
      if (multiplies_8_bits(*arch, name))
        tflops[name] = std::string_view(name) == "int8" ? int8_tflops(*product) : product->fp8_tflops;
  nb::dict peaks;
  peaks["name"] = std::string(product->name);
  peaks["gbs"] = product->bandwidth_gbs;
  peaks["tflops"] = tflops;
  return peaks;
}

// `with _C._CutCause("text"):`, for functions that are written in Python.
class PythonCause {
 public:
  explicit PythonCause(const std::string& what) {
    static auto& texts = *new std::set<std::string>;  // Python's lock guards it
    what_ = texts.insert(what).first->c_str();
  }
  void enter() { cause_.emplace(what_); }
  void leave() { cause_.reset(); }

 private:
  const char* what_;
  std::optional<CutCause> cause_;
};

}  // namespace

void bind_explain(nb::module_& m) {
  m.def(
      "_explain_begin",
      [](bool all_threads) {
        Unlocked u;
        explain_begin(all_threads);
      },
      "all_threads"_a);
  m.def(
      "_explain_end",
      [](bool all_threads) {
        Explained found;
        {
          Unlocked u;
          found = explain_end(all_threads);
        }
        return explained_dict(found);
      },
      "all_threads"_a);
  m.def("_gpu_peaks", &gpu_peaks, "device"_a);
  m.def("_has_units", &has_units, "device"_a, "dtype"_a);
  nb::class_<PythonCause>(m, "_CutCause")
      .def(nb::init<const std::string&>(), "what"_a)
      .def("__enter__", &PythonCause::enter)
      .def("__exit__", [](PythonCause& c, const nb::args&) { c.leave(); });
}

}  // namespace pyflame::python
