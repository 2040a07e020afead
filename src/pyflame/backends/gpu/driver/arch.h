// What the run-time compiler and the kernels must know about a device.
#pragma once
#include <string>

#include "pyflame/backends/gpu/driver/rt.h"

namespace pyflame::gpu {

std::string arch_name(const Rt& rt, int ordinal);  // "gfx942", "sm_90"

// HIP counts pairs of compute units (WGPs) on RDNA, unless GPU_ENABLE_WGP_MODE=0. Data sheets and PyFlame count compute
// units.
int compute_units(const std::string& arch, int multiprocessors);

// The matrix cores for which kernels/device/mma.h has instructions.
bool has_matrix_units(const std::string& arch);

// Whether the matrix instructions take subnormal numbers of 16 bits for 0: those of gfx90a do, both operands and results
// (MIOpen's documentation, "MI200 MFMA behavior specifics").
bool matrix_units_flush(const std::string& arch);

// With HSA_OVERRIDE_GFX_VERSION, the HIP runtime takes a GPU for another one. Within a family of instruction sets, that
// is a known workaround for missing tables. Across families, the GPU gets code that it cannot execute: it computes
// garbage or hangs. `value` is the variable's value, `version` is the driver's number of the real GPU (90402 is
// gfx942). Returns the problem; empty if there is none.
std::string override_refusal(const std::string& variable, const std::string& value, int version);
// The same for the GPUs of this machine and the variables of this process.
std::string override_refusal();

}  // namespace pyflame::gpu
