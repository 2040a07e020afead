// Special functions: those of the op table (formulas in kernels/device/special.h), what is composed of them, and their gradients.
#include <cmath>
#include <numbers>
#include <type_traits>

#include "pyflame/ops/autocast.h"
#include "pyflame/ops/helpers.h"
#include "pyflame/record/emit.h"
#include "pyflame/tensor/default_dtype.h"

namespace pyflame {

using ops::as_float;
using ops::check_defined;
using ops::to_edge;

namespace {

using In = const Tensor&;
constexpr double kTwoOverRootPi = 2 * std::numbers::inv_sqrtpi;
constexpr double kRootHalf = std::numbers::sqrt2 / 2;
const double kRootTwoPi = std::sqrt(2 * std::numbers::pi);

// y, with a gradient grad(g, x, y) that is written in public ops. One that is grad(g, x) lets a program write to y.
template <class F>
Tensor differentiable(const char* name, const Tensor& x, const Tensor& y, F grad) {
  if constexpr (std::is_invocable_v<F, In, In>)
    attach(name, {y}, {x}, {x}, [grad](GradNode& n, const Tensors& g) -> Tensors { return {grad(g[0], n.saved(0))}; });
  else
    attach(name, {y}, {x}, {x, y},
           [grad](GradNode& n, const Tensors& g) -> Tensors { return {grad(g[0], n.saved(0), n.saved(1))}; });
  return y;
}

template <class F>
Tensor special(const char* name, OpId op, const Tensor& input, F grad) {
  check_defined(name, input);
  const Tensor x = as_float(input);
  return differentiable(name, x, emit(op, {x}, x.shape(), x.dtype()), grad);
}

// y / x, and its limit at 0, a half.
Tensor over_argument(In y, In x) {
  const Tensor zero = eq(x, 0.0);
  return where(zero, 0.5, div(y, where(zero, 1.0, x)));
}

[[noreturn]] void no_gradient(const char* op, const char* of) {
  PF_FAIL(NotImplemented,
          "{}: it has no gradient of {}; got a tensor that requires grad; expected one that does not; "
          "hint: detach()",
          op, of);
}

}  // namespace

#define PF_SPECIAL(name, params, expression)                                              \
  Tensor name(const Tensor& input) {                                                      \
    return special(#name, OpId::name, input, [] params -> Tensor { return expression; }); \
  }
PF_SPECIAL(erfc, (In g, In x), mul(g, mul(exp(neg(square(x))), -kTwoOverRootPi)))
PF_SPECIAL(erfinv, (In g, In x), mul(g, mul(exp(square(erfinv(x))), 1 / kTwoOverRootPi)))
PF_SPECIAL(erfcx, (In g, In x, In y), mul(g, sub(mul(mul(x, y), 2.0), kTwoOverRootPi)))
PF_SPECIAL(ndtri, (In g, In, In y), mul(g, mul(exp(mul(square(y), 0.5)), kRootTwoPi)))
PF_SPECIAL(lgamma, (In g, In x), mul(g, digamma(x)))
PF_SPECIAL(digamma, (In g, In x), mul(g, trigamma(x)))
PF_SPECIAL(trigamma, (In g, In x), mul(g, polygamma(2, x)))
PF_SPECIAL(i0e, (In g, In x, In y), mul(g, sub(i1e(x), mul(sign(x), y))))
PF_SPECIAL(i1e, (In g, In x, In y), mul(g, sub(sub(i0e(x), mul(sign(x), y)), over_argument(y, x))))
PF_SPECIAL(scaled_modified_bessel_k0, (In g, In x, In y), mul(g, sub(y, scaled_modified_bessel_k1(x))))
PF_SPECIAL(scaled_modified_bessel_k1, (In g, In x, In y), mul(g, sub(sub(y, scaled_modified_bessel_k0(x)), div(y, x))))
PF_SPECIAL(log_ndtr, (In g, In x), mul(g, div(kTwoOverRootPi* kRootHalf, erfcx(mul(x, -kRootHalf)))))
PF_SPECIAL(bessel_j0, (In g, In x), neg(mul(g, bessel_j1(x))))
PF_SPECIAL(bessel_j1, (In g, In x, In y), mul(g, sub(bessel_j0(x), over_argument(y, x))))
PF_SPECIAL(bessel_y0, (In g, In x), neg(mul(g, bessel_y1(x))))
PF_SPECIAL(bessel_y1, (In g, In x, In y), mul(g, sub(bessel_y0(x), div(y, x))))
#undef PF_SPECIAL

Tensor airy_ai(const Tensor& input) {
  return special("airy_ai", OpId::airy_ai, input, [](In, In) -> Tensor { no_gradient("airy_ai", "its input"); });
}

std::pair<Tensor, Tensor> frexp(const Tensor& x) {
  check_defined("frexp", x);
  PF_CHECK(is_float(x.dtype()), Type, "frexp: not a floating dtype; got {}; expected a floating dtype",
           dtype_name(x.dtype()));
  const Tensor mantissa = emit(OpId::frexp_mantissa, {x}, x.shape(), x.dtype());
  const Tensor exponent = cast(emit(OpId::frexp_exponent, {x}, x.shape(), x.dtype()), DType::int32);
  // The slope is 2^-e; 1 where x is its own mantissa.
  return {differentiable("frexp", x, mantissa,
                         [](In g, In from, In f) {
                           const Tensor divided = logical_and(ne(f, 0.0), lt(abs(f), 1.0));
                           return mul(g, where(divided, div(f, from), 1.0));
                         }),
          exponent};
}

namespace {

// What is computed without a tape, because its gradient has a formula of its own.
template <class F, class G>
Tensor composed(const char* name, const Tensor& input, F compute, G grad) {
  check_defined(name, input);
  const Tensor x = as_float(input);
  Tensor y;
  {
    grad_mode::Guard off(false, grad_mode::inference());
    y = compute(x);
  }
  return differentiable(name, x, y, grad);
}

}  // namespace

Tensor i0(const Tensor& input) {
  return composed(
      "i0", input, [](In x) { return mul(exp(abs(x)), i0e(x)); }, [](In g, In x) { return mul(g, i1(x)); });
}
Tensor i1(const Tensor& input) {
  return composed(
      "i1", input, [](In x) { return mul(exp(abs(x)), i1e(x)); },
      [](In g, In x, In y) { return mul(g, sub(i0(x), over_argument(y, x))); });
}
Tensor modified_bessel_k0(const Tensor& input) {
  return composed(
      "modified_bessel_k0", input, [](In x) { return mul(exp(neg(x)), scaled_modified_bessel_k0(x)); },
      [](In g, In x) { return neg(mul(g, modified_bessel_k1(x))); });
}
Tensor modified_bessel_k1(const Tensor& input) {
  return composed(
      "modified_bessel_k1", input, [](In x) { return mul(exp(neg(x)), scaled_modified_bessel_k1(x)); },
      [](In g, In x, In y) { return neg(mul(g, add(modified_bessel_k0(x), div(y, x)))); });
}

Tensor entr(const Tensor& input) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  return composed(
      "entr", input,
      [](In x) {
        const Tensor positive = gt(x, 0.0);
        const Tensor inside = neg(mul(x, log(where(positive, x, 1.0))));
        return where(logical_or(positive, isnan(x)), inside, where(eq(x, 0.0), abs(x), -kInf));
      },
      [](In g, In x) { return neg(mul(g, add(log(x), 1.0))); });
}

namespace {

// Two operands of one floating dtype, broadcast by the op.
struct Both {
  Tensor a, b;
  Dims shape;
  Both(const char* name, const Value& av, const Value& bv) {
    if (av.is_tensor) check_defined(name, av.tensor);
    if (bv.is_tensor) check_defined(name, bv.tensor);
    const DType common = ops::result_type(av, bv), dtype = is_float(common) ? common : default_dtype();
    const Device device = av.is_tensor ? av.tensor.device() : bv.is_tensor ? bv.tensor.device() : current_device();
    a = av.is_tensor ? cast(av.tensor, dtype) : full({}, av.scalar, dtype, device);
    b = bv.is_tensor ? cast(bv.tensor, dtype) : full({}, bv.scalar, dtype, device);
    shape = a.shape() == b.shape() ? a.shape() : broadcast_shapes(name, a.shape(), b.shape());
  }
};

// A function whose gradient of the first operand PyTorch does not have either.
template <class F>
Tensor with_second_gradient(const char* name, OpId op, const Value& av, const Value& bv, F grad) {
  const Both o(name, av, bv);
  const Tensor y = emit(op, {o.a, o.b}, o.shape, o.a.dtype());
  attach(name, {y}, {o.a, o.b}, {o.a, o.b}, [name, grad](GradNode& n, const Tensors& g) -> Tensors {
    if (n.needs(0)) no_gradient(name, "its first argument");
    return {Tensor(), to_edge(n, 1, mul(g[0], grad(n.saved(0), n.saved(1))))};
  });
  return y;
}

// The derivative of P(a, x) by x.
Tensor gamma_density(In a, In x) { return exp(sub(sub(mul(sub(a, 1.0), log(x)), x), lgamma(a))); }

}  // namespace

Tensor zeta(const Value& x, const Value& q) {
  return with_second_gradient("zeta", OpId::zeta, x, q, [](In s, In at) { return neg(mul(s, zeta(add(s, 1.0), at))); });
}
Tensor igamma(const Value& a, const Value& x) {
  return with_second_gradient("igamma", OpId::igamma, a, x, [](In s, In at) { return gamma_density(s, at); });
}
Tensor igammac(const Value& a, const Value& x) {
  return with_second_gradient("igammac", OpId::igammac, a, x, [](In s, In at) { return neg(gamma_density(s, at)); });
}

// digamma's derivative of order n: (-1)^(n + 1) n! zeta(n + 1, x).
Tensor polygamma(int64_t n, const Tensor& input) {
  check_defined("polygamma", input);
  PF_CHECK(n >= 0, Value, "polygamma: negative order; got n={}; expected 0 or more", n);
  if (n == 0) return digamma(input);
  if (n == 1) return trigamma(input);
  const double factor = (n % 2 ? 1 : -1) * std::tgamma(static_cast<double>(n) + 1);
  return composed(
      "polygamma", input, [&](In x) { return mul(zeta(static_cast<double>(n + 1), x), factor); },
      [n](In g, In x, In) { return mul(g, polygamma(n + 1, x)); });
}

Tensor nextafter(const Value& av, const Value& bv) {
  const Both o("nextafter", av, bv);
  const DType d = o.a.dtype();
  PF_CHECK(!is_half(d), Type, "nextafter: not defined for {}; expected float32 or float64", dtype_name(d));
  Tensor out = emit(OpId::nextafter, {o.a, o.b}, o.shape, d);
  attach("nextafter", {out}, {o.a, o.b}, {o.a, o.b}, [](GradNode& n, const Tensors& g) -> Tensors {
    return {n.needs(0) ? to_edge(n, 0, where(eq(n.saved(0), n.saved(1)), 0.0, g[0])) : Tensor(),
            n.needs(1) ? to_edge(n, 1, zeros_like(g[0])) : Tensor()};
  });
  return out;
}

}  // namespace pyflame
