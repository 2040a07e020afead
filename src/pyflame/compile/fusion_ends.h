// Where fusion ends inside a program: a step reads from memory what an earlier step stored there. For pf.explain.
#pragma once
#include <string>
#include <vector>

#include "pyflame/compile/program.h"

namespace pyflame {

struct FusionEnd {
  size_t from = 0, to = 0;  // steps: the one that stores, and the one that reads
  NodeId writer, reader;    // the ops with the largest value between them
  std::string why;          // the ops are not fused
  // What one kernel for both would not move: each value is not read, and not written either if nothing else needs it.
  int64_t saves = 0;
};
// By the step that reads, then by the bytes, the most first.
std::vector<FusionEnd> fusion_ends(const Program& p);

}  // namespace pyflame
