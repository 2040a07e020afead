// Recorded, with p the probabilities and g the gradient of p v:
//   dp = g v^T   dv = p^T g   ds = p (dp - sum(dp p))   ds = where(hidden, 0, ds)   ds = ds * scale   dq = ds k   dk^T = q^T ds
// One attention_grad computes dq, dk and dv from g, q, k, v and the results of the attention op, and p is never stored.
//
// In 16-bit training the products are 16-bit and the gradient of the softmax is float32: dp is cast to float32, and so is p if the
// softmax is 16-bit. ds is cast to 16 bits after the softmax, the mask or the scale, where the scores were cast to float32.
//
// The compiler knows no numbers, so it does not know that the scale of the gradient is that of the scores. The gradients are
// therefore multiplied by the quotient of both, which is 1.
#include "pyflame/compile/attention_gradients.h"

#include "pyflame/ops/hides.h"

namespace pyflame {

namespace {

bool same(const Operand& a, const Operand& b) {
  return !a.is_param && !b.is_param && a.binding == b.binding && a.dtype == b.dtype && a.shape == b.shape &&
         a.strides == b.strides;
}

Operand transposed(const Operand& o) {
  const int r = o.shape.size();
  Dims shape = o.shape, strides = o.strides;
  std::swap(shape[r - 1], shape[r - 2]);
  std::swap(strides[r - 1], strides[r - 2]);
  return with_geometry(o, shape, strides);
}

Operand with_heads(const Operand& o) {
  if (o.shape.size() == 4) return o;
  return with_geometry(o, {o.shape[0], 1, o.shape[1], o.shape[2]},
                       {o.strides[0], o.strides[1] * o.shape[1], o.strides[1], o.strides[2]});
}

class Matcher {
 public:
  Matcher(const Graph& g, const Indexed<SlotId, Users>& users, const ForwardPattern& f) : g_(g), users_(users), f_(f) {}

  std::optional<GradientPattern> run() {
    if (find_readers_of_p() && find_weights() && find_softmax() && find_scores() && find_products()) return b_;
    return std::nullopt;
  }

 private:
  const Node& node(NodeId id) const { return g_.nodes[id]; }
  const Operand& out(NodeId id) const { return node(id).outs[0]; }
  // A value that the window makes, whole, in one node.
  bool is_made_here(const Operand& o) const {
    return !o.is_param && !g_.slot_info(o).external && users_[g_.slot(o)].writers.size() == 1 && is_whole(g_, o);
  }
  // The readers of a node's result, which nothing outside the window reads.
  const std::vector<NodeId>* readers(NodeId id, size_t count) const {
    const Operand& o = out(id);
    if (node(id).outs.size() != 1 || !is_made_here(o) || g_.slot_info(o).live) return nullptr;
    const std::vector<NodeId>& all = users_[g_.slot(o)].readers;
    return all.size() == count ? &all : nullptr;
  }
  NodeId only_reader(NodeId id, OpId op) const {
    const auto* r = readers(id, 1);
    return r && node((*r)[0]).op == op ? (*r)[0] : NodeId();
  }
  bool multiplies(NodeId id, const Operand& a, const Operand& b) const {
    const std::vector<Operand>& ins = node(id).ins;
    return node(id).op == OpId::mul && ((same(ins[0], a) && same(ins[1], b)) || (same(ins[0], b) && same(ins[1], a)));
  }

  bool half() const { return is_half(f_.q.dtype); }
  // Casts `of` between float32 and the dtype of q.
  bool casts(NodeId id, const Operand& of) const {
    return node(id).op == OpId::cast && half() && same(node(id).ins[0], of) &&
           out(id).dtype == (of.dtype == DType::float32 ? f_.q.dtype : DType::float32) && out(id).shape == of.shape;
  }

  // The two products of the softmax's gradient.
  bool is_weighted_or_ds(NodeId id) {
    if (node(id).op != OpId::mul || b_.ds.valid()) return false;
    (b_.weighted.valid() ? b_.ds : b_.weighted) = id;
    return true;
  }

  bool find_readers_of_p() {
    for (const NodeId id : users_[g_.slot(f_.probabilities)].readers) {
      if (id == f_.product) continue;
      if (node(id).op == OpId::matmul && !b_.dv.valid()) b_.dv = id;
      else if (!f_.narrowed.valid() && !b_.wide_p.valid() && casts(id, f_.probabilities)) b_.wide_p = id;
      else if (half() || !is_weighted_or_ds(id)) return false;
    }
    return b_.dv.valid();
  }

