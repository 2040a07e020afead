// Devices, synchronisation, counters.
#include <fmt/format.h>

#include <nanobind/stl/pair.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>

#include "casters.h"
#include "pyflame/backends/backend.h"
#include "pyflame/base/env.h"
#include "pyflame/base/fallbacks.h"
#include "pyflame/base/threads.h"
#include "pyflame/compile/choices.h"
#include "pyflame/compile/force.h"
#include "pyflame/compile/inject.h"
#include "pyflame/compile/plugins.h"
#include "pyflame/compile/program.h"
#include "pyflame/ops/op.h"
#include "pyflame/ops/ops.h"
#include "pyflame/record/cut_cause.h"
#include "pyflame/record/recorder.h"
#include "pyflame/runtime/choose.h"
#include "pyflame/runtime/device.h"
#include "pyflame/runtime/event.h"
#include "pyflame/runtime/executor.h"
#include "pyflame/runtime/readback.h"
#include "pyflame/runtime/replayer.h"
#include "pyflame/version.h"

namespace pyflame::python {

namespace {

// The names of MatmulPrecision.
constexpr std::array<std::string_view, 3> kPrecisions = {"highest", "high", "medium"};

std::string name_of(MatmulPrecision p) { return std::string(kPrecisions[static_cast<size_t>(p)]); }
MatmulPrecision precision_of(const char* function, const std::string& name) {
  const auto at = std::find(kPrecisions.begin(), kPrecisions.end(), name);
  PF_CHECK(at != kPrecisions.end(), Value, "{}: unknown precision; got '{}'; expected 'highest', 'high' or 'medium'",
           function, name);
  return static_cast<MatmulPrecision>(at - kPrecisions.begin());
}

nb::dict info_dict(Device d) {
  const DeviceInfo i = device_info(d);
  nb::dict out;
  out["device"] = d.str();
  out["name"] = i.name;
  out["architecture"] = i.architecture;
  out["total_memory"] = i.total_memory;
  out["free_memory"] = i.free_memory;
  out["compute_units"] = i.compute_units;
  if (i.wave_size) out["wave_size"] = i.wave_size;
  for (const auto& [k, v] : i.extra) out[k.c_str()] = v;
  return out;
}

void bind_devices(nb::module_& m) {
  m.def(
      "set_device",
      [](nb::handle device) {
        const Device d = device_from(device);
        {
          Unlocked u;
          synchronize();
        }
        set_current_device(d);
      },
      "device"_a,
      "Where new tensors are made: 'cpu', 'rocm', 'rocm:1', ... ValueError for an unknown name, DeviceError with the "
      "reason and what to do when it is not there.");
  m.def(
      "get_device", [] { return current_device().str(); },
      "The name of the device on which new tensors are made, such as 'cpu' or 'rocm:0'; set_device changes it.");
  m.def(
      "device_info",
      [](nb::handle device) { return info_dict(device.is_none() ? current_device() : device_from(device)); },
      "device"_a.none() = nb::none(),
      "Facts about a device (the current one unless given) as a dict: name, architecture, total_memory in bytes, "
      "compute_units, ... "
      "ValueError for the name of no device, DeviceError for one that is not there.");
  m.def(
      "_device_libraries",
      [](nb::handle device) {
        const Device d = device_from(device);
        const Backend* backend = find_backend(d.type);
        return backend ? environment_of(*backend, d.index).libraries : std::string();
      },
      "device"_a);
  m.def(
      "rocm_is_available", [] { return device_available(DeviceType::rocm); },
      "Whether this process can use an AMD GPU through ROCm; rocm_unavailable_reason says why not.");
  m.def(
      "rocm_device_count", [] { return device_count(DeviceType::rocm); },
      "The number of AMD GPUs that this process can use; 0 where there is none.");
  m.def(
      "rocm_get_device_info", [](int index) { return info_dict(parse_device(fmt::format("rocm:{}", index))); },
      "device_id"_a = 0, "Facts about an AMD GPU as a dict. DeviceError with the reason when it is not there.");
  m.def(
      "rocm_unavailable_reason", [] { return unavailable_reason(DeviceType::rocm); },
      "Why no AMD GPU can be used and how to fix it; empty when one can.");
  m.def(
      "rocm_set_device", [](int index) { set_current_device(parse_device(fmt::format("rocm:{}", index))); },
      "device_id"_a = 0,
      "Makes the AMD GPU of this number the device on which new tensors are made, as set_device does. DeviceError with "
      "the reason when it is not there.");
  m.def(
      "rocm_get_device", [] { return current_device().type == DeviceType::rocm ? current_device().index : -1; },
      "The number of the current AMD GPU; -1 when the current device is another.");
  m.def(
      "rocm_synchronize",
      [] {
        Unlocked u;
        synchronize();
      },
      "The same as synchronize(): returns when everything that was recorded is complete; raises what failed.");
  m.def(
      "cuda_is_available", [] { return device_available(DeviceType::cuda); },
      "Whether this process can use an NVIDIA GPU: True when cuda_device_count is not 0.");
  m.def(
      "cuda_device_count", [] { return device_count(DeviceType::cuda); },
      "The number of NVIDIA GPUs that this process can use; 0 where there is none.");
}

nb::dict cache_dict() {
  const CacheStats s = cache_stats();
  nb::dict d;
  d["hits"] = s.hits;
  d["misses"] = s.misses;
  d["evictions"] = s.evictions;
  d["superset_hits"] = s.superset_hits;
  d["programs"] = s.programs;
  d["ops"] = s.ops;
  return d;
}

Device asked(nb::handle device) { return device.is_none() ? current_device() : device_from(device); }

nb::dict replay_dict() {
  const ReplayStats s = replay_stats();
  nb::dict d;
  d["programs"] = s.programs;
  d["refused"] = s.refused;
  d["replays"] = s.replays;
  d["builds"] = s.builds;
  d["updates"] = s.updates;
  d["verified"] = s.verified;
  d["differed"] = s.differed;
  return d;
}

}  // namespace

void bind_runtime(nb::module_& m) {
  bind_devices(m);
  m.def(
      "synchronize",
      [] {
        Unlocked u;
        synchronize();
      },
      "Returns when everything that was recorded is complete; raises the error of an op that failed.");
  m.def(
      "cut",
      [] {
        Unlocked u;
        const CutCause why("pf.cut()");
        cut_window();
      },
      "Ends the window of this thread: what was recorded starts to run.");
  m.def("_end_step", [] {
    Unlocked u;
    const CutCause why("the end of the optimizer's step()");
    cut_window();
  });
  nb::class_<Pause>(m, "_Pause").def("release", [](Pause& p) {
    Unlocked u;
    return p.release();
  });
  m.def(
      "_pause",
      [](nb::handle device) {
        const Device d = asked(device);
        Unlocked u;
        return pause_device(d);
      },
      nb::arg("device").none());
  nb::class_<Event>(m, "_Event")
      .def(nb::init<>())
      .def(
          "record",
          [](Event& e, nb::handle device) {
            const Device d = asked(device);
            Unlocked u;
            e.record(d);
          },
          nb::arg("device").none())
      .def_prop_ro("recorded", &Event::recorded)
      .def("passed",
           [](Event& e) {
             Unlocked u;
             return e.passed();
           })
      .def("wait",
           [](Event& e) {
             Unlocked u;
             e.wait();
           })
      .def("elapsed_ms", [](Event& e, Event& later) {
        Unlocked u;
        return e.elapsed_ms(later);
      });
  nb::class_<Readback>(
      m, "_Readback",
      "The values of a tensor on their way to the host. wait() waits for what was queued when this was "
      "made, and not for later work.")
      .def(
          "__init__",
          [](Readback* r, const Tensor& x) {
            Unlocked u;
            new (r) Readback(x);
          },
          "x"_a)
      .def(
          "wait",
          [](Readback& r) {
            Unlocked u;
            return r.wait();
          },
          "The values, a tensor on the CPU. Raises what failed before they were computed.");
  m.def("_set_window", [](int ops) {
    Unlocked u;
    synchronize();
    set_window(ops);
  });
  m.def("_set_fusing", [](bool on) {
    Unlocked u;
    return set_fusing(on);
  });
  m.def("_env_was_read", &env::was_read);
  m.def("_start_injecting", [](const std::string& op, uint64_t run, bool after) {
    Unlocked u;
    synchronize();
    start_injecting({op, run, after});
  });
  m.def("_start_misbehaving",
        [](const std::string& op, uint64_t run, const std::string& how, int64_t offset, int64_t count) {
          const auto kind = how == "writes" ? Injection::Writes : how == "reads" ? Injection::Reads : Injection::Skips;
          Unlocked u;
          synchronize();
          start_injecting({op, run, false, kind, offset, count});
        });
  m.def("_stop_injecting", [] {
    Unlocked u;
    return stop_injecting();
  });
  m.def(
      "op_names",
      [] {
        nb::list l;
        for (int i = 0; i < kNumOps; ++i) l.append(op_name(static_cast<OpId>(i)));
        return l;
      },
      "The names of all primitive ops, of which every other op is made, as a list of strings.");
  m.def("get_num_threads", &num_threads, "The number of threads of the CPU that compute; set_num_threads changes it.");
  m.def(
      "set_num_threads",
      [](int n) {
        Unlocked u;
        synchronize();
        set_num_threads(n);
      },
      "num"_a, "Sets how many threads compute; results do not depend on it. ValueError below 1.");
  m.def(
      "get_float32_matmul_precision", [] { return name_of(float32_matmul_precision()); },

      "How exactly float32 matrix products are computed, as set_float32_matmul_precision set it; 'highest' at first.");
  m.def(
      "set_float32_matmul_precision",
      [](const std::string& precision) {
        set_float32_matmul_precision(precision_of("set_float32_matmul_precision", precision));
      },
      "precision"_a,
      "What products of float32 on a GPU may round their inputs to. 'highest' (the default) keeps float32; 'high' "
      "allows TF32 on NVIDIA's GPUs and xf32 on gfx942, with 10 bits of fraction, and 'medium' means the same. Other "
      "GPUs, the CPU, other dtypes and convolutions (set_float32_conv_precision) do not heed it. "
      "ValueError for another name.");
  m.def(
      "get_float32_conv_precision", [] { return name_of(float32_conv_precision()); },

      "How exactly float32 convolutions are computed, as set_float32_conv_precision set it; 'highest' at first.");
  m.def(
      "set_float32_conv_precision",
      [](const std::string& precision) {
        set_float32_conv_precision(precision_of("set_float32_conv_precision", precision));
      },
      "precision"_a,
      "What convolutions of float32 on a GPU may round their inputs to. 'highest' (the default) keeps float32; 'high' "
      "and 'medium' allow TF32 on NVIDIA's GPUs, with 10 bits of fraction, and images are then laid out "
      "channels-last. AMD's GPUs, the CPU and other dtypes do not heed it. It holds for the whole process and for ops "
      "called afterwards, gradients included. torch.backends.cudnn.allow_tf32, which is on there, is off here. "
      "ValueError for another name.");
  m.def("are_deterministic_algorithms_enabled", &are_deterministic_algorithms_enabled,
        "Whether ops must give the same bits in each run, as use_deterministic_algorithms set it; True at first.");
  m.def(
      "use_deterministic_algorithms",
      [](nb::handle mode, bool) {
        PF_CHECK(PyBool_Check(mode.ptr()), Type,
                 "use_deterministic_algorithms: mode is not a bool; got {}; expected True or False", kind_name(mode));
        use_deterministic_algorithms(mode.ptr() == Py_True);
      },
      "mode"_a.none(), nb::kw_only(), "warn_only"_a = false,
      "True (the default, unlike PyTorch's): every op gives the same bits in every run. False: libraries on a GPU may "
      "be "
      "quicker and add in an order that varies between runs: cuDNN in the gradient of scaled_dot_product_attention, "
      "cuDNN and MIOpen in convolutions; pf.explain() says 'not deterministic' where they do. It holds for what is "
      "called afterwards, gradients included. No op is without a deterministic way, so that warn_only changes "
      "nothing. "
      "TypeError for a mode that is no bool.");
  m.def(
      "fallbacks",
      [] {
        nb::list out;
        for (const Fallback& f : fallbacks()) {
          nb::dict d;
          d["op"] = f.op;
          d["device"] = f.device;
          d["ran_on"] = f.ran_on;
          d["reason"] = f.reason;
          d["times"] = f.times;
          d["seconds"] = f.seconds;
          out.append(d);
        }
        return out;
      },
      "What ran on a slower implementation, or elsewhere, than was asked for, as a list of dicts, the most seconds "
      "first: op, device, "
      "ran_on, reason (why nothing better took it), times (how often it ran) and seconds (of the host). "
      "PYFLAME_DEBUG=1 prints this "
      "at the end of the process.");
  m.def("program_cache_stats", &cache_dict,
        "Hits, misses, evictions and size of the program cache, in programs and in ops.");
  m.def("clear_program_cache", &clear_program_cache,
        "Removes all compiled programs from the cache: the next time that ops run, they are compiled anew.");
  m.def(
      "gpu_graph_stats", &replay_dict,
      "Programs that are replayed as GPU graphs and those that are launched step by step; replays, graphs built, steps "
      "brought up to date; first replays that computed what launches do, and those that did not.");
  m.def("_tune_budget_ms", &tune_budget_ms);
  m.def("_set_tune_budget_ms", &set_tune_budget_ms);
  m.def("_count_candidates_as_milliseconds", &count_candidates_as_milliseconds);
  m.def("_tune_entries", &tune_entries);
  m.def("_tune_all_algorithms", &tunes_all_algorithms);
  m.def("_set_tune_all_algorithms", &set_tune_all_algorithms, nb::arg("all"));
  m.def("_set_tune_entries", &set_tune_entries, nb::arg("names"));
  m.def("_set_choices_file", &set_choices_file);
  m.def("_choices_file", &choices_file);
  m.def("_force_entry", &force_entry, nb::arg("op"), nb::arg("entry"));
  m.def(
      "_forced_entry",
      [](const std::string& op) {
        const auto forced = forced_entry(op);
        return forced ? forced->impl : std::string();
      },
      nb::arg("op"));
  m.def(
      "_suggest_candidates",
      [](std::vector<std::string> names, bool alone) {
        suggest_candidates({std::move(names), alone});
      },
      nb::arg("names"), nb::arg("alone"));
  m.def(
      "_add_plugin",
      [](const std::string& op, const std::string& name, const std::string& device, uintptr_t function,
         uintptr_t context, bool repeats) {
        return add_plugin(op, name, device, reinterpret_cast<pyflame_plugin_function>(function),
                          reinterpret_cast<void*>(context), repeats);
      },
      nb::arg("op"), nb::arg("name"), nb::arg("device"), nb::arg("function"), nb::arg("context"), nb::arg("repeats"));
  m.def("_remove_plugin", &remove_plugin, nb::arg("entry"));
  m.def("_plugins", [] {
    std::vector<std::pair<std::string, std::string>> all;
    for (const Plugin& p : plugins()) all.emplace_back(op_name(p.op), p.entry);
    return all;
  });
  m.def("_choice_stats", [] {
    const ChoiceStats s = choice_stats();
    nb::dict d;
    d["problems"] = s.problems, d["entries"] = s.entries, d["unsound"] = s.unsound, d["changed"] = s.changed;
    d["neighbours"] = s.neighbours;
    d["algorithms_left"] = s.not_looked_at;
    d["spent_ms"] = s.spent_ms;
    return d;
  });
  m.attr("__version__") = PYFLAME_VERSION;
}

}  // namespace pyflame::python
