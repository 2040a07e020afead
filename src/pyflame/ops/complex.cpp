// Complex numbers. A value is split into its real and imaginary part, the formula is written for real tensors, and the
// parts are joined again; the engine fuses all of that into one loop. The gradient of a real loss with respect to z is
// dL/dRe + i dL/dIm, as in PyTorch: for a holomorphic function it is the gradient times the conjugate of the derivative,
// so that those functions share the formulas of real ones (elementwise.cpp).
#include "pyflame/ops/complex.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>

#include "pyflame/ops/family.h"
#include "pyflame/ops/helpers.h"
#include "pyflame/record/pairs.h"

namespace pyflame {

using ops::check_defined;
using ops::make_view;

namespace {

struct Parts {
  Tensor re, im;
};

using T = const Tensor&;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// --- splitting and joining, without autograd

Tensor half_of(T x, int64_t which) {
  const Tensor pairs = as_pairs(x);
  Dims strides = x.strides();
  for (int64_t& s : strides) s *= 2;
  return alias(pairs, x.shape(), strides, pairs.offset() + which);
}

Parts parts(T x) {
  if (!is_complex(x.dtype())) return {x, zeros_like(x)};
  if (x.dtype() == DType::complex128) return {half_of(x, 0), half_of(x, 1)};
  const Tensor bits = as_bits(x);
  const OutSpec spec{x.shape(), DType::float32, contiguous_strides(x.shape())};
  return {emit(OpId::real_part, {bits}, spec), emit(OpId::imag_part, {bits}, spec)};
}

Tensor join(const Value& re, const Value& im) {
  const Tensor& given = re.is_tensor ? re.tensor : im.tensor;
  const Dims shape = re.is_tensor && im.is_tensor && re.tensor.shape() != im.tensor.shape()
                         ? broadcast_shapes("complex", re.tensor.shape(), im.tensor.shape())
                         : given.shape();
  const DType part = given.dtype();
  if (part == DType::float32) {
    const auto arg = [&](const Value& v) { return v.is_tensor ? Arg(v.tensor) : Arg(v.scalar, part); };
    return from_bits(
        emit(OpId::pack_complex, {arg(re), arg(im)}, OutSpec{shape, DType::int64, contiguous_strides(shape)}));
  }
  const Tensor out = empty(shape, DType::complex128, given.device());
  if (out.numel() == 0) return out;
  for (int64_t which : {0, 1}) {
    const Value& v = which == 0 ? re : im;
    const Tensor half = half_of(out, which);
    const Arg in[] = {v.is_tensor ? Arg(v.tensor) : Arg(v.scalar, part)};
    emit_into(v.is_tensor ? OpId::cast : OpId::full, in, std::span(&half, 1), NoAttrs{});
  }
  return out;
}
Tensor join(const Parts& p) { return join(Value(p.re), Value(p.im)); }

int64_t bits_of(const Scalar& v) {
  const float halves[] = {static_cast<float>(v.f), static_cast<float>(v.imag)};
  int64_t bits;
  static_assert(sizeof(bits) == sizeof(halves));
  std::memcpy(&bits, halves, sizeof(bits));
  return bits;
}

// --- real functions

// sqrt(a^2 + b^2) without overflow; infinite if either is.
Tensor hypot(T a, T b) {
  const Tensor x = abs(a), y = abs(b), high = maximum(x, y), low = minimum(x, y);
  const Tensor ratio = where(eq(high, 0.0), 0.0, div(low, high));
  return where(logical_or(isinf(a), isinf(b)), kInfinity, mul(high, sqrt(add(square(ratio), 1.0))));
}
Tensor largest_part(const Parts& a) { return maximum(abs(a.re), abs(a.im)); }
Tensor sign_of(T magnitude, T sign) {
  return where(logical_or(lt(sign, 0.0), lt(reciprocal(sign), 0.0)), neg(magnitude), magnitude);
}

// --- complex functions of the parts

Parts times(const Parts& a, const Parts& b) {
  return {sub(mul(a.re, b.re), mul(a.im, b.im)), add(mul(a.re, b.im), mul(a.im, b.re))};
}
Parts scaled(const Parts& a, double by) { return {mul(a.re, by), mul(a.im, by)}; }
Parts plus(const Parts& a, double number) { return {add(a.re, number), a.im}; }
Parts negative(const Parts& a) { return {neg(a.re), neg(a.im)}; }
Parts times_i(const Parts& a) { return {neg(a.im), a.re}; }  // times i
Parts over_i(const Parts& a) { return {a.im, neg(a.re)}; }   // divided by i

// A divisor c + i d as Smith's formula takes it (Algorithm 116, 1962): without squares, which overflow.
struct Divisor {
  Tensor real;   // whether |c| >= |d|
  Tensor ratio;  // of the smaller part to the larger one
  Tensor size;   // the larger part + ratio * the smaller part
  explicit Divisor(const Parts& b) : real(ge(abs(b.re), abs(b.im))) {
    const Tensor large = where(real, b.re, b.im), small = where(real, b.im, b.re);
    ratio = where(eq(large, 0.0), 0.0, div(small, large));
    size = add(large, mul(small, ratio));
  }
};
Parts over(const Parts& a, const Parts& b) {
  const Divisor d(b);
  const Tensor p = where(d.real, a.re, a.im), q = where(d.real, a.im, a.re);
  const Tensor im = div(sub(q, mul(p, d.ratio)), d.size);
  return {div(add(p, mul(q, d.ratio)), d.size), where(d.real, im, neg(im))};
}
Parts inverse(const Parts& a) {
  const Divisor d(a);
  return {div(where(d.real, 1.0, d.ratio), d.size), neg(div(where(d.real, d.ratio, 1.0), d.size))};
}
// factor * large where large may be infinite: zero times infinity is zero here.
Tensor zero_or_product(T factor, T large) { return where(eq(factor, 0.0), factor, mul(factor, large)); }
Parts exponential(const Parts& a) {
  const Tensor size = exp(a.re);
  return {mul(size, cos(a.im)), zero_or_product(sin(a.im), size)};
}
// Near a size of 1, log(size^2) is taken of the difference from 1.
Parts logarithm(const Parts& a) {
  const Tensor x = abs(a.re), y = abs(a.im), high = maximum(x, y), low = minimum(x, y), size = hypot(a.re, a.im);
  const Tensor near = log1p(add(mul(sub(high, 1.0), add(high, 1.0)), square(low)));
  const Tensor is_near = logical_and(gt(size, 0.5), lt(size, 2.0));
  return {where(is_near, mul(near, 0.5), log(size)), atan2(a.im, a.re)};
}
Parts root(const Parts& a) {
  const Tensor t = sqrt(mul(add(hypot(a.re, a.im), abs(a.re)), 0.5));
  const Tensor other = where(logical_or(eq(t, 0.0), isinf(a.im)), a.im, div(a.im, mul(t, 2.0)));
  const Tensor right = ge(a.re, 0.0);
  return {where(right, t, abs(other)), where(right, other, sign_of(t, a.im))};
}
Parts sine(const Parts& a) { return {zero_or_product(sin(a.re), cosh(a.im)), mul(cos(a.re), sinh(a.im))}; }
Parts cosine(const Parts& a) { return {mul(cos(a.re), cosh(a.im)), neg(zero_or_product(sin(a.re), sinh(a.im)))}; }
Parts hyperbolic_tangent(const Parts& a) {
  const Tensor x = clamp(a.re, Scalar(-20.0), Scalar(20.0));
  const Tensor sinh_x = sinh(x), cos_y = cos(a.im), size = add(square(sinh_x), square(cos_y));
  const Tensor twice = mul(sin(a.im), cos_y), far = mul(mul(twice, 4.0), exp(mul(abs(a.re), -2.0)));
  return {div(mul(sinh_x, cosh(x)), size), where(gt(abs(a.re), 20.0), far, div(twice, size))};
}
// Kahan's formulas (Branch cuts for complex elementary functions, 1987).
Parts inverse_sine(const Parts& a) {
  const Parts below = root(plus(negative(a), 1.0)), above = root(plus(a, 1.0));
  return {atan2(a.re, sub(mul(below.re, above.re), mul(below.im, above.im))),
          asinh(sub(mul(below.re, above.im), mul(below.im, above.re)))};
}
Parts inverse_cosine(const Parts& a) {
  const Parts below = root(plus(negative(a), 1.0)), above = root(plus(a, 1.0));
  return {mul(atan2(below.re, above.re), 2.0), asinh(sub(mul(above.re, below.im), mul(above.im, below.re)))};
}
Parts inverse_hyperbolic_cosine(const Parts& a) {
  const Parts below = root(plus(a, -1.0)), above = root(plus(a, 1.0));
  return {asinh(add(mul(below.re, above.re), mul(below.im, above.im))), mul(atan2(below.im, above.re), 2.0)};
}
Parts inverse_hyperbolic_tangent(const Parts& a) {
  const Tensor x = abs(a.re), from_one = sub(1.0, x), yy = square(a.im);
  const Tensor re = mul(log1p(div(mul(x, 4.0), add(square(from_one), yy))), 0.25);
  const Tensor im = mul(atan2(mul(a.im, 2.0), sub(mul(from_one, add(x, 1.0)), yy)), 0.5);
  const Tensor infinite = logical_or(isinf(a.re), isinf(a.im)), quarter = full_like(im, std::numbers::pi / 2);
  return {where(infinite, 0.0, sign_of(re, a.re)), where(infinite, sign_of(quarter, a.im), im)};
}
Parts power(const Parts& a, const Parts& b) {
  const Parts r = exponential(times(b, logarithm(a)));
  const Tensor zero = logical_and(eq(a.re, 0.0), eq(a.im, 0.0));
  const Tensor to_zero = logical_and(eq(b.re, 0.0), eq(b.im, 0.0));
  return {where(to_zero, 1.0, where(zero, 0.0, r.re)), where(logical_or(zero, to_zero), 0.0, r.im)};
}

Parts unary(OpId op, const Parts& a) {
  switch (op) {
    case OpId::exp: return exponential(a);
    case OpId::exp2: return exponential(scaled(a, std::numbers::ln2));
    case OpId::expm1: {
      const Tensor half = sin(mul(a.im, 0.5)), size = expm1(a.re);
      return {sub(mul(size, cos(a.im)), mul(square(half), 2.0)), mul(add(size, 1.0), sin(a.im))};
    }
    case OpId::log: return logarithm(a);
    case OpId::log2: return scaled(logarithm(a), std::numbers::log2e);
    case OpId::log10: return scaled(logarithm(a), std::numbers::log10e);
    case OpId::log1p: {  // near -1 the sum below cancels, and far away it overflows
      const Tensor near = mul(log1p(add(mul(a.re, add(a.re, 2.0)), square(a.im))), 0.5);
      const Parts whole = plus(a, 1.0);
      const Tensor apart = logical_or(lt(a.re, -0.5), gt(largest_part(a), 1e3));
      return {where(apart, log(hypot(whole.re, whole.im)), near), atan2(a.im, whole.re)};
    }
    case OpId::sqrt: return root(a);
    case OpId::rsqrt: return inverse(root(a));
    case OpId::reciprocal: return inverse(a);
    case OpId::sigmoid: return inverse(plus(exponential(negative(a)), 1.0));
    case OpId::sin: return sine(a);
    case OpId::cos: return cosine(a);
    case OpId::tan: return over_i(hyperbolic_tangent(times_i(a)));
    case OpId::sinh: return over_i(sine(times_i(a)));
    case OpId::cosh: return cosine(times_i(a));
    case OpId::tanh: return hyperbolic_tangent(a);
    case OpId::asin: return inverse_sine(a);
    case OpId::acos: return inverse_cosine(a);
    case OpId::atan: return over_i(inverse_hyperbolic_tangent(times_i(a)));
    case OpId::asinh: return over_i(inverse_sine(times_i(a)));
    case OpId::acosh: return inverse_hyperbolic_cosine(a);
    case OpId::atanh: return inverse_hyperbolic_tangent(a);
    default: break;
  }
  PF_FAIL(Type,
          "{}: not available for complex tensors; got a complex tensor; expected a real dtype; hint: real(), imag() or "
          "abs()",
          op_name(op));
}

// A product or a quotient of two complex64 operands.
Tensor packed(OpId op, const Value& a, const Value& b) {
  const Tensor x = a.is_tensor ? as_bits(a.tensor) : Tensor(), y = b.is_tensor ? as_bits(b.tensor) : Tensor();
  const Dims shape = !x ? y.shape() : !y ? x.shape() : broadcast_shapes(op_name(op), x.shape(), y.shape());
  const auto arg = [](const Tensor& t, const Value& v) { return t ? Arg(t) : Arg(bits_of(v.scalar), DType::int64); };
  const OpId of_bits = op == OpId::mul ? OpId::mul_complex : OpId::div_complex;
  return from_bits(emit(of_bits, {arg(x, a), arg(y, b)}, OutSpec{shape, DType::int64, contiguous_strides(shape)}));
}

Parts parts_of(const Value& v, const Tensor& like) {
  if (v.is_tensor) return parts(v.tensor);
  const DType d = part_dtype(like.dtype());
  return {full({}, v.scalar.f, d, like.device()), full({}, v.scalar.imag, d, like.device())};
}

}  // namespace

Tensor ops::complex_unary(OpId op, const Tensor& x) {
  const grad_mode::Guard off(false, grad_mode::inference());
  if (op == OpId::neg) return emit(op, {x}, x.shape(), x.dtype());
  return join(unary(op, parts(x)));
}

Tensor ops::complex_binary(OpId op, const Value& a, const Value& b) {
  const grad_mode::Guard off(false, grad_mode::inference());
  const Tensor& like = a.is_tensor ? a.tensor : b.tensor;
  const bool by_real = !b.is_tensor && b.scalar.kind != Category::Complex;
  if ((op == OpId::mul || op == OpId::div) && by_real)
    return emit(op, {like, Arg(Scalar(b.scalar.f), like.dtype())}, like.shape(), like.dtype());
  if ((op == OpId::add || op == OpId::sub) && a.is_tensor && b.is_tensor)
    return emit(op, {a.tensor, b.tensor}, broadcast_shapes(op_name(op), a.tensor.shape(), b.tensor.shape()),
                like.dtype());
  if ((op == OpId::mul || op == OpId::div) && like.dtype() == DType::complex64) return packed(op, a, b);
  const Parts x = parts_of(a, like), y = parts_of(b, like);
  switch (op) {
    case OpId::add: return join(add(x.re, y.re), add(x.im, y.im));
    case OpId::sub: return join(sub(x.re, y.re), sub(x.im, y.im));
    case OpId::mul: return join(times(x, y));
    case OpId::div: return join(over(x, y));
    case OpId::pow: return join(power(x, y));
    case OpId::eq: return logical_and(eq(x.re, y.re), eq(x.im, y.im));
    case OpId::ne: return logical_or(ne(x.re, y.re), ne(x.im, y.im));
    default: break;
  }
  PF_FAIL(Type,
          "{}: not available for complex tensors; got a complex operand; expected real dtypes; hint: real(), imag() or "
          "abs()",
          op_name(op));
}

Tensor ops::complex_full(const Dims& shape, const Scalar& value, DType dtype, Device device) {
  if (dtype == DType::complex64)
    return from_bits(emit_on(device, OpId::full, {Arg(bits_of(value), DType::int64)}, shape, DType::int64));
  const Tensor out = empty(shape, dtype, device);
  complex_fill(out, value);
  return out;
}

void ops::complex_fill(const Tensor& x, const Scalar& value) {
  if (x.numel() == 0) return;
  if (x.dtype() == DType::complex64) {
    const Tensor bits = as_bits(x);
    const Arg in[] = {Arg(bits_of(value), DType::int64)};
    emit_into(OpId::full, in, std::span(&bits, 1), NoAttrs{});
    return;
  }
  for (int64_t which : {0, 1}) {
    const Tensor half = half_of(x, which);
    const Arg in[] = {Arg(Scalar(which == 0 ? value.f : value.imag), DType::float64)};
    emit_into(OpId::full, in, std::span(&half, 1), NoAttrs{});
  }
}

Tensor ops::complex_cast(const Tensor& x, DType dtype) {
  if (dtype == DType::bool_) return ne(x, 0);
  PF_CHECK(
      is_complex(dtype), Type,
      "cast: a complex tensor has two parts; got {} to {}; expected a complex dtype; hint: real(), imag() or abs()",
      dtype_name(x.dtype()), dtype_name(dtype));
  Tensor out;
  {
    const grad_mode::Guard off(false, grad_mode::inference());
    out = is_complex(x.dtype()) ? emit(OpId::cast, {x}, x.shape(), dtype) : join(cast(x, part_dtype(dtype)), 0.0);
  }
  if (has_gradient(x.dtype()))
    attach("cast", {out}, {x}, {}, [from = x.dtype()](GradNode&, const Tensors& g) -> Tensors {
      return {cast(is_complex(from) ? g[0] : real(g[0]), from)};
    });
  return out;
}

// One real product of twice the size: the pairs of a are a matrix [M, 2 K], and of b each row has the row of i b after it.
Tensor ops::complex_product(const Tensor& a, const Tensor& b) {
  const grad_mode::Guard off(false, grad_mode::inference());
  Dims a_shape = a.shape(), b_shape = b.shape();
  a_shape.back() *= 2, b_shape.back() *= 2, b_shape[b_shape.size() - 2] *= 2;
  Dims twice = b.shape();
  twice.insert(twice.size() - 1, 2);
  const Tensor rows = empty(twice, b.dtype(), b.device());
  copy_(select(rows, -2, 0), b);
  copy_(select(rows, -2, 1), join(times_i(parts(b))));
  const Tensor left = reshape(as_pairs(contiguous(a)), a_shape);
  const Tensor product = matmul(left, reshape(as_pairs(rows), b_shape));
  Dims pairs = product.shape();
  pairs.back() /= 2;
  pairs.push_back(2);
  return from_pairs(reshape(product, pairs));
}

// Part by part, because a loop over pairs has short rows.
Tensor ops::complex_sum(const Tensor& x, const Dims& shape, const ReduceAttrs& axes) {
  const Parts p = parts(x);
  const Tensor re = emit(OpId::sum, {p.re}, shape, p.re.dtype(), axes);
  return join(re, emit(OpId::sum, {p.im}, shape, p.im.dtype(), axes));
}

// Halves are multiplied until one is left.
Tensor ops::complex_prod(const Tensor& x, int64_t axes) {
  Tensor out = x;
  for (int d = 0; d < x.dim(); ++d) {
    if (!(axes >> d & 1)) continue;
    if (out.size(d) == 0) out = add(sum(out, {d}, true), 1.0);
    while (out.size(d) > 1) {
      const int64_t half = out.size(d) / 2;
      const Tensor product = mul(narrow(out, d, 0, half), narrow(out, d, half, half));
      out = out.size(d) % 2 ? cat({product, narrow(out, d, 2 * half, 1)}, d) : product;
    }
  }
  return out;
}

// ---- views

namespace {

void check_complex(const char* op, const Tensor& x) {
  check_defined(op, x);
  PF_CHECK(is_complex(x.dtype()), Type, "{}: not complex; got dtype {}; expected complex64 or complex128", op,
           dtype_name(x.dtype()));
}

Tensor part_view(const char* name, const Tensor& x, int64_t which) {
  fix_layout(x);
  Tensor half = half_of(x, which);
  Tensor v = make_view(x, half.shape(), half.strides(), half.offset());
  v.impl()->dtype = half.dtype();
  attach(name, {v}, {x}, {}, [which](GradNode&, const Tensors& g) -> Tensors {
    const Tensor none = zeros_like(g[0]);
    return {which == 0 ? complex(g[0], none) : complex(none, g[0])};
  });
  return v;
}

}  // namespace

Tensor view_as_real(const Tensor& x) {
  check_complex("view_as_real", x);
  fix_layout(x);
  const Tensor pairs = as_pairs(x);
  Tensor v = make_view(x, pairs.shape(), pairs.strides(), pairs.offset());
  v.impl()->dtype = pairs.dtype();
  attach("view_as_real", {v}, {x}, {},
         [](GradNode&, const Tensors& g) -> Tensors { return {view_as_complex(contiguous(g[0]))}; });
  return v;
}

Tensor view_as_complex(const Tensor& x) {
  check_defined("view_as_complex", x);
  fix_layout(x);
  PF_CHECK(x.dtype() == DType::float32 || x.dtype() == DType::float64, Type,
           "view_as_complex: the dtype is not that of parts; got {}; expected float32 or float64",
           dtype_name(x.dtype()));
  PF_CHECK(x.dim() > 0 && x.size(-1) == 2, Value,
           "view_as_complex: the last dim is not of two parts; got shape {}; expected (.., 2)", x.shape().str());
  bool even = x.strides().back() == 1 && x.offset() % 2 == 0;
  for (int d = 0; d + 1 < x.dim(); ++d) even = even && (x.shape()[d] <= 1 || x.strides()[d] % 2 == 0);
  PF_CHECK(even || x.numel() == 0, Value,
           "view_as_complex: the parts do not lie in pairs; got strides {} and offset {}; expected a last stride of 1 "
           "and even others; hint: clone() it",
           x.strides().str(), x.offset());
  const Tensor whole = from_pairs(x);
  Tensor v = make_view(x, whole.shape(), whole.strides(), whole.offset());
  v.impl()->dtype = whole.dtype();
  attach("view_as_complex", {v}, {x}, {}, [](GradNode&, const Tensors& g) -> Tensors { return {view_as_real(g[0])}; });
  return v;
}

Tensor real(const Tensor& x) {
  check_defined("real", x);
  return is_complex(x.dtype()) ? part_view("real", x, 0) : x;
}

Tensor imag(const Tensor& x) {
  check_complex("imag", x);
  return part_view("imag", x, 1);
}

// ---- functions

Tensor conj(const Tensor& x) {
  check_defined("conj", x);
  if (!is_complex(x.dtype())) return x;
  Tensor out;
  {
    const grad_mode::Guard off(false, grad_mode::inference());
    const Parts p = parts(x);
    out = join(p.re, neg(p.im));
  }
  attach("conj", {out}, {x}, {}, [](GradNode&, const Tensors& g) -> Tensors { return {conj(g[0])}; });
  return out;
}

Tensor complex(const Tensor& re, const Tensor& im) {
  check_same_device("complex", {re, im});
  check_same_dtype("complex", re, im);
  PF_CHECK(re.dtype() == DType::float32 || re.dtype() == DType::float64, Type,
           "complex: the dtype is not that of parts; got {}; expected float32 or float64", dtype_name(re.dtype()));
  Tensor out;
  {
    const grad_mode::Guard off(false, grad_mode::inference());
    out = join(re, im);
  }
  attach("complex", {out}, {re, im}, {}, [](GradNode& n, const Tensors& g) -> Tensors {
    return {n.needs(0) ? ops::to_edge(n, 0, real(g[0])) : Tensor(),
            n.needs(1) ? ops::to_edge(n, 1, imag(g[0])) : Tensor()};
  });
  return out;
}

// z / |z|, and 0 at 0.
Tensor sgn(const Tensor& x) {
  check_defined("sgn", x);
  if (!is_complex(x.dtype())) return sign(x);
  Tensor out;
  {
    const grad_mode::Guard off(false, grad_mode::inference());
    const Parts p = parts(x);
    const Tensor size = hypot(p.re, p.im), zero = eq(size, 0.0);
    out = join(where(zero, 0.0, div(p.re, size)), where(zero, 0.0, div(p.im, size)));
  }
  attach("sgn", {out}, {x}, {x, out}, [](GradNode& n, const Tensors& g) -> Tensors {
    const Tensor saved = n.saved(0), direction = n.saved(1), size = abs(saved);
    const Tensor along = real(mul(g[0], conj(direction)));
    const Tensor across = div(sub(g[0], mul(direction, along)), where(eq(size, 0.0), 1.0, size));
    return {where(eq(size, 0.0), zeros_like(across), across)};
  });
  return out;
}

namespace {
Tensor magnitude(const Tensor& x) {
  Tensor out;
  {
    const grad_mode::Guard off(false, grad_mode::inference());
    const Parts p = parts(x);
    out = hypot(p.re, p.im);
  }
  attach("abs", {out}, {x}, {x}, [](GradNode& n, const Tensors& g) -> Tensors { return {mul(sgn(n.saved(0)), g[0])}; });
  return out;
}
}  // namespace

Tensor ops::complex_abs(const Tensor& x) { return magnitude(x); }

Tensor angle(const Tensor& x) {
  check_defined("angle", x);
  if (!is_complex(x.dtype())) {
    const Tensor y = ops::as_float(x);
    const Tensor flat = where(lt(y, 0.0), full({}, std::numbers::pi, y.dtype(), y.device()), 0.0);
    return where(isnan(y), y, flat);
  }
  Tensor out;
  {
    const grad_mode::Guard off(false, grad_mode::inference());
    const Parts p = parts(x);
    out = atan2(p.im, p.re);
  }
  attach("angle", {out}, {x}, {x}, [](GradNode& n, const Tensors& g) -> Tensors {
    const Tensor saved = n.saved(0), re = real(saved), im = imag(saved);
    const Tensor size = add(square(re), square(im)), zero = eq(size, 0.0);
    const Tensor scale = where(zero, 0.0, div(g[0], where(zero, 1.0, size)));
    return {complex(neg(mul(im, scale)), mul(re, scale))};
  });
  return out;
}

}  // namespace pyflame
