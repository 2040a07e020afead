// Executables of ops with kernels of their own. Each is offered for Single groups.
#pragma once
#include "pyflame/backends/gpu/device.h"

namespace pyflame::gpu {

// Implementations of an op, best first; empty where there is none yet.
std::span<const Impl> op_impls(DeviceType type, OpId op);

}  // namespace pyflame::gpu
