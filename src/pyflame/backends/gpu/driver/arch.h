// What the run-time compiler must be told about a device.
#pragma once
#include <string>

#include "pyflame/backends/gpu/driver/rt.h"

namespace pyflame::gpu {

std::string arch_name(const Rt& rt, int ordinal);  // "gfx942", "sm_90"

// HIP counts pairs of compute units (WGPs) on RDNA, unless GPU_ENABLE_WGP_MODE=0; data sheets, and PyFlame, count compute units.
int compute_units(const std::string& arch, int multiprocessors);

// Matrix units for which kernels/device/mma.h has instructions.
bool has_matrix_units(const std::string& arch);

// HSA_OVERRIDE_GFX_VERSION makes the HIP runtime take a GPU for another one. Within a family of instruction sets that is a known way
// around a missing table; into another one it runs code that the GPU does not have, and computes garbage or hangs. `value` is the
// variable's, `version` the driver's number of the real GPU (90402 is gfx942). Empty where nothing is wrong.
std::string override_refusal(const std::string& variable, const std::string& value, int version);
// The same for the GPUs of this machine and this process's variables.
std::string override_refusal();

}  // namespace pyflame::gpu
