// Fused Loop groups as kernels that are generated from the group's expression, with the same text for both vendors.
// Sizes, strides and params are run-time arguments, so a new shape of the same structure needs no new kernel.
#pragma once
#include "pyflame/backends/gpu/loops/loop_source.h"

namespace pyflame::gpu {

extern const Impl kLoop;
// For how many nodes of a loop, from the first one on, a kernel has registers (registers.cpp).
size_t most_nodes(const Problem& loop);
extern const Impl kEmptyReduction;  // a reduction over no elements, which needs no loop

}  // namespace pyflame::gpu
