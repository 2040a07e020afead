// What the run-time compiler must be told about a device.
#pragma once
#include <string>

#include "pyflame/backends/gpu/rt.h"

namespace pyflame::gpu {

std::string arch_name(const Rt& rt, int ordinal);  // "gfx942", "sm_90"

}  // namespace pyflame::gpu
