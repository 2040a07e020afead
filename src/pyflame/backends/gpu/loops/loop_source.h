// The kernels of a fused Loop group: their text, and what the arguments are made of. Sizes and strides are arguments, so that a new shape
// of the same structure is no new kernel.
//
// A group of maps is one kernel over its flattened space. Reductions of rows: a value's level is the number of reductions that must be
// known before it, and a row is gone over once per level; what a later level needs again is computed again from the group's inputs; what
// is stored, is stored at the first level that knows it. A workgroup (or part of a wave) has a row; few long rows are cut into segments,
// each level is then a kernel, and a second one brings the segments together. Reductions of columns come last: one pass over the rows,
// and one over the segments.
#pragma once
#include <array>
#include <string>
#include <vector>

#include "pyflame/backends/backend.h"
#include "pyflame/backends/gpu/loops/expression.h"

namespace pyflame::gpu {

struct LoopArgument {
  enum Kind : uint8_t { Pointer, Workspace, Parameter, Value } kind;
  int32_t binding = 0;                 // Pointer
  Expressions::ParamUse param{};       // Parameter
  std::array<uint64_t, 2> value = {};  // Value; Workspace: its offset
  uint32_t bytes = 8;
};

struct LoopKernel {
  std::string source;
  std::array<unsigned, 3> grid = {1, 1, 1};
  std::vector<LoopArgument> arguments;
  struct Alignment {
    int32_t binding;
    uint32_t bytes;
  };
  std::vector<Alignment> aligned;  // what the vector accesses rely on
};

struct LoopPlan {
  std::vector<LoopKernel> kernels;  // in the order in which they run
  size_t workspace = 0;
};

// `vectors`: with accesses of several elements, where shapes and strides allow.
LoopPlan plan_loop(const Problem& p, bool vectors);

}  // namespace pyflame::gpu
