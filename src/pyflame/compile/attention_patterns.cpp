// Two rewrites of attention, over the recorded graph:
//   find_attention   softmax(q k^T * scale + mask) v, written as products, becomes one attention op. The mask may be added, or bool: then
//                    `where` or masked_fill writes -inf where a key is hidden. With finite_fills also a number of at most -1e4.
//                    In 16 bits the scores may be cast to float32 before the softmax, and the probabilities back after it.
//                    In training, its gradient becomes one op as well (attention_gradients.cpp).
//   group_heads      attention reads keys and values where they are, if they were repeated for the heads of the queries
// Both fire only if nothing else needs the values in between. Sums are made in another order, so they are within the tolerance.
#include <algorithm>
#include <optional>

#include "pyflame/compile/attention_gradients.h"
#include "pyflame/compile/constants.h"
#include "pyflame/ops/hides.h"
#include "pyflame/ops/user_kernel.h"

namespace pyflame {

namespace {

class AttentionPass {
 public:
  explicit AttentionPass(Rewritten graph, bool finite_fills = false)
      : g_(std::move(graph.graph)),
        added_(std::move(graph.added)),
        notes_(std::move(graph.notes)),
        finite_fills_(finite_fills) {
    const Parts all{g_, {}, Indexed<NodeId, bool>(g_.nodes.size(), false), {}, {}};
    users_ = all.users();
  }

  Rewritten find() {
    for (const NodeId id : g_.nodes.ids())
      if (!is_skipped(g_.nodes[id]) && g_.nodes[id].op == OpId::matmul) find_at(id);
    return {std::move(g_), std::move(added_), std::move(notes_)};
  }

  Rewritten group() {
    for (const NodeId id : g_.nodes.ids())
      if (!is_skipped(g_.nodes[id]) && g_.nodes[id].op == OpId::attention) group_at(id);
    return {std::move(g_), std::move(added_), std::move(notes_)};
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
    NodeId softmax;
    std::vector<NodeId> between;
    std::optional<Operand> factor, mask;
    bool divides = false;
    NodeId masked_at;                        // the node that applies the mask: an addition, or a `where`
    bool hides = false;                      // a `where` that writes its number where the mask is true
    bool trains = false;                     // the gradient reads the probabilities
    bool chosen = false;                     // a `where`, so the mask is bool
    bool finite = false;                     // it writes a finite number
    bool narrowed = false, widened = false;  // the probabilities are cast to the dtype of v; the scores to float32
  };

  // Whether the node writes a number over some of its scores, as a mask of the kind.
  static bool hides_scores(const Node& n, int64_t kind) {
    return n.op == OpId::where && n.attr<HidesAttrs>().hides == kind && n.ins[1].is_param != n.ins[2].is_param;
  }

  static bool is_cast(const Node& n, DType from, DType to) {
    return n.op == OpId::cast && n.ins[0].dtype == from && n.outs[0].dtype == to;
  }

  // The node that writes the value last, in this window.
  NodeId last_writer(const Operand& o) const {
    if (o.is_param) return {};
    const std::vector<NodeId>& writers = users_[g_.slot(o)].writers;
    return writers.empty() ? NodeId() : writers.back();
  }

  // The softmax, if the left side of a product goes back to one and that to another product, so that only the ops in between can differ from the
  // pattern. The products of the gradient do not count: they read the probabilities transposed, or times something.
  NodeId softmax_behind(const Operand& left) const {
    NodeId softmax;
    Operand at = left;
    if (!at.contiguous) return {};
    for (int steps = 0; steps < 10; ++steps) {
      const NodeId id = last_writer(at);
      if (!id.valid()) return {};
      const Node& n = g_.nodes[id];
      if (n.op == OpId::matmul) return softmax;
      if (n.op == OpId::softmax) softmax = id;
      else if (n.op != OpId::cast && n.op != OpId::add && n.op != OpId::sub && n.op != OpId::mul && n.op != OpId::div &&
               n.op != OpId::where)
        return {};
      const Operand* next = nullptr;
      for (const Operand& in : n.ins)
        if (!next && !in.is_param && is_float(in.dtype) && in.shape == n.outs[0].shape && last_writer(in).valid())
          next = &in;
      if (!next || (n.op == OpId::mul && !n.ins[1].is_param)) return {};
      at = Operand(*next);
    }
    return {};
  }

