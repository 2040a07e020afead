#include "pyflame/record/float8.h"

#include "pyflame/ops/attrs.h"
#include "pyflame/record/recorder.h"
#include "pyflame/tensor/alias.h"
#include "pyflame/tensor/float8.h"

namespace pyflame {

namespace {

enum class Float8Rule : uint8_t {
  None,
  Moves,     // on bytes: elements are copied, none is computed
  Converts,  // a cast
  Compares,  // on values as float32
};

Float8Rule float8_rule(OpId op, std::span<const int64_t> attrs) {
  switch (op) {
    case OpId::cast: return Float8Rule::Converts;
    case OpId::full:
    case OpId::where:
    case OpId::gather:
    case OpId::index_select: return Float8Rule::Moves;
    case OpId::index_put:
    case OpId::scatter:
      return attrs[1] == static_cast<int64_t>(Combine::Replace) ? Float8Rule::Moves : Float8Rule::None;
    case OpId::eq:
    case OpId::ne:
    case OpId::lt:
    case OpId::le:
    case OpId::gt:
    case OpId::ge:
    case OpId::isnan:
    case OpId::isinf: return Float8Rule::Compares;
    default: return Float8Rule::None;
  }
}

OpId decoding(DType d) {
  switch (d) {
#define X(name, ...) \
  case DType::name: return OpId::from_##name;
    PF_FLOAT8_DTYPES(X)
#undef X
    default: break;
  }
  __builtin_unreachable();
}
OpId encoding(DType d) {
  switch (d) {
#define X(name, ...) \
  case DType::name: return OpId::to_##name;
    PF_FLOAT8_DTYPES(X)
#undef X
    default: break;
  }
  __builtin_unreachable();
}

Tensor decoded(const Tensor& x) { return emit(decoding(x.dtype()), {as_codes(x)}, x.shape(), DType::float32); }

void record_one(OpId op, std::span<const int64_t> attrs, std::span<const Arg> ins, const Tensor& out, bool is_new) {
  TensorImpl* impl = out.impl();
  Recorder::current().record(op, attrs, ins, {&impl, 1}, is_new);
}

void record_cast(const Tensor& x, const Tensor& out, bool is_new) {
  const Tensor codes = is_float8(out.dtype()) ? as_codes(out) : Tensor();
  if (x.dtype() == out.dtype()) {
    const Tensor from = as_codes(x);  // an Arg refers to its tensor
    const Arg in[] = {from};
    return record_one(OpId::cast, {}, in, codes, is_new);
  }
  Tensor value = is_float8(x.dtype()) ? decoded(x) : x;
  if (!codes) {
    const Arg in[] = {value};
    return record_one(OpId::cast, {}, in, out, is_new);
  }
  if (value.dtype() != DType::float32) value = emit(OpId::cast, {value}, value.shape(), DType::float32);
  const Arg in[] = {value};
  record_one(encoding(out.dtype()), {}, in, codes, is_new);
}

// The operands with float8 ones replaced: by codes, or by their values.
std::vector<Arg> replaced(std::span<const Arg> ins, bool by_codes, std::vector<Tensor>& kept) {
  kept.reserve(ins.size());
  std::vector<Arg> args;
  for (const Arg& a : ins) {
    if (!is_float8(a.dtype)) {
      args.push_back(a);
    } else if (a.tensor) {
      kept.push_back(by_codes ? as_codes(*a.tensor) : decoded(*a.tensor));
      args.emplace_back(kept.back());
    } else if (by_codes) {
      const auto code = static_cast<int64_t>(float8_bits(a.dtype, static_cast<float>(a.param.as_f64())));
      args.emplace_back(Scalar(code), DType::uint8);
    } else {
      args.push_back(a);
      args.back().dtype = DType::float32;
    }
  }
  return args;
}

DType float8_of(std::span<const Arg> ins, const Tensor& out) {
  for (const Arg& a : ins)
    if (is_float8(a.dtype)) return a.dtype;
  return out.dtype();
}

}  // namespace

Tensor as_codes(const Tensor& x) { return alias_as(x, DType::uint8); }
Tensor from_codes(const Tensor& x, DType dtype) { return alias_as(x, dtype); }

void detail::record_float8(OpId op, std::span<const int64_t> attrs, std::span<const Arg> ins, const Tensor& out,
                           bool is_new) {
  const Float8Rule rule = float8_rule(op, attrs);
  const DType dtype = float8_of(ins, out);
  PF_CHECK(rule != Float8Rule::None, Type,
           "{}: not available for 8-bit floats; got {}; expected a dtype that computes; hint: .to(pf.float32), or "
           "nn.functional.scaled_mm for products",
           op_name(op), dtype_name(dtype));
  if (rule == Float8Rule::Converts) {
    // A cast of a param does not exist.
    return record_cast(*ins[0].tensor, out, is_new);
  }
  std::vector<Tensor> kept;
  const std::vector<Arg> args = replaced(ins, rule == Float8Rule::Moves, kept);
  record_one(op, attrs, args, is_float8(out.dtype()) ? as_codes(out) : out, is_new);
}

}  // namespace pyflame