  // The probabilities that the softmax's gradient reads, and what reads them.
  bool find_weights() {
    weights_ = f_.probabilities;
    if (half()) {
      const NodeId wide = f_.narrowed.valid() ? f_.softmax : b_.wide_p;
      const auto* all = wide.valid() ? readers(wide, f_.narrowed.valid() ? 3 : 2) : nullptr;
      if (!all) return false;
      weights_ = out(wide);
      for (const NodeId id : *all)
        if (id != f_.narrowed && !is_weighted_or_ds(id)) return false;
    }
    return b_.ds.valid() && weights_.dtype == DType::float32;
  }

  bool find_softmax() {
    const std::vector<Operand>& ins = node(b_.weighted).ins;
    const Operand& dp = same(ins[0], weights_) ? ins[1] : ins[0];
    if (dp.is_param || !is_made_here(dp)) return false;
    b_.dp = users_[g_.slot(dp)].writers[0];
    if (!multiplies(b_.weighted, dp, weights_) || !readers(b_.dp, 2)) return false;
    if (half()) {
      b_.wide_dp = b_.dp;
      if (node(b_.wide_dp).op != OpId::cast) return false;
      const Operand& narrow = node(b_.wide_dp).ins[0];
      if (narrow.is_param || !casts(b_.wide_dp, narrow) || !is_made_here(narrow)) return false;
      b_.dp = users_[g_.slot(narrow)].writers[0];
      if (!readers(b_.dp, 1) || !same(out(b_.dp), narrow)) return false;
    }
    if (node(b_.dp).op != OpId::matmul) return false;
    b_.sum = only_reader(b_.weighted, OpId::sum);
    const int last = dp.shape.size() - 1;
    if (!b_.sum.valid() || node(b_.sum).attr<ReduceAttrs>().axes != int64_t{1} << last) return false;
    b_.centred = only_reader(b_.sum, OpId::sub);
    return b_.centred.valid() && same(node(b_.centred).ins[0], dp) && out(b_.centred).shape == dp.shape &&
           only_reader(b_.centred, OpId::mul) == b_.ds && multiplies(b_.ds, out(b_.centred), weights_);
  }

  // The cast of the scores' gradient to 16 bits, where it is.
  void pass_cast() {
    if (!half() || b_.narrow_ds.valid()) return;
    const NodeId id = only_reader(last_, OpId::cast);
    if (id.valid() && casts(id, out(last_))) last_ = b_.narrow_ds = id;
  }

  bool find_scores() {
    last_ = b_.ds;
    pass_cast();
    if (f_.mask) {
      const NodeId before = last_;
      last_ = b_.masked = only_reader(last_, OpId::where);
      if (!last_.valid()) return false;
      const Node& n = node(last_);
      if (n.attr<HidesAttrs>().hides != kZeroForHidden || !same(n.ins[0], *f_.mask)) return false;
      if (!n.ins[static_cast<size_t>(3 - f_.kept)].is_param || !same(n.ins[static_cast<size_t>(f_.kept)], out(before)))
        return false;
      pass_cast();
    }
    if (f_.factor) {
      const NodeId before = last_;
      last_ = b_.scaled = only_reader(before, f_.divides ? OpId::div : OpId::mul);
      if (!last_.valid() || !node(last_).ins[1].is_param || !same(node(last_).ins[0], out(before))) return false;
      pass_cast();
    }
    return out(last_).shape == f_.probabilities.shape && out(last_).dtype == f_.q.dtype;
  }

  bool find_products() {
    const auto* both = readers(last_, 2);
    if (!both) return false;
    for (const NodeId id : *both) {
      if (node(id).op != OpId::matmul) return false;
      const std::vector<Operand>& ins = node(id).ins;
      if (same(ins[0], out(last_)) && same(ins[1], f_.k)) b_.dq = id;
      else if (same(ins[0], transposed(f_.q)) && same(ins[1], out(last_))) b_.dk = id;
    }
    if (!b_.dq.valid() || !b_.dk.valid()) return false;
    b_.grad = node(b_.dp).ins[0];
    const std::vector<Operand>& of_dv = node(b_.dv).ins;
    return same(node(b_.dp).ins[1], transposed(f_.v)) && same(of_dv[0], transposed(f_.probabilities)) &&
           same(of_dv[1], b_.grad) && b_.dp < b_.dv && b_.grad.shape == out(f_.product).shape &&
           is_result(b_.dv, f_.v) && is_result(b_.dq, f_.q) && is_result(b_.dk, transposed(f_.k));
  }
  bool is_result(NodeId id, const Operand& of) const {
    return is_made_here(out(id)) && out(id).shape == of.shape && out(id).dtype == of.dtype && node(id).outs.size() == 1;
  }

