// Small graphs by hand, for tests of backends: host tensors, one binding each, nodes, and a run on any implementation.
// Nothing of the recorder or the compiler takes part, so a backend is tested alone.
#pragma once
#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

#include "pyflame/backends/backend.h"

namespace pyflame::test {

// A tensor over shared bytes; copies are handles. Strides and offset are in elements.
struct HostTensor {
  DType dtype = DType::float32;
  Dims shape, strides;
  int64_t offset = 0;
  std::shared_ptr<std::vector<int64_t>> storage;  // of 8-byte words, for alignment

  std::byte* data() const { return reinterpret_cast<std::byte*>(storage->data()) + offset * dtype_size(dtype); }
  // The same bytes with another geometry; `start` counts from this tensor's first element.
  HostTensor view(const Dims& new_shape, const Dims& new_strides, int64_t start = 0) const {
    return {dtype, new_shape, new_strides, offset + start, storage};
  }
};

namespace detail {
template <class F>
void each_element(const HostTensor& t, F&& f) {
  Dims at = Dims::filled(t.shape.size(), 0);
  const int64_t n = t.shape.numel();
  for (int64_t i = 0; i < n; ++i) {
    int64_t offset = 0;
    for (int d = 0; d < at.size(); ++d) offset += at[d] * t.strides[d];
    f(i, offset);
    for (int d = at.size() - 1; d >= 0 && ++at[d] == t.shape[d]; --d) at[d] = 0;
  }
}
template <class To, class From>
To convert(From v) {
  constexpr bool half_to = std::is_same_v<To, float16> || std::is_same_v<To, bfloat16>;
  constexpr bool half_from = std::is_same_v<From, float16> || std::is_same_v<From, bfloat16>;
  if constexpr (half_to) return To(static_cast<float>(v));
  else if constexpr (half_from) return static_cast<To>(static_cast<float>(v));
  else return static_cast<To>(v);
}
}  // namespace detail

// Contiguous, all elements 0 bits.
inline HostTensor host_zeros(DType dtype, const Dims& shape) {
  const auto words = static_cast<size_t>((shape.numel() * dtype_size(dtype) + 7) / 8 + 1);
  return {dtype, shape, contiguous_strides(shape), 0, std::make_shared<std::vector<int64_t>>(words)};
}

template <class V>
HostTensor host_of(DType dtype, const Dims& shape, const std::vector<V>& values) {
  HostTensor t = host_zeros(dtype, shape);
  if (static_cast<int64_t>(values.size()) != shape.numel()) throw std::logic_error("host: wrong number of values");
  dispatch(dtype, [&]<class T>() {
    for (size_t i = 0; i < values.size(); ++i) reinterpret_cast<T*>(t.data())[i] = detail::convert<T>(values[i]);
  });
  return t;
}
// Values in row-major order; exact for what a double holds. host_ints is exact for int64.
inline HostTensor host(DType dtype, const Dims& shape, const std::vector<double>& values) {
  return host_of(dtype, shape, values);
}
inline HostTensor host_ints(DType dtype, const Dims& shape, const std::vector<int64_t>& values) {
  return host_of(dtype, shape, values);
}

template <class V = double>
std::vector<V> values(const HostTensor& t) {
  std::vector<V> all(static_cast<size_t>(t.shape.numel()));
  dispatch(t.dtype, [&]<class T>() {
    detail::each_element(t, [&](int64_t i, int64_t offset) {
      all[static_cast<size_t>(i)] = detail::convert<V>(reinterpret_cast<const T*>(t.data())[offset]);
    });
  });
  return all;
}
inline std::vector<int64_t> ints(const HostTensor& t) { return values<int64_t>(t); }

// A number that becomes a param, used in `dtype`.
struct HostParam {
  Scalar value;
  DType dtype = DType::float64;
};
using HostArg = std::variant<HostTensor, HostParam>;

class GraphBuilder {
 public:
  explicit GraphBuilder(GroupKind kind = GroupKind::Single) { group_.kind = kind; }

