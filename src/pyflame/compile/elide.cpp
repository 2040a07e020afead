// The last part of `group`: which values only their own group uses.
#include "pyflame/compile/passes.h"

namespace pyflame {

// Fills Group::elided: values that are written and read only in one group of several nodes, through one binding, and
// not needed afterwards.
void find_elided(const Graph& graph, std::vector<Group>& groups) {
  constexpr int kUntouched = -1, kSeveral = -2;
  struct Use {
    int group = kUntouched;  // the only group that uses the slot
    BindingId binding;       // the only binding through which it is used
    bool one_binding = true, read = false;
  };
  Indexed<SlotId, Use> uses(graph.slots.size());
  const auto visit = [&](const Operand& o, int group, bool reads) {
    if (o.is_param) return;
    Use& use = uses[graph.slot(o)];
    use.group = use.group == kUntouched || use.group == group ? group : kSeveral;
    use.one_binding &= !use.binding.valid() || use.binding == o.binding;
    use.binding = o.binding;
    use.read |= reads;
  };
  for (size_t k = 0; k < groups.size(); ++k)
    for (const NodeId m : groups[k].nodes) {
      for (const Operand& o : graph.nodes[m].ins) visit(o, static_cast<int>(k), true);
      for (const Operand& o : graph.nodes[m].outs) visit(o, static_cast<int>(k), false);
    }
  for (Group& group : groups) group.elided.assign(graph.bindings.size(), false);
  for (const SlotId s : graph.slots.ids()) {
    const Use& use = uses[s];
    if (graph.slots[s].external || graph.slots[s].live || use.group < 0 || !use.one_binding || !use.read) continue;
    Group& group = groups[static_cast<size_t>(use.group)];
    if (group.kind != GroupKind::Single) group.elided[use.binding] = true;
  }
}

}  // namespace pyflame
