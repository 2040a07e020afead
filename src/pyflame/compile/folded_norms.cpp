// folded_norms: a convolution or a product with a constant weight, then additions and factors per channel that are
// constant too, as of a batch norm in evaluation:
//
//   ((w x + a) - m) s + b   becomes   (w s) x + ((a - m) s + b)
//
// Nothing else may read the values in between. The result is rounded in another order, so it agrees within the tolerance.
#include <optional>

#include "pyflame/compile/constants.h"

namespace pyflame {

namespace {

// One op of the chain: add, sub or mul of a constant vector.
struct Link {
  NodeId node;
  Operand vector;  // one element for each channel
};

struct Chain {
  NodeId product;
  NodeId widened;  // a cast to float32 between the product and the first factor; may be invalid
  std::vector<Link> links;
};

class Folder {
 public:
  explicit Folder(Parts& p) : p_(p), users_(p.users()) {}

  void run() {
    const size_t n = p_.graph.nodes.size();
    for (size_t i = 0; i < n; ++i)
      if (const auto chain = chain_of(NodeId(i))) fold(*chain);
  }

 private:
  Graph& g() { return p_.graph; }
  const Node& node(NodeId id) const { return p_.graph.nodes[id]; }

  static int channel_dim(const Node& product) {
    return product.op == OpId::conv2d ? 1 : product.outs[0].shape.size() - 1;
  }

  // The only reader of a value that nothing sees after the window.
  NodeId only_reader(const Operand& o) const {
    const SlotId s = p_.graph.slot(o);
    const SlotInfo& slot = p_.graph.slots[s];
    if (slot.live || slot.external || !p_.graph.covers_slot(o)) return {};
    const Users& u = users_[s];
    return u.writers.size() == 1 && u.readers.size() == 1 ? u.readers[0] : NodeId();
  }

  static bool same(const Operand& a, const Operand& b) {
    return !a.is_param && a.binding == b.binding && a.shape == b.shape && a.strides == b.strides;
  }

  // The operand with one element for each channel of `image`, or nothing.
  std::optional<Operand> vector_of(const Operand& o, const Operand& image, int channel) const {
    if (!p_.is_constant(o) || o.dtype != image.dtype) return std::nullopt;
    const int d = channel - image.shape.size() + o.shape.size();
    if (d < 0 || o.shape[d] != image.shape[channel] || o.numel() != image.shape[channel]) return std::nullopt;
    return with_geometry(o, {o.shape[d]}, {o.strides[d]});
  }

  std::optional<Link> link_of(NodeId id, const Operand& value, int channel) const {
    const Node& n = node(id);
    const Operand& out = n.outs[0];
    if (n.op != OpId::add && n.op != OpId::sub && n.op != OpId::mul) return std::nullopt;
    if (out.shape != value.shape || out.strides != value.strides || out.dtype != value.dtype ||
        p_.graph.slot_info(out).external || users_[p_.graph.slot(out)].writers.size() != 1)
      return std::nullopt;
    const bool first = same(n.ins[0], value);
    if (!first && (n.op == OpId::sub || !same(n.ins[1], value))) return std::nullopt;
    const auto vector = vector_of(n.ins[first ? 1 : 0], value, channel);
    if (!vector) return std::nullopt;
    return Link{id, *vector};
  }

  std::optional<Chain> chain_of(NodeId id) {
    const Node& n = node(id);
    if (is_skipped(n) || p_.constant[id] || (n.op != OpId::conv2d && n.op != OpId::matmul)) return std::nullopt;
    if (!is_float(n.outs[0].dtype) || !p_.is_constant(n.ins[1]) || (n.op == OpId::matmul && n.ins[1].shape.size() != 2))
      return std::nullopt;
    const int channel = channel_dim(n);
    Chain chain{id, {}, {}};
    Operand value = n.outs[0];
    for (NodeId reader = only_reader(value); reader.valid(); reader = only_reader(value)) {
      const Node& r = node(reader);
      const bool widens = r.op == OpId::cast && !scales(chain) && !chain.widened.valid() && same(r.ins[0], value) &&
                          r.outs[0].shape == value.shape && r.outs[0].strides == value.strides &&
                          r.outs[0].dtype == DType::float32;
      if (widens) {
        chain.widened = reader;
      } else if (auto link = link_of(reader, value, channel)) {
        chain.links.push_back(std::move(*link));
      } else {
        break;
      }
      value = r.outs[0];
    }
    if (!scales(chain)) {
      for (const NodeId reader : users_[p_.graph.slot(value)].readers)
        if (node(reader).op != OpId::add && link_of(reader, value, channel)) {
          p_.note(Rewrite::FoldedNorms, false, reader,
                  fmt::format("another op reads the values between the {} and this one, or a variable holds them",
                              op_name(n.op)));
          break;
        }
      return std::nullopt;
    }
    return chain;
  }

