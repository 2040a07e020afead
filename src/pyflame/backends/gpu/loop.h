// Fused Loop groups: one kernel generated from the group's expression, the same text for both vendors. Sizes, strides and params are
// run-time arguments, so that a new shape of the same structure is no new kernel.
#pragma once
#include "pyflame/backends/gpu/device.h"

namespace pyflame::gpu {

extern const Impl kLoop;

// The text of the kernel of a group that they accept.
std::string loop_source(const Problem& p);

}  // namespace pyflame::gpu
