// group: divides the graph into groups of nodes, each of which becomes one kernel. See docs/internals/fusion.md.
//
// Takes    the legal graph, and the cuts that refusals of implementations have led to so far.
// Returns  groups in an order in which they can run, with their nodes aligned to their spaces (align.h), and the elided
// values.
// Ensures  a node's group never comes before a group with a node that it depends on (reads what that one wrote, or
// writes what that
//          one read or wrote); two bindings of one slot count as overlapping. If one node of a Loop writes a value and another one
//          uses it, both have the same geometry, so that the use is at the same point of the loop. Every node is in one group.
//
// The pass is greedy, in program order: a node joins the latest group that it depends on, if the pattern table and the
// geometry allow it; otherwise a recent group that shares an input; otherwise it opens a group. Whether a node fits is
// computed on values (fit), and a group changes only if it does.
#include <algorithm>
#include <tuple>

#include "pyflame/compile/added.h"
#include "pyflame/compile/align.h"
#include "pyflame/compile/passes.h"

namespace pyflame {

namespace {

constexpr size_t kMaxNodes = 48;         // limits a kernel's registers and operands
constexpr int64_t kMaxSingleRow = 8192;  // a full reduction that its own group reads: too small for parallel threads
constexpr int kNeighbours = 6;
constexpr int kFar = 16;  // number of groups by which a group may be delayed: limits the cost of planning

bool may_open(GroupKind kind, OpId op, OpClass c) {
  (void)op, (void)c;
  switch (kind) {
#define PATTERN(name, root, member, text) \
  case GroupKind::name:                   \
    return root;
#include "pyflame/compile/patterns.def"
#undef PATTERN
  }
  return false;
}

// first: the op of the group's first node.
bool may_join(GroupKind kind, OpId first, OpId op, OpClass c) {
  (void)first, (void)op, (void)c;
  switch (kind) {
#define PATTERN(name, root, member, text) \
  case GroupKind::name:                   \
    return member;
#include "pyflame/compile/patterns.def"
#undef PATTERN
  }
  return false;
}

// Integer division by zero and negative powers of integers are errors. Such ops run alone, so that only their own
// outputs are poisoned and named.
bool may_fail(const Node& n) { return n.info().may_fail && !is_float(n.outs[0].dtype); }

const Dims& space_of(const Node& n) { return n.info().cls == OpClass::Reduce ? n.ins[0].shape : n.outs[0].shape; }

bool is_empty(const Node& n) { return n.outs[0].numel() == 0 || space_of(n).numel() == 0; }

// The operand of a matmul (0 or 1) whose sum over the depth is this node, or -1. The sum must have one dim, with an
// element for each line of the operand.
int operand_summed(const Node& product, const Node& n) {
  if (product.op != OpId::matmul || n.op != OpId::sum || product.outs[0].shape.size() != 2) return -1;
  const Operand &x = n.ins[0], &out = n.outs[0];
  const int64_t axes = n.attr<ReduceAttrs>().axes;
  if (x.shape.size() != 2 || (axes != 1 && axes != 2) || x.dtype != out.dtype || !is_contiguous(out.shape, out.strides))
    return -1;
  const int depth = axes == 1 ? 0 : 1, line = 1 - depth;
  for (const int side : {0, 1}) {
    const Operand& o = product.ins[static_cast<size_t>(side)];
    const int k = side == 0 ? 1 : 0;
    if (o.binding == x.binding && o.shape[k] == x.shape[depth] && o.shape[1 - k] == x.shape[line] &&
        o.strides[k] == x.strides[depth] && o.strides[1 - k] == x.strides[line])
      return side;
  }
  return -1;
}

// A group's id is its position in the order; an invalid id comes before all.
using GroupId = Id<struct GroupTag>;

struct Building {
  Group group;
  Space space;
  bool in_place = false;
  bool open = true;  // false: no node may join it
  GroupId dep;       // the latest other group that a member depends on

  bool loop() const { return group.kind == GroupKind::Loop; }
};

// A node as a member of a group.
struct Fit {
  Aligned aligned;
  bool in_place;  // with this node, the group overwrites an input
};

class Grouper {
 public:
  Grouper(const Graph& graph, const Cuts& cuts, const Rules& rules)
      : g_(graph), cuts_(cuts), rules_(rules), writer_(graph.slots.size()), reader_(graph.slots.size()) {}

  void run() {
    groups_.reserve(g_.nodes.size());
    for (const NodeId id : g_.nodes.ids())
      if (!is_skipped(g_.nodes[id])) place(id);
  }

