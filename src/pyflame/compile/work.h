// What a group of nodes has to do at least: memory traffic and arithmetic. Profiles and pf.explain both use it.
#pragma once
#include <cstdint>

#include "pyflame/backends/backend.h"

namespace pyflame {

struct GroupWork {
  Work kind = Work::Other;
  int64_t bytes = 0;             // of memory traffic: each operand once, and nothing for values inside the group
  double flops = 0;              // of products, convolutions and attention; 0: memory traffic limits the group
  DType dtype = DType::float32;  // in which it computes: that of the root's first operand
};
GroupWork work_of(const Graph& graph, const Group& group);

}  // namespace pyflame
