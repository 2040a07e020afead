// Cutting a window into groups. Greedy, in program order: a node joins the latest group that it depends on when the pattern table
// and the geometry allow it, else a neighbour that shares an input, else it opens a group.
//
// Order is kept by one rule: a node's group is never earlier than any group with a node that it depends on (reads what that wrote,
// writes what that read or wrote). Two bindings of one slot count as overlapping.
//
// Geometry: operands of a Loop group are rewritten to the rank of the group's space (size 1, stride 0 where broadcast). What one node
// writes and another touches must be touched with the same rewritten geometry, so that it happens at the same point of the loop.
#include <algorithm>
#include <numeric>
#include <optional>

#include "pyflame/compile/program.h"
#include "pyflame/ops/helpers.h"

namespace pyflame {

namespace {

constexpr size_t kMaxNodes = 48;         // keeps a tile program's registers and operands bounded
constexpr int64_t kMaxSingleRow = 8192;  // a full reduction read back within its group: not worth parallel threads
constexpr int kNeighbours = 6;

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

bool may_join(GroupKind kind, OpClass c) {
  (void)c;
  switch (kind) {
#define PATTERN(name, root, member, text) \
  case GroupKind::name:                   \
    return member;
#include "pyflame/compile/patterns.def"
#undef PATTERN
  }
  return false;
}

// Division by zero and negative powers of integers are errors: alone, so that they spoil and name nothing but themselves.
bool may_fail(const Node& n) { return n.info().may_fail && !is_float(n.outs[0].dtype); }

// The operand, which broadcasts to `from`, as an operand over `to` (same number of elements, same order).
bool restride(Operand& o, const Dims& from, const Dims& to) {
  if (o.is_param) return true;
  const auto strides = ops::view_strides(from, broadcast_strides(o.shape, o.strides, from), to);
  if (!strides) return false;
  o.shape = to;
  o.strides = *strides;
  for (int d = 0; d < to.size(); ++d)
    if (o.strides[d] == 0) o.shape[d] = 1;
  o.contiguous = is_contiguous(o.shape, o.strides);
  return true;
}

Dims permuted(const Dims& v, const std::vector<int>& perm) {
  Dims r = v;
  for (int i = 0; i < v.size(); ++i) r[i] = v[perm[static_cast<size_t>(i)]];
  return r;
}

void permute(Operand& o, const std::vector<int>& perm) {
  if (o.is_param || perm.empty()) return;
  o.shape = permuted(o.shape, perm);
  o.strides = permuted(o.strides, perm);
  o.contiguous = is_contiguous(o.shape, o.strides);
}

// Images that lie channels-last are looped over as they lie, (N, H, W, C): by the node alone, so that its numbers do not depend on what
// it is fused with.
void turn_images(Node& n) {
  const bool reduces = n.info().cls == OpClass::Reduce;
  if (!reduces && !is_elementwise(n.info().cls)) return;
  if (!lies_channels_last(reduces ? n.ins[0] : n.outs[0])) return;
  const Dims from = (reduces ? n.ins[0] : n.outs[0]).shape;
  Node turned = n;
  const auto turn = [&](Operand& o, bool whole) {
    if (o.is_param) return true;
    if (!whole && !restride(o, from, from)) return false;
    o = channels_last_form(std::move(o));
    return true;
  };
  for (Operand& o : turned.ins)
    if (!turn(o, reduces)) return;
  for (Operand& o : turned.outs)
    if (!turn(o, !reduces)) return;
  if (reduces) {
    const int64_t axes = n.attrs[0];
    turned.attrs[0] = (axes & 1) | (axes >> 2 & 1) << 1 | (axes >> 3 & 1) << 2 | (axes >> 1 & 1) << 3;
  }
  n = std::move(turned);
}

bool restride(Node& n, const Dims& from, const Dims& to) {
  for (Operand& o : n.ins)
    if (!restride(o, from, to)) return false;
  for (Operand& o : n.outs)
    if (!restride(o, from, to)) return false;
  return true;
}

bool same_geometry(const Operand& a, const Operand& b) {
  if (a.binding != b.binding || a.dtype != b.dtype || a.shape.size() != b.shape.size()) return false;
  for (int d = 0; d < a.shape.size(); ++d)
    if (a.shape[d] != b.shape[d] || (a.shape[d] > 1 && a.strides[d] != b.strides[d])) return false;
  return true;
}

struct Building {
  Group group;
  Dims natural;           // the space before permutation
  std::vector<int> perm;  // space = natural permuted; empty: identity
  bool has_row = false, has_col = false, has_index = false, in_place = false;
  bool open = true;  // false once it has become something that nothing may join
  int dep = -1;      // latest other group that a member depends on
  bool fixed() const { return has_row || has_col; }
};

class Fuser {
 public:
  Fuser(Graph& graph, bool enabled, const Refusals& refusals)
      : g_(graph),
        enabled_(enabled),
        refusals_(refusals),
        writer_(graph.slots.size(), -1),
        reader_(graph.slots.size(), -1) {}

