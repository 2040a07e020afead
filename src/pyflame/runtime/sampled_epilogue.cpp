// The reference implementation computes the nodes, as ops on lists of elements.
#include "pyflame/runtime/sampled_epilogue.h"

#include <algorithm>
#include <cstring>
#include <optional>

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
    made_[o.binding] = list;
  }

  void add_node(const Node& n) {
    Node list = n;
    for (Operand& o : list.ins)
      if (!o.is_param) o = input(o, n.outs[0].shape);
    list.outs[0] = add(n.outs[0]);
    made_[n.outs[0].binding] = list.outs[0];
    results_.push_back(list.outs[0]);
    graph_.nodes.push_back(std::move(list));
    group_.nodes.push_back(NodeId(graph_.nodes.size() - 1));
  }

  std::vector<std::vector<double>> run(Params params) {
    const Problem problem{graph_, group_};
    Indexed<BindingId, void*> pointers(bytes_.size());
    for (const BindingId b : pointers_ids()) pointers[b] = bytes_[b.index()].data();
    if (!group_.nodes.empty())
      find_backend(DeviceType::reference)->impls(problem).back().make(problem)->run({pointers.data(), params, nullptr});
    std::vector<std::vector<double>> values;
    for (const Operand& o : results_) {
      const Elements list(o, pointers[o.binding]);
      std::vector<double>& to = values.emplace_back();
      for (size_t i = 0; i < at_.size(); ++i) to.push_back(list[static_cast<int64_t>(i)]);
    }
    return values;
  }

 private:
  IdRange<BindingId> pointers_ids() const { return {BindingId(0), BindingId(bytes_.size())}; }

  // A list of its elements.
  Operand add(const Operand& like) {
    Operand o = like;
    o.dtype = !rounded_ && is_float(like.dtype) ? DType::float64 : like.dtype;
    o.shape = {static_cast<int64_t>(at_.size())}, o.strides = {1}, o.contiguous = true;
    o.binding = BindingId(bytes_.size());
    bytes_.emplace_back(o.nbytes());
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
  Indexed<BindingId, std::optional<Operand>> made_;  // the list of what the product or a node has written
  std::vector<Operand> results_;
};

bool same_elements(const Operand& a, const Operand& b) { return a.shape == b.shape && a.strides == b.strides; }

bool is_elementwise_node(const Node& n) {
  const OpInfo& info = n.info();
  return is_elementwise(info.cls) && !info.index_matters && !info.bits_kept && n.op != OpId::nextafter &&
         n.outs.size() == 1;
}

}  // namespace

std::optional<Epilogue> Epilogue::of(const Problem& p) {
  Epilogue e;
  e.root_ = &p.root();
  e.bindings_ = p.graph.bindings.size();
  Indexed<BindingId, const Operand*> made(e.bindings_);
  made[p.root().outs[0].binding] = &p.root().outs[0];
  for (size_t i = 1; i < p.size(); ++i) {
    const Node& n = p.node(i);
    if (n.info().cls == OpClass::Reduce && p.group.summed >= 0) continue;
    if (!is_elementwise_node(n) || n.outs[0].shape != p.root().outs[0].shape) return std::nullopt;
    for (const Operand& o : n.ins)
      if (!o.is_param)
        if (const Operand* m = made[o.binding]; m ? !same_elements(o, *m) : !p.group.stores(o)) return std::nullopt;
    made[n.outs[0].binding] = &n.outs[0];
    e.nodes_.push_back(&n);
  }
  return e;
}

std::vector<std::vector<double>> Epilogue::run(const std::vector<double>& product, const std::vector<Dims>& at,
                                               bool rounded, Pointers inputs, Params params) const {
  Lists lists(at, rounded, inputs, bindings_);
  lists.add_product(root_->outs[0], product);
  for (const Node* n : nodes_) lists.add_node(*n);
  return lists.run(params);
}

}  // namespace pyflame::sampled
