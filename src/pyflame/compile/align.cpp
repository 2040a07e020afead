#include "pyflame/compile/align.h"

#include <algorithm>

#include "pyflame/ops/helpers.h"

namespace pyflame {

namespace {

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

void permute(Node& n, const std::vector<int>& perm) {
  for (Operand& o : n.ins) permute(o, perm);
  for (Operand& o : n.outs) permute(o, perm);
}

bool restride(Node& n, const Dims& from, const Dims& to) {
  for (Operand& o : n.ins)
    if (!pyflame::restride(o, from, to)) return false;
  for (Operand& o : n.outs)
    if (!pyflame::restride(o, from, to)) return false;
  return true;
}

// The members over another factorisation of their space.
bool respace(Aligned& a, std::span<const Node> members, const Dims& to) {
  if (!a.space.loop || a.space.reduced() || !a.space.perm.empty()) return false;
  a.members.assign(members.begin(), members.end());
  for (Node& m : a.members)
    if (!restride(m, a.space.natural, to)) return false;
  a.space.natural = a.space.dims = to;
  a.space.split = to.size();
  return true;
}

bool align_map(Aligned& a, const Node& n, std::span<const Node> members) {
  const Dims from = n.outs[0].shape;
  if (!a.space.perm.empty() && n.info().index_matters) return false;
  if (!restride(a.node, from, a.space.natural)) {
    a.node = n;
    if (!respace(a, members, from) || !restride(a.node, from, from)) return false;
  }
  permute(a.node, a.space.perm);
  a.role = Role::Map;
  return true;
}

// Over the outer dims alone; the inner dims get size 1.
bool align_row_map(Aligned& a, const Node& n) {
  if (!a.space.rows || n.info().index_matters) return false;
  const Dims from = n.outs[0].shape;
  Dims rows;
  for (int d = 0; d < a.space.split; ++d) rows.push_back(a.space.dims[d]);
  if (from.numel() != rows.numel() || !restride(a.node, from, rows)) return false;
  const auto widen = [&](Operand& o) {
    if (o.is_param) return;
    while (o.shape.size() < a.space.dims.size()) {
      o.shape.push_back(1);
      o.strides.push_back(0);
    }
    o.contiguous = is_contiguous(o.shape, o.strides);
  };
  for (Operand& o : a.node.ins) widen(o);
  for (Operand& o : a.node.outs) widen(o);
  a.role = Role::RowMap;
  return true;
}

// The input keeps the full shape even where it is broadcast, because a reduction adds every repetition.
bool restride_reduction(Operand& in, Operand& out, const Dims& from, const Dims& to) {
  if (!pyflame::restride(in, from, to) || !pyflame::restride(out, from, to)) return false;
  in.shape = to;
  in.contiguous = is_contiguous(in.shape, in.strides);
  return true;
}

// The order of the natural dims for a reduction with this output. If the innermost dim is reduced, the reduced dims
// become the inner dims (a row reduction); otherwise they become the outer dims. This depends on the node's shape and
// axes alone.
struct Order {
  std::vector<int> perm;
  int split = 0;
  bool row = false;
  bool identity() const { return std::is_sorted(perm.begin(), perm.end()); }
};
Order order_of(const Dims& natural, const Operand& out) {
  Order order;
  std::vector<int> kept, reduced;
  for (int d = 0; d < natural.size(); ++d) {
    const bool reduces = natural[d] != 1 && out.strides[d] == 0;
    if (natural[d] != 1) order.row = reduces;
    (reduces ? reduced : kept).push_back(d);
  }
  const std::vector<int>& tail = order.row ? reduced : kept;
  order.perm = order.row ? kept : reduced;
  order.split = static_cast<int>(order.perm.size());
  order.perm.insert(order.perm.end(), tail.begin(), tail.end());
  return order;
}

// Only the first reduction of a group may permute its dims.
bool align_reduction(Aligned& a, const Node& n, std::span<const Node> members) {
  Space& space = a.space;
  const Dims from = n.ins[0].shape;
  if (from.numel() != space.natural.numel()) return false;
  Operand &in = a.node.ins[0], &out = a.node.outs[0];
  if (!restride_reduction(in, out, from, space.natural)) {
    in = n.ins[0], out = n.outs[0];
    if (!respace(a, members, from) || !restride_reduction(in, out, from, from)) return false;
  }
  const Order order = order_of(space.natural, out);
  const std::vector<int> perm = order.identity() ? std::vector<int>() : order.perm;
  if (space.reduced()) {
    if (order.split != space.split || perm != space.perm) return false;
  } else {
    if (!perm.empty() && space.indexed) return false;
    if (!perm.empty()) {
      if (a.members.empty()) a.members.assign(members.begin(), members.end());
      for (Node& m : a.members) permute(m, perm);
      space.dims = permuted(space.natural, perm);
    }
    space.perm = perm;
    space.split = order.split;
  }
  permute(a.node, perm);
  int64_t axes = 0;
  const int first = order.row ? space.split : 0, last = order.row ? space.natural.size() : space.split;
  for (int d = first; d < last; ++d) axes |= int64_t{1} << d;
  a.node.attrs[0] = axes;
  a.role = order.row ? Role::RowReduce : Role::ColReduce;
  return true;
}

}  // namespace

Space Space::over(const Dims& dims, bool loop) {
  Space s;
  s.natural = s.dims = dims;
  s.split = dims.size();
  s.loop = loop;
  return s;
}

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

bool same_geometry(const Operand& a, const Operand& b) {
  if (a.binding != b.binding || a.dtype != b.dtype || a.shape.size() != b.shape.size()) return false;
  for (int d = 0; d < a.shape.size(); ++d)
    if (a.shape[d] != b.shape[d] || (a.shape[d] > 1 && a.strides[d] != b.strides[d])) return false;
  return true;
}

std::optional<Aligned> align(const Node& n, const Space& space, std::span<const Node> members) {
  Aligned a{n, Role::Map, space, {}};
  const bool reduces = n.info().cls == OpClass::Reduce;
  const bool fits = reduces                                      ? align_reduction(a, n, members)
                    : n.outs[0].numel() == space.natural.numel() ? align_map(a, n, members)
                                                                 : align_row_map(a, n);
  if (!fits) return std::nullopt;
  a.space.rows |= a.role == Role::RowReduce;
  a.space.columns |= a.role == Role::ColReduce;
  a.space.indexed |= n.info().index_matters;
  return a;
}

}  // namespace pyflame
