// Fused Loop groups: kernels generated from the group's expression, the same text for both vendors. Sizes, strides and params are
// run-time arguments, so that a new shape of the same structure is no new kernel.
#pragma once
#include "pyflame/backends/gpu/loops/loop_source.h"

namespace pyflame::gpu {

extern const Impl kLoop;
extern const Impl kEmptyReduction;  // a reduction over no elements, which has no loop

}  // namespace pyflame::gpu
