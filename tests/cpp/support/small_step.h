// One step by hand: a product, convolution or attention with random inputs, and elementwise nodes behind it. For tests of what judges results.
#pragma once
#include <cstring>
#include <functional>
#include <type_traits>
#include <vector>

#include "pyflame/backends/reference/reference.h"
#include "pyflame/base/philox.h"
#include "pyflame/ops/attrs.h"
#include "pyflame/runtime/samples.h"
#include "pyflame/tensor/layout.h"

namespace pyflame::test {

inline double read_element(DType d, const char* at) {
  return dispatch(d, [&]<class T>() {
    T x;
    std::memcpy(&x, at, sizeof x);
    if constexpr (std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>) return double{static_cast<float>(x)};
    else return static_cast<double>(x);
  });
}
inline void write_element(DType d, char* at, double value) {
  dispatch(d, [&]<class T>() {
    T x;
    if constexpr (std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>) x = T(static_cast<float>(value));
    else x = static_cast<T>(value);
    std::memcpy(at, &x, sizeof x);
  });
}

// A step with its memory. The nodes are added in order, and the last operand that was added is the result.
class SmallStep {
 public:
  Operand tensor(DType d, const Dims& shape, const Dims& strides) {
    Operand o;
    o.dtype = d, o.shape = shape, o.strides = strides, o.contiguous = is_contiguous(shape, strides);
    const auto bytes = static_cast<size_t>(extent(shape, strides) * dtype_size(d));
    o.binding = graph_.bindings.push_back({graph_.slots.push_back({bytes, true, true, false})});
    memory_.emplace_back(bytes);
    group_.elided.push_back(false);
    return o;
  }
  // Random numbers between -1 and 1.
  Operand input(DType d, const Dims& shape, Dims strides = {}) {
    const Operand o = tensor(d, shape, strides.empty() ? contiguous_strides(shape) : strides);
    each(o, [&](const Dims&, char* at) {
      const PhiloxBlock w = philox(7, static_cast<uint64_t>(o.binding.index()), count_++);
      write_element(d, at, static_cast<double>(w[0]) * 0x1p-31 - 1);
    });
    return o;
  }
  // Codes of finite 8-bit floats (float8_e4m3fn).
  Operand codes(const Dims& shape, const Dims& strides = {}) {
    const Operand o = input(DType::uint8, shape, strides);
    uint64_t at = 0;
    change(o, [&](const Dims&, double) {
      const uint32_t word = philox(8, static_cast<uint64_t>(o.binding.index()), at++)[0];
      return static_cast<double>(word % 0x78 | (word >> 24 & 0x80));
    });
    return o;
  }
  // int32, in one dim.
  Operand numbers(const std::vector<int64_t>& values) {
    const Operand o = input(DType::int32, {static_cast<int64_t>(values.size())});
    change(o, [&](const Dims& i, double) { return static_cast<double>(values[static_cast<size_t>(i[0])]); });
    return o;
  }
  Operand number(double x, DType d = DType::float64) {
    Operand o;
    o.is_param = true, o.dtype = d, o.param = ParamId(params_.size());
    params_.push_back(Param(Scalar(x)));
    return o;
  }
  template <class Attrs = NoAttrs>
  Operand node(OpId op, std::vector<Operand> ins, const Dims& shape, Attrs attrs = {}, bool elided = false) {
    Node n;
    n.op = op, n.ins = std::move(ins);
    if constexpr (!std::is_empty_v<Attrs>) {
      const auto* words = reinterpret_cast<const int64_t*>(&attrs);
      n.attrs.assign(words, words + sizeof(Attrs) / sizeof(int64_t));
    }
    n.outs = {tensor(n.ins[op == OpId::where       ? 1
                           : op == OpId::scaled_mm ? 2
                                                   : 0]
                         .dtype,
                     shape, contiguous_strides(shape))};
    if (op == OpId::attention) {
      const Dims rows{shape[0], shape[1], shape[2]};
      n.outs.push_back(tensor(DType::float32, rows, contiguous_strides(rows)));
    }
    if (op == OpId::varlen_attn)
      n.outs.push_back(tensor(DType::float32, {shape[1], shape[0]}, contiguous_strides({shape[1], shape[0]})));
    if (op == OpId::attention_grad || op == OpId::varlen_attn_grad)
      for (const size_t i : {2, 3})
        n.outs.push_back(tensor(n.ins[i].dtype, n.ins[i].shape, contiguous_strides(n.ins[i].shape)));
    group_.elided[n.outs[0].binding] = elided;
    graph_.nodes.push_back(n);
    group_.nodes.push_back(NodeId(graph_.nodes.size() - 1));
    group_.kind = group_.nodes.size() > 1 ? GroupKind::Epilogue : GroupKind::Single;
    return result_ = n.outs[0];
  }
  // Images become channels-last, as the last node's result. What follows sees them as N, H, W, C.
  Operand as_channels_last() {
    Operand& o = graph_.nodes.back().outs[0];
    o.strides = strides_of(o.shape, MemoryFormat::channels_last), o.contiguous = false;
    result_ = o;
    return as_nhwc(o);
  }
  // The gradient of an attention: (q, k, v, mask?, scale, keys), or of a packed one: (q, k, v, offsets, offsets, scale, queries, keys). What the reference computes of the attention is an input. The result is dQ; the outputs are
  // dQ, dK and dV.
  Operand attention_gradient(const std::vector<Operand>& ins, AttentionAttrs attrs) {
    const bool packed = ins[0].shape.size() == 3;
    const DType d = ins[0].dtype;
    const Dims shape = ins[0].shape;
    const Operand grad = input(d, shape);
    const Group before = group_;
    group_.nodes.clear();
    node(packed ? OpId::varlen_attn : OpId::attention, ins, shape, attrs);
    run();
    const std::vector<Operand> made = graph_.nodes.back().outs;
    group_.nodes = before.nodes;
    std::vector<Operand> all{grad, ins[0], ins[1], ins[2], made[0], made[1]};
    all.insert(all.end(), ins.begin() + 3, ins.end());
    return node(packed ? OpId::varlen_attn_grad : OpId::attention_grad, all, shape, attrs);
  }
  const std::vector<Operand>& outputs() const { return graph_.nodes.back().outs; }

