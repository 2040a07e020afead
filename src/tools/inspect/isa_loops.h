// The shape of a kernel: basic blocks, and the natural loops that its back edges make. A back edge is a branch to a block through
// which every way to the branch leads; branches backwards that are not (jumps into the middle of something) make no loop.
#pragma once
#include <vector>

#include "tools/inspect/isa_classify.h"

namespace pyflame::tools::inspect {

struct BasicBlock {
  uint32_t first = 0, last = 0;  // instructions [first, last)
  int32_t next[2] = {-1, -1};    // blocks that may follow
  int32_t loop = -1;             // the innermost loop that it belongs to
};

struct Loop {
  uint32_t header = 0;
  std::vector<uint32_t> blocks;  // ascending, with those of loops inside
  int parent = -1;               // the loop around it
  int depth = 1;                 // 1: not inside of another
  bool innermost = true;
};

struct ControlFlow {
  std::vector<BasicBlock> blocks;  // by address
  std::vector<Loop> loops;         // by address of their header; an outer loop stands before what is inside
  bool complete = true;            // false: so many loops in each other that some were left out
};

ControlFlow control_flow(const std::vector<Op>& ops);

}  // namespace pyflame::tools::inspect