  std::vector<Group> take() {
    std::vector<Group> out;
    out.reserve(groups_.size());
    for (Building& b : groups_) {
      if (b.group.nodes.empty()) continue;  // merged into another group
      b.group.space = b.space.dims;
      b.group.split = b.space.split;
      out.push_back(std::move(b.group));
    }
    return out;
  }

  // After run().
  std::string why_apart(NodeId reader, NodeId writer) const {
    const Node& n = g_.nodes[reader];
    if (!rules_.fuse) return "fusion is off";
    if (std::string why = why_alone(n); !why.empty()) return why;
    const Building& b = groups_[group_of(writer)];
    const NodeId first = b.group.nodes[0];
    const Node& root = g_.nodes[first];
    const std::string name(op_name(root.op));
    if (may_fail(root) || is_empty(root)) return why_alone(root);
    if (!b.loop() && !may_open(GroupKind::Epilogue, root.op, root.info().cls))
      return fmt::format("{} has a kernel of its own, which takes no further ops", name);
    if (cuts_.most[reader] <= 1) return refusal(reader);
    if (b.group.nodes.size() >= cuts_.most[first]) return refusal(first);
    if (b.group.nodes.size() >= kMaxNodes) return fmt::format("a kernel takes at most {} ops", kMaxNodes);
    if (!b.loop() && n.info().cls == OpClass::Reduce) return fmt::format("a {} does not reduce its own result", name);
    if (!b.loop() && !may_join(GroupKind::Epilogue, root.op, n.op, n.info().cls))
      return fmt::format("a {} does not end with {}", name, op_name(n.op));
    const std::optional<Aligned> aligned = align(n, b.space, b.group.aligned);
    if (!aligned && b.space.dims == space_of(n))
      return fmt::format("the loop of {} cannot reduce over these dims as well", name);
    if (!aligned) return fmt::format("the loops differ: {} and {}", b.space.dims.str(), space_of(n).str());
    if (!compatible(b, *aligned)) return why_incompatible(b, n, *aligned);
    return why_not_before(reader, group_of(writer));
  }

 private:
  // Of a node that fits into no group; or empty.
  std::string why_alone(const Node& n) const {
    const std::string name(op_name(n.op));
    if (may_fail(n)) return fmt::format("{} of integers may fail, so it runs alone", name);
    if (is_empty(n)) return fmt::format("{} has no elements here", name);
    if (!may_open(GroupKind::Loop, n.op, n.info().cls)) return fmt::format("{} has a kernel of its own", name);
    return "";
  }

  // Of a node that would fit into a group, but depends on a later one.
  std::string why_not_before(NodeId id, GroupId k) const {
    const Node& n = g_.nodes[id];
    for (const Operand& o : n.ins) {
      const GroupId other = o.is_param ? GroupId() : latest(g_.slot(o), true, group_of(id));
      if (other <= k) continue;
      const OpId needed = groups_[other].group.root(g_).op;
      return fmt::format("{} also needs {}{}, which is computed between the two", op_name(n.op),
                         needed == n.op ? "another " : "", op_name(needed));
    }
    const Node& root = groups_[group_of(id)].group.root(g_);
    if (groups_[group_of(id)].group.nodes[0] != id)
      return fmt::format("{} is fused with {} instead, which runs later", op_name(n.op), op_name(root.op));
    return "something between the two needs the first one";
  }

  std::string refusal(NodeId id) const {
    for (const auto& [node, why] : cuts_.why)
      if (node == id && !why.empty()) return "no kernel takes both (" + why + ")";
    return fmt::format("{} runs alone", op_name(g_.nodes[id].op));
  }

  // Of a node that has the group's space, but may not use what a member writes or overwrites.
  std::string why_incompatible(const Building& b, const Node& n, const Aligned& a) const {
    for (size_t i = 0; i < b.group.nodes.size(); ++i) {
      const Node& m = g_.nodes[b.group.nodes[i]];
      const Role role = b.loop() ? b.group.roles[i] : Role::Map;
      const bool of_rows = role == Role::RowReduce || role == Role::RowMap;
      const bool late = role == Role::ColReduce || (of_rows && a.role == Role::Map && a.space.split == 0);
      for (const Operand& o : n.ins)
        if (late && is_at(o, g_.slot(m.outs[0])))
          return fmt::format("the result of {} is complete only after the whole loop", op_name(m.op));
    }
    if (b.in_place) return "the loop overwrites one of its inputs, so that it cannot be read again";
    return "the two use the values in different orders";
  }

