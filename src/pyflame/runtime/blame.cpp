// See blame.h.
#include "pyflame/runtime/blame.h"

#include "pyflame/record/location.h"

namespace pyflame {

std::string with_context(const std::string& what, const Program& p, const Step& step, const SourceLoc& loc) {
  const Graph& g = p.graph;
  std::string text = what;
  const Node& n = g.nodes[static_cast<size_t>(step.group.nodes[0])];
  text += fmt::format("\n  while running {}", describe_node(g, n));
  if (step.group.nodes.size() > 1) text += fmt::format(" and {} ops fused with it", step.group.nodes.size() - 1);
  text += fmt::format(" with {} on {}", step.impl, g.device.str());
  if (loc.code) text += fmt::format("\n  recorded at {}", describe_location(loc));
  return text;
}

// What is computed from poisoned inputs is poisoned; a step with a sound output left still runs.
bool spread_poison(const Program& p, const Step& step, Poisons& poison) {
  const auto slot = [&](const Operand& o) {
    return static_cast<size_t>(p.graph.bindings[static_cast<size_t>(o.index)].slot);
  };
  for (const int32_t m : step.group.nodes) {
    const Node& n = p.graph.nodes[static_cast<size_t>(m)];
    std::shared_ptr<const Poison> found;
    for (const Operand& o : n.ins)
      if (!o.is_param && !found) found = poison[slot(o)];
    for (const Operand& o : n.outs) {
      const bool whole = static_cast<size_t>(o.numel() * dtype_size(o.dtype)) == p.graph.slots[slot(o)].nbytes;
      if (found || whole) poison[slot(o)] = found;
    }
  }
  for (const int32_t s : step.writes)
    if (!poison[static_cast<size_t>(s)]) return true;
  return false;
}

}  // namespace pyflame
