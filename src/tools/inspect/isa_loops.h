// The structure of a kernel: basic blocks, and the natural loops of its back edges. A back edge is a branch to a block
// that every path to the branch passes. Other backward branches (jumps into the middle of something) make no loop.
#pragma once
#include <vector>

#include "tools/inspect/isa_classify.h"

namespace pyflame::tools::inspect {

struct BasicBlock {
  uint32_t first = 0, last = 0;  // instructions [first, last)
  int32_t next[2] = {-1, -1};    // blocks that may follow
  int32_t loop = -1;             // the innermost loop that contains it
};

struct Loop {
  uint32_t header = 0;
  std::vector<uint32_t> blocks;  // ascending, including those of inner loops
  int parent = -1;               // the loop around it
  int depth = 1;                 // 1: not inside of another
  bool innermost = true;
};

struct ControlFlow {
  std::vector<BasicBlock> blocks;  // by address
  std::vector<Loop> loops;         // by the address of their header; outer loops come before inner ones
  bool complete = true;            // false: loops were nested too deeply, and some were left out
};

ControlFlow control_flow(const std::vector<Op>& ops);

}  // namespace pyflame::tools::inspect