  GroupId group_of(NodeId id) const {
    for (const GroupId k : groups_.ids()) {
      const std::vector<NodeId>& nodes = groups_[k].group.nodes;
      if (std::find(nodes.begin(), nodes.end(), id) != nodes.end()) return k;
    }
    return {};
  }

  bool fusible(NodeId id) const { return rules_.fuse && cuts_.most[id] > 1 && !may_fail(g_.nodes[id]); }

  void place(NodeId id) {
    const Node& n = g_.nodes[id];
    const OpClass c = n.info().cls;
    auto [last, before] = dependencies(n);
    if (fusible(id) && may_open(GroupKind::Loop, n.op, c) && !is_empty(n)) {
      // If both operands come from loops, tries to merge these: the later loop moves into the earlier one if it depends
      // on nothing after that one, or the earlier one moves into the later one if nothing between them depends on it.
      if (before.valid() && is_elementwise(c)) {
        const bool moved = groups_[last].dep <= before && try_merge(last, before);
        if (!moved && may_wait(before, last)) try_merge(before, last);
        std::tie(last, before) = dependencies(n);
      }
      if (last.valid() && join(id, last)) return;
      // The later group may be able to run first, such as a scale per channel that was recorded after the convolution
      // that it scales.
      if (before.valid() && groups_[last].dep < before && !needs_between(n, before, last) && join(id, before)) {
        move_before(last, before);
        return;
      }
      const int newest = groups_.end_id().value() - 1;
      for (int k = newest; k > last.value() && k > newest - kNeighbours; --k) {
        const Building& b = groups_[GroupId(k)];
        // A node that reads it could not join, so it would have to be stored.
        if (b.space.columns && is_elementwise(c)) continue;
        if (shares_input(n, b) && join(id, GroupId(k))) return;
      }
    }
    open(id, last);
  }

  void open(NodeId id, GroupId dep) {
    const Node& n = g_.nodes[id];
    const OpClass c = n.info().cls;
    const bool empty = is_empty(n);
    Building b;
    b.dep = dep;
    b.group.nodes = {id};
    b.in_place = writes_own_input(n);
    // An empty reduction needs no alignment: its shape is sufficient.
    if (may_open(GroupKind::Loop, n.op, c) && !(empty && c == OpClass::Reduce)) {
      std::optional<Aligned> own = align(n, Space::over(space_of(n), true), {});
      PF_CHECK(own, Runtime, "group: a node does not fit its own space; got {}", describe_node(g_, n));
      b.group.kind = GroupKind::Loop;
      b.group.roles = {own->role};
      b.group.aligned.push_back(std::move(own->node));
      b.space = std::move(own->space);
      b.open = fusible(id) && !empty;
    } else {
      b.group.kind = GroupKind::Single;
      b.space = Space::over(root_form(n.outs[0]).shape, false);
      // One element is not worth it, and a kernel may treat an input of one element as a constant that nothing
      // overwrites.
      b.open = fusible(id) && !empty && n.outs[0].numel() > 1 && may_open(GroupKind::Epilogue, n.op, c);
    }
    touch(n, groups_.push_back(std::move(b)));
  }

  // ---- joining

  bool has_room(const Building& b) const {
    return b.open && b.group.nodes.size() < std::min(kMaxNodes, cuts_.most[b.group.nodes[0]]);
  }

  bool join(NodeId id, GroupId to) {
    Building& b = groups_[to];
    const Node& n = g_.nodes[id];
    const OpClass c = n.info().cls;
    if (!has_room(b) || !may_join(b.loop() ? GroupKind::Loop : GroupKind::Epilogue, b.group.root(g_).op, n.op, c))
      return false;
    if (!b.loop() && c == OpClass::Reduce) return join_bias_gradient(id, to);
    std::optional<Fit> fits = fit(b, n);
    if (!fits) return false;
    add(b, id, std::move(*fits));
    const auto [last, second] = dependencies(n);
    b.dep = std::max(b.dep, last == to ? second : last);
    // The node's own reads may hide those of an earlier group, which must stay before this write.
    for (const Operand& o : n.outs)
      if (reader_[g_.slot(o)] == to) b.dep = std::max(b.dep, latest(g_.slot(o), false, to));
    touch(n, to);
    return true;
  }

