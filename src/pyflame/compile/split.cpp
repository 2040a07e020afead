// split: groups of several nodes that no implementation of their own takes become smaller.
//
// Takes    the groups with what was selected for them, and the cuts that they were made with.
// Returns  stricter cuts, or nothing when all groups are accepted. `group` runs again with them, rather than the group being cut on the
//          spot, because what is cut off may join what comes after it.
// Holds    every call that returns cuts makes some group smaller, so that the repetition ends: a sum beside a product comes apart; an
//          epilogue keeps its first nodes (a library adds a bias, and a loop does the rest); the nodes of a loop are alone, so that no
//          more than the one in question is slow.
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