  std::vector<Group> run() {
    if (g_.device.type == DeviceType::cpu)
      for (Node& n : g_.nodes) turn_images(n);
    for (const NodeId i : g_.nodes.ids()) place(i);
    std::vector<Group> out;
    for (Building& b : groups_)
      if (!b.group.nodes.empty()) out.push_back(std::move(b.group));
    return out;
  }

 private:
  SlotId slot(const Operand& o) const { return g_.slot(o); }
  Building& at(int i) { return groups_[static_cast<size_t>(i)]; }

  // Groups that n depends on: the latest, and the latest before that.
  std::pair<int, int> dependencies(const Node& n) const {
    int first = -1, second = -1;
    auto note = [&](int grp) {
      if (grp > first) second = first, first = grp;
      else if (grp < first && grp > second) second = grp;
    };
    for (const Operand& o : n.ins)
      if (!o.is_param) note(writer_[slot(o)]);
    for (const Operand& o : n.outs) {
      note(writer_[slot(o)]);
      note(reader_[slot(o)]);
    }
    return {first, second};
  }

  void touch(const Node& n, int grp) {
    for (const Operand& o : n.ins)
      if (!o.is_param) reader_[slot(o)] = std::max(reader_[slot(o)], grp);
    for (const Operand& o : n.outs)
      writer_[slot(o)] = std::max(writer_[slot(o)], grp);
  }

  void place(NodeId index) {
    Node& n = g_.nodes[index];
    drop_trivial_reduce(n);
    const OpClass c = n.info().cls;
    auto [last, before] = dependencies(n);
    const bool fusible = enabled_ && refusals_.most[index] > 1 && !may_fail(n);
    if (fusible && may_join(GroupKind::Loop, c) && n.outs[0].numel() > 0 && space_of(n).numel() > 0) {
      // Both operands come from loops: when the later loop needs nothing after the earlier one, it moves into it; or the earlier one
      // into the later when nothing between them needs it.
      if (last > 0 && before >= 0 && is_elementwise(c)) {
        const bool moved = at(last).dep <= before && try_merge(last, before);
        if (!moved && may_wait(before, last)) try_merge(before, last);
        std::tie(last, before) = dependencies(n);
      }
      if (last >= 0 && join(index, last)) return;
      // What the later group computes may come first: a scale for each channel, recorded after the convolution that it scales.
      if (before >= 0 && at(last).dep < before && !needs_between(n, before, last) && join(index, before)) {
        move_before(last, before);
        return;
      }
      const int newest = static_cast<int>(groups_.size()) - 1;
      for (int k = newest; k > last && k > newest - kNeighbours; --k) {
        if (at(k).has_col && is_elementwise(c)) continue;  // who reads it cannot join, and it would have to be stored
        if (shares_input(n, at(k)) && join(index, k)) return;
      }
    }
    open(index, last);
  }