  using Change = std::function<double(const Dims& index, double value)>;
  void change(const Operand& o, const Change& f) {
    each(o, [&](const Dims& index, char* at) { write_element(o.dtype, at, f(index, read_element(o.dtype, at))); });
  }
  // What the reference implementation computes.
  void run() {
    const auto executable = make_reference(problem());
    std::vector<char> workspace(executable->workspace());
    executable->run({pointers().data(), params_.data(), workspace.data()});
  }
  std::vector<SampledElement> sample() { return sampled_elements(problem(), pointers().data(), params_.data()); }
  // The largest difference between a sample and the memory, as a part of what is allowed.
  double distance(const std::vector<SampledElement>& sample) const {
    double worst = sample.empty() ? NAN : 0;
    for (const SampledElement& e : sample) {
      const char* at = memory_[e.binding.index()].data() + e.at * dtype_size(e.dtype);
      worst = std::max(worst, e.error(read_element(e.dtype, at)));
    }
    return worst;
  }
  // The same after a run with other inputs, which are put back.
  double distance_with(const Operand& input, const Change& f, const std::vector<SampledElement>& sample) {
    const auto before = memory_;
    change(input, f);
    run();
    const double found = distance(sample);
    memory_ = before;
    return found;
  }
  // The same where a result is right but for some elements.
  double distance_where(const Change& f, const std::vector<SampledElement>& sample) {
    return distance_where(result_, f, sample);
  }
  double distance_where(const Operand& output, const Change& f, const std::vector<SampledElement>& sample) {
    run();
    change(output, f);
    return distance(sample);
  }
  const Operand& result() const { return result_; }
  Problem problem() const { return {graph_, group_}; }
  Graph& graph() { return graph_; }
  const Group& group() const { return group_; }
  const std::vector<Param>& params() const { return params_; }
  // Of each binding.
  std::vector<std::vector<char>>& memory() { return memory_; }

 private:
  Indexed<BindingId, void*> pointers() {
    Indexed<BindingId, void*> all(memory_.size());
    for (const BindingId b : all.ids())
      if (!group_.elided[b]) all[b] = memory_[b.index()].data();
    return all;
  }
  template <class F>
  void each(const Operand& o, F f) {
    Dims index = Dims::filled(o.shape.size(), 0);
    for (int64_t i = 0; i < o.numel(); ++i) {
      int64_t at = 0;
      for (int d = 0; d < index.size(); ++d) at += index[d] * o.strides[d];
      f(index, memory_[o.binding.index()].data() + at * dtype_size(o.dtype));
      for (int d = index.size() - 1; d >= 0 && ++index[d] == o.shape[d]; --d) index[d] = 0;
    }
  }

  Graph graph_;
  Group group_;
  std::vector<std::vector<char>> memory_;
  std::vector<Param> params_;
  Operand result_;
  uint64_t count_ = 0;
};

}  // namespace pyflame::test
