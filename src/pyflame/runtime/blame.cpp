// Texts of errors in a step, and how poison spreads through a step.
#include "pyflame/runtime/blame.h"

#include <algorithm>

#include "pyflame/base/location.h"

namespace pyflame {

namespace {
constexpr size_t kMostTold = 16;  // at most this many ops of a fused group are listed

std::string place(const SourceLoc& loc) { return loc.code ? describe_location(loc) : std::string(); }

// A kernel of several ops says which of them failed: its message begins with that op's name.
size_t blamed_node(const std::string& what, const Graph& g, const Group& group) {
  const std::string_view name = std::string_view(what).substr(0, what.find(':'));
  for (size_t i = 0; i < group.nodes.size(); ++i)
    if (op_name(group.node(g, i).op) == name) return i;
  return 0;
}
}  // namespace

std::string with_context(const std::string& what, const Program& p, const Step& step, std::span<const SourceLoc> locs) {
  const Graph& g = p.graph;
  const std::vector<NodeId>& nodes = step.group.nodes;
  const auto described = [&](size_t i) { return describe_node(g, step.group.node(g, i)); };
  const bool all = locs.size() == nodes.size();
  const size_t blamed = all ? blamed_node(what, g, step.group) : 0;
  std::string text =
      fmt::format("{}\n  while running {} with {} on {}", what, described(blamed), step.impl, g.device.str());
  if (const std::string at = place(locs[blamed]); !at.empty()) text += "\n  recorded at " + at;
  if (nodes.size() == 1) return text;
  text += fmt::format("\n  in one kernel with {} other {}:", nodes.size() - 1, nodes.size() == 2 ? "op" : "ops");
  for (size_t i = 0; i < std::min(nodes.size(), kMostTold); ++i)
    if (i != blamed) text += fmt::format("\n    {}  {}", described(i), all ? place(locs[i]) : "");
  if (nodes.size() > kMostTold) text += "\n    ...";
  return text;
}

// Outputs that are computed from poisoned inputs become poisoned. A step runs if it has any other output.
bool spread_poison(const Program& p, const Step& step, Poisons& poison) {
  const Graph& g = p.graph;
  for (const NodeId m : step.group.nodes) {
    const Node& n = g.nodes[m];
    // Multi-tensor updates: each output depends only on its own gradient and state.
    const size_t apart = n.info().tensors_apart ? static_cast<size_t>(n.attr<OptimAttrs>().count) : 1;
    for (size_t i = 0; i < n.outs.size(); ++i) {
      const Operand& o = n.outs[i];
      std::shared_ptr<const Poison> found;
      for (size_t k = i % apart; k < n.ins.size() && !found; k += apart)
        if (!n.ins[k].is_param) found = poison[g.slot(n.ins[k])];
      if (found || g.covers_slot(o)) poison[g.slot(o)] = found;
    }
  }
  for (const SlotId s : step.writes)
    if (!poison[s]) return true;
  return false;
}

}  // namespace pyflame
