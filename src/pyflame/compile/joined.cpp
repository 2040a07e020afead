#include "pyflame/compile/joined.h"

#include <map>

#include "pyflame/compile/passes.h"
#include "pyflame/compile/work.h"

namespace pyflame {

namespace {

// Adds windows to one graph, in which equal storages are one slot and equal addresses one binding.
class Joined {
 public:
  void add(const Placed& w) {
    const Graph& from = w.program->graph;
    g_.device = from.device;
    for (const SlotId s : from.slots.ids()) add_slot(w.storages[s], from.slots[s]);
    for (const Node& n : from.nodes) {
      Node copy = n;
      for (auto* operands : {&copy.ins, &copy.outs})
        for (Operand& o : *operands) {
          if (o.is_param) o.param = ParamId(o.param.value() + g_.params);
          else o.binding = binding(w.storages[from.slot(o)], w.offsets[o.binding]);
        }
      g_.nodes.push_back(std::move(copy));
    }
    g_.params += from.params;
  }
  const Graph& graph() const { return g_; }

 private:
  void add_slot(uint64_t storage, const SlotInfo& info) {
    const auto [at, fresh] = slots_.try_emplace(storage, g_.slots.end_id());
    if (fresh) {
      g_.slots.push_back(info);
      return;
    }
    // The later window knows better what is needed afterwards.
    g_.slots[at->second].live = info.live;
  }
  BindingId binding(uint64_t storage, int64_t offset) {
    const auto [at, fresh] = bindings_.try_emplace({storage, offset}, g_.bindings.end_id());
    if (fresh) g_.bindings.push_back({slots_.at(storage)});
    return at->second;
  }

  Graph g_;
  std::map<uint64_t, SlotId> slots_;
  std::map<std::pair<uint64_t, int64_t>, BindingId> bindings_;
};

int64_t traffic_of(const Program& p) {
  int64_t bytes = 0;
  for (const Step& s : p.steps) bytes += work_of(p.graph, s.group).bytes;
  return bytes;
}

// The two ops, one of each window, that are in one group and share the largest value.
std::string ops_across(const Graph& g, const std::vector<Group>& groups, size_t first_nodes) {
  int64_t largest = 0;
  std::string ops;
  for (const Group& group : groups)
    for (const NodeId reader : group.nodes) {
      if (reader.index() < first_nodes) continue;
      for (const NodeId other : group.nodes) {
        if (other.index() >= first_nodes) continue;
        for (const Operand& o : g.nodes[reader].ins)
          for (const auto* operands : {&g.nodes[other].outs, &g.nodes[other].ins})
            for (const Operand& with : *operands) {
              if (o.is_param || with.is_param || with.binding != o.binding) continue;
              if (static_cast<int64_t>(o.nbytes()) <= largest) continue;
              largest = static_cast<int64_t>(o.nbytes());
              ops = fmt::format("{} -> {}", op_name(g.nodes[other].op), op_name(g.nodes[reader].op));
            }
      }
    }
  return ops;
}

}  // namespace

Across saved_by_joining(const Placed& first, const Placed& second) {
  Joined joined;
  joined.add(first);
  joined.add(second);
  const Program &a = *first.program, &b = *second.program;
  const Graph& g = joined.graph();
  const Grouping r = group_and_select(g, *a.backend, a.rules);
  int64_t bytes = 0;
  for (const Group& group : r.groups) bytes += work_of(g, group).bytes;
  Across across;
  across.saves = traffic_of(a) + traffic_of(b) - bytes;
  if (across.saves > 0) across.ops = ops_across(g, r.groups, a.graph.nodes.size());
  if (across.ops.empty()) across.saves = 0;  // what is stored no longer is no merit of a fusion
  return across;
}

}  // namespace pyflame