  // Tensors over the same bytes share a slot; those with the same start share a binding.
  Operand bind(const HostTensor& t) {
    const auto key = std::pair(t.storage.get(), static_cast<void*>(t.data()));
    if (!binding_of_.count(key)) {
      if (!slot_of_.count(t.storage.get())) slot_of_[t.storage.get()] = add_slot(t.storage->size() * 8, true);
      binding_of_[key] = add_binding(slot_of_[t.storage.get()], t.data(), false);
      kept_.push_back(t);
    }
    return operand(binding_of_[key], t.dtype, t.shape, t.strides);
  }
  // A binding and slot of its own over bytes that are bound already: what a planner that reuses memory hands out.
  Operand bind_reusing(const HostTensor& t) {
    kept_.push_back(t);
    return operand(add_binding(add_slot(t.storage->size() * 8, false), t.data(), false), t.dtype, t.shape, t.strides);
  }
  // A value that only nodes of this group read: it has no memory.
  Operand elided(DType dtype, const Dims& shape) {
    const auto nbytes = static_cast<size_t>(shape.numel() * dtype_size(dtype));
    return operand(add_binding(add_slot(nbytes, false), nullptr, true), dtype, shape, contiguous_strides(shape));
  }
  Operand param(const Scalar& value, DType dtype = DType::float64) {
    Operand o;
    o.is_param = true;
    o.dtype = dtype;
    o.param = ParamId(graph_.params++);
    params_.emplace_back(value);
    return o;
  }
  Operand arg(const HostArg& a) {
    if (const auto* t = std::get_if<HostTensor>(&a)) return bind(*t);
    const auto& p = std::get<HostParam>(a);
    return param(p.value, p.dtype);
  }

  template <class A = NoAttrs>
  void node(OpId op, std::vector<Operand> ins, std::vector<Operand> outs, const A& attrs = {}, Role role = Role::Map) {
    Node n;
    n.op = op;
    if constexpr (!std::is_empty_v<A>) {
      const auto* words = reinterpret_cast<const int64_t*>(&attrs);
      n.attrs.assign(words, words + sizeof(A) / sizeof(int64_t));
    }
    n.ins = std::move(ins);
    n.outs = std::move(outs);
    group_.nodes.push_back(graph_.nodes.push_back(std::move(n)));
    group_.roles.push_back(role);
  }
  void space(const Dims& s, int split) {
    group_.space = s;
    group_.split = split;
  }

  Problem problem() const { return {graph_, group_}; }
  Graph& graph() { return graph_; }
  Group& group() { return group_; }

  // Throws std::logic_error with the reason when the implementation refuses.
  void run(const Impl& impl) const {
    if (const Refusal why = impl.accepts(problem())) throw std::logic_error("refused: " + *why);
    const std::unique_ptr<Executable> executable = impl.make(problem());
    std::vector<std::byte> workspace(executable->workspace() + 64, std::byte{0xa5});  // garbage, so that its use shows
    void* start = workspace.data();
    size_t space_left = workspace.size();
    std::align(64, executable->workspace(), start, space_left);
    executable->run({pointers_.data(), params_.data(), start});
  }

 private:
  SlotId add_slot(size_t nbytes, bool external) { return graph_.slots.push_back({nbytes, external, external, false}); }
  BindingId add_binding(SlotId slot, void* pointer, bool is_elided) {
    pointers_.push_back(pointer);
    group_.elided.push_back(is_elided);
    return graph_.bindings.push_back({slot});
  }
  static Operand operand(BindingId binding, DType dtype, const Dims& shape, const Dims& strides) {
    Operand o;
    o.contiguous = is_contiguous(shape, strides);
    o.dtype = dtype;
    o.binding = binding;
    o.shape = shape;
    o.strides = strides;
    return o;
  }

  Graph graph_;
  Group group_;
  std::vector<void*> pointers_;
  std::vector<Param> params_;
  std::vector<HostTensor> kept_;  // the bytes outlive the builder's pointers
  std::map<std::pair<const void*, void*>, BindingId> binding_of_;
  std::map<const void*, SlotId> slot_of_;
};

// One node, run at once: run_op(kReferenceImpl, OpId::add, {x, HostParam{2.0}}, {y}).
template <class A = NoAttrs>
void run_op(const Impl& impl, OpId op, const std::vector<HostArg>& ins, const std::vector<HostTensor>& outs,
            const A& attrs = {}) {
  const OpClass cls = op_info(op).cls;
  GraphBuilder g(cls == OpClass::Other ? GroupKind::Single : GroupKind::Loop);
  std::vector<Operand> in_operands, out_operands;
  for (const HostArg& a : ins) in_operands.push_back(g.arg(a));
  for (const HostTensor& t : outs) out_operands.push_back(g.bind(t));
  Role role = Role::Map;
  if (cls != OpClass::Other) {
    const Dims& shape = cls == OpClass::Reduce ? in_operands[0].shape : out_operands[0].shape;
    g.space(shape, shape.size());
    if constexpr (std::is_same_v<A, ReduceAttrs>) {
      // Trailing reduced axes are one row; leading ones a column reduction.
      int split = shape.size();
      while (split > 0 && (attrs.axes >> (split - 1) & 1)) --split;
      role = split < shape.size() || shape.empty() ? Role::RowReduce : Role::ColReduce;
      if (role == Role::ColReduce)
        for (split = 0; split < shape.size() && (attrs.axes >> split & 1);) ++split;
      g.space(shape, split);
    }
  }
  g.node(op, std::move(in_operands), std::move(out_operands), attrs, role);
  g.run(impl);
}

}  // namespace pyflame::test