  // Adds a bias-gradient epilogue: the sum over the depth of one operand of a matmul. For a layer, this operand is the
  // gradient of the output; the matmul gives the gradient of the weight, and the sum that of the bias.
  bool join_bias_gradient(NodeId id, GroupId to) {
    Building& b = groups_[to];
    const Node& n = g_.nodes[id];
    const GroupId needs = dependencies(n).first;
    if (b.group.summed >= 0 || cuts_.apart[id] || needs >= to) return false;
    const int summed = operand_summed(b.group.root(g_), n);
    if (summed < 0) return false;
    b.group.summed = summed;
    append(b, id, n);
    b.dep = std::max(b.dep, needs);
    touch(n, to);
    return true;
  }

  std::optional<Fit> fit(const Building& b, const Node& n) const {
    std::optional<Aligned> aligned = align(n, b.space, b.group.aligned);
    if (!aligned) return std::nullopt;
    const std::optional<bool> in_place = compatible(b, *aligned);
    if (!in_place) return std::nullopt;
    return Fit{std::move(*aligned), *in_place};
  }

  void add(Building& b, NodeId id, Fit f) {
    Aligned& a = f.aligned;
    if (!a.members.empty()) b.group.aligned = std::move(a.members);
    if (b.loop()) b.group.roles.push_back(a.role);
    b.space = std::move(a.space);
    b.in_place = f.in_place;
    append(b, id, std::move(a.node));
  }

  // The first node that joins a Single group makes it an Epilogue. Its root keeps its own shape.
  void append(Building& b, NodeId id, Node aligned) {
    if (b.group.aligned.empty()) b.group.aligned.push_back(b.group.root(g_));
    if (!b.loop()) b.group.kind = GroupKind::Epilogue;
    b.group.nodes.push_back(id);
    b.group.aligned.push_back(std::move(aligned));
  }

  // Whether everything that the node shares with the group is used at the same point of the loop; and if so, whether
  // the group then overwrites an input.
  std::optional<bool> compatible(const Building& b, const Aligned& a) const {
    const Node& n = a.node;
    bool in_place = b.in_place;
    // A later pass would read what an earlier one has overwritten.
    if (b.in_place && (a.role == Role::RowReduce || a.role == Role::ColReduce)) return std::nullopt;
    const auto writes_same_place = [&](const Operand& o, const Operand& touched) {
      in_place = true;
      return same_geometry(o, touched) && a.role == Role::Map && !b.space.reduced();
    };
    for (size_t i = 0; i < b.group.nodes.size(); ++i) {
      const Node& m = a.members.empty() ? b.group.node(g_, i) : a.members[i];
      const bool root = !b.loop() && i == 0;
      const Role role = b.loop() ? b.group.roles[i] : Role::Map;
      if (!b.loop() && m.info().cls == OpClass::Reduce && touches(n, g_.slot(m.outs[0]))) return std::nullopt;
      for (const Operand& w : m.outs) {
        for (const Operand& o : n.ins)
          if (is_at(o, g_.slot(w)) && !may_read(o, w, role, root, a)) return std::nullopt;
        for (const Operand& o : n.outs)
          if (is_at(o, g_.slot(w)) && (root || role != Role::Map || !writes_same_place(o, w))) return std::nullopt;
      }
      for (const Operand& r : m.ins)
        for (const Operand& o : n.outs)
          if (is_at(r, g_.slot(o)) && (root || !writes_same_place(o, r))) return std::nullopt;
    }
    if (writes_own_input(n)) {
      if (b.space.reduced() || a.role != Role::Map) return std::nullopt;
      in_place = true;
    }
    return in_place;
  }

  // Whether a node may read a value that a member with this role has written.
  bool may_read(const Operand& read, const Operand& written, Role role, bool root, const Aligned& a) const {
    if (role == Role::ColReduce || !matches(written, read, root)) return false;
    const bool of_rows = role == Role::RowReduce || role == Role::RowMap;
    return !of_rows || a.role != Role::Map || a.space.split > 0 || a.space.natural.numel() <= kMaxSingleRow;
  }

  // A root's output keeps its own shape, so it is compared over the group's space.
  bool matches(const Operand& written, const Operand& read, bool root) const {
    if (!root) return same_geometry(written, read);
    Operand w = root_form(written);
    const Dims shape = w.shape;
    return restride(w, shape, shape) && same_geometry(w, read);
  }
  // A root's output in the form in which the other nodes see it.
  Operand root_form(const Operand& o) const { return rules_.memory_order ? in_memory_order(o) : o; }

