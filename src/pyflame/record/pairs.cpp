// Which view an op acts on depends on the op: moving whole elements is the same for pairs and for bits, and adding is
// done part by part. The attributes are unchanged, because the dim of the parts is the last one.
#include "pyflame/record/pairs.h"

#include "pyflame/record/recorder.h"
#include "pyflame/tensor/alias.h"

namespace pyflame {

namespace {

Tensor retyped(const Tensor& x, DType dtype, const Dims& shape, const Dims& strides, int64_t offset) {
  Tensor t = alias(x, shape, strides, offset);
  t.impl()->dtype = dtype;
  return t;
}

// How a recorded op takes complex operands.
enum class Rule : uint8_t {
  None,
  Parts,    // on pairs
  Moves,    // on bits, or on pairs
  ByIndex,  // on pairs; the index gets the dim of the parts
};

// Writes by index that replace or add; others would combine the parts one by one.
bool is_linear(std::span<const int64_t> attrs) {
  return attrs[1] == static_cast<int64_t>(Combine::Replace) || attrs[1] == static_cast<int64_t>(Combine::Sum);
}

Rule rule_of(OpId op, std::span<const int64_t> attrs) {
  switch (op) {
    case OpId::index_put: return is_linear(attrs) ? Rule::Parts : Rule::None;
    case OpId::scatter: return is_linear(attrs) ? Rule::ByIndex : Rule::None;
    case OpId::add:
    case OpId::sub:
    case OpId::mul:  // by a real number
    case OpId::div:
    case OpId::neg:
    case OpId::sum:
    case OpId::cumsum:
    case OpId::index_select:
    case OpId::index_add: return Rule::Parts;
    case OpId::cast:
    case OpId::where: return Rule::Moves;
    case OpId::gather:
    case OpId::scatter_add: return Rule::ByIndex;
    default: return Rule::None;
  }
}

// An operand that is the same for both parts.
Tensor for_both(const Tensor& x, bool expanded) {
  Dims shape = x.shape(), strides = x.strides();
  shape.push_back(expanded ? 2 : 1);
  strides.push_back(expanded ? 0 : 1);
  return alias(x, shape, strides, x.offset());
}

}  // namespace

Tensor as_pairs(const Tensor& x) {
  Dims shape = x.shape(), strides = x.strides();
  PF_CHECK(shape.size() < kMaxDims, Value,
           "complex: too many dimensions; got {}; expected at most {} of a complex tensor", shape.size(), kMaxDims - 1);
  for (int64_t& s : strides) s *= 2;
  shape.push_back(2);
  strides.push_back(1);
  return retyped(x, part_dtype(x.dtype()), shape, strides, 2 * x.offset());
}

Tensor as_bits(const Tensor& x) { return alias_as(x, DType::int64); }

Tensor from_pairs(const Tensor& x) {
  Dims shape = x.shape(), strides = x.strides();
  shape.erase(shape.size() - 1);
  strides.erase(strides.size() - 1);
  for (int64_t& s : strides) s /= 2;
  return retyped(x, complex_dtype(x.dtype()), shape, strides, x.offset() / 2);
}

Tensor from_bits(const Tensor& x) { return alias_as(x, DType::complex64); }

namespace detail {

bool takes_complex(OpId op) {
  switch (op) {
#define OP(...)
#define LINALG(name, ...) case OpId::name:
#include "pyflame/ops/ops.def"
    return true;
    default: return false;
  }
}

void record_complex(OpId op, std::span<const int64_t> attrs, std::span<const Arg> ins, const Tensor& out, bool is_new) {
  Rule rule = rule_of(op, attrs);
  bool bits = rule == Rule::Moves && out.dtype() == DType::complex64;
  for (size_t i = 0; i < ins.size(); ++i) {
    const Arg& a = ins[i];
    if (rule == Rule::Moves && is_complex(a.dtype) && a.dtype != DType::complex64) bits = false;
    const bool factor = i == 1 && !a.tensor && (op == OpId::mul || op == OpId::div);
    const bool plain = op == OpId::mul || op == OpId::div;
    if (plain && i == 1 && !factor) rule = Rule::None;
  }
  PF_CHECK(rule != Rule::None && is_complex(out.dtype()), Type,
           "{}: not available for complex tensors; got {}; expected a real dtype; hint: real(), imag() or abs()",
           op_name(op), dtype_name(is_complex(out.dtype()) ? out.dtype() : ins[0].dtype));
  std::vector<Tensor> views;
  views.reserve(ins.size() + 1);
  std::vector<Arg> args;
  args.reserve(ins.size());
  for (const Arg& a : ins) {
    if (!a.tensor) {
      args.push_back(a);
      args.back().dtype = part_dtype(a.dtype);
      continue;
    }
    if (is_complex(a.dtype)) views.push_back(bits ? as_bits(*a.tensor) : as_pairs(*a.tensor));
    else if (rule == Rule::ByIndex) views.push_back(for_both(*a.tensor, true));
    else if (rule == Rule::Moves && !bits) views.push_back(for_both(*a.tensor, false));
    else views.push_back(*a.tensor);
    args.emplace_back(views.back());
  }
  const Tensor to = bits ? as_bits(out) : as_pairs(out);
  TensorImpl* impl = to.impl();
  Recorder::current().record(op, attrs, args, {&impl, 1}, is_new);
}

}  // namespace detail

}  // namespace pyflame