  bool scales(const Chain& chain) const {
    bool any = false;
    for (const Link& l : chain.links) any = any || node(l.node).op == OpId::mul;
    return any;
  }

  // ---- what is computed once

  Operand computed(OpId op, std::vector<Operand> ins, DType dtype, const Dims& shape, const Dims& strides) {
    return p_.add_constant(op, std::move(ins), p_.add_slot(dtype, shape, strides, true), line_);
  }
  Operand vector(OpId op, std::vector<Operand> ins) {
    const Dims shape = ins[0].shape;
    const DType dtype = ins[0].dtype;
    return computed(op, std::move(ins), dtype, shape, {1});
  }

  // weight times scale, in the weight's dtype and layout.
  Operand scaled(const Operand& weight, const Operand& scale, bool of_rows) {
    const Dims shape = weight.shape;
    const bool transposed = shape.size() == 2 && weight.strides == Dims{1, shape[0]};
    const bool channels_last = has_format(weight, MemoryFormat::channels_last);
    const Dims strides = transposed || channels_last ? weight.strides : contiguous_strides(shape);
    Dims over = Dims::filled(shape.size(), 1);
    over[of_rows ? 0 : shape.size() - 1] = scale.shape[0];
    const Operand factor = with_geometry(scale, over, contiguous_strides(over));
    if (weight.dtype == scale.dtype) return computed(OpId::mul, {weight, factor}, weight.dtype, shape, strides);
    const Operand wide = computed(OpId::cast, {weight}, scale.dtype, shape, strides);
    const Operand product = computed(OpId::mul, {wide, factor}, scale.dtype, shape, strides);
    return computed(OpId::cast, {product}, weight.dtype, shape, strides);
  }

  void fold(const Chain& chain) {
    line_ = chain.links.back().node;
    const Operand value = node(chain.widened.valid() ? chain.widened : chain.product).outs[0];
    std::optional<Operand> scale, shift;
    for (Link l : chain.links) {
      const OpId op = node(l.node).op;
      if (l.vector.dtype != value.dtype) l.vector = computed(OpId::cast, {l.vector}, value.dtype, l.vector.shape, {1});
      if (op == OpId::mul) {
        scale = scale ? vector(OpId::mul, {*scale, l.vector}) : l.vector;
        if (shift) shift = vector(OpId::mul, {*shift, l.vector});
      } else if (shift) {
        shift = vector(op, {*shift, l.vector});
      } else {
        shift = op == OpId::sub ? vector(OpId::neg, {l.vector}) : l.vector;
      }
    }
    const bool convolution = node(chain.product).op == OpId::conv2d;
    if (scale->strides[0] != 1) scale = vector(OpId::cast, {*scale});
    const Operand weight = scaled(node(chain.product).ins[1], *scale, convolution);
    g().nodes[chain.product].ins[1] = weight;
    if (chain.widened.valid()) g().nodes[chain.widened].ins = {node(chain.product).outs[0]};
    Node& last = g().nodes[line_];
    for (const Link& l : chain.links)
      if (l.node != line_) skip(g().nodes[l.node]);
    if (shift) {
      const int channel = channel_dim(node(chain.product));
      Dims over = Dims::filled(value.shape.size(), 1);
      Dims strides = over;
      over[channel] = shift->shape[0];
      strides = contiguous_strides(over);
      strides[channel] = shift->strides[0];
      last.op = OpId::add;
      last.ins = {value, with_geometry(*shift, over, strides)};
    } else {
      last.op = OpId::cast;
      last.ins = {value};
    }
    p_.note(Rewrite::FoldedNorms, true, line_,
            fmt::format("{} op{} with constants per channel -> the weight of the {}", chain.links.size(),
                        chain.links.size() == 1 ? "" : "s", op_name(node(chain.product).op)));
  }

  Parts& p_;
  const Indexed<SlotId, Users> users_;
  NodeId line_;  // of what is being added
};

}  // namespace

void fold_norms(Parts& parts) { Folder(parts).run(); }

}  // namespace pyflame