  bool is_at(const Operand& o, SlotId s) const { return !o.is_param && g_.slot(o) == s; }
  bool touches(const Node& n, SlotId s) const {
    const auto is = [&](const Operand& o) { return is_at(o, s); };
    return std::any_of(n.ins.begin(), n.ins.end(), is) || std::any_of(n.outs.begin(), n.outs.end(), is);
  }
  bool writes_own_input(const Node& n) const {
    for (const Operand& o : n.outs)
      for (const Operand& i : n.ins)
        if (is_at(i, g_.slot(o))) return true;
    return false;
  }
  bool shares_input(const Node& n, const Building& b) const {
    for (const Operand& o : n.ins) {
      if (o.is_param || o.numel() < 2) continue;
      for (const NodeId m : b.group.nodes)
        for (const Operand& p : g_.nodes[m].ins)
          if (!p.is_param && p.binding == o.binding) return true;
    }
    return false;
  }

  // ---- merging and moving groups

  // Whether group `from` may run as late as group `into`: no group after it, up to `into`, uses what it writes or
  // writes what it reads.
  bool may_wait(GroupId from, GroupId into) const {
    if (into.value() - from.value() > kFar) return false;
    std::vector<SlotId> reads, writes;
    for (const NodeId m : groups_[from].group.nodes) {
      for (const Operand& o : g_.nodes[m].ins)
        if (!o.is_param) reads.push_back(g_.slot(o));
      for (const Operand& o : g_.nodes[m].outs) writes.push_back(g_.slot(o));
    }
    const auto among = [&](const std::vector<SlotId>& slots, const Operand& o) {
      return !o.is_param && std::find(slots.begin(), slots.end(), g_.slot(o)) != slots.end();
    };
    for (const GroupId k : IdRange<GroupId>{next(from), next(into)})
      for (const NodeId m : groups_[k].group.nodes) {
        for (const Operand& o : g_.nodes[m].ins)
          if (among(writes, o)) return false;
        for (const Operand& o : g_.nodes[m].outs)
          if (among(writes, o) || among(reads, o)) return false;
      }
    return true;
  }

  // Either all members of a loop join another group, or none does.
  bool try_merge(GroupId from, GroupId into) {
    const Building &src = groups_[from], &dst = groups_[into];
    if (!src.open || !dst.open || !src.loop() || !dst.loop()) return false;
    if (src.space.reduced() || src.group.nodes.size() + dst.group.nodes.size() > kMaxNodes) return false;
    Building merged = dst;
    for (size_t i = 0; i < src.group.nodes.size(); ++i) {
      std::optional<Fit> fits;
      if (has_room(merged)) fits = fit(merged, src.group.aligned[i]);
      if (!fits) return false;
      add(merged, src.group.nodes[i], std::move(*fits));
    }
    const std::vector<NodeId> moved = src.group.nodes;
    groups_[into] = std::move(merged);
    groups_[from].group = {};
    groups_[from].open = false;
    for (const NodeId m : moved) touch(g_.nodes[m], into);
    groups_[into].dep = dependency_of(into);
    for (const GroupId k : IdRange<GroupId>{next(into), groups_.end_id()})  // what has moved is found in `into` now
      if (groups_[k].dep >= from) groups_[k].dep = std::max(groups_[k].dep, into);
    for (const NodeId m : moved) {
      for (const Operand& o : g_.nodes[m].ins)
        if (!o.is_param && reader_[g_.slot(o)] == from)
          reader_[g_.slot(o)] = latest(g_.slot(o), false, groups_.end_id());
      for (const Operand& o : g_.nodes[m].outs)
        if (writer_[g_.slot(o)] == from) writer_[g_.slot(o)] = latest(g_.slot(o), true, groups_.end_id());
    }
    return true;
  }

  // Moves group `late`, which depends on nothing from `early` on, in front of it.
  void move_before(GroupId late, GroupId early) {
    std::rotate(groups_.begin() + early.value(), groups_.begin() + late.value(), groups_.begin() + late.value() + 1);
    const auto rename = [&](GroupId& k) {
      if (k == late) k = early;
      else if (k >= early && k < late) ++k;
    };
    for (const GroupId k : groups_.ids()) {
      const bool latest_moved = k > late && groups_[k].dep == late;
      rename(groups_[k].dep);
      if (latest_moved) groups_[k].dep = dependency_of(k);  // it may depend on one of those between as well
    }
    for (GroupId& k : reader_) rename(k);
    for (GroupId& k : writer_) rename(k);
    // Other groups between the two may have read the same slots, and the node that joined may write slots of the moved
    // group.
    for (const NodeId m : groups_[early].group.nodes) {
      for (const Operand& o : g_.nodes[m].ins)
        if (!o.is_param) reader_[g_.slot(o)] = latest(g_.slot(o), false, groups_.end_id());
      for (const Operand& o : g_.nodes[m].outs) {
        reader_[g_.slot(o)] = latest(g_.slot(o), false, groups_.end_id());
        writer_[g_.slot(o)] = latest(g_.slot(o), true, groups_.end_id());
      }
    }
  }

