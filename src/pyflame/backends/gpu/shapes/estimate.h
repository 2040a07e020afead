// How long launches take, by arithmetic: operations, bytes, how many workgroups a compute unit holds, and its last round of
// them. Only comparisons matter: tuning tries the candidates with the shortest estimates first (docs/internals/tuning.md).
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>

#include "pyflame/base/gpu_arch.h"

namespace pyflame::gpu {

// Times are in microseconds, rates per microsecond. These are figures of a large GPU.
constexpr double kLaunchUs = 2, kLargeUnits = 132, kLargeBandwidth = 2.5e6;
constexpr double kCaches = 2;           // the bandwidth of the caches over that of memory
constexpr double kLatencyUs = 0.8;      // until a load from memory has arrived, while all others load, too
constexpr double kReached = 0.4;        // of the peaks of a data sheet
constexpr double kHidingWaves = 2;      // that a SIMD needs so that one computes while the other one waits
constexpr double kBarrierUs = 0.3;      // for the waves of a workgroup to combine what each has
constexpr double kUsualRegisters = 48;  // of a lane for addresses and what is computed on the way

// A device as far as estimates know it.
struct Figures {
  double units = kLargeUnits;  // compute units
  double unit_rate = 0;        // operations of one of them
  double bandwidth = kLargeBandwidth;
  double unit_caches = kCaches * kLargeBandwidth / kLargeUnits;
  int wave = GpuArch().default_wave, simds = GpuArch().simds_per_cu, most_waves = GpuArch().max_waves_per_simd;
  int registers = GpuArch().vgprs, granule = GpuArch().vgpr_granule;  // of a lane of a SIMD
  int64_t shared_bytes = GpuArch().lds_bytes;                         // of a compute unit

  // Of a device with this architecture, waves of this size and so many compute units (0: unknown). matrix: operations are those of matrix
  // cores. Where the table of products lacks the device, its compute units are like a large GPU's.
  static Figures of(std::string_view gfx, int wave, int compute_units, bool matrix) {
    constexpr double kPeak = 989e6, kPlainPeak = 67e6;
    Figures f;
    f.unit_rate = kReached * (matrix ? kPeak : kPlainPeak) / kLargeUnits;
    f.wave = wave;
    if (compute_units > 0) f.units = compute_units;
    if (const GpuArch* a = find_gpu_arch(gfx)) {
      const int each = wave > a->default_wave ? 2 : 1;  // a wave of 64 takes the registers of two
      f.simds = a->simds_per_cu, f.most_waves = a->max_waves_per_simd;
      f.registers = a->vgprs / each, f.granule = a->vgpr_granule / each, f.shared_bytes = a->lds_bytes;
    }
    if (const GpuProduct* p = find_gpu_product(gfx, "", compute_units); p && p->cus > 0) {
      const double peak = 1e6 * (matrix ? p->bf16_tflops : p->fp32_tflops);
      if (peak > 0) f.unit_rate = kReached * peak / p->cus;
      f.bandwidth = 1e3 * p->bandwidth_gbs * f.units / p->cus;
      f.unit_caches = kCaches * f.bandwidth / f.units;
    }
    return f;
  }
};

// What a launch does.
struct Work {
  double groups = 1;        // workgroups
  double operations = 0;    // of a workgroup
  double cached = 0;        // bytes that a workgroup reads and writes, from wherever they are
  double bytes = 0;         // of all operands and results, each once
  double waves = 0;         // of a workgroup; 0: enough of them
  double registers = 0;     // of a lane; 0: they limit nothing
  double shared_bytes = 0;  // of a workgroup
  double loads = 0;         // bytes that a lane has asked for before it waits; 0: enough of them
  double fixed_us = 0;      // of a workgroup, whatever it computes
  bool overlaps = true;     // a workgroup computes while it copies
  bool evenly = false;      // the work of the last round is divided among all compute units
};

// How many workgroups a compute unit holds at once, by waves, registers and shared memory.
inline double resident_groups(const Work& w, const Figures& f) {
  double most = 1e9;
  if (w.waves > 0) {
    double waves = f.most_waves;  // of a SIMD
    if (w.registers > 0)
      waves = std::min(waves, std::floor(f.registers / (std::ceil(w.registers / f.granule) * f.granule)));
    most = std::floor(std::max(1.0, waves) * f.simds / w.waves);
  }
  if (w.shared_bytes > 0) most = std::min(most, std::floor(static_cast<double>(f.shared_bytes) / w.shared_bytes));
  return std::max(1.0, most);
}

// The time of a launch is that of the compute unit with the most workgroups, or that of memory, whichever is longer:
//   unit   = workgroups of the unit * max(operations / rate, bytes / caches) / fill     (their sum, if one workgroup is alone and copies first)
//   memory = bytes / (bandwidth * reach)
//   fill   = waves of a SIMD / those that hide what others wait for, at most 1
//   reach  = bytes that are on their way / (bandwidth * latency), at most 1
inline double launch_us(const Work& w, const Figures& f) {
  const double all = w.groups / f.units, each = w.evenly ? all : std::ceil(all);
  const double at_once = std::min(std::max(1.0, each), resident_groups(w, f));
  const double fill = w.waves > 0 ? std::min(1.0, at_once * w.waves / (f.simds * kHidingWaves)) : 1;
  const double computes = f.unit_rate > 0 ? w.operations / f.unit_rate : 0, copies = w.cached / f.unit_caches;
  const double group = w.overlaps || at_once > 1 ? std::max(computes, copies) : computes + copies;
  const double busy = std::min(w.groups, at_once * f.units);
  const double way = busy * w.waves * f.wave * w.loads;
  const double reach = way > 0 ? std::min(1.0, way / (f.bandwidth * kLatencyUs)) : 1;
  return kLaunchUs + std::max(each * group / fill, w.bytes / (f.bandwidth * reach)) +
         std::ceil(each / at_once) * w.fixed_us;
}

}  // namespace pyflame::gpu