  // The node that has written the probabilities, if the product and the right number of nodes of the gradient read them: three in
  // float32. In 16 bits, the gradient of v and a cast to float32; or the former alone, if they were cast from float32.
  NodeId trained_probabilities(const Operand& o) const {
    if (!is_half(o.dtype)) return writer_as_it_is(o, 4);
    const NodeId cast = writer_as_it_is(o, 2);
    return cast.valid() && is_cast(g_.nodes[cast], DType::float32, o.dtype) ? cast : writer_as_it_is(o, 3);
  }

  // The pattern up to the product; or why it is another one.
  std::optional<Found> look(const Node& product, std::string& why) const {
    const auto not_because = [&](std::string reason) {
      why = std::move(reason);
      return std::nullopt;
    };
    const size_t rank = static_cast<size_t>(product.outs[0].shape.size());
    if (rank < 3 || rank > 4) return not_because(fmt::format("the products have {} dims; expected 3 or 4", rank));
    const DType dtype = product.outs[0].dtype;
    if (!is_float(dtype)) return not_because(fmt::format("the products are {}", dtype_name(dtype)));
    const char* seen = "another op reads the probabilities, or a variable holds them";
    Found f;
    NodeId at = writer_as_it_is(product.ins[0]);
    if (!at.valid()) {
      at = trained_probabilities(product.ins[0]);
      f.trains = true;
    }
    if (!at.valid()) return not_because(seen);
    if (is_half(dtype) && is_cast(g_.nodes[at], DType::float32, dtype)) {
      f.narrowed = true;
      f.between = {at};
      at = writer_as_it_is(g_.nodes[at].ins[0], f.trains ? 3 : 1);  // the cast, and two nodes of the gradient
      if (!at.valid()) return not_because(seen);
    }
    if (g_.nodes[at].op != OpId::softmax)
      return not_because(fmt::format("{} is between the softmax and the product{}",
                                     shown_name(g_.nodes[at].op, g_.nodes[at].attrs),
                                     g_.nodes[at].op == OpId::where ? ", as dropout records it" : ""));
    f.softmax = at;
    for (f.between.push_back(at);; f.between.push_back(at)) {
      const Node& n = g_.nodes[at];
      const bool adds = n.op == OpId::add && !n.ins[0].is_param && !n.ins[1].is_param;
      Operand next = n.ins[0];
      if (adds && !f.mask && !f.factor) {
        const bool left = writer_as_it_is(n.ins[0]).valid() && n.ins[0].shape == n.outs[0].shape;
        next = n.ins[left ? 0 : 1];
        f.mask = n.ins[left ? 1 : 0];
        f.masked_at = at;
      } else if ((hides_scores(n, kHidden) || hides_scores(n, kFarBelow)) && !f.mask && !f.factor) {
        next = n.ins[n.ins[1].is_param ? 2 : 1];
        if (next.shape != n.outs[0].shape) return not_because("the mask is larger than the scores");
        f.mask = n.ins[0];
        f.masked_at = at;
        f.chosen = true;
        f.hides = n.ins[1].is_param;
        f.finite = hides_scores(n, kFarBelow);
      } else if ((n.op == OpId::mul || n.op == OpId::div) && n.ins[1].is_param && !n.ins[0].is_param && !f.factor) {
        f.factor = n.ins[1];
        f.divides = n.op == OpId::div;
      } else if (f.narrowed && !f.widened && is_cast(n, dtype, DType::float32)) {
        f.widened = true;
      } else if (at != f.softmax) {
        if (n.op == OpId::where)
          return not_because(
              "the mask fills in a tensor or another number than -inf (finite_fills also takes those of at most -1e4, "
              "but not "
              "in float16), or it is not the last op before the softmax");
        return not_because(
            fmt::format("{} is between the products; expected a factor, then a mask", shown_name(n.op, n.attrs)));
      }
      at = writer_as_it_is(next);
      if (!at.valid())
        return not_because(
            "another op reads the scores, or a variable holds them, or the softmax is not over the last dim");
      if (g_.nodes[at].op == OpId::matmul) break;
    }
    if (f.narrowed != f.widened || g_.nodes[at].outs[0].dtype != dtype)
      return not_because("the products have different dtypes");
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
    const NodeId softmax = softmax_behind(g_.nodes[id].ins[0]);
    std::string why;
    if (!replace(id, why) && softmax.valid())
      notes_.push_back({Rewrite::FoundAttention, false, softmax, std::move(why)});
  }

