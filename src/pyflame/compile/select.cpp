// select: chooses the implementation of a group.
//
// Takes    a group of the graph.
// Returns  the first of the backend's implementations that accepts the group, with the refusals of those before it;
// none if all refuse.
// Ensures  nothing is made yet: an implementation is asked once per group, and the answer depends on the group alone.
#include "pyflame/compile/passes.h"

namespace pyflame {

bool Selection::falls_back(const Backend& backend) const {
  return backend.last_is_slow() && impls.size() > 1 && impl == impls.size() - 1;
}

Selection select(const Graph& graph, const Group& group, const Backend& backend) {
  const Problem problem{graph, group};
  Selection s;
  s.impls = backend.impls(problem);
  for (size_t i = 0; i < s.impls.size() && !s.impl; ++i) {
    Refusal no = s.impls[i].accepts(problem);
    if (no) s.refused.push_back({s.impls[i].name, std::move(*no)});
    else s.impl = i;
  }
  return s;
}

}  // namespace pyflame
