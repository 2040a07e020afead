// Two rewrites of attention, over the recorded graph:
//   find_attention   softmax(q k^T * scale + mask) v, written as products, becomes one attention op. The mask may be added, or bool: then
//                    `where` or masked_fill writes -inf where a key is hidden.
//                    In training, its gradient becomes one op as well (attention_gradients.cpp).
//   group_heads      attention reads keys and values where they are, if they were repeated for the heads of the queries
// Both fire only if nothing else needs the values in between. Sums are made in another order, so they are within the tolerance.
#include <algorithm>
#include <optional>

#include "pyflame/compile/attention_gradients.h"
#include "pyflame/compile/constants.h"
#include "pyflame/ops/hides.h"

namespace pyflame {

namespace {

class AttentionPass {
 public:
  explicit AttentionPass(Rewritten graph) : g_(std::move(graph.graph)), added_(std::move(graph.added)) {
    const Parts all{g_, {}, Indexed<NodeId, bool>(g_.nodes.size(), false), {}, {}};
    users_ = all.users();
  }

  Rewritten find() {
    for (const NodeId id : g_.nodes.ids())
      if (!is_skipped(g_.nodes[id]) && g_.nodes[id].op == OpId::matmul) find_at(id);
    return {std::move(g_), std::move(added_)};
  }

  Rewritten group() {
    for (const NodeId id : g_.nodes.ids())
      if (!is_skipped(g_.nodes[id]) && g_.nodes[id].op == OpId::attention) group_at(id);
    return {std::move(g_), std::move(added_)};
  }

 private:
  // The node that has written a value which only one node reads, or so many.
  NodeId only_writer(const Operand& o, size_t readers = 1) const {
    if (o.is_param) return {};
    const SlotInfo& slot = g_.slot_info(o);
    const Users& u = users_[g_.slot(o)];
    if (slot.live || slot.external || u.writers.size() != 1 || u.readers.size() != readers) return {};
    const Node& n = g_.nodes[u.writers[0]];
    return n.outs.size() == 1 && is_whole(g_, n.outs[0]) && n.outs[0].binding == o.binding ? u.writers[0] : NodeId();
  }
  // Also: the value is read as it was written.
  NodeId writer_as_it_is(const Operand& o, size_t readers = 1) const {
    const NodeId id = only_writer(o, readers);
    return id.valid() && g_.nodes[id].outs[0].shape == o.shape && o.contiguous && o.dtype == g_.nodes[id].outs[0].dtype
               ? id
               : NodeId();
  }
  // Nothing writes what o is in after node `since`.
  bool unchanged(const Operand& o, NodeId since) const {
    const Users& u = users_[g_.slot(o)];
    return u.writers.empty() || u.writers.back() < since;
  }

  // ---- softmax(q k^T) v

  struct Found {
    NodeId first;  // the product of q and k
    std::vector<NodeId> between;
    std::optional<Operand> factor, mask;
    bool divides = false;
    NodeId masked_at;     // the node that applies the mask: an addition, or a `where`
    bool hides = false;   // a `where` that writes -inf where the mask is true
    bool trains = false;  // the gradient reads the probabilities
    bool chosen = false;  // a `where`, so the mask is bool
  };

  // Whether the node writes -inf over some of its scores.
  static bool hides_scores(const Node& n) {
    return n.op == OpId::where && n.attr<HidesAttrs>().hides == kHidden && n.ins[1].is_param != n.ins[2].is_param;
  }

  std::optional<Found> look(const Node& product) const {
    const size_t rank = static_cast<size_t>(product.outs[0].shape.size());
    if (rank < 3 || rank > 4 || !is_float(product.outs[0].dtype)) return std::nullopt;
    Found f;
    NodeId at = writer_as_it_is(product.ins[0]);
    if (!at.valid()) {
      at = writer_as_it_is(product.ins[0], 4);  // the product, and three nodes of the gradient
      f.trains = true;
    }
    if (!at.valid() || g_.nodes[at].op != OpId::softmax) return std::nullopt;
    for (f.between = {at};; f.between.push_back(at)) {
      const Node& n = g_.nodes[at];
      const bool adds = n.op == OpId::add && !n.ins[0].is_param && !n.ins[1].is_param;
      Operand next = n.ins[0];
      if (adds && !f.mask && !f.factor) {
        const bool left = writer_as_it_is(n.ins[0]).valid() && n.ins[0].shape == n.outs[0].shape;
        next = n.ins[left ? 0 : 1];
        f.mask = n.ins[left ? 1 : 0];
        f.masked_at = at;
      } else if (hides_scores(n) && !f.mask && !f.factor) {
        next = n.ins[n.ins[1].is_param ? 2 : 1];
        if (next.shape != n.outs[0].shape) return std::nullopt;
        f.mask = n.ins[0];
        f.masked_at = at;
        f.chosen = true;
        f.hides = n.ins[1].is_param;
      } else if ((n.op == OpId::mul || n.op == OpId::div) && n.ins[1].is_param && !n.ins[0].is_param && !f.factor) {
        f.factor = n.ins[1];
        f.divides = n.op == OpId::div;
      } else if (n.op != OpId::softmax || f.between.size() > 1) {
        return std::nullopt;
      }
      at = writer_as_it_is(next);
      if (!at.valid()) return std::nullopt;
      if (g_.nodes[at].op == OpId::matmul) break;
    }
    f.first = at;
    return f;
  }

