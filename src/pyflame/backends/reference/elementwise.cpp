// Elementwise ops: lines of the output are processed in blocks, which are loaded as double or int64, computed, and
// stored with one rounding. Floats are computed in float64, also for dtypes of 16 or 32 bits; integers and bool in
// wrapping int64.
#include <algorithm>

#include "pyflame/backends/reference/access.h"
#include "pyflame/kernels/device/launch.h"

#include "pyflame/kernels/device/scalar.h"  // after launch.h

#include "pyflame/kernels/device/special.h"  // after scalar.h
#include "pyflame/tensor/float8.h"

namespace pyflame::reference {
namespace {

constexpr int64_t kBlock = 256;

// What integers cannot do is an error here.
void check_integers(OpId op, const int64_t* b, int64_t n) {
  if (op == OpId::pow) {
    for (int64_t i = 0; i < n; ++i)
      PF_CHECK(b[i] >= 0, Value,
               "pow: integers to a negative power; got exponent {}; expected >= 0; cast to a float type first", b[i]);
    return;
  }
  PF_CHECK(std::find(b, b + n, 0) == b + n, Runtime,
           "{}: division by zero; got a divisor of 0; expected integers other than 0; cast to a float type for inf",
           op_name(op));
}

template <OpId op, class T, class F>
void each(const T* a, const T* b, const T* c, int64_t n, T* y, F f) {
  constexpr int kInputs = op_info(op).arity + op_info(op).param_count;
  if constexpr (std::is_same_v<T, double> && op_info(op).integers_only) {
    PF_FAIL(Type, "{}: no meaning for floats; got a float dtype; expected an integer dtype", op_name(op));
  } else if constexpr (!std::is_same_v<T, double> && op_info(op).floats_only) {
    PF_FAIL(Type, "{}: no meaning for integers; got an integer dtype; expected a float dtype", op_name(op));
  } else {
    if constexpr (!std::is_same_v<T, double> && op_info(op).may_fail) check_integers(op, b, n);
    for (int64_t i = 0; i < n; ++i) {
      if constexpr (kInputs == 1) y[i] = f(a[i]);
      else if constexpr (kInputs == 2) y[i] = f(a[i], b[i]);
      else y[i] = f(a[i], b[i], c[i]);
    }
  }
}

// The formulas are those of the GPUs' kernels (kernels/device/scalar.h) in T: pf::exp<double>(x), pf::add<int64_t>(x, z), ...
template <class T>
void compute(OpId op, const T* a, const T* b, const T* c, int64_t n, T* y) {
  switch (op) {
#define PF_CASE(name) \
  case OpId::name:    \
    return each<OpId::name, T>(a, b, c, n, y, [](auto... x) -> T { return static_cast<T>(pf::name<T>(x...)); });
#define PF_CASE_Unary(name) PF_CASE(name)
#define PF_CASE_Binary(name) PF_CASE(name)
#define PF_CASE_Ternary(name) \
  case OpId::name:            \
    return each<OpId::name, T>(a, b, c, n, y, [](T x, T z, T w) -> T { return pf::name<T>(x != 0, z, w); });
#define PF_CASE_Source(name)
#define PF_CASE_Reduce(name)
#define OP(name, cls, ...) PF_CASE_##cls(name)
#define KERNEL(...)
#include "pyflame/ops/ops.def"
    default: PF_FAIL(NotImplemented, "{}: the reference has no kernel for it", op_name(op));
  }
}

// The one op whose result depends on the dtype's precision.
template <class T>
void next_floats(const T* a, const T* b, int64_t n, T* y) {
  for (int64_t i = 0; i < n; ++i)
    y[i] = static_cast<T>(std::nextafter(static_cast<float>(a[i]), static_cast<float>(b[i])));
}

template <class T>
void run_elementwise_in(const Call& c) {
  constexpr size_t kMost = 3;
  const size_t n_in = c.node.ins.size();
  PF_CHECK(n_in <= kMost, Runtime, "{}: too many operands; got {}; expected at most {}", c.name(), n_in, kMost);
  const View out = c.out(0);
  std::array<View, kMost> in;
  std::array<Dims, kMost + 1> strides;
  std::array<std::array<T, kBlock>, kMost> block{};
  for (size_t k = 0; k < kMost; ++k) {
    strides[k] = Dims::filled(out.shape.size(), 0);
    if (k >= n_in) continue;
    const Operand& o = c.node.ins[k];
    if (o.is_param) {
      const Param& p = c.params[o.param];
      if constexpr (std::is_same_v<T, double>) block[k].fill(param_as_f64(p, o.dtype));
      else block[k].fill(param_as_i64(p, o.dtype));
    } else {
      in[k] = c.view(o);
      strides[k] = broadcast_strides(o.shape, o.strides, out.shape);
    }
  }
  strides[kMost] = out.strides;
  std::array<T, kBlock> result;
  for_lines<kMost + 1>(out.shape, strides, [&](const auto& offset, int64_t line, const auto& step) {
    for (int64_t at = 0; at < line; at += kBlock) {
      const int64_t n = std::min(kBlock, line - at);
      for (size_t k = 0; k < n_in; ++k)
        if (in[k].data) load(in[k], offset[k] + at * step[k], step[k], n, block[k].data());
      if (c.node.op == OpId::nextafter && c.node.outs[0].dtype == DType::float32)
        next_floats(block[0].data(), block[1].data(), n, result.data());
      else compute<T>(c.node.op, block[0].data(), block[1].data(), block[2].data(), n, result.data());
      store(out, offset[kMost] + at * step[kMost], step[kMost], n, result.data());
    }
  });
}

// All elements of an operand, broadcast.
template <class T>
std::vector<T> broadcast(const Call& c, size_t k, const Dims& shape) {
  const Operand& o = c.node.ins[k];
  if (o.is_param) {
    const Param& p = c.params[o.param];
    const T value =
        std::is_same_v<T, double> ? static_cast<T>(param_as_f64(p, o.dtype)) : static_cast<T>(param_as_i64(p, o.dtype));
    return std::vector<T>(static_cast<size_t>(shape.numel()), value);
  }
  View in = c.view(o);
  in.strides = broadcast_strides(o.shape, o.strides, shape);
  in.shape = shape;
  return read_all<T>(in);
}

// Codes of 8-bit floats and their values. False for other ops.
bool run_float8(const Call& c) {
  DType format;
  bool decode = false;
  switch (c.node.op) {
#define X(name, ...)                                                  \
  case OpId::from_##name: format = DType::name, decode = true; break; \
  case OpId::to_##name: format = DType::name; break;
    PF_FLOAT8_DTYPES(X)
#undef X
    default: return false;
  }
  const View out = c.out(0);
  if (decode) {
    const auto codes = broadcast<int64_t>(c, 0, out.shape);
    std::vector<double> values(codes.size());
    for (size_t i = 0; i < codes.size(); ++i)
      values[i] = static_cast<double>(float8_value(format, static_cast<uint8_t>(codes[i])));
    write_all(out, values);
    return true;
  }
  const auto values = broadcast<double>(c, 0, out.shape);
  std::vector<int64_t> codes(values.size());
  for (size_t i = 0; i < values.size(); ++i) codes[i] = float8_bits(format, static_cast<float>(values[i]));
  write_all(out, codes);
  return true;
}

// Ops on the bits of complex64 elements and of 8-bit floats.
void run_bits(const Call& c) {
  if (run_float8(c)) return;
  const View out = c.out(0);
  if (c.node.op == OpId::pack_complex) {
    const auto re = broadcast<double>(c, 0, out.shape), im = broadcast<double>(c, 1, out.shape);
    std::vector<int64_t> bits(re.size());
    for (size_t i = 0; i < bits.size(); ++i) bits[i] = pf::pack_complex(re[i], im[i]);
    return write_all(out, bits);
  }
  std::vector<int64_t> bits = broadcast<int64_t>(c, 0, out.shape);
  if (c.node.op == OpId::mul_complex || c.node.op == OpId::div_complex) {
    const auto other = broadcast<int64_t>(c, 1, out.shape);
    const auto f = c.node.op == OpId::mul_complex ? pf::mul_complex<int64_t> : pf::div_complex<int64_t>;
    for (size_t i = 0; i < bits.size(); ++i) bits[i] = f(bits[i], other[i]);
    return write_all(out, bits);
  }
  std::vector<double> part(bits.size());
  for (size_t i = 0; i < bits.size(); ++i)
    part[i] = static_cast<double>(c.node.op == OpId::real_part ? pf::real_part(bits[i]) : pf::imag_part(bits[i]));
  write_all(out, part);
}

}  // namespace

void run_elementwise(const Call& c) {
  if (c.node.info().bits_kept) return run_bits(c);
  // The computation is in the inputs' dtype (for where: in that of its values), but an integer input of a float op is
  // computed as a float.
  const Operand& decides = c.node.ins[c.node.op == OpId::where ? 1 : 0];
  const bool keeps_integers = c.node.op == OpId::cast || !is_float(c.node.outs[0].dtype);
  if (is_float(decides.dtype) || !keeps_integers) run_elementwise_in<double>(c);
  else run_elementwise_in<int64_t>(c);
}

}  // namespace pyflame::reference
