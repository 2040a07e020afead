// separate: divides a graph into what is computed once and what is computed in each run.
//
// A node is constant if it reads lasting slots and outputs of constant nodes only, is elementwise or a reduction, and
// nothing outside the window sees its output. Products are never constant: a library may add in another order if the product is
// computed elsewhere. All other results have the same bits wherever they are computed, so this rewrite is exact.
#include "pyflame/compile/constants.h"

#include <algorithm>

namespace pyflame {

namespace {

bool may_be_constant(const Node& n) {
  const OpClass c = n.info().cls;
  if (n.outs.size() != 1 || n.info().may_fail) return false;
  if (c == OpClass::Source) return n.op == OpId::full || n.op == OpId::arange;
  return is_elementwise(c) || c == OpClass::Reduce;
}

// By slot and by node, by repetition until nothing changes: what cannot be constant makes its outputs and their readers
// not constant.
void find_constants(Parts& p, const Indexed<SlotId, Origin>& origins) {
  const Graph& g = p.graph;
  Indexed<SlotId, bool> written(g.slots.size(), false);
  for (const Node& n : g.nodes)
    for (const Operand& o : n.outs) written[g.slot(o)] = true;
  for (const SlotId s : g.slots.ids())
    p.constant_slot[s] = g.slots[s].external && origins[s] != Origin::Empty
                             ? origins[s] == Origin::Lasting && !written[s]
                             : !g.slots[s].live && written[s];
  for (bool changed = true; changed;) {
    changed = false;
    for (const NodeId id : g.nodes.ids()) {
      const Node& n = g.nodes[id];
      bool constant = may_be_constant(n);
      for (const Operand& o : n.ins) constant = constant && (o.is_param || p.constant_slot[g.slot(o)]);
      for (const Operand& o : n.outs) constant = constant && p.constant_slot[g.slot(o)];
      p.constant[id] = constant;
      if (constant) continue;
      for (const Operand& o : n.outs) {
        changed = changed || p.constant_slot[g.slot(o)];
        p.constant_slot[g.slot(o)] = false;
      }
    }
  }
}

// Whether a slot that would be constant is read in each run before its last write, as when a part of it is replaced.
bool reads_early(const Parts& p) {
  const Graph& g = p.graph;
  Indexed<SlotId, NodeId> last(g.slots.size());
  for (const NodeId id : g.nodes.ids())
    for (const Operand& o : g.nodes[id].outs) last[g.slot(o)] = id;
  for (const NodeId id : g.nodes.ids())
    for (const Operand& o : g.nodes[id].ins)
      if (!p.constant[id] && p.is_constant(o) && last[g.slot(o)] > id) return true;
  return false;
}

// Slots that hold something computed of a lasting value, and not of sources alone.
Indexed<SlotId, bool> of_lasting(const Parts& p, const Indexed<SlotId, Origin>& origins) {
  const Graph& g = p.graph;
  Indexed<SlotId, bool> derived(g.slots.size(), false);
  for (const SlotId s : origins.ids()) derived[s] = origins[s] == Origin::Lasting;
  for (const NodeId id : g.nodes.ids()) {
    if (!p.constant[id]) continue;
    bool any = false;
    for (const Operand& o : g.nodes[id].ins) any = any || (!o.is_param && derived[g.slot(o)]);
    if (any) derived[g.slot(g.nodes[id].outs[0])] = true;
  }
  for (const SlotId s : origins.ids()) derived[s] = derived[s] && origins[s] != Origin::Lasting;
  return derived;
}

// Whether a reader gains if this value is kept. A loop that reads a weight gains nothing from reading a kept copy of the same size.
bool gains(const Graph& g, const Node& reader, const Operand& o) {
  if (reader.info().cls == OpClass::Other) return true;
  return is_elementwise(reader.info().cls) &&
         static_cast<int64_t>(g.slot_info(o).nbytes) / dtype_size(o.dtype) * 2 <= reader.outs[0].numel();
}

// Values of weights that would be kept if nothing saw them after the window.
void note_what_is_seen(Parts& p, const Indexed<SlotId, Origin>& origins) {
  const Graph& g = p.graph;
  const Indexed<SlotId, bool> derived = of_lasting(p, origins);
  for (const NodeId id : g.nodes.ids()) {
    const Node& n = g.nodes[id];
    if (is_skipped(n) || p.constant[id] || !may_be_constant(n) || !g.slot_info(n.outs[0]).live) continue;
    bool lasting = false, constant = true;
    for (const Operand& o : n.ins) {
      constant = constant && (o.is_param || p.is_constant(o));
      if (o.is_param) continue;
      const SlotId slot = g.slot(o);
      lasting = lasting || derived[slot] || (origins.contains(slot) && origins[slot] == Origin::Lasting);
    }
    const auto reads = [&](const Node& reader) {
      return std::any_of(reader.ins.begin(), reader.ins.end(), [&](const Operand& o) {
        return !o.is_param && g.slot(o) == g.slot(n.outs[0]) && gains(g, reader, o);
      });
    };
    if (lasting && constant && std::any_of(g.nodes.begin(), g.nodes.end(), reads))
      p.note(Rewrite::KeptValues, false, id, "a variable or the tape of a gradient holds what is computed of a weight");
  }
}

// What a part needs: the nodes that write `wanted` and what those read, except for `given`. In program order from the
// end, so that added nodes, which come last and read what comes before, are met first.
void mark_needed(const Parts& p, Indexed<SlotId, bool> wanted, const Indexed<SlotId, bool>& given,
                 Indexed<NodeId, bool>& needed) {
  const Graph& g = p.graph;
  for (size_t i = g.nodes.size(); i-- > 0;) {
    const NodeId id(i);
    const Node& n = g.nodes[id];
    bool here = needed[id];
    for (const Operand& o : n.outs) here = here || (p.constant[id] && wanted[g.slot(o)] && !given[g.slot(o)]);
    needed[id] = here;
    if (!here) continue;
    for (const Operand& o : n.ins)
      if (!o.is_param) wanted[g.slot(o)] = true;
  }
}

void find_inputs(const Graph& window, const Indexed<SlotId, Origin>& origins, Separated& s) {
  const auto add = [](auto& list, auto id) {
    if (std::find(list.begin(), list.end(), id) == list.end()) list.push_back(id);
  };
  const auto params = static_cast<size_t>(window.params);
  for (const Node& n : s.first.graph.nodes) {
    for (const Operand& o : n.ins) {
      if (!o.is_param) {
        const SlotId slot = s.first.graph.slot(o);
        add(s.bindings, o.binding);
        if (origins.contains(slot) && origins[slot] == Origin::Lasting) add(s.roots, slot);
      } else if (o.param.index() < params) {
        add(s.params, o.param);
      }
    }
    for (const Operand& o : n.outs) {
      add(s.bindings, o.binding);
      if (s.first.graph.slot_info(o).external) add(s.empty, s.first.graph.slot(o));
    }
  }
}

Separated take_apart(Parts&& p, const Graph& window, const Indexed<SlotId, Origin>& origins,
                     const Indexed<SlotId, bool>& kept) {
  const Graph& g = p.graph;
  Separated s{{g, p.added}, {g, p.added}, {}, {}, {}, {}, {}, std::move(p.notes)};
  const Indexed<SlotId, bool> none(g.slots.size(), false);
  Indexed<NodeId, bool> first(g.nodes.size(), false), rest(g.nodes.size(), false);
  for (const NodeId id : g.nodes.ids()) rest[id] = !p.constant[id];
  mark_needed(p, kept, none, first);
  mark_needed(p, none, kept, rest);
  for (const NodeId id : g.nodes.ids()) {
    if (!first[id]) skip(s.first.graph.nodes[id]);
    if (!rest[id]) skip(s.rest.graph.nodes[id]);
  }
  for (const SlotId slot : g.slots.ids()) {
    s.first.graph.slots[slot].donatable = false;
    if (!kept[slot]) continue;
    s.kept.push_back(slot);
    s.first.graph.slots[slot].live = true;
    s.rest.graph.slots[slot].external = s.rest.graph.slots[slot].live = true;
  }
  for (const NodeId id : g.nodes.ids()) {
    if (!first[id] || !kept[g.slot(g.nodes[id].outs[0])]) continue;
    const size_t n = s.kept.size();
    s.notes.push_back({Rewrite::KeptValues, true, id,
                       fmt::format("{} value{} of weights alone {} computed once and kept", n, n == 1 ? "" : "s",
                                   n == 1 ? "is" : "are")});
    break;
  }
  find_inputs(window, origins, s);
  return s;
}

}  // namespace

Indexed<SlotId, Users> Parts::users() const {
  Indexed<SlotId, Users> all(graph.slots.size());
  const auto add = [](std::vector<NodeId>& list, NodeId id) {
    if (list.empty() || list.back() != id) list.push_back(id);
  };
  for (const NodeId id : graph.nodes.ids()) {
    if (constant[id]) continue;
    for (const Operand& o : graph.nodes[id].ins)
      if (!o.is_param) add(all[graph.slot(o)].readers, id);
    for (const Operand& o : graph.nodes[id].outs) add(all[graph.slot(o)].writers, id);
  }
  return all;
}

Operand with_geometry(Operand o, const Dims& shape, const Dims& strides) {
  o.shape = shape;
  o.strides = strides;
  o.contiguous = is_contiguous(shape, strides);
  return o;
}

bool is_whole(const Graph& g, const Operand& o) { return !o.is_param && o.contiguous && g.covers_slot(o); }

Operand Parts::add_slot(DType dtype, const Dims& shape, const Dims& strides, bool is_constant) {
  Operand o;
  o.dtype = dtype;
  o = with_geometry(o, shape, strides);
  added.slots.push_back(o.nbytes());
  const SlotId slot = graph.slots.push_back({.nbytes = o.nbytes(), .external = false, .live = false});
  constant_slot.push_back(is_constant);
  added.bindings.push_back({slot, 0});
  o.binding = graph.bindings.push_back({slot});
  return o;
}

Operand Parts::part_of(const Operand& whole, int64_t first, const Dims& shape, const Dims& strides) {
  Operand o = with_geometry(whole, shape, strides);
  if (first == 0) return o;
  const SlotId slot = graph.slot(whole);
  added.bindings.push_back({slot, first * dtype_size(whole.dtype)});
  o.binding = graph.bindings.push_back({slot});
  return o;
}

Operand Parts::add_constant(OpId op, std::vector<Operand> ins, Operand out, NodeId line) {
  Node n;
  n.op = op;
  n.ins = std::move(ins);
  n.outs = {out};
  n.loc = graph.nodes[line].loc;
  graph.nodes.push_back(std::move(n));
  added.lines.push_back(line);
  constant.push_back(true);
  return out;
}

std::optional<Separated> separate(const Rewritten& prepared, const Indexed<SlotId, Origin>& origins, uint32_t active,
                                  std::vector<RewriteNote>* left) {
  if (!is_on(active, Rewrite::KeptValues)) return std::nullopt;
  if (std::find(origins.begin(), origins.end(), Origin::Lasting) == origins.end()) return std::nullopt;
  const Graph& graph = prepared.graph;
  Parts p{graph,
          prepared.added,
          Indexed<NodeId, bool>(graph.nodes.size(), false),
          Indexed<SlotId, bool>(graph.slots.size(), false),
          {}};
  find_constants(p, origins);
  if (reads_early(p)) return std::nullopt;
  if (is_on(active, Rewrite::FoldedNorms)) fold_norms(p);
  if (is_on(active, Rewrite::MergedProducts)) merge_products(p);
  const Indexed<SlotId, bool> derived = of_lasting(p, origins);
  Indexed<SlotId, bool> kept(p.graph.slots.size(), false);
  bool any = false;
  for (const NodeId id : p.graph.nodes.ids()) {
    const Node& n = p.graph.nodes[id];
    if (p.constant[id]) continue;
    for (const Operand& o : n.ins)
      if (p.is_constant(o) && derived[p.graph.slot(o)] && gains(p.graph, n, o)) any = kept[p.graph.slot(o)] = true;
  }
  if (!any) {
    note_what_is_seen(p, origins);
    if (left) *left = std::move(p.notes);
    return std::nullopt;
  }
  return take_apart(std::move(p), graph, origins, kept);
}

}  // namespace pyflame