  // [.., rows, columns] as [B, H, rows, columns].
  static Operand with_heads(const Operand& o) {
    if (o.shape.size() == 4) return o;
    return with_geometry(o, {o.shape[0], 1, o.shape[1], o.shape[2]},
                         {o.strides[0], o.strides[1] * o.shape[1], o.strides[1], o.strides[2]});
  }

  // The mask over [B, H, T, S], or nothing if it does not broadcast to it in one way.
  static std::optional<Operand> expanded(const Operand& m, const Dims& scores, size_t rank) {
    Dims shape = m.shape, strides = m.strides;
    if (rank == 3 && shape.size() == 3) {
      shape = {shape[0], 1, shape[1], shape[2]};
      strides = {strides[0], 0, strides[1], strides[2]};
    }
    Dims full = Dims::filled(4, 0);
    for (int d = 0; d < 4; ++d) {
      const int own = d - 4 + shape.size();
      if (own < 0 || shape[own] == 1) continue;
      if (shape[own] != scores[d]) return std::nullopt;
      full[d] = strides[own];
    }
    return with_geometry(m, scores, full);
  }

  Operand number(Param value, ParamId inverse_of, DType dtype) {
    Operand o;
    o.is_param = true;
    o.dtype = dtype;
    o.param = ParamId(g_.params++);
    added_.params.push_back({value, inverse_of});
    return o;
  }

  void find_at(NodeId id) {
    const std::optional<Found> f = look(g_.nodes[id]);
    if (!f) return;
    const Operand out = with_heads(g_.nodes[id].outs[0]);
    const Operand q = with_heads(g_.nodes[f->first].ins[0]);
    const Operand swapped = g_.nodes[f->first].ins[1];
    const int r = swapped.shape.size();
    Dims shape = swapped.shape, strides = swapped.strides;
    std::swap(shape[r - 1], shape[r - 2]);
    std::swap(strides[r - 1], strides[r - 2]);
    const Operand k = with_heads(with_geometry(swapped, shape, strides)), v = with_heads(g_.nodes[id].ins[1]);
    if (v.shape[3] != q.shape[3] || q.dtype != out.dtype || out.numel() == 0 || k.shape[2] == 0) return;
    if (!unchanged(q, f->first) || !unchanged(k, f->first)) return;
    std::optional<Backward> back;
    if (f->trains && !(back = backward(id, *f, with_geometry(swapped, shape, strides)))) return;
    std::vector<Operand> ins{q, k, v};
    if (f->mask) {
      const Dims scores{q.shape[0], q.shape[1], q.shape[2], k.shape[2]};
      const Operand own = f->hides ? dense(*f->mask) : *f->mask;
      auto mask = expanded(own, scores, static_cast<size_t>(r));
      if (!mask || mask->dtype != (f->chosen ? DType::bool_ : q.dtype)) return;
      if (!f->hides && !unchanged(*mask, f->masked_at)) return;
      if (f->hides) mask->binding = invert(f->masked_at, own, id).binding;
      ins.push_back(*mask);
    }
    if (!f->factor) {
      ins.push_back(number(Param(Scalar(1.0)), {}, DType::float64));
    } else if (f->divides) {
      ins.push_back(number(Param(Scalar(1.0)), f->factor->param, DType::float64));
    } else {
      ins.push_back(*f->factor);
      ins.back().dtype = DType::float64;
    }
    ins.push_back(number(Param(Scalar(k.shape[2])), {}, DType::int64));
    become(id, *f, std::move(ins), out, back);
  }

  Operand add_slot(DType dtype, const Dims& shape, Users users) {
    Parts p{std::move(g_), std::move(added_), {}, {}, {}};
    Operand o = p.add_slot(dtype, shape, contiguous_strides(shape), false);
    g_ = std::move(p.graph);
    added_ = std::move(p.added);
    users_.push_back(std::move(users));
    return o;
  }

  // The dims of a mask without repetitions, row-major.
  static Operand dense(const Operand& mask) {
    Dims shape = mask.shape;
    for (int d = 0; d < shape.size(); ++d)
      if (mask.strides[d] == 0) shape[d] = 1;
    return with_geometry(mask, shape, contiguous_strides(shape));
  }

  // The `where` computes which keys are seen instead, from a mask of those that are hidden. Attention `reader` reads that.
  Operand invert(NodeId where, const Operand& own, NodeId reader) {
    const Operand seen = add_slot(DType::bool_, own.shape, {{where}, {reader}});
    Node& n = g_.nodes[where];
    const Operand hidden = with_geometry(n.ins[0], own.shape, n.ins[0].strides);
    n = Node{OpId::logical_not, {}, {hidden}, {seen}, n.loc};
    return seen;
  }