  const Graph& g_;
  const Indexed<SlotId, Users>& users_;
  const ForwardPattern& f_;
  GradientPattern b_;
  Operand weights_;
  NodeId last_;
};

// The quotient of the gradient's scale and that of the scores, [], in nodes that have lost their purpose. 0 / 0 counts as 0, because
// both gradients are 0 then. It is computed in float32, where the quotient of two equal scales is 1.
Operand quotient(Parts& p, const GradientPattern& b, const ForwardPattern& f) {
  const auto become = [&](NodeId id, OpId op, std::vector<Operand> ins, DType dtype) {
    Node& n = p.graph.nodes[id];
    const Operand out = p.add_slot(dtype, Dims{}, Dims{}, false);
    n = Node{op, {}, std::move(ins), {out}, n.loc};
    return out;
  };
  const DType dtype = DType::float32;
  Operand over = p.graph.nodes[b.scaled].ins[1], under = *f.factor;
  if (f.divides) std::swap(over, under);
  over.dtype = under.dtype = dtype;
  const Operand top = become(b.weighted, OpId::full, {over}, dtype);
  const Operand ratio = become(b.sum, OpId::div, {top, under}, dtype);
  const Operand undefined = become(b.centred, OpId::isnan, {ratio}, DType::bool_);
  Operand zero;
  zero.is_param = true;
  zero.dtype = dtype;
  zero.param = ParamId(p.graph.params++);
  p.added.params.push_back({Param(Scalar(0.0)), {}});
  const Operand wide = become(b.ds, OpId::where, {undefined, zero, ratio}, dtype);
  return b.narrow_ds.valid() ? become(b.narrow_ds, OpId::cast, {wide}, f.q.dtype) : wide;
}

}  // namespace

std::optional<GradientPattern> match_gradient(const Graph& g, const Indexed<SlotId, Users>& users,
                                              const ForwardPattern& f) {
  return Matcher(g, users, f).run();
}

void replace_gradient(Parts& p, const GradientPattern& b, const ForwardPattern& f, const std::vector<Operand>& ins,
                      const Operand& out, const Operand& lse) {
  const auto fresh = [&](const Operand& like) {
    return p.add_slot(like.dtype, like.shape, contiguous_strides(like.shape), false);
  };
  const Operand dq = fresh(ins[0]), dk = fresh(ins[1]), dv = with_heads(p.graph.nodes[b.dv].outs[0]);
  const bool has_mask = ins.size() == 6;
  std::vector<Operand> args{with_heads(b.grad), ins[0], ins[1], ins[2], out, lse};
  args.insert(args.end(), ins.begin() + 3, ins.end());
  Node& n = p.graph.nodes[b.dp];
  n = Node{OpId::attention_grad, {0, has_mask ? 1 : 0, 0}, std::move(args), {dq, dk, dv}, n.loc};
  skip(p.graph.nodes[b.dv]);
  std::optional<Operand> ratio;
  if (f.factor) {
    ratio = quotient(p, b, f);
  } else {
    for (const NodeId id : {b.weighted, b.sum, b.centred, b.ds, b.narrow_ds})
      if (id.valid()) skip(p.graph.nodes[id]);
  }
  for (const NodeId id : {b.masked, b.scaled, b.wide_dp, b.wide_p})
    if (id.valid()) skip(p.graph.nodes[id]);
  const auto finish = [&](NodeId id, const Operand& from) {
    Node& last = p.graph.nodes[id];
    const Operand to = last.outs[0];
    std::vector<Operand> from_and_ratio{from};
    if (ratio) from_and_ratio.push_back(with_geometry(*ratio, to.shape, Dims::filled(to.shape.size(), 0)));
    last = Node{ratio ? OpId::mul : OpId::cast, {}, std::move(from_and_ratio), {to}, last.loc};
  };
  const auto recorded = [&](const Operand& o,
                            const Operand& like) {  // with the number of dims that it was recorded with
    return with_geometry(o, like.shape, contiguous_strides(like.shape));
  };
  finish(b.dq, recorded(dq, f.q));
  finish(b.dk, transposed(recorded(dk, f.k)));
}

}  // namespace pyflame
