// The kernels of a fused Loop group: their text, and the sources of their arguments. Sizes and strides are arguments,
// so a new shape of the same structure needs no new kernel.
//
// A group of elementwise nodes is one kernel over its flattened space. Row reductions: the level of a value is the
// number of reductions that must be complete before it. A kernel passes over a row once per level. Values that a later
// level needs again are recomputed from the group's inputs. Outputs are stored at the first level at which they are
// known. A workgroup (or part of a wave) handles a row. If there are few long rows, they are divided into segments:
// then each level is a kernel, and a second kernel combines the segments. Column reductions come last: one pass over
// the rows, and one over the segments.
#pragma once
#include <array>
#include <string>
#include <vector>

#include "pyflame/backends/backend.h"
#include "pyflame/backends/gpu/loops/expression.h"
#include "pyflame/backends/gpu/loops/loop_shape.h"

namespace pyflame::gpu {

struct LoopArgument {
  enum Kind : uint8_t { Pointer, Workspace, Parameter, Value } kind;
  BindingId binding{};                 // Pointer
  Expressions::ParamUse param{};       // Parameter
  std::array<uint64_t, 2> value = {};  // Value; Workspace: its offset
  uint32_t bytes = 8;
};

struct LoopKernel {
  std::string source;
  std::array<unsigned, 3> grid = {1, 1, 1};
  std::vector<LoopArgument> arguments;
  struct Alignment {
    BindingId binding;
    uint32_t bytes;
  };
  std::vector<Alignment> aligned;  // what the vector accesses need
};

struct LoopPlan {
  std::vector<LoopKernel> kernels;  // in the order in which they run
  size_t workspace = 0;
};

// `vectors`: with vector accesses, if sizes and strides allow them.
LoopPlan plan_loop(const Problem& p, bool vectors, const LoopShape& shape);
inline LoopPlan plan_loop(const Problem& p, bool vectors) { return plan_loop(p, vectors, own_shape(p)); }

}  // namespace pyflame::gpu
