// How many waves of a kernel fit on a SIMD, what limits them, and what would allow one more workgroup. Two figures are
// kept apart: that of the hardware (whole workgroups, LDS in allocation granules), and the one that LLVM prints as ";
// Occupancy: N" next to the assembly (registers without whole workgroups, LDS as written).
// tests/inspect/test_occupancy.py compares the second one with LLVM.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pyflame/base/gpu_arch.h"

namespace pyflame::tools::inspect {

// As in the code object's metadata.
struct KernelResources {
  int wave = 0;  // 32 or 64; 0: the architecture's default
  int vgpr = 0;  // .vgpr_count: on gfx90a and later CDNA together with the AGPRs
  int agpr = 0;  // .agpr_count
  int sgpr = 0;  // .sgpr_count: with VCC, FLAT_SCRATCH and XNACK_MASK
  int64_t lds = 0, dynamic_lds = 0;
  int block = 256;       // threads of a workgroup
  bool wgp_mode = true;  // RDNA only: a workgroup may use both CUs of a WGP
};

enum class Resource { waves, vgprs, sgprs, lds, barriers };
std::string_view to_string(Resource resource);  // "waves", "VGPRs", …

struct Limit {
  Resource resource;
  int workgroups;      // per CU, or per WGP in WGP mode
  int waves_per_simd;  // of the fullest SIMD
};

// What one more workgroup needs: the registers and LDS that must shrink, each with the amount that may then be used.
struct NextStep {
  struct Change {
    Resource resource;
    int64_t from, to;
  };
  int workgroups, waves_per_simd;
  std::vector<Change> changes;
};

struct Occupancy {
  const GpuArch* arch;
  KernelResources kernel;  // with the resolved wave size
  int simds;               // SIMDs that share a workgroup: those of the CU, or of the WGP in WGP mode
  int waves_per_workgroup;
  int idle_lanes;      // of the last wave of a workgroup
  int allocated_vgpr;  // of a wave
  int64_t allocated_lds, lds_pool;
  std::vector<Limit> limits;  // only for resources that the kernel uses
  Resource limiter;
  int workgroups;      // at the same time per CU or WGP; 0: the kernel cannot be launched with this block
  int waves;           // of all of them
  int waves_per_simd;  // of the fullest SIMD
  double fill;         // waves over the wave slots
  int compiler_waves;  // what LLVM prints as "Occupancy"
  std::optional<NextStep> next;
};

// Throws Error(Value) for figures that are impossible on that architecture: a block of more than 1024 threads, a wave
// size that it does not have, more registers than a wave can address, more LDS than a workgroup can have.
Occupancy occupancy(const GpuArch& arch, const KernelResources& kernel);

// For each number of waves that registers allow: the largest number of VGPRs with which they are possible. Sorted by
// waves, ascending.
struct VgprStep {
  int waves, max_vgprs;
};
std::vector<VgprStep> vgpr_steps(const GpuArch& arch, int wave);

// The same kernel with other block sizes, from one wave to the largest workgroup. Dynamic LDS does not change.
std::vector<Occupancy> over_block_sizes(const GpuArch& arch, const KernelResources& kernel);

// The formula of the MI300X workload guide; only for gfx90a, gfx942 and gfx950 with waves of 64.
struct GuideFigure {
  double waves_per_simd;
  std::vector<std::string> why_wrong;  // empty: it agrees
};
std::optional<GuideFigure> guide_formula(const Occupancy& o);
// The VGPR counts, as ranges, for which that formula is wrong even for registers alone.
std::vector<std::pair<int, int>> guide_wrong_vgprs(const GpuArch& arch);

// How to request `waves_per_simd` waves from a compiler: "__launch_bounds__(256, 3) in HIP, waves_per_eu=3 in Triton".
std::string compiler_hint(int block, int waves_per_simd);

// The "occupancy" object of the inspect document, with the table over block sizes.
nlohmann::json to_json(const Occupancy& o);

}  // namespace pyflame::tools::inspect
