// Computes occupancy. Everything is counted in whole workgroups per CU (or WGP), because the hardware starts waves in
// whole workgroups; waves per SIMD follow from that.
#include "tools/inspect/occupancy.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "pyflame/base/error.h"

namespace pyflame::tools::inspect {

namespace {

template <class T>
T ceil_div(T a, T b) {
  return (a + b - 1) / b;
}
template <class T>
T round_up(T a, T b) {
  return ceil_div(a, b) * b;
}

// The size of the register file for waves of this size.
struct Registers {
  int total, granule;
};
Registers registers(const GpuArch& arch, int wave) {
  const int parts = wave / arch.default_wave;
  return {arch.vgprs / parts, arch.vgpr_granule / parts};
}

int used_vgprs(const GpuArch& arch, const KernelResources& k) {
  return std::max(1, arch.separate_agprs ? std::max(k.vgpr, k.agpr) : k.vgpr);
}

int vgpr_waves(const GpuArch& arch, int wave, int vgprs) {
  const Registers r = registers(arch, wave);
  return std::min(arch.max_waves_per_simd, r.total / round_up(vgprs, r.granule));
}

int sgpr_waves(const GpuArch& arch, int sgprs) {
  return std::min(arch.max_waves_per_simd, arch.sgpr_limit / std::max(sgprs, 1));
}

void check(const GpuArch& arch, const KernelResources& k) {
  PF_CHECK(arch.amd, Value, "occupancy: not an architecture of AMD; got {}; expected one of `pyflame occupancy --list`",
           arch.gfx);
  PF_CHECK((k.wave == 32 && arch.wave32) || (k.wave == 64 && arch.wave64), Value,
           "occupancy: {} has no waves of that size; got {}; expected {}", arch.gfx, k.wave,
           arch.wave32 && arch.wave64 ? "32 or 64"
           : arch.wave32              ? "32"
                                      : "64");
  PF_CHECK(k.block >= 1 && k.block <= arch.max_workgroup, Value,
           "occupancy: a workgroup cannot have that many threads; got {}; expected 1 to {}", k.block,
           arch.max_workgroup);
  PF_CHECK(k.vgpr >= 0 && k.vgpr <= arch.addressable_vgprs, Value,
           "occupancy: a wave of {} cannot have that many VGPRs; got {}; expected 0 to {}{}", arch.gfx, k.vgpr,
           arch.addressable_vgprs, arch.unified_agprs ? " (with the AGPRs)" : "");
  const int most_agprs = arch.matrix == MatrixKind::mfma ? 256 : 0;
  PF_CHECK(k.agpr >= 0 && k.agpr <= most_agprs, Value,
           "occupancy: a wave of {} cannot have that many AGPRs; got {}; expected 0 to {}", arch.gfx, k.agpr,
           most_agprs);
  PF_CHECK(!arch.unified_agprs || k.agpr <= std::max(k.vgpr, 1), Value,
           "occupancy: on {} the AGPRs are counted in the VGPRs; got {} VGPRs with {} AGPRs; expected no more AGPRs "
           "than VGPRs",
           arch.gfx, k.vgpr, k.agpr);
  // Metadata counts the extra SGPRs (VCC and others) above the addressable ones.
  PF_CHECK(k.sgpr >= 0 && k.sgpr <= 128, Value,
           "occupancy: a wave cannot have that many SGPRs; got {}; expected 0 to 128 ({} can be addressed)", k.sgpr,
           arch.addressable_sgprs);
  PF_CHECK(k.lds >= 0 && k.dynamic_lds >= 0 && k.lds <= arch.max_lds_per_workgroup &&
               k.dynamic_lds <= arch.max_lds_per_workgroup - k.lds,
           Value, "occupancy: a workgroup of {} cannot have that much LDS; got {} bytes{}; expected 0 to {}", arch.gfx,
           k.lds, k.dynamic_lds != 0 ? fmt::format(" and {} of dynamic LDS", k.dynamic_lds) : "",
           arch.max_lds_per_workgroup);
}

// Everything except `limiter` and the values that follow from it.
Occupancy prepare(const GpuArch& arch, KernelResources k) {
  if (k.wave == 0) k.wave = arch.default_wave;
  if (!arch.has_wgp) k.wgp_mode = false;
  check(arch, k);
  const int cus = k.wgp_mode ? 2 : 1;
  Occupancy o{};
  o.arch = &arch;
  o.kernel = k;
  o.simds = arch.simds_per_cu * cus;
  o.waves_per_workgroup = ceil_div(k.block, k.wave);
  o.idle_lanes = o.waves_per_workgroup * k.wave - k.block;
  o.allocated_vgpr = round_up(used_vgprs(arch, k), registers(arch, k.wave).granule);
  o.allocated_lds = round_up(k.lds + k.dynamic_lds, int64_t{arch.lds_granule});
  o.lds_pool = arch.lds_bytes * cus;
  return o;
}

// The number of workgroups that the slots for waves and barriers allow, for any kernel.
int slot_workgroups(const Occupancy& o) { return o.arch->max_waves_per_simd * o.simds / o.waves_per_workgroup; }
int barrier_workgroups(const Occupancy& o) { return o.arch->barriers * (o.kernel.wgp_mode ? 2 : 1); }
// The waves on the fullest SIMD, because workgroups are spread evenly.
int per_simd(const Occupancy& o, int workgroups) {
  return std::min(o.arch->max_waves_per_simd, ceil_div(workgroups * o.waves_per_workgroup, o.simds));
}

std::vector<Limit> limits_of(const Occupancy& o) {
  const GpuArch& arch = *o.arch;
  const KernelResources& k = o.kernel;
  std::vector<Limit> limits;
  const auto add = [&](Resource r, int workgroups) { limits.push_back({r, workgroups, per_simd(o, workgroups)}); };
  const auto of_waves = [&](int waves) { return waves * o.simds / o.waves_per_workgroup; };
  add(Resource::waves, slot_workgroups(o));
  add(Resource::vgprs, of_waves(vgpr_waves(arch, k.wave, used_vgprs(arch, k))));
  if (arch.sgpr_limit > 0) add(Resource::sgprs, of_waves(sgpr_waves(arch, k.sgpr)));
  if (o.allocated_lds > 0) add(Resource::lds, static_cast<int>(o.lds_pool / o.allocated_lds));
  if (o.waves_per_workgroup > 1) add(Resource::barriers, barrier_workgroups(o));
  return limits;
}

int llvm_waves(const Occupancy& o) {
  const int64_t lds = o.kernel.lds;
  int64_t workgroups = slot_workgroups(o);
  if (o.waves_per_workgroup > 1) workgroups = std::min<int64_t>(workgroups, barrier_workgroups(o));
  if (lds > 0) workgroups = std::min(workgroups, o.lds_pool / lds);
  int waves = std::max(1, per_simd(o, static_cast<int>(workgroups)));
  waves = std::min(waves, vgpr_waves(*o.arch, o.kernel.wave, used_vgprs(*o.arch, o.kernel)));
  if (o.arch->sgpr_limit > 0) waves = std::min(waves, sgpr_waves(*o.arch, o.kernel.sgpr));
  return waves;
}

Occupancy without_next(const GpuArch& arch, const KernelResources& kernel) {
  Occupancy o = prepare(arch, kernel);
  o.limits = limits_of(o);
  // Of equal limits the first one is named: "waves" means that no resource of the kernel limits it.
  const Limit& least = *std::min_element(o.limits.begin(), o.limits.end(),
                                         [](const Limit& a, const Limit& b) { return a.workgroups < b.workgroups; });
  o.limiter = least.resource;
  o.workgroups = least.workgroups;
  o.waves = o.workgroups * o.waves_per_workgroup;
  o.waves_per_simd = per_simd(o, o.workgroups);
  o.fill = static_cast<double>(o.waves) / (arch.max_waves_per_simd * o.simds);
  o.compiler_waves = llvm_waves(o);
  return o;
}

std::optional<NextStep> next_step(const Occupancy& o) {
  const int goal = o.workgroups + 1;
  if (goal > slot_workgroups(o) || (o.waves_per_workgroup > 1 && goal > barrier_workgroups(o))) return {};
  const int waves =
      ceil_div(goal * o.waves_per_workgroup, o.simds);  // the waves that registers must allow on each SIMD
  const GpuArch& arch = *o.arch;
  const KernelResources& k = o.kernel;
  KernelResources better = k;
  NextStep next{};

  const Registers r = registers(arch, k.wave);
  const int vgprs = r.total / waves / r.granule * r.granule;
  if (used_vgprs(arch, k) > vgprs) {
    if (vgprs == 0) return {};
    next.changes.push_back({Resource::vgprs, used_vgprs(arch, k), vgprs});
    better.vgpr = std::min(k.vgpr, vgprs);
    better.agpr = std::min(k.agpr, vgprs);
  }
  if (arch.sgpr_limit > 0 && sgpr_waves(arch, k.sgpr) < std::min(waves, arch.max_waves_per_simd)) {
    better.sgpr = arch.sgpr_limit / waves;
    next.changes.push_back({Resource::sgprs, k.sgpr, better.sgpr});
  }
  const int64_t lds = o.lds_pool / goal / arch.lds_granule * arch.lds_granule;
  if (o.allocated_lds > lds) {
    if (lds == 0) return {};
    next.changes.push_back({Resource::lds, k.lds + k.dynamic_lds, lds});
    better.lds = lds, better.dynamic_lds = 0;
  }
  const Occupancy then = without_next(arch, better);
  next.workgroups = then.workgroups;
  next.waves_per_simd = then.waves_per_simd;
  return next;
}

std::string describe(const NextStep::Change& c) {
  const int64_t less = c.from - c.to;
  switch (c.resource) {
    case Resource::vgprs: return fmt::format("{} VGPR{} ({} -> {})", less, less == 1 ? "" : "s", c.from, c.to);
    case Resource::sgprs: return fmt::format("{} SGPR{} ({} -> {})", less, less == 1 ? "" : "s", c.from, c.to);
    default: return fmt::format("{} byte{} of LDS ({} -> {})", less, less == 1 ? "" : "s", c.from, c.to);
  }
}

bool guide_is_about(const Occupancy& o) { return o.arch->unified_agprs && !o.arch->is_generic(); }

}  // namespace

std::string_view to_string(Resource resource) {
  constexpr std::array<std::string_view, 5> kNames = {"waves", "VGPRs", "SGPRs", "LDS", "barriers"};
  return kNames[static_cast<size_t>(resource)];
}

Occupancy occupancy(const GpuArch& arch, const KernelResources& kernel) {
  Occupancy o = without_next(arch, kernel);
  o.next = next_step(o);
  return o;
}

std::vector<VgprStep> vgpr_steps(const GpuArch& arch, int wave) {
  const Registers r = registers(arch, wave);
  std::vector<VgprStep> steps;
  for (int waves = 1; waves <= arch.max_waves_per_simd; ++waves) {
    const int vgprs = std::min(arch.addressable_vgprs, r.total / waves / r.granule * r.granule);
    if (vgprs > 0 && vgpr_waves(arch, wave, vgprs) == waves) steps.push_back({waves, vgprs});
  }
  return steps;
}

std::vector<Occupancy> over_block_sizes(const GpuArch& arch, const KernelResources& kernel) {
  std::vector<Occupancy> all;
  KernelResources k = kernel;
  for (k.block = k.wave != 0 ? k.wave : arch.default_wave; k.block <= arch.max_workgroup; k.block *= 2)
    all.push_back(occupancy(arch, k));
  return all;
}

std::optional<GuideFigure> guide_formula(const Occupancy& o) {
  if (!guide_is_about(o)) return {};
  constexpr int kStep = 16, kVgprs = 512, kMaxWaves = 8, kLds = 65536;
  const GpuArch& arch = *o.arch;
  const int vgprs = used_vgprs(arch, o.kernel);
  const int64_t lds = o.kernel.lds + o.kernel.dynamic_lds;
  const int by_vgprs = std::min(kMaxWaves, kVgprs / round_up(vgprs, kStep));
  int64_t workgroups = by_vgprs * 4 / o.waves_per_workgroup;
  if (lds > 0) workgroups = std::min(workgroups, kLds / lds);
  GuideFigure guide{static_cast<double>(workgroups * o.waves_per_workgroup) / 4, {}};
  if (workgroups == o.workgroups) return guide;

  if (const int right = vgpr_waves(arch, o.kernel.wave, vgprs); right != by_vgprs)
    guide.why_wrong.push_back(
        fmt::format("it rounds {} VGPRs up to {}, in steps of {}, but they are allocated in steps of {}: {}, so {} "
                    "waves fit, not {}",
                    vgprs, round_up(vgprs, kStep), kStep, arch.vgpr_granule, o.allocated_vgpr, right, by_vgprs));
  if (lds > 0 && o.lds_pool != kLds)
    guide.why_wrong.push_back(
        fmt::format("it assumes {} bytes of LDS, but a CU of {} has {}", kLds, arch.gfx, o.lds_pool));
  else if (lds > 0 && kLds / lds != o.lds_pool / o.allocated_lds)
    guide.why_wrong.push_back(fmt::format("it divides by {} bytes of LDS, but they are allocated in steps of {}: {}",
                                          lds, arch.lds_granule, o.allocated_lds));
  if (o.limiter == Resource::sgprs || o.limiter == Resource::barriers)
    guide.why_wrong.push_back(fmt::format("it ignores the limit by {}", to_string(o.limiter)));
  return guide;
}

std::vector<std::pair<int, int>> guide_wrong_vgprs(const GpuArch& arch) {
  std::vector<std::pair<int, int>> ranges;
  KernelResources k;
  for (k.vgpr = 1; k.vgpr <= arch.addressable_vgprs; ++k.vgpr) {
    const std::optional<GuideFigure> guide = guide_formula(without_next(arch, k));
    if (!guide || guide->why_wrong.empty()) continue;
    if (ranges.empty() || ranges.back().second != k.vgpr - 1) ranges.emplace_back(k.vgpr, k.vgpr);
    ranges.back().second = k.vgpr;
  }
  return ranges;
}

std::string compiler_hint(int block, int waves_per_simd) {
  return fmt::format("__launch_bounds__({}, {}) in HIP, waves_per_eu={} in Triton", block, waves_per_simd,
                     waves_per_simd);
}

nlohmann::json to_json(const Occupancy& o) {
  const KernelResources& k = o.kernel;
  nlohmann::json j = {{"block", k.block},
                      {"wave", k.wave},
                      {"wgp_mode", o.arch->has_wgp ? nlohmann::json(k.wgp_mode) : nlohmann::json()},
                      {"waves_per_simd", o.waves_per_simd},
                      {"max_waves", o.arch->max_waves_per_simd},
                      {"workgroups", o.workgroups},
                      {"workgroups_per", k.wgp_mode ? "WGP" : "CU"},
                      {"waves_per_workgroup", o.waves_per_workgroup},
                      {"waves", o.waves},
                      {"simds", o.simds},
                      {"fill", o.fill},
                      {"idle_lanes", o.idle_lanes},
                      {"allocated_vgpr", o.allocated_vgpr},
                      {"allocated_lds", o.allocated_lds},
                      {"compiler_waves", o.compiler_waves},
                      {"limiter", to_string(o.limiter)},
                      {"limits", nlohmann::json::object()},
                      {"next", nullptr},
                      {"blocks", nlohmann::json::array()}};
  for (const Limit& l : o.limits) j["limits"][std::string(to_string(l.resource))] = l.waves_per_simd;
  if (o.next) {
    nlohmann::json& next = j["next"];
    next = {
        {"waves", o.next->waves_per_simd}, {"workgroups", o.next->workgroups}, {"changes", nlohmann::json::array()}};
    std::string save;
    for (const NextStep::Change& c : o.next->changes) {
      save += (save.empty() ? "" : " and ") + describe(c);
      next["changes"].push_back({{"resource", to_string(c.resource)}, {"from", c.from}, {"to", c.to}});
      if (c.resource == Resource::vgprs) next["hint"] = compiler_hint(k.block, o.next->waves_per_simd);
    }
    next["save"] = save;
  }
  for (const Occupancy& b : over_block_sizes(*o.arch, k))
    j["blocks"].push_back({{"block", b.kernel.block},
                           {"waves_per_simd", b.waves_per_simd},
                           {"workgroups", b.workgroups},
                           {"waves", b.waves},
                           {"fill", b.fill},
                           {"limiter", to_string(b.limiter)}});
  return j;
}

}  // namespace pyflame::tools::inspect
