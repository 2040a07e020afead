// split: makes groups smaller that only the slow loops would accept.
//
// Takes    the groups with their selected implementations, and the cuts with which they were made.
// Returns  stricter cuts, or nothing if all groups are accepted. `group` then runs again, instead of cutting the groups
// here, because
//          the nodes that are cut off may join later groups.
// Ensures  each call that returns cuts makes some group smaller, so the repetition ends: a bias gradient is separated
// from its matmul;
//          an epilogue keeps its first nodes (a library adds a bias, and a loop does the rest); the nodes of a loop become single,
//          so that only the node in question is slow.
#include "pyflame/compile/passes.h"

namespace pyflame {

namespace {

void tighten(const Graph& graph, const Group& group, Cuts& cuts) {
  if (group.summed >= 0) {
    for (const NodeId m : group.nodes)
      if (graph.nodes[m].info().cls == OpClass::Reduce) cuts.apart[m] = true;
  } else if (group.kind == GroupKind::Epilogue) {
    cuts.most[group.nodes[0]] = group.nodes.size() - 1;
  } else {
    for (const NodeId m : group.nodes) cuts.most[m] = 1;
  }
}

}  // namespace

std::optional<Cuts> split(const Graph& graph, std::span<const Group> groups, std::span<const Selection> selections,
                          const Backend& backend, const Cuts& cuts) {
  std::optional<Cuts> stricter;
  for (size_t k = 0; k < groups.size(); ++k) {
    if (groups[k].nodes.size() < 2) continue;
    if (selections[k].impl && !selections[k].falls_back(backend)) continue;
    if (!stricter) stricter = cuts;
    tighten(graph, groups[k], *stricter);
  }
  return stricter;
}

}  // namespace pyflame
