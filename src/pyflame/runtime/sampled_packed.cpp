// Views of the operands of a packed gradient.
#include "pyflame/runtime/sampled_packed.h"

#include "pyflame/runtime/sampled_inputs.h"

namespace pyflame::sampled {

namespace {

constexpr size_t kQuery = 1, kKey = 2, kValue = 3, kLse = 5, kOffsets = 6, kScale = 8, kMostKeys = 10;  // inputs

// [rows, H, D] as [1, H, rows, D]; [H, rows] as [1, H, rows].
Operand view(const Operand& packed, int64_t rows) {
  Operand o = packed;
  const Dims &shape = packed.shape, &s = packed.strides;
  const bool whole = shape.size() == 3;
  o.shape = whole ? Dims{1, shape[1], rows, shape[2]} : Dims{1, shape[0], rows};
  o.strides = whole ? Dims{0, s[1], s[0], s[2]} : Dims{0, s[0], s[1]};
  o.contiguous = false;
  return o;
}

void* moved(void* at, const Operand& packed, int64_t row) {
  const int64_t stride = packed.strides[packed.shape.size() == 3 ? 0 : 1];
  return static_cast<char*>(at) + row * stride * dtype_size(packed.dtype);
}

}  // namespace

std::vector<PackedSequence> packed_sequences(const Node& n, Pointers inputs) {
  const Operand &of_queries = n.ins[kOffsets], &of_keys = n.ins[kOffsets + 1];
  const Elements queries(of_queries, inputs[of_queries.binding]), keys(of_keys, inputs[of_keys.binding]);
  const auto at = [](const Elements& x, int64_t i) { return static_cast<int64_t>(x[i * x.stride(0)]); };
  const int64_t last = of_queries.shape[0] - 1;
  if (last < 1 || of_keys.shape[0] != last + 1 || at(queries, 0) != 0 || at(keys, 0) != 0 ||
      at(queries, last) != n.ins[kQuery].shape[0] || at(keys, last) != n.ins[kKey].shape[0])
    return {};
  std::vector<PackedSequence> all;
  for (int64_t i = 0; i < last; ++i) {
    const int64_t q = at(queries, i), k = at(keys, i);
    all.push_back({q, at(queries, i + 1) - q, k, at(keys, i + 1) - k});
    if (all.back().queries < 0 || all.back().keys < 0) return {};
  }
  return all;
}

AloneSequence alone(const Node& n, const PackedSequence& s, Pointers inputs) {
  AloneSequence one;
  one.node.op = OpId::attention_grad, one.node.attrs = n.attrs, one.node.outs = {n.outs[0]};
  for (size_t i = 0; i <= kLse; ++i) {
    const bool of_keys = i == kKey || i == kValue;
    Operand o = view(n.ins[i], of_keys ? s.keys : s.queries);
    o.binding =
        one.pointers.push_back(moved(inputs[n.ins[i].binding], n.ins[i], of_keys ? s.first_key : s.first_query));
    one.node.ins.push_back(o);
  }
  one.node.ins.push_back(n.ins[kScale]);
  one.node.ins.push_back(n.ins[kMostKeys]);  // at least as many as this sequence has
  return one;
}

}  // namespace pyflame::sampled
