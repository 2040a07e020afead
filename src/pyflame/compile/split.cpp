// split: makes groups smaller that only the slow loops would accept, or that need more registers than a kernel has.
//
// Takes    the groups with their selected implementations, and the cuts with which they were made.
// Returns  stricter cuts, or nothing if all groups can stay. `group` then runs again, instead of cutting the groups
// here, because
//          the nodes that are cut off may join later groups.
// Ensures  each call that returns cuts makes some group smaller, so the repetition ends: a bias gradient is separated
// from its matmul;
//          an epilogue keeps its first nodes (a library adds a bias, and a loop does the rest); the nodes of a loop become single,
//          so that only the node in question is slow; a loop with too many values keeps as many nodes as the backend says.
#include <algorithm>

#include "pyflame/compile/passes.h"

namespace pyflame {

namespace {

void tighten(const Graph& graph, const Group& group, const std::string& why, Cuts& cuts) {
  const auto limit = [&](NodeId m, size_t most) {
    cuts.most[m] = most;
    cuts.why.emplace_back(m, why);
  };
  if (group.summed >= 0) {
    for (const NodeId m : group.nodes) {
      if (graph.nodes[m].info().cls != OpClass::Reduce) continue;
      cuts.apart[m] = true;
      cuts.why.emplace_back(m, why);
    }
  } else if (group.kind == GroupKind::Epilogue) {
    limit(group.nodes[0], group.nodes.size() - 1);
  } else {
    for (const NodeId m : group.nodes) limit(m, 1);
  }
}

// "cpu.gemv: takes single nodes only; onednn.sgemm: ...": why no fast implementation takes a group.
std::string refusals_of(const Selection& s) {
  std::string text;
  for (const Refused& r : s.refused) text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", r.impl, r.reason);
  return text;
}

}  // namespace

std::optional<Cuts> split(const Graph& graph, std::span<const Group> groups, std::span<const Selection> selections,
                          const Backend& backend, const Cuts& cuts) {
  std::optional<Cuts> stricter;
  for (size_t k = 0; k < groups.size(); ++k) {
    const Group& group = groups[k];
    if (group.nodes.size() < 2) continue;
    const bool accepted = selections[k].impl && !selections[k].falls_back(backend);
    const size_t fits = group.kind == GroupKind::Loop ? backend.most_nodes({graph, group}) : group.nodes.size();
    if (accepted && fits >= group.nodes.size()) continue;
    if (!stricter) stricter = cuts;
    if (accepted) {
      stricter->most[group.nodes[0]] = std::max<size_t>(1, fits);
      stricter->why.emplace_back(group.nodes[0], "a larger loop has more values than a kernel's registers hold");
    } else {
      tighten(graph, group, refusals_of(selections[k]), *stricter);
    }
  }
  return stricter;
}

}  // namespace pyflame