  // ---- dependencies

  static GroupId next(GroupId k) { return ++k; }

  // The groups that n depends on: the latest one, and the one before that.
  std::pair<GroupId, GroupId> dependencies(const Node& n) const {
    GroupId first, second;
    const auto note = [&](GroupId k) {
      if (k > first) second = first, first = k;
      else if (k < first && k > second) second = k;
    };
    for (const Operand& o : n.ins)
      if (!o.is_param) note(writer_[g_.slot(o)]);
    for (const Operand& o : n.outs) {
      note(writer_[g_.slot(o)]);
      note(reader_[g_.slot(o)]);
    }
    return {first, second};
  }

  void touch(const Node& n, GroupId k) {
    for (const Operand& o : n.ins)
      if (!o.is_param) reader_[g_.slot(o)] = std::max(reader_[g_.slot(o)], k);
    for (const Operand& o : n.outs) writer_[g_.slot(o)] = std::max(writer_[g_.slot(o)], k);
  }

  // The latest group that a group depends on.
  GroupId dependency_of(GroupId k) const {
    GroupId dep;
    for (const NodeId m : groups_[k].group.nodes) {
      for (const Operand& o : g_.nodes[m].ins)
        if (!o.is_param) dep = std::max(dep, latest(g_.slot(o), true, k));
      for (const Operand& o : g_.nodes[m].outs)
        dep = std::max({dep, latest(g_.slot(o), true, k), latest(g_.slot(o), false, k)});
    }
    return dep;
  }

  // Whether the node depends on a group between the two. dependencies() knows only the latest group per slot.
  bool needs_between(const Node& n, GroupId early, GroupId late) const {
    for (const Operand& o : n.ins)
      if (!o.is_param && latest(g_.slot(o), true, late) > early) return true;
    for (const Operand& o : n.outs)
      if (latest(g_.slot(o), true, late) > early || latest(g_.slot(o), false, late) > early) return true;
    return false;
  }

  // The latest group before `end` with a node that reads (writes) the slot.
  GroupId latest(SlotId s, bool writes, GroupId end) const {
    for (int k = end.value() - 1; k >= 0; --k)
      for (const NodeId m : groups_[GroupId(k)].group.nodes)
        for (const Operand& o : writes ? g_.nodes[m].outs : g_.nodes[m].ins)
          if (is_at(o, s)) return GroupId(k);
    return {};
  }

  const Graph& g_;
  const Cuts& cuts_;
  const Rules& rules_;
  Indexed<GroupId, Building> groups_;
  Indexed<SlotId, GroupId> writer_, reader_;  // the latest group that writes (reads) the slot
};

}  // namespace

Cuts no_cuts(const Graph& graph, const Backend& backend) {
  Cuts cuts;
  cuts.most.assign(graph.nodes.size(), graph.nodes.size());
  cuts.apart.resize(graph.nodes.size(), false);
  for (const NodeId id : graph.nodes.ids())
    cuts.apart[id] = is_skipped(graph.nodes[id]) || !backend.has_bias_gradient_epilogue(graph.nodes[id].outs[0].dtype);
  return cuts;
}

std::vector<Group> group(const Graph& graph, const Cuts& cuts, const Rules& rules) {
  Grouper grouper(graph, cuts, rules);
  grouper.run();
  std::vector<Group> groups = grouper.take();
  find_elided(graph, groups);
  return groups;
}

std::vector<std::string> why_apart(const Graph& graph, const Cuts& cuts, const Rules& rules,
                                   std::span<const Apart> pairs) {
  Grouper grouper(graph, cuts, rules);
  grouper.run();
  std::vector<std::string> reasons;
  for (const Apart& pair : pairs) reasons.push_back(grouper.why_apart(pair.reader, pair.writer));
  return reasons;
}

}  // namespace pyflame