  static Dims space_of(const Node& n) { return n.info().cls == OpClass::Reduce ? n.ins[0].shape : n.outs[0].shape; }

  // A reduction over dims of size one is a copy.
  static void drop_trivial_reduce(Node& n) {
    if (n.info().cls != OpClass::Reduce || n.ins[0].numel() == 0) return;
    const int64_t axes = n.attr<ReduceAttrs>().axes;
    for (int d = 0; d < n.ins[0].shape.size(); ++d)
      if ((axes >> d & 1) && n.ins[0].shape[d] > 1) return;
    n.op = OpId::cast;
    n.attrs.clear();
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

  void open(NodeId index, int dep) {
    Node& n = g_.nodes[index];
    const OpClass c = n.info().cls;
    Building b;
    b.dep = dep;
    b.group.nodes = {index};
    const bool fusible = enabled_ && refusals_.most[index] > 1 && !may_fail(n);
    const bool empty = space_of(n).numel() == 0 || n.outs[0].numel() == 0;
    if (may_open(GroupKind::Loop, n.op, c)) {
      b.group.kind = GroupKind::Loop;
      b.natural = space_of(n);
      b.has_index = op_info(n.op).index_matters;
      b.open = fusible && !empty;
      if (c == OpClass::Reduce) {
        if (empty) {  // nothing to align: the shape says it all
          b.group.kind = GroupKind::Single;
          b.open = false;
        } else {
          b.group.space = b.natural;
          Node copy = n;
          open_reduce(b, copy);
          n = std::move(copy);
        }
      } else {
        restride(n, b.natural, b.natural);
        b.group.space = b.natural;
        b.group.split = b.natural.size();
        b.group.roles = {Role::Map};
      }
    } else {
      b.group.kind = GroupKind::Single;
      b.natural = b.group.space = root_form(n.outs[0]).shape;
      b.group.split = b.natural.size();
      // One element is not worth it, and a kernel may take an input of one element for a constant that nobody overwrites.
      b.open = fusible && n.outs[0].numel() > 1 && space_of(n).numel() > 0 && may_open(GroupKind::Epilogue, n.op, c);
    }
    b.in_place = writes_own_input(n);
    groups_.push_back(std::move(b));
    touch(n, static_cast<int>(groups_.size()) - 1);
  }

  bool writes_own_input(const Node& n) const {
    for (const Operand& o : n.outs)
      for (const Operand& i : n.ins)
        if (!i.is_param && slot(i) == slot(o)) return true;
    return false;
  }

  // The group so far over another factorisation of its space.
  bool respace(Building& b, const Dims& to) {
    if (b.fixed() || !b.perm.empty() || b.group.kind != GroupKind::Loop) return false;
    std::vector<Node> changed;
    for (const NodeId m : b.group.nodes) {
      Node n = g_.nodes[m];
      if (!restride(n, b.natural, to)) return false;
      changed.push_back(std::move(n));
    }
    for (size_t i = 0; i < changed.size(); ++i) g_.nodes[b.group.nodes[i]] = std::move(changed[i]);
    b.natural = b.group.space = to;
    b.group.split = to.size();
    return true;
  }

  // Brings a reduce node into b's space; sets b's split and permutation when it is b's first reduction. The mode is a function of the
  // node's shape and axes alone: rows when the innermost dim is reduced, columns otherwise.
  std::optional<Role> align_reduce(Building& b, Node& n) {
    const Dims from = n.ins[0].shape;
    if (from.numel() != b.natural.numel()) return std::nullopt;
    Operand in = n.ins[0], out = n.outs[0];
    if (!restride_pair(in, out, from, b.natural)) {
      if (!respace(b, from)) return std::nullopt;
      in = n.ins[0], out = n.outs[0];
      if (!restride_pair(in, out, from, b.natural)) return std::nullopt;
    }
    std::vector<int> kept, reduced;
    bool row = false;
    for (int d = 0; d < b.natural.size(); ++d) {
      if (b.natural[d] == 1) {
        kept.push_back(d);
        continue;
      }
      row = out.strides[d] == 0;
      (row ? reduced : kept).push_back(d);
    }
    std::vector<int> perm = row ? kept : reduced;
    const int split = static_cast<int>(perm.size());
    const std::vector<int>& tail = row ? reduced : kept;
    perm.insert(perm.end(), tail.begin(), tail.end());
    const bool identity = std::is_sorted(perm.begin(), perm.end());
    if (b.fixed()) {
      if (split != b.group.split || (identity ? !b.perm.empty() : b.perm != perm)) return std::nullopt;
    } else {
      if (!identity && b.has_index) return std::nullopt;
      if (!identity) {
        for (const NodeId m : b.group.nodes) {
          if (b.group.nodes.size() == 1 && &g_.nodes[m] == &n) continue;
          for (Operand& o : g_.nodes[m].ins) permute(o, perm);
          for (Operand& o : g_.nodes[m].outs) permute(o, perm);
        }
        b.perm = perm;
        b.group.space = permuted(b.natural, perm);
      }
      b.group.split = split;
    }
    permute(in, b.perm);
    permute(out, b.perm);
    n.ins[0] = in;
    n.outs[0] = out;
    const int first = row ? b.group.split : 0, last = row ? b.natural.size() : b.group.split;
    int64_t axes = 0;
    for (int d = first; d < last; ++d) axes |= int64_t{1} << d;
    n.attrs[0] = axes;
    return row ? Role::RowReduce : Role::ColReduce;
  }

  // The input keeps the full shape even where it is broadcast: a reduction sums each repetition.
  static bool restride_pair(Operand& in, Operand& out, const Dims& from, const Dims& to) {
    if (!restride(in, from, to) || !restride(out, from, to)) return false;
    in.shape = to;
    in.contiguous = is_contiguous(in.shape, in.strides);
    return true;
  }

  void open_reduce(Building& b, Node& n) {
    const Group before = b.group;
    b.group.nodes.clear();
    const auto role = align_reduce(b, n);
    PF_CHECK(role, Runtime, "fuse: a reduction does not fit its own space; got {}", n.ins[0].shape.str());
    b.group.nodes = before.nodes;
    b.group.roles = {*role};
    (*role == Role::RowReduce ? b.has_row : b.has_col) = true;
  }

  // Whether group `from` may run as late as group `into`: nothing from there on touches what it writes or writes what it reads.
  bool may_wait(int from, int into) const {
    constexpr int kFar = 16;  // bounds the cost of planning
    if (into - from > kFar) return false;
    std::vector<SlotId> reads, writes;
    for (const NodeId m : groups_[static_cast<size_t>(from)].group.nodes) {
      const Node& n = g_.nodes[m];
      for (const Operand& o : n.ins)
        if (!o.is_param) reads.push_back(slot(o));
      for (const Operand& o : n.outs) writes.push_back(slot(o));
    }
    const auto among = [&](const std::vector<SlotId>& slots, const Operand& o) {
      return !o.is_param && std::find(slots.begin(), slots.end(), slot(o)) != slots.end();
    };
    for (int k = from + 1; k <= into; ++k)
      for (const NodeId m : groups_[static_cast<size_t>(k)].group.nodes) {
        const Node& n = g_.nodes[m];
        for (const Operand& o : n.ins)
          if (among(writes, o)) return false;
        for (const Operand& o : n.outs)
          if (among(writes, o) || among(reads, o)) return false;
      }
    return true;
  }

  bool try_merge(int from, int into) {
    Building &src = at(from), &dst = at(into);
    if (!src.open || !dst.open || src.group.kind != GroupKind::Loop || dst.group.kind != GroupKind::Loop) return false;
    if (src.fixed() || !src.perm.empty() || src.group.nodes.size() + dst.group.nodes.size() > kMaxNodes) return false;
    // All or nothing: a copy of the target and of the nodes that change.
    const Building saved = dst;
    std::vector<std::pair<NodeId, Node>> originals;
    for (const NodeId m : dst.group.nodes) originals.emplace_back(m, g_.nodes[m]);
    const std::vector<NodeId> moving = src.group.nodes;
    const Indexed<SlotId, int> readers = reader_, writers = writer_;
    for (const NodeId m : moving) originals.emplace_back(m, g_.nodes[m]);
    for (const NodeId m : moving) {
      if (join(m, into)) continue;
      at(into) = saved;
      for (auto& [i, n] : originals) g_.nodes[i] = std::move(n);
      reader_ = readers, writer_ = writers;
      return false;
    }
    at(from).group.nodes.clear();
    at(from).group.roles.clear();
    at(from).open = false;
    at(into).dep = dependency_of(into);  // joining took what moved for a dependency of itself
    for (int k = into + 1; k < static_cast<int>(groups_.size()); ++k)  // what moved back is found there now
      if (at(k).dep >= from) at(k).dep = std::max(at(k).dep, into);
    const int size = static_cast<int>(groups_.size());
    for (const NodeId m : moving) {
      const Node& n = g_.nodes[m];
      for (const Operand& o : n.ins)
        if (!o.is_param && reader_[slot(o)] == from)
          reader_[slot(o)] = latest(slot(o), false, size);
      for (const Operand& o : n.outs)
        if (writer_[slot(o)] == from)
          writer_[slot(o)] = latest(slot(o), true, size);
    }
    return true;
  }

  // Latest group that a group depends on: they all come before it.
  int dependency_of(int grp) const {
    int dep = -1;
    for (const NodeId m : groups_[static_cast<size_t>(grp)].group.nodes) {
      const Node& n = g_.nodes[m];
      for (const Operand& o : n.ins)
        if (!o.is_param) dep = std::max(dep, latest(slot(o), true, grp));
      for (const Operand& o : n.outs) dep = std::max({dep, latest(slot(o), true, grp), latest(slot(o), false, grp)});
    }
    return dep;
  }

  // Does the node depend on a group between the two? Of those that touch a slot, dependencies() knows the latest alone.
  bool needs_between(const Node& n, int early, int late) const {
    for (const Operand& o : n.ins)
      if (!o.is_param && latest(slot(o), true, late) > early) return true;
    for (const Operand& o : n.outs)
      if (latest(slot(o), true, late) > early || latest(slot(o), false, late) > early) return true;
    return false;
  }

  // Group `late`, which needs nothing from `early` on, runs before it.
  void move_before(int late, int early) {
    std::rotate(groups_.begin() + early, groups_.begin() + late, groups_.begin() + late + 1);
    const auto now = [&](int& k) {
      if (k == late) k = early;
      else if (k >= early && k < late) ++k;
    };
    const int size = static_cast<int>(groups_.size());
    for (int k = 0; k < size; ++k) {
      const bool latest_moved = k > late && at(k).dep == late;
      now(at(k).dep);
      if (latest_moved) at(k).dep = dependency_of(k);  // it may need one of those between as well
    }
    for (int& k : reader_) now(k);
    for (int& k : writer_) now(k);
    // Others between the two may have read the same, and who joined may write what was moved before it.
    for (const NodeId m : at(early).group.nodes) {
      const Node& n = g_.nodes[m];
      for (const Operand& o : n.ins)
        if (!o.is_param) reader_[slot(o)] = latest(slot(o), false, size);
      for (const Operand& o : n.outs) {
        reader_[slot(o)] = latest(slot(o), false, size);
        writer_[slot(o)] = latest(slot(o), true, size);
      }
    }
  }

  // Latest group before `end` with a node that reads (writes) the slot.
  int latest(SlotId s, bool writes, int end) const {
    for (int k = end - 1; k >= 0; --k)
      for (const NodeId m : groups_[static_cast<size_t>(k)].group.nodes) {
        const Node& n = g_.nodes[m];
        for (const Operand& o : writes ? n.outs : n.ins)
          if (!o.is_param && slot(o) == s) return k;
      }
    return -1;
  }

  bool join(NodeId index, int grp) {
    Building& b = at(grp);
    if (!b.open || b.group.nodes.size() >= std::min(kMaxNodes, refusals_.most[b.group.nodes[0]]))
      return false;
    const OpClass c = g_.nodes[index].info().cls;
    const bool epilogue = b.group.kind != GroupKind::Loop;
    if (!may_join(epilogue ? GroupKind::Epilogue : GroupKind::Loop, c)) return false;
    if (epilogue && c == OpClass::Reduce) return join_beside(index, grp);
    Building trial = b;  // align may respace or permute the group: undone below when the node does not fit after all
    std::vector<Node> before;
    for (const NodeId m : b.group.nodes) before.push_back(g_.nodes[m]);
    Node n = g_.nodes[index];
    const auto role = align(trial, n);
    if (role && compatible(trial, n, *role)) {
      trial.group.nodes.push_back(index);
      if (epilogue) {
        trial.group.kind = GroupKind::Epilogue;
      } else {
        trial.group.roles.push_back(*role);
        trial.has_row |= *role == Role::RowReduce;
        trial.has_col |= *role == Role::ColReduce;
        trial.has_index |= op_info(n.op).index_matters;
      }
      const auto [last, second] = dependencies(n);
      trial.dep = std::max(trial.dep, last == grp ? second : last);
      // Its own reads may hide those of an earlier group, which must stay before this write.
      for (const Operand& o : n.outs)
        if (reader_[slot(o)] == grp) trial.dep = std::max(trial.dep, latest(slot(o), false, grp));
      b = std::move(trial);
      touch(n, grp);
      g_.nodes[index] = std::move(n);
      return true;
    }
    for (size_t i = 0; i < before.size(); ++i) g_.nodes[b.group.nodes[i]] = std::move(before[i]);
    return false;
  }

  // The sum over the depth of one of a product's operands: of the output's gradient, from which a layer's weight and bias get theirs.
  bool join_beside(NodeId index, int grp) {
    Building& b = at(grp);
    const Node& n = g_.nodes[index];
    const int needs = dependencies(n).first;
    if (b.group.summed >= 0 || refusals_.apart[index] || needs >= grp) return false;
    b.group.summed = operand_summed(g_.nodes[b.group.nodes[0]], n);
    if (b.group.summed < 0) return false;
    b.group.kind = GroupKind::Epilogue;
    b.group.nodes.push_back(index);
    b.dep = std::max(b.dep, needs);
    touch(n, grp);
    return true;
  }

  // -1: none. The sum must have a dim of its own for each line of the operand, and nothing else.
  static int operand_summed(const Node& product, const Node& n) {
    if (product.op != OpId::matmul || n.op != OpId::sum || product.outs[0].shape.size() != 2) return -1;
    const Operand &x = n.ins[0], &out = n.outs[0];
    const int64_t axes = n.attr<ReduceAttrs>().axes;
    if (x.shape.size() != 2 || (axes != 1 && axes != 2) || x.dtype != out.dtype ||
        !is_contiguous(out.shape, out.strides))
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

  std::optional<Role> align(Building& b, Node& n) {
    if (n.info().cls == OpClass::Reduce) return align_reduce(b, n);
    const Dims from = n.outs[0].shape;
    if (from.numel() == b.natural.numel()) {
      if (!b.perm.empty() && op_info(n.op).index_matters) return std::nullopt;
      Node m = n;
      if (!restride(m, from, b.natural)) {
        m = n;
        if (!respace(b, from)) return std::nullopt;
        if (!restride(m, from, from)) return std::nullopt;
      }
      n = std::move(m);
      for (Operand& o : n.ins) permute(o, b.perm);
      for (Operand& o : n.outs) permute(o, b.perm);
      return Role::Map;
    }
    if (!b.has_row || op_info(n.op).index_matters) return std::nullopt;
    Dims rows;
    for (int d = 0; d < b.group.split; ++d) rows.push_back(b.group.space[d]);
    if (from.numel() != rows.numel() || !restride(n, from, rows)) return std::nullopt;
    auto widen = [&](Operand& o) {
      if (o.is_param) return;
      while (o.shape.size() < b.group.space.size()) {
        o.shape.push_back(1);
        o.strides.push_back(0);
      }
      o.contiguous = is_contiguous(o.shape, o.strides);
    };
    for (Operand& o : n.ins) widen(o);
    for (Operand& o : n.outs) widen(o);
    return Role::RowMap;
  }

  // Does everything that the node shares with the group happen at the same point of the loop?
  bool compatible(Building& b, const Node& n, Role role) {
    const bool epilogue = b.group.kind != GroupKind::Loop;
    if (role == Role::RowReduce && b.in_place) return false;  // a later pass would read what an earlier one overwrote
    if (role == Role::ColReduce && b.in_place) return false;
    for (size_t i = 0; i < b.group.nodes.size(); ++i) {
      const Node& m = g_.nodes[b.group.nodes[i]];
      const bool root = epilogue && i == 0;
      const Role other = epilogue ? Role::Map : b.group.roles[i];
      if (epilogue && m.info().cls == OpClass::Reduce && touches(n, slot(m.outs[0]))) return false;
      for (const Operand& w : m.outs) {
        for (const Operand& o : n.ins) {
          if (o.is_param || slot(o) != slot(w)) continue;
          if (other == Role::ColReduce || !matches(w, o, root)) return false;
          if (other == Role::RowReduce || other == Role::RowMap) {
            if (role == Role::Map && b.group.split == 0 && b.natural.numel() > kMaxSingleRow) return false;
          }
        }
        for (const Operand& o : n.outs)
          if (slot(o) == slot(w)) {
            if (root || !same_geometry(o, w) || role != Role::Map || other != Role::Map || b.fixed()) return false;
            b.in_place = true;
          }
      }
      for (const Operand& r : m.ins) {
        if (r.is_param) continue;
        for (const Operand& o : n.outs)
          if (slot(o) == slot(r)) {
            if (root || !same_geometry(o, r) || role != Role::Map || b.fixed()) return false;
            b.in_place = true;
          }
      }
    }
    if (writes_own_input(n)) {
      if (b.fixed() || role != Role::Map) return false;
      b.in_place = true;
    }
    return true;
  }

  bool touches(const Node& n, SlotId s) const {
    const auto is = [&](const Operand& o) { return !o.is_param && slot(o) == s; };
    return std::any_of(n.ins.begin(), n.ins.end(), is) || std::any_of(n.outs.begin(), n.outs.end(), is);
  }

  // A root's output keeps its own form: compare it over the group's space.
  bool matches(const Operand& written, const Operand& read, bool root) const {
    if (!root) return same_geometry(written, read);
    Operand w = root_form(written);
    const Dims shape = w.shape;
    return restride(w, shape, shape) && same_geometry(w, read);
  }
  // As what joins it is turned.
  Operand root_form(const Operand& o) const {
    return g_.device.type == DeviceType::cpu && lies_channels_last(o) ? channels_last_form(o) : o;
  }

  Graph& g_;
  bool enabled_;
  const Refusals& refusals_;
  std::vector<Building> groups_;
  Indexed<SlotId, int> writer_, reader_;  // per slot: latest group that writes (reads) it
};

}  // namespace

std::vector<Group> fuse(Graph& graph, bool enabled, const Refusals& refusals) {
  return Fuser(graph, enabled, refusals).run();
}

void find_elided(const Graph& graph, std::vector<Group>& groups) {
  constexpr int kUntouched = -1, kSeveral = -2;
  struct Use {
    int group = kUntouched;  // the only one that touches the slot
    BindingId binding;       // through which alone it is touched
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
