// merged_products: products of one tensor with several constant weights, as of q, k and v or of gate and up, become one
// product with the weights side by side. Biases that are constant too are joined as well. What read one of the results
// reads a part of the joint one. A library may divide the larger product in another way, so the result agrees within the
// tolerance.
#include <algorithm>
#include <optional>

#include "pyflame/compile/constants.h"

namespace pyflame {

namespace {

struct Product {
  NodeId node;
  NodeId biased;  // the addition of a constant bias, or invalid
  Operand bias;   // a vector
  int64_t columns = 0;
  const char* unbiased = nullptr;  // why an addition after it is none of a bias
};

class Merger {
 public:
  explicit Merger(Parts& p) : p_(p), users_(p.users()) {}

  void run() {
    std::vector<Product> found;
    const size_t n = p_.graph.nodes.size();
    for (size_t i = 0; i < n; ++i) {
      const char* why = nullptr;
      if (const auto product = product_of(NodeId(i), why)) found.push_back(*product);
      else if (why && shares_its_input(NodeId(i))) p_.note(Rewrite::MergedProducts, false, NodeId(i), why);
    }
    for (size_t i = 0; i < found.size(); ++i) {
      if (!found[i].node.valid()) continue;
      std::vector<Product> together{found[i]};
      for (size_t k = i + 1; k < found.size(); ++k)
        if (found[k].node.valid() && goes_with(found[i], found[k])) {
          together.push_back(found[k]);
          found[k].node = {};
        }
      if (together.size() > 1) merge(together);
      else if (i + 1 < found.size() && shares_its_input(found[i].node))
        p_.note(Rewrite::MergedProducts, false, found[i].node,
                found[i].unbiased ? found[i].unbiased
                                  : "the other products of this tensor have other dtypes, or a bias where this one has "
                                    "none, or they stay");
    }
  }

 private:
  const Node& node(NodeId id) const { return p_.graph.nodes[id]; }
  // What other nodes read of a product.
  const Operand& result(const Product& p) const { return node(p.biased.valid() ? p.biased : p.node).outs[0]; }

  // Written once, as a whole, and seen by nobody after the window.
  bool is_private(const Operand& o) const {
    const SlotInfo& slot = p_.graph.slot_info(o);
    return !slot.live && !slot.external && is_whole(p_.graph, o) && users_[p_.graph.slot(o)].writers.size() == 1;
  }

  bool has_constant_weight(NodeId id) const {
    const Node& n = node(id);
    return !is_skipped(n) && !p_.constant[id] && n.op == OpId::matmul && n.outs[0].shape.size() == 2 &&
           p_.is_constant(n.ins[1]) && !p_.is_constant(n.ins[0]);
  }
  bool shares_its_input(NodeId id) const {
    const Operand& left = node(id).ins[0];
    for (const NodeId other : users_[p_.graph.slot(left)].readers)
      if (other != id && has_constant_weight(other) && node(other).ins[0].binding == left.binding) return true;
    return false;
  }

  // If it is nearly one, `why` says what is missing.
  std::optional<Product> product_of(NodeId id, const char*& why) const {
    if (!has_constant_weight(id)) return std::nullopt;
    const Node& n = node(id);
    const size_t writers = users_[p_.graph.slot(n.ins[0])].writers.size();
    const bool left_changes = writers > (p_.graph.slot_info(n.ins[0]).external ? 0u : 1u);
    if (!is_private(n.outs[0]) || left_changes) {
      why = left_changes ? "the tensor on the left is written in several steps"
                         : "a variable holds the product, or it is a part of a tensor";
      return std::nullopt;
    }
    Product p{id, {}, {}, n.outs[0].shape[1]};
    const Users& u = users_[p_.graph.slot(n.outs[0])];
    if (u.readers.size() == 1) find_bias(p, u.readers[0]);
    for (const NodeId reader : users_[p_.graph.slot(result(p))].readers)
      for (const Operand& o : node(reader).ins)
        if (!o.is_param && p_.graph.slot(o) == p_.graph.slot(result(p)) && !within_rows(o, result(p), p.columns)) {
          why = "an op reads the product in another order than by rows";
          return std::nullopt;
        }
    return p;
  }