  // False: it stays, with the reason.
  bool replace(NodeId id, std::string& why) {
    const auto not_because = [&](std::string reason) {
      why = std::move(reason);
      return false;
    };
    const std::optional<Found> f = look(g_.nodes[id], why);
    if (!f) return false;
    const Operand out = with_heads(g_.nodes[id].outs[0]);
    const Operand q = with_heads(g_.nodes[f->first].ins[0]);
    const Operand swapped = g_.nodes[f->first].ins[1];
    const int r = swapped.shape.size();
    Dims shape = swapped.shape, strides = swapped.strides;
    std::swap(shape[r - 1], shape[r - 2]);
    std::swap(strides[r - 1], strides[r - 2]);
    const Operand k = with_heads(with_geometry(swapped, shape, strides)), v = with_heads(g_.nodes[id].ins[1]);
    if (v.shape[3] != q.shape[3])
      return not_because(fmt::format("q has {} columns and v has {}; expected as many", q.shape[3], v.shape[3]));
    if (q.dtype != out.dtype) return not_because("the products have different dtypes");
    if (out.numel() == 0 || k.shape[2] == 0) return not_because("there are no elements");
    if (!unchanged(q, f->first) || !unchanged(k, f->first)) return not_because("q or k is written after their product");
    if (f->finite && !finite_fills_)
      return not_because(
          "the mask fills in a finite number; hint: -inf, or pf.rewrites.enable(\"finite_fills\") if all scores are "
          "smaller in size than that number less 104");
    if (f->finite && f->trains)
      return not_because("the mask fills in a finite number, and the gradient is computed too");
    if (f->finite && f->widened && g_.nodes[f->masked_at].outs[0].dtype != q.dtype)
      return not_because("the mask fills in a finite number of another dtype than the products");
    std::optional<Backward> back;
    if (f->trains && !(back = backward(id, *f, with_geometry(swapped, shape, strides))))
      return not_because(
          "more than the gradient reads the probabilities, or the gradient is none that is known: that of float32, "
          "bfloat16 or float16 q, k and v, without one of the mask");
    std::vector<Operand> ins{q, k, v};
    if (f->mask) {
      const Dims scores{q.shape[0], q.shape[1], q.shape[2], k.shape[2]};
      const bool converts = !f->chosen && f->widened && f->mask->dtype == DType::float32;
      if (converts && f->trains)
        return not_because(
            fmt::format("the mask that is added is float32 and the products are {}, and the gradient is computed too; "
                        "hint: a mask in {}",
                        dtype_name(q.dtype), dtype_name(q.dtype)));
      const bool made = f->hides || f->finite || converts;  // by the node that applied the mask
      const Operand own = made ? dense(*f->mask) : *f->mask;
      auto mask = expanded(own, scores, static_cast<size_t>(r));
      if (!mask) return not_because(fmt::format("the mask {} does not broadcast to the scores", f->mask->shape.str()));
      if (!converts && mask->dtype != (f->chosen ? DType::bool_ : q.dtype))
        return not_because(fmt::format("the mask is {} and q is {}", dtype_name(mask->dtype), dtype_name(q.dtype)));
      if (!made && !unchanged(*mask, f->masked_at)) return not_because("the mask is written after it was applied");
      if (made) {
        mask->binding = make_mask(*f, own, f->finite || converts ? q.dtype : DType::bool_, id).binding;
        mask->dtype = f->finite || converts ? q.dtype : DType::bool_;
      }
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
    const std::string scores = fmt::format("softmax({}q k^T{}{}) v", f->chosen ? "mask(" : "",
                                           !f->factor   ? ""
                                           : f->divides ? " / scale"
                                                        : " * scale",
                                           f->chosen ? ")"
                                           : f->mask ? " + mask"
                                                     : "");
    notes_.push_back({Rewrite::FoundAttention, true, f->softmax,
                      scores + " -> scaled_dot_product_attention" + (back ? ", and its gradient" : "")});
    if (f->finite)
      notes_.push_back({Rewrite::FiniteFills, true, f->masked_at,
                        "a finite number where the mask hides -> -1e30, added to the scores"});
    return true;
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

  // The node that applied the mask computes the mask that attention `reader` reads instead: which keys are seen, or what is added to the scores.
  //
  // A finite number becomes -1e30. The softmax gives such a key the weight 0, as it does for the number itself if a score of the row is larger
  // by 104. In a row that is hidden wholly, scores vanish beside -1e30, so all weights are equal, as they are if the number replaces the scores.
  Operand make_mask(const Found& f, const Operand& own, DType dtype, NodeId reader) {
    const Operand made = add_slot(dtype, own.shape, {{f.masked_at}, {reader}});
    const Operand from = with_geometry(*f.mask, own.shape, f.mask->strides);
    const SourceLoc loc = g_.nodes[f.masked_at].loc;
    Node n{OpId::logical_not, {}, {from}, {made}, loc};
    if (f.finite) {
      const Operand hidden = number(Param(Scalar(-1e30)), {}, dtype), seen = number(Param(Scalar(0.0)), {}, dtype);
      n = Node{OpId::where, {}, {from, f.hides ? hidden : seen, f.hides ? seen : hidden}, {made}, loc};
    } else if (!f.chosen) {
      n = Node{OpId::cast, {}, {from}, {made}, loc};
    }
    g_.nodes[f.masked_at] = std::move(n);
    return made;
  }

  struct Backward {
    ForwardPattern forward;
    GradientPattern gradient;
  };
  std::optional<Backward> backward(NodeId id, const Found& f, const Operand& k) const {
    const Node& product = g_.nodes[id];
    const Operand& v = product.ins[1];
    const Users& of_out = users_[g_.slot(product.outs[0])];
    if ((v.dtype != DType::float32 && !is_half(v.dtype)) || !unchanged(v, id) || of_out.writers.size() != 1)
      return std::nullopt;
    ForwardPattern forward;
    forward.product = id;
    forward.q = g_.nodes[f.first].ins[0];
    forward.k = k;
    forward.v = v;
    forward.probabilities = product.ins[0];
    forward.softmax = f.softmax;
    if (f.narrowed) forward.narrowed = f.between.front();
    forward.factor = f.factor;
    forward.divides = f.divides;
    if (f.chosen) {
      if (!unchanged(*f.mask, f.masked_at)) return std::nullopt;
      forward.mask = f.mask;
      forward.kept = f.hides ? 2 : 1;
    }
    if (auto gradient = match_gradient(g_, users_, forward)) return Backward{std::move(forward), std::move(*gradient)};
    return std::nullopt;
  }

  // Whether the node has become one that makes the mask (make_mask).
  static bool is_mask(const Node& n, const std::vector<Operand>& ins) { return n.outs[0].binding == ins[3].binding; }

  void become(NodeId id, const Found& f, std::vector<Operand> ins, const Operand& out,
              const std::optional<Backward>& back) {
    const Operand lse = add_slot(DType::float32, Dims{out.shape[0], out.shape[1], out.shape[2]}, {{id}, {}});
    for (const NodeId n : f.between)
      if (n != f.masked_at || !is_mask(g_.nodes[n], ins)) skip(g_.nodes[n]);
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

  // Whether the value is a copy that has elements of its source several times.
  bool is_repeated(Operand o) const {
    for (int steps = 0; steps < 4; ++steps) {
      const NodeId id = last_writer(o);
      if (!id.valid() || g_.nodes[id].op != OpId::cast) return false;
      o = Operand(g_.nodes[id].ins[0]);
      for (int d = 0; d < o.shape.size(); ++d)
        if (o.strides[d] == 0 && o.shape[d] > 1) return true;
    }
    return false;
  }

  void group_at(NodeId id) {
    const auto k = repeated(g_.nodes[id].ins[1]), v = repeated(g_.nodes[id].ins[2]);
    if (!k || !v || k->source.shape[1] != v->source.shape[1]) {
      if (is_repeated(g_.nodes[id].ins[1]) && is_repeated(g_.nodes[id].ins[2]))
        notes_.push_back(
            {Rewrite::GroupedHeads, false, id,
             "another op reads the repeated keys or values, as the gradient does, or a variable holds them, or "
             "the repetitions of a head do not follow each other"});
      return;
    }
    Node& n = g_.nodes[id];
    const int64_t heads = n.ins[1].shape[1];
    n.ins[1] = k->source;
    n.ins[2] = v->source;
    for (const auto* copies : {&k->copies, &v->copies})
      for (const NodeId c : *copies) skip(g_.nodes[c]);
    notes_.push_back({Rewrite::GroupedHeads, true, id,
                      fmt::format("keys and values repeated for {} heads -> those of {} heads, without copies", heads,
                                  k->source.shape[1])});
  }

  Graph g_;
  Added added_;
  std::vector<RewriteNote> notes_;
  bool finite_fills_;
  Indexed<SlotId, Users> users_;
};

}  // namespace

Rewritten find_attention(Rewritten graph, bool finite_fills) {
  return AttentionPass(std::move(graph), finite_fills).find();
}
Rewritten group_heads(Rewritten graph) { return AttentionPass(std::move(graph)).group(); }

}  // namespace pyflame