  struct Backward {
    ForwardPattern forward;
    GradientPattern gradient;
  };
  std::optional<Backward> backward(NodeId id, const Found& f, const Operand& k) const {
    const Node& product = g_.nodes[id];
    const Operand& v = product.ins[1];
    const Users& of_out = users_[g_.slot(product.outs[0])];
    if (v.dtype != DType::float32 || !unchanged(v, id) || of_out.writers.size() != 1) return std::nullopt;
    ForwardPattern forward{id, g_.nodes[f.first].ins[0], k, v, product.ins[0], {}, 0, f.factor, f.divides};
    if (f.chosen) {
      if (!unchanged(*f.mask, f.masked_at)) return std::nullopt;
      forward.mask = f.mask;
      forward.kept = f.hides ? 2 : 1;
    }
    if (auto gradient = match_gradient(g_, users_, forward)) return Backward{std::move(forward), std::move(*gradient)};
    return std::nullopt;
  }

  void become(NodeId id, const Found& f, std::vector<Operand> ins, const Operand& out,
              const std::optional<Backward>& back) {
    const Operand lse = add_slot(DType::float32, Dims{out.shape[0], out.shape[1], out.shape[2]}, {{id}, {}});
    for (const NodeId n : f.between)
      if (!f.hides || n != f.masked_at) skip(g_.nodes[n]);
    skip(g_.nodes[f.first]);
    if (back) {
      Parts p{std::move(g_), std::move(added_), {}, {}, {}};
      replace_gradient(p, back->gradient, back->forward, ins, out, lse);
      g_ = std::move(p.graph);
      added_ = std::move(p.added);
      users_.resize(g_.slots.size());
    }
    Node& n = g_.nodes[id];
    n.op = OpId::attention;
    n.attrs = {0, f.mask ? 1 : 0, 0};
    n.ins = std::move(ins);
    n.outs = {out, lse};
    note_fired(Rewrite::FoundAttention);
  }

  // ---- repeated heads

  struct Repeated {
    Operand source;              // [B, Hk, S, D]
    std::vector<NodeId> copies;  // which made [B, H, S, D] of it
  };

  // The copies' input with the dims of `o`, which is a view of the last copy.
  static std::optional<Operand> without_repeats(const Operand& o, const Node& copy) {
    const Operand &from = copy.ins[0], &to = copy.outs[0];
    Dims shape = o.shape, strides = o.strides;
    bool grouped = false;
    for (int d = 0; d < 4; ++d) {
      bool found = o.shape[d] == 1;
      if (found) strides[d] = 0;
      for (int c = 0; c < to.shape.size() && !found; ++c) {
        if (to.strides[c] != o.strides[d] || to.shape[c] == 1) continue;
        if (to.shape[c] == o.shape[d]) {
          strides[d] = from.strides[c];
          found = true;
        } else if (d == 1 && c > 0 && from.strides[c] == 0 && to.shape[c] * to.shape[c - 1] == o.shape[1]) {
          shape[1] = to.shape[c - 1];
          strides[1] = from.strides[c - 1];
          found = grouped = true;
        }
      }
      if (!found) return std::nullopt;
    }
    if (o.shape[1] == to.numel() / (o.shape[0] * o.shape[2] * o.shape[3]) && !grouped) return std::nullopt;
    return grouped ? std::optional(with_geometry(from, shape, strides)) : std::nullopt;
  }

  std::optional<Repeated> repeated(Operand o) const {
    Repeated r;
    for (;;) {
      const NodeId id = only_writer(o);
      if (!id.valid() || g_.nodes[id].op != OpId::cast) return std::nullopt;
      const Node& copy = g_.nodes[id];
      if (copy.ins[0].dtype != o.dtype || !unchanged(copy.ins[0], id)) return std::nullopt;
      r.copies.push_back(id);
      if (auto source = without_repeats(o, copy)) {
        r.source = std::move(*source);
        return r;
      }
      if (!copy.ins[0].contiguous || copy.ins[0].numel() != o.numel()) return std::nullopt;
      o.binding = copy.ins[0].binding;
    }
  }

  void group_at(NodeId id) {
    const auto k = repeated(g_.nodes[id].ins[1]), v = repeated(g_.nodes[id].ins[2]);
    if (!k || !v || k->source.shape[1] != v->source.shape[1]) return;
    Node& n = g_.nodes[id];
    n.ins[1] = k->source;
    n.ins[2] = v->source;
    for (const auto* copies : {&k->copies, &v->copies})
      for (const NodeId c : *copies) skip(g_.nodes[c]);
    note_fired(Rewrite::GroupedHeads);
  }

  Graph g_;
  Added added_;
  Indexed<SlotId, Users> users_;
};

}  // namespace

Rewritten find_attention(Rewritten graph) { return AttentionPass(std::move(graph)).find(); }
Rewritten group_heads(Rewritten graph) { return AttentionPass(std::move(graph)).group(); }

}  // namespace pyflame
