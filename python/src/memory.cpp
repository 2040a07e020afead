// The memory of devices: counters, limits, what is kept; and the table of GPUs. pyflame/memory and pyflame/cuda are made of these.
#include "memory.h"

#include <nanobind/stl/optional.h>

#include "pyflame/base/gpu_arch.h"
#include "pyflame/base/location.h"
#include "pyflame/record/recorder.h"
#include "pyflame/runtime/address_space.h"
#include "pyflame/runtime/allocator.h"
#include "pyflame/runtime/debug_memory.h"
#include "pyflame/runtime/executor.h"
#include "pyflame/runtime/kept.h"
#include "pyflame/runtime/memory_log.h"
#include "pyflame/runtime/segments.h"

namespace pyflame::python {

namespace {

Device device_or_current(nb::handle device) { return device.is_none() ? current_device() : device_from(device); }

nb::dict memory_dict(nb::handle handle) {
  const Device device = device_or_current(handle);
  const MemoryStats s = memory_stats(device);
  nb::dict d;
  d["allocated"] = s.allocated;
  d["peak_allocated"] = s.peak_allocated;
  d["cached"] = s.cached;
  d["arena"] = s.arena;
  d["limit"] = s.limit;
  d["allocations"] = s.allocations;
  d["kept"] = kept_bytes(device);
  if (!has_own_memory(device.type) && device.type != DeviceType::null) return d;
  d["reserved"] = s.reserved;
  d["peak_reserved"] = s.peak_reserved;
  d["split"] = s.split;
  d["largest_hole"] = s.largest_hole;
  d["segments"] = s.segments;
  d["retries"] = s.retries;
  d["failures"] = s.failures;
  for (size_t i = 0; i < kMemoryUses.size(); ++i) d[kMemoryUses[i]] = s.by_use[i];
  return d;
}

nb::list product_list() {
  nb::list out;
  for (const GpuProduct& p : gpu_products()) {
    nb::dict d;
    d["name"] = std::string(p.name);
    d["architecture"] = std::string(p.gfx);
    d["memory_bytes"] = p.memory_gib << 30;
    d["bandwidth_gbs"] = p.bandwidth_gbs;
    const GpuArch* arch = find_gpu_arch(p.gfx);
    d["float8"] = std::string(to_string(arch ? arch->fp8 : Fp8Kind::none));
    d["matrix_cores"] = std::string(to_string(arch ? arch->matrix : MatrixKind::none));
    nb::dict tflops;
    tflops["float64"] = p.fp64_tflops, tflops["float32"] = p.fp32_tflops, tflops["float16"] = p.fp16_tflops;
    tflops["bfloat16"] = p.bf16_tflops, tflops["float8"] = p.fp8_tflops;
    d["tflops"] = tflops;
    out.append(d);
  }
  return out;
}

double seconds_between(int64_t from, int64_t to) { return static_cast<double>(to - from) * 1e-9; }

// What the log has of one device.
nb::dict log_dict(nb::handle handle) {
  const Device device = device_or_current(handle);
  const memory_log::Log log = memory_log::copy();
  nb::list blocks, changes;
  for (const memory_log::Block& b : log.blocks) {
    if (b.device != device) continue;
    const std::string at = b.use != MemoryUse::tensors ? "" : describe_location(b.at);
    blocks.append(nb::make_tuple(reinterpret_cast<uintptr_t>(b.data), b.bytes, kMemoryUses[static_cast<size_t>(b.use)],
                                 seconds_between(log.start, b.time), at));
  }
  for (const memory_log::Change& c : log.changes)
    if (c.device == device) changes.append(nb::make_tuple(seconds_between(log.start, c.time), c.bytes));
  nb::dict d;
  d["recorded"] = log.start != 0;
  d["blocks"] = blocks;
  d["changes"] = changes;
  d["dropped"] = log.dropped;
  return d;
}

// (address, bytes) of a tensor's memory; nothing becomes complete by asking. Address 0: it has no memory yet.
nb::object storage_of(const Tensor& x) {
  const Storage& s = *x.storage();
  return nb::make_tuple(reinterpret_cast<uintptr_t>(s.data), s.nbytes, s.device.str());
}

// [(address, bytes, small, [(bytes, used), ...]), ...]
nb::list segment_list(nb::handle device) {
  nb::list out;
  for (const SegmentLayout& s : memory_segments(device_or_current(device))) {
    nb::list parts;
    for (const SegmentLayout::Part& p : s.parts) parts.append(nb::make_tuple(p.bytes, p.used));
    out.append(nb::make_tuple(reinterpret_cast<uintptr_t>(s.data), s.bytes, s.small, parts));
  }
  return out;
}

void bind_log(nb::module_& m) {
  m.def("_set_reads_of_null", &set_reads_are_zeros, "on"_a);
  m.def("_start_memory_log", &memory_log::start, "most_changes"_a);
  m.def("_stop_memory_log", &memory_log::stop);
  m.def("_memory_log", &log_dict, "device"_a.none());
  m.def("_memory_segments", &segment_list, "device"_a.none());
  m.def("_storage_of", &storage_of, "tensor"_a);
}

void bind_settings_of_memory(nb::module_& m) {
  m.def(
      "set_memory_fraction",
      [](double fraction, nb::handle device) { set_memory_fraction(fraction, device_or_current(device)); },
      "fraction"_a, "device"_a.none() = nb::none(),
      "The part of a GPU's memory that PyFlame may take, above 0 and up to 1. "
      "ValueError for another fraction, and for a device without memory of its own, as the CPU.");
  m.def(
      "set_memory_limit", [](uint64_t bytes, nb::handle device) { set_memory_limit(bytes, device_or_current(device)); },
      "bytes"_a, "device"_a.none() = nb::none(),
      "Allows at most this many bytes of memory on a device, the current one unless given; 0 removes the limit. "
      "TypeError for a number that is negative or no integer.");
  m.def(
      "_configure_memory",
      [](nb::handle device, std::optional<double> fraction, std::optional<uint64_t> limit,
         std::optional<uint64_t> split_size, std::optional<uint64_t> pinned) {
        const Device d = device_or_current(device);
        Unlocked u;
        configure_memory(d, {fraction, limit, split_size, pinned});
      },
      "device"_a.none(), "fraction"_a.none(), "limit"_a.none(), "split_size"_a.none(), "pinned"_a.none());
  m.def(
      "_configure_debug_memory",
      [](std::optional<bool> guards, std::optional<bool> poison, std::optional<bool> sync) {
        Unlocked u;
        between_programs([&] {
          const debug_memory::Settings s = debug_memory::settings();
          debug_memory::configure({guards.value_or(s.guards), poison.value_or(s.poison), sync.value_or(s.sync)});
        });
      },
      "guards"_a.none(), "poison"_a.none(), "sync"_a.none());
  m.def("_first_wrong_access", &debug_memory::first_found);
  m.def("_debug_memory", [] {
    const debug_memory::Settings s = debug_memory::settings();
    return nb::make_tuple(s.guards, s.poison, s.sync);
  });
  m.def("_warm_up_pinned", [](uint64_t nbytes, const std::string& device) {
    Unlocked u;
    warm_up_pinned(nbytes, parse_device(device));
  });
  m.def("_warm_up_memory", [](uint64_t nbytes, const std::string& device) {
    Unlocked u;
    warm_up_memory(nbytes, parse_device(device));
  });
}

}  // namespace

void bind_memory(nb::module_& m) {
  bind_settings_of_memory(m);
  bind_log(m);
  m.def(
      "memory_report", [](nb::handle device) { return memory_report(device_or_current(device)); },
      "device"_a.none() = nb::none(),
      "Where a device's memory is, as text: what is live and for what, what is cached, what others hold. "
      "ValueError for the name of no device, DeviceError for one that is not there.");
  m.def(
      "memory_stats", &memory_dict, "device"_a.none() = nb::none(),
      "A dict of bytes of a device (default: the current one): allocated now, peak_allocated, cached for reuse, arena "
      "(results in between), kept (results that depend on parameters alone), limit (0: none); and allocations, their "
      "number. Devices with memory of their own have more: memory.stats explains them. "
      "ValueError for the name of no device, DeviceError for one that is not there.");
  m.def(
      "reset_peak_memory", [](nb::handle device) { reset_peak_memory(device_or_current(device)); },
      "device"_a.none() = nb::none(),
      "The peaks of memory_stats start anew from what is allocated and reserved now, on the current device unless "
      "another is given. "
      "ValueError for the name of no device, DeviceError for one that is not there.");
  m.def(
      "empty_cache",
      [] {
        Unlocked u;
        cut_window();  // pending work may hold memory that no other handle needs
        release_unused_memory();
      },
      "Gives memory that no tensor uses (cached blocks, and the arena that holds what programs compute in between) "
      "back to the "
      "operating system, and a GPU's to its driver.");
  m.def("_gpu_products", &product_list,
        "The GPUs that PyFlame knows; memory_bytes, bandwidth_gbs and tflops: 0 if unknown.");
}

}  // namespace pyflame::python