  void find_bias(Product& p, NodeId reader) const {
    const Operand out = node(p.node).outs[0];
    const Node& add = node(reader);
    if (add.op != OpId::add || add.outs[0].shape != out.shape) return;
    if (!is_private(add.outs[0])) {
      p.unbiased = "a variable holds the product, or it is a part of a tensor";
      return;
    }
    if (add.ins[0].is_param || add.ins[0].binding != out.binding || add.ins[0].strides != out.strides ||
        add.ins[0].shape != out.shape)
      return;
    const Operand& bias = add.ins[1];
    if (!p_.is_constant(bias) || bias.numel() != p.columns || bias.dtype != out.dtype || bias.shape.back() != p.columns)
      return;
    p.biased = reader;
    p.bias = with_geometry(bias, {p.columns}, {bias.strides.back()});
  }

  // Whether each dim of a view of [rows, columns] runs along whole rows or stays within one.
  static bool within_rows(const Operand& o, const Operand& whole, int64_t columns) {
    if (o.binding != whole.binding || o.dtype != whole.dtype || o.numel() == 0) return false;
    int64_t reach = 0;
    for (int d = 0; d < o.shape.size(); ++d)
      if (o.strides[d] % columns != 0) reach += (o.shape[d] - 1) * o.strides[d];
    return reach < columns;
  }

  bool goes_with(const Product& a, const Product& b) const {
    const Node &x = node(a.node), &y = node(b.node);
    const Operand &l = x.ins[0], &m = y.ins[0];
    return l.binding == m.binding && l.shape == m.shape && l.strides == m.strides && l.dtype == m.dtype &&
           x.attrs == y.attrs && x.outs[0].dtype == y.outs[0].dtype && x.ins[1].dtype == y.ins[1].dtype &&
           a.biased.valid() == b.biased.valid();
  }

  // All readers of a result read its columns in the joint one.
  void redirect(const Product& p, const Operand& joint, int64_t first) {
    const int64_t width = joint.shape[1];
    const Operand old = result(p);
    const Operand begin = p_.part_of(joint, first, {1}, {1});
    for (const NodeId reader : users_[p_.graph.slot(old)].readers)
      for (Operand& o : p_.graph.nodes[reader].ins) {
        if (o.is_param || o.binding != old.binding) continue;
        Dims strides = o.strides;
        for (int64_t& s : strides)
          if (s % p.columns == 0) s = s / p.columns * width;
        o.binding = begin.binding;
        o = with_geometry(o, o.shape, strides);
      }
  }

  void merge(const std::vector<Product>& together) {
    const Product& first = together[0];  // in program order
    int64_t width = 0;
    for (const Product& p : together) width += p.columns;
    const Operand left = node(first.node).ins[0];
    const DType dtype = node(first.node).outs[0].dtype;
    const int64_t rows = left.shape[0], depth = left.shape[1];
    const Operand weights = p_.add_slot(node(first.node).ins[1].dtype, {width, depth}, {depth, 1}, true);
    const Operand joint = p_.add_slot(dtype, {rows, width}, {width, 1}, false);
    std::optional<Operand> biases, sums;
    NodeId adds = first.biased;
    if (adds.valid()) {
      biases = p_.add_slot(dtype, {width}, {1}, true);
      sums = p_.add_slot(dtype, {rows, width}, {width, 1}, false);
      for (const Product& p : together) adds = std::min(adds, p.biased);
    }
    int64_t at = 0;
    for (const Product& p : together) {
      const Operand w = node(p.node).ins[1];
      const Operand swapped = with_geometry(w, {p.columns, depth}, {w.strides[1], w.strides[0]});
      p_.add_constant(OpId::cast, {swapped}, p_.part_of(weights, at * depth, {p.columns, depth}, {depth, 1}), p.node);
      if (biases) p_.add_constant(OpId::cast, {p.bias}, p_.part_of(*biases, at, {p.columns}, {1}), p.biased);
      redirect(p, sums ? *sums : joint, at);
      at += p.columns;
    }
    for (const Product& p : together) {
      if (p.node != first.node) skip(p_.graph.nodes[p.node]);
      if (p.biased.valid() && p.biased != adds) skip(p_.graph.nodes[p.biased]);
    }
    Node& product = p_.graph.nodes[first.node];
    product.ins = {left, with_geometry(weights, {depth, width}, {1, depth})};
    product.outs = {joint};
    if (sums) {
      Node& add = p_.graph.nodes[adds];
      add.ins = {joint, *biases};
      add.outs = {*sums};
    }
    p_.note(Rewrite::MergedProducts, true, first.node,
            fmt::format("{} products of one tensor with constant weights -> one product", together.size()));
  }

  Parts& p_;
  const Indexed<SlotId, Users> users_;
};

}  // namespace

void merge_products(Parts& parts) { Merger(parts).run(); }

}  // namespace pyflame
