// The reference implementation computes the nodes, as ops on lists of elements.
#include "pyflame/runtime/sampled_epilogue.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <set>

#include "pyflame/compile/align.h"

namespace pyflame::sampled {

namespace {

// The nodes with the elements as one dim, and the bytes of their operands.
class Lists {
 public:
  // `bindings`: how many the step's graph has.
  Lists(const std::vector<Dims>& at, bool rounded, Pointers inputs, size_t bindings)
      : at_(at), rounded_(rounded), inputs_(inputs), made_(bindings) {
    graph_.device = Device{DeviceType::reference, 0};
  }

  void add_product(const Operand& o, const std::vector<double>& values) {
    const Operand list = add(o);
    dispatch(list.dtype, [&]<class T>() {
      for (size_t i = 0; i < values.size(); ++i) put<T>(list, i, values[i]);
    });
    made_[o.binding] = list, follows_[list.binding] = true;
  }

  void add_node(const Node& n) {
    Node list = n;
    bool wide = n.outs[0].dtype == DType::float64;
    for (const Operand& o : n.ins) wide = wide && (o.is_param || o.dtype == DType::float64);
    units_.push_back(wide ? 0x1p-52 : 0x1p-23);
    for (Operand& o : list.ins)
      if (!o.is_param) o = input(o, n.outs[0].shape);
    list.outs[0] = add(n.outs[0]);
    made_[n.outs[0].binding] = list.outs[0], follows_[list.outs[0].binding] = true;
    results_.push_back(list.outs[0]);
    graph_.nodes.push_back(std::move(list));
    group_.nodes.push_back(NodeId(graph_.nodes.size() - 1));
  }

  std::vector<std::vector<double>> run(Params params) {
    if (!group_.nodes.empty()) compute(group_, pointers(), params);
    std::vector<std::vector<double>> values;
    for (const Operand& o : results_) {
      std::vector<double>& to = values.emplace_back();
      for (size_t i = 0; i < at_.size(); ++i) to.push_back(value(o, i, params));
    }
    return values;
  }

  // After run(): of each node's result, what the roundings of its function and of those before it can make of it.
  std::vector<std::vector<double>> roundings(Params params) {
    Indexed<BindingId, std::vector<double>> largest(bytes_.size()), error(bytes_.size());
    for (const BindingId b : bindings()) largest[b].assign(at_.size(), 0), error[b].assign(at_.size(), 0);
    std::vector<std::vector<double>> all;
    for (size_t n = 0; n < group_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[group_.nodes[n]];
      const BindingId out = node.outs[0].binding;
      for (const Operand& in : node.ins)
        for (size_t i = 0; i < at_.size(); ++i) {
          const double before = in.is_param ? 0 : largest[in.binding][i];
          largest[out][i] = std::max({largest[out][i], before, std::fabs(value(in, i, params))});
        }
      std::set<BindingId> followed;  // the product, and what follows from it
      for (const Operand& in : node.ins)
        if (!in.is_param && follows_[in.binding]) followed.insert(in.binding);
      for (const BindingId in : followed) {
        std::vector<double> off = error[in];  // the function also rounds its argument
        for (size_t i = 0; i < at_.size(); ++i) off[i] += kRoundings * units_[n] * std::fabs(value(in, i));
        const std::vector<double> changed = changes(group_.nodes[n], in, off, params);
        for (size_t i = 0; i < at_.size(); ++i) error[out][i] += changed[i];
      }
      for (size_t i = 0; i < at_.size(); ++i) {
        largest[out][i] = std::max(largest[out][i], std::fabs(value(out, i)));
        error[out][i] += kRoundings * units_[n] * largest[out][i];
      }
      all.push_back(error[out]);
    }
    return all;
  }

 private:
  static constexpr double kRoundings = 4;  // of one function, in units in the last place of the largest value

  double value(const Operand& o, size_t i, Params params) const {
    if (o.is_param) return params[o.param].as_f64();
    return element(o.dtype, bytes_[o.binding.index()].data() + i * static_cast<size_t>(dtype_size(o.dtype)));
  }
  // Of a list of float64.
  double value(BindingId b, size_t i) const {
    return element(DType::float64, bytes_[b.index()].data() + i * sizeof(double));
  }

  // By how much a node's results change at the most where one of its lists is off by as much, in either direction.
  std::vector<double> changes(NodeId node, BindingId in, const std::vector<double>& off, Params params) {
    Group alone;
    alone.nodes = {node};
    const BindingId out = graph_.nodes[node].outs[0].binding;
    std::vector<double> most(at_.size()), list(at_.size()), result(at_.size());
    Indexed<BindingId, void*> with = pointers();
    with[in] = list.data(), with[out] = result.data();
    for (const double sign : {-1.0, 1.0}) {
      for (size_t i = 0; i < at_.size(); ++i) list[i] = value(in, i) + sign * off[i];
      compute(alone, with, params);
      for (size_t i = 0; i < at_.size(); ++i) most[i] = wider(most[i], result[i] - value(out, i));
    }
    return most;
  }

  void compute(const Group& group, const Indexed<BindingId, void*>& pointers, Params params) const {
    const Problem problem{graph_, group};
    find_backend(DeviceType::reference)->impls(problem).back().make(problem)->run({pointers.data(), params, nullptr});
  }

  IdRange<BindingId> bindings() const { return {BindingId(0), BindingId(bytes_.size())}; }

  Indexed<BindingId, void*> pointers() {
    Indexed<BindingId, void*> all(bytes_.size());
    for (const BindingId b : bindings()) all[b] = bytes_[b.index()].data();
    return all;
  }

  // A list of its elements.
  Operand add(const Operand& like) {
    Operand o = like;
    o.dtype = !rounded_ && is_float(like.dtype) ? DType::float64 : like.dtype;
    o.shape = {static_cast<int64_t>(at_.size())}, o.strides = {1}, o.contiguous = true;
    o.binding = BindingId(bytes_.size());
    bytes_.emplace_back(o.nbytes()), follows_.push_back(false);
    graph_.slots.push_back({o.nbytes(), true, true, false});
    graph_.bindings.push_back({SlotId(graph_.slots.size() - 1)});
    return o;
  }

  Operand input(const Operand& o, const Dims& shape) {
    if (const std::optional<Operand>& known = made_[o.binding]) return *known;
    const Operand list = add(o);
    const Dims strides = broadcast_strides(o.shape, o.strides, shape);
    const auto* from = static_cast<const char*>(inputs_[o.binding]);
    const Elements elements(o, from);
    const auto size = static_cast<size_t>(dtype_size(o.dtype));
    for (size_t i = 0; i < at_.size(); ++i) {
      const int64_t offset = offset_of(at_[i], strides);
      if (list.dtype == o.dtype)  // exactly, whatever it is
        std::memcpy(bytes_[list.binding.index()].data() + i * size, from + offset * static_cast<int64_t>(size), size);
      else put<double>(list, i, elements[offset]);
    }
    return list;
  }

  template <class T>
  void put(const Operand& list, size_t i, double value) {
    T narrow;
    if constexpr (std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>) narrow = T(static_cast<float>(value));
    else narrow = static_cast<T>(value);
    std::memcpy(bytes_[list.binding.index()].data() + i * sizeof(T), &narrow, sizeof(T));
  }

  const std::vector<Dims>& at_;
  const bool rounded_;
  const Pointers inputs_;
  Graph graph_;
  Group group_;
  std::vector<std::vector<char>> bytes_;             // of each binding
  Indexed<BindingId, bool> follows_;                 // the product, and what the nodes make of it
  Indexed<BindingId, std::optional<Operand>> made_;  // the list of what the product or a node has written
  std::vector<Operand> results_;
  std::vector<double> units_;  // in the last place of 1, of what each node is computed in
};

// A function from floats to floats that is continuous. What follows a step can change by much where a right product changes by little.
bool takes(const Node& n) {
  if (n.outs.size() != 1 || n.info().jumps_in == kAnyInput || !is_float(n.outs[0].dtype)) return false;
  for (size_t k = 0; k < n.ins.size(); ++k)
    if (!n.ins[k].is_param && n.info().is_continuous_in(static_cast<int>(k)) && !is_float(n.ins[k].dtype)) return false;
  return true;
}

}  // namespace

std::optional<Epilogue> Epilogue::of(const Problem& p) {
  const Operand& product = p.root().outs[0];
  if (auto e = over(p, product)) return e;
  if (!is_channels_last(product)) return std::nullopt;
  auto e = over(p, as_nhwc(product));
  if (e) e->in_memory_order_ = true;
  return e;
}

// `product`: as the nodes see it.
std::optional<Epilogue> Epilogue::over(const Problem& p, const Operand& product) {
  Epilogue e;
  e.root_ = &p.root();
  e.bindings_ = p.graph.bindings.size();
  Indexed<BindingId, const Operand*> made(e.bindings_);
  made[product.binding] = &product;
  for (size_t i = 1; i < p.size(); ++i) {
    const Node& n = p.node(i);
    if (n.info().cls == OpClass::Reduce && p.group.summed >= 0) continue;
    if (!takes(n) || n.outs[0].shape != product.shape) return std::nullopt;
    for (size_t k = 0; k < n.ins.size(); ++k) {
      const Operand& o = n.ins[k];
      if (o.is_param) continue;
      const Operand* m = made[o.binding];
      if (m ? !same_geometry(o, *m) : !p.group.stores(o)) return std::nullopt;
      if (m && !n.info().is_continuous_in(static_cast<int>(k))) return std::nullopt;
    }
    made[n.outs[0].binding] = &n.outs[0];
    e.nodes_.push_back(&n);
  }
  return e;
}

std::vector<Dims> Epilogue::from_product(const std::vector<Dims>& at) const {
  std::vector<Dims> all;
  for (const Dims& index : at) all.push_back(from_product(index));
  return all;
}

std::vector<std::vector<double>> Epilogue::run(const std::vector<double>& product, const std::vector<Dims>& at,
                                               bool rounded, Pointers inputs, Params params) const {
  const std::vector<Dims> places = from_product(at);
  Lists lists(places, rounded, inputs, bindings_);
  lists.add_product(root_->outs[0], product);
  for (const Node* n : nodes_) lists.add_node(*n);
  return lists.run(params);
}

std::vector<std::vector<double>> Epilogue::roundings(const std::vector<double>& product, const std::vector<Dims>& at,
                                                     Pointers inputs, Params params) const {
  const std::vector<Dims> places = from_product(at);
  Lists lists(places, false, inputs, bindings_);
  lists.add_product(root_->outs[0], product);
  for (const Node* n : nodes_) lists.add_node(*n);
  lists.run(params);
  return lists.roundings(params);
}

}  // namespace pyflame::sampled
