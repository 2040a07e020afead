// Elementwise ops. Operands are recorded with their own shapes, and the backend broadcasts them. The meaning of bool
// and integer operands is decided here, so that backends see only valid combinations: logical ops on bool, float
// functions on floats.
#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <numbers>

#include "pyflame/ops/autocast.h"
#include "pyflame/ops/complex.h"
#include "pyflame/ops/helpers.h"
#include "pyflame/ops/hides.h"
#include "pyflame/record/emit.h"
#include "pyflame/tensor/default_dtype.h"

namespace pyflame {

using ops::as_float;
using ops::check_defined;
using ops::to_edge;

namespace ops {

DType result_type(const Tensor& a, const Tensor& b) {
  if (a.dtype() == b.dtype()) return a.dtype();
  if ((a.dim() == 0) == (b.dim() == 0)) return promote(a.dtype(), b.dtype());
  const Tensor& main = a.dim() == 0 ? b : a;
  const Tensor& zero_dim = a.dim() == 0 ? a : b;
  if (is_complex(zero_dim.dtype()) && is_float(main.dtype())) return complex_dtype(main.dtype());
  return dtype_category(zero_dim.dtype()) > dtype_category(main.dtype()) ? promote(main.dtype(), zero_dim.dtype())
                                                                         : main.dtype();
}

DType result_type(const Value& a, const Value& b) {
  if (a.is_tensor && b.is_tensor) return result_type(a.tensor, b.tensor);
  if (a.is_tensor) return promote(a.tensor.dtype(), b.scalar);
  if (b.is_tensor) return promote(b.tensor.dtype(), a.scalar);
  return promote(promote(DType::bool_, a.scalar), b.scalar);
}

Tensor as_float(const Tensor& x) { return has_gradient(x.dtype()) ? x : cast(x, default_dtype()); }

}  // namespace ops

namespace {

// The operands of a binary op, converted to one dtype. Operands that already have it are not copied.
struct Operands {
  Tensor own_a, own_b;
  const Tensor &a, &b;  // undefined if the operand is a number
  Scalar a_number{0}, b_number{0};
  DType dtype;
  Dims shape;

  Operands(const char* op, const Value& av, const Value& bv, DType as)
      : a(in_dtype(av, as, own_a)), b(in_dtype(bv, as, own_b)), a_number(av.scalar), b_number(bv.scalar), dtype(as) {
    if (!a && !b) own_a = full({}, a_number, as);
    if (!a) shape = b.shape();
    else if (!b || a.shape() == b.shape()) shape = a.shape();
    else shape = broadcast_shapes(op, a.shape(), b.shape());
  }
  Operands(const Operands&) = delete;
  static const Tensor& in_dtype(const Value& v, DType as, Tensor& own) {
    if (v.is_tensor && v.tensor.dtype() == as) return v.tensor;
    if (v.is_tensor) own = cast(v.tensor, as);
    return own;
  }
  Arg left() const { return a ? Arg(a) : Arg(a_number, dtype); }
  Arg right() const { return b ? Arg(b) : Arg(b_number, dtype); }
  Tensor run(OpId op, DType out) const {
    if (is_complex(dtype))
      return ops::complex_binary(op, a ? Value(a) : Value(a_number), b ? Value(b) : Value(b_number));
    return emit(op, {left(), right()}, shape, out);
  }
  Tensor run(OpId op) const { return run(op, dtype); }
};

Operands operands(const char* op, const Value& a, const Value& b) {
  if (a.is_tensor) check_defined(op, a.tensor);
  if (b.is_tensor) check_defined(op, b.tensor);
  return Operands(op, a, b, ops::result_type(a, b));
}

// For gradients: the conjugate of the saved operand, or of the number that it was. Real numbers are their own.
Value operand(GradNode& n, size_t i, const Scalar& number) {
  return ops::conj(n.saved_tensors[i].defined() ? Value(n.saved(i)) : Value(number));
}

const Tensor& if_needed(const Tensor& keep, const Tensor& other) {
  static const Tensor none;
  return other && other.impl()->autograd ? keep : none;
}

Tensor zeros_of(const Tensor& g) { return zeros_like(g); }

enum class Save { None, Input, Output };

// grad(g, saved) -> gradient of x
template <Save save, class F>
Tensor unary_op(const char* name, OpId op, const Tensor& x, F grad) {
  Tensor out = is_complex(x.dtype()) ? ops::complex_unary(op, x) : emit(op, {x}, x.shape(), x.dtype());
  if constexpr (save == Save::None) {
    attach(name, {out}, {x}, {}, [grad](GradNode&, const Tensors& g) -> Tensors { return {grad(g[0])}; });
  } else {
    const Tensor& kept = save == Save::Input ? x : out;
    attach(name, {out}, {x}, {kept},
           [grad](GradNode& n, const Tensors& g) -> Tensors { return {grad(g[0], conj(n.saved(0)))}; });
  }
  return out;
}

void check_not_bool(const char* op, const Tensor& x) {
  check_defined(op, x);
  PF_CHECK(x.dtype() != DType::bool_, Type,
           "{}: not defined for bool; got a bool tensor; expected integers or floats; hint: {}", op,
           std::string_view(op) == "neg" ? "logical_not()" : "cast it first");
}

// Of complex numbers, a gradient gets the conjugate of x, and needs that of the slope. On a branch cut this is not the slope at the conjugate.
template <class F>
Tensor times_slope(const Tensor& g, const Tensor& x, F slope) {
  return mul(g, is_complex(x.dtype()) ? conj(slope(conj(x))) : slope(x));
}
// The sign of a zero says on which side of a cut x is: 1 - y and y + 1 lose it, -(y - 1) and y - (-1) keep it.
Tensor asin_slope(const Tensor& x) {
  return rsqrt(is_complex(x.dtype()) ? neg(sub(square(x), 1.0)) : sub(1.0, square(x)));
}
Tensor asinh_slope(const Tensor& x) { return rsqrt(sub(square(x), -1.0)); }
// Of complex numbers, the square root of the product may have the other sign than the product of square roots.
Tensor acosh_slope(const Tensor& x) {
  return is_complex(x.dtype()) ? mul(rsqrt(sub(x, 1.0)), rsqrt(sub(x, -1.0))) : rsqrt(sub(square(x), 1.0));
}

}  // namespace

// ---- unary

#define PF_FLOAT_UNARY(name, save, params, expression)                                           \
  Tensor name(const Tensor& input) {                                                             \
    check_defined(#name, input);                                                                 \
    return unary_op<Save::save>(#name, OpId::name, as_float(autocast::input<OpId::name>(input)), \
                                [] params -> Tensor { return expression; });                     \
  }
using T = const Tensor&;
PF_FLOAT_UNARY(sqrt, Output, (T g, T y), div(g, mul(y, 2.0)))
PF_FLOAT_UNARY(rsqrt, Output, (T g, T y), mul(mul(g, -0.5), mul(square(y), y)))
PF_FLOAT_UNARY(reciprocal, Output, (T g, T y), neg(mul(g, square(y))))
PF_FLOAT_UNARY(exp, Output, (T g, T y), mul(g, y))
PF_FLOAT_UNARY(exp2, Output, (T g, T y), mul(g, mul(y, std::numbers::ln2)))
PF_FLOAT_UNARY(expm1, Output, (T g, T y), mul(g, add(y, 1.0)))
PF_FLOAT_UNARY(log, Input, (T g, T x), div(g, x))
PF_FLOAT_UNARY(log2, Input, (T g, T x), div(g, mul(x, std::numbers::ln2)))
PF_FLOAT_UNARY(log10, Input, (T g, T x), div(g, mul(x, std::numbers::ln10)))
PF_FLOAT_UNARY(log1p, Input, (T g, T x), div(g, add(x, 1.0)))
PF_FLOAT_UNARY(sin, Input, (T g, T x), mul(g, cos(x)))
PF_FLOAT_UNARY(cos, Input, (T g, T x), neg(mul(g, sin(x))))
PF_FLOAT_UNARY(tan, Output, (T g, T y), mul(g, add(square(y), 1.0)))
PF_FLOAT_UNARY(asin, Input, (T g, T x), times_slope(g, x, asin_slope))
PF_FLOAT_UNARY(acos, Input, (T g, T x), neg(times_slope(g, x, asin_slope)))
PF_FLOAT_UNARY(atan, Input, (T g, T x), div(g, add(square(x), 1.0)))
PF_FLOAT_UNARY(sinh, Input, (T g, T x), mul(g, cosh(x)))
PF_FLOAT_UNARY(cosh, Input, (T g, T x), mul(g, sinh(x)))
PF_FLOAT_UNARY(asinh, Input, (T g, T x), times_slope(g, x, asinh_slope))
PF_FLOAT_UNARY(acosh, Input, (T g, T x), times_slope(g, x, acosh_slope))
PF_FLOAT_UNARY(atanh, Input, (T g, T x), div(g, sub(1.0, square(x))))
PF_FLOAT_UNARY(tanh, Output, (T g, T y), mul(g, sub(1.0, square(y))))
PF_FLOAT_UNARY(sigmoid, Output, (T g, T y), mul(g, mul(y, sub(1.0, y))))
PF_FLOAT_UNARY(erf, Input, (T g, T x), mul(g, mul(exp(neg(square(x))), 2.0 * std::numbers::inv_sqrtpi)))
#undef PF_FLOAT_UNARY

#define PF_NUMBER_UNARY(name, save, params, expression)                                                \
  Tensor name(const Tensor& input) {                                                                   \
    check_not_bool(#name, input);                                                                      \
    return unary_op<Save::save>(#name, OpId::name, input, [] params -> Tensor { return expression; }); \
  }
PF_NUMBER_UNARY(neg, None, (T g), neg(g))
PF_NUMBER_UNARY(relu, Output, (T g, T y), where(le(y, 0.0), 0.0, g))
#undef PF_NUMBER_UNARY

Tensor abs(const Tensor& x) {
  check_not_bool("abs", x);
  if (is_complex(x.dtype())) return ops::complex_abs(x);
  return unary_op<Save::Input>("abs", OpId::abs, x, [](T g, T y) -> Tensor { return mul(g, sign(y)); });
}

Tensor sign(const Tensor& x) {
  check_defined("sign", x);
  if (x.dtype() == DType::bool_) return clone(x);
  return unary_op<Save::None>("sign", OpId::sign, x, zeros_of);
}

// Integers need no rounding.
#define PF_ROUNDING(name)                                        \
  Tensor name(const Tensor& x) {                                 \
    check_not_bool(#name, x);                                    \
    if (!has_gradient(x.dtype())) return clone(x);               \
    return unary_op<Save::None>(#name, OpId::name, x, zeros_of); \
  }
PF_ROUNDING(floor)
PF_ROUNDING(ceil)
PF_ROUNDING(round)
#undef PF_ROUNDING

Tensor trunc(const Tensor& x) {
  check_not_bool("trunc", x);
  if (!has_gradient(x.dtype())) return clone(x);
  return where(lt(x, 0.0), ceil(x), floor(x));
}

Tensor round(const Tensor& x, int64_t decimals) {
  check_not_bool("round", x);
  if (decimals == 0) return round(x);
  PF_CHECK(is_float(x.dtype()), Runtime, "round: decimals of integers; got dtype {}; expected a floating dtype",
           dtype_name(x.dtype()));
  const double scale = std::pow(10.0, static_cast<double>(std::abs(decimals)));
  return decimals > 0 ? div(round(mul(x, scale)), scale) : mul(round(div(x, scale)), scale);
}

Tensor isnan(const Tensor& x) {
  check_defined("isnan", x);
  if (is_complex(x.dtype())) return logical_or(isnan(real(x)), isnan(imag(x)));
  if (!is_float(x.dtype())) return full(x.shape(), false, DType::bool_, x.device());
  return emit(OpId::isnan, {x}, x.shape(), DType::bool_);
}

Tensor isinf(const Tensor& x) {
  check_defined("isinf", x);
  if (is_complex(x.dtype())) return logical_or(isinf(real(x)), isinf(imag(x)));
  if (!is_float(x.dtype())) return full(x.shape(), false, DType::bool_, x.device());
  return emit(OpId::isinf, {x}, x.shape(), DType::bool_);
}

Tensor bitwise_not(const Tensor& x) {
  check_defined("bitwise_not", x);
  if (x.dtype() == DType::bool_) return logical_not(x);
  PF_CHECK(!is_float(x.dtype()), Type, "bitwise_not: not defined for floats; got {}; expected integers or bools",
           dtype_name(x.dtype()));
  return emit(OpId::bitwise_not, {x}, x.shape(), x.dtype());
}

Tensor logical_not(const Tensor& x) {
  check_defined("logical_not", x);
  return emit(OpId::logical_not, {cast(x, DType::bool_)}, x.shape(), DType::bool_);
}

Tensor square(const Tensor& input) {
  check_defined("square", input);
  const Tensor x = input.dtype() == DType::bool_ ? cast(input, DType::int64) : input;
  Tensor out =
      is_complex(x.dtype()) ? ops::complex_binary(OpId::mul, x, x) : emit(OpId::mul, {x, x}, x.shape(), x.dtype());
  attach("square", {out}, {x}, {x},
         [](GradNode& n, const Tensors& g) -> Tensors { return {mul(g[0], mul(conj(n.saved(0)), 2.0))}; });
  return out;
}

// ---- activations

namespace {

// Fused ops whose gradient is a fused op as well. If the gradient itself is recorded (create_graph), the composition is
// used.
template <class F>
Tensor activation(const char* name, OpId op, OpId grad_op, const Tensor& input, F composed) {
  check_defined(name, input);
  const Tensor x = as_float(input);
  Tensor out = emit(op, {x}, x.shape(), x.dtype());
  attach(name, {out}, {x}, {x}, [grad_op, composed](GradNode& n, const Tensors& g) -> Tensors {
    const Tensor saved = n.saved(0);
    if (grad_mode::enabled()) return {composed(g[0], saved)};
    return {emit(grad_op, {saved, g[0]}, saved.shape(), saved.dtype())};
  });
  return out;
}

Tensor silu_grad(const Tensor& g, const Tensor& x) {
  const Tensor s = sigmoid(x);
  return mul(g, mul(s, add(mul(x, sub(1.0, s)), 1.0)));
}

Tensor gelu_grad(const Tensor& g, const Tensor& x) {
  const Tensor cdf = mul(add(erf(mul(x, std::numbers::sqrt2 / 2)), 1.0), 0.5);
  const Tensor pdf = mul(exp(mul(square(x), -0.5)), std::numbers::inv_sqrtpi / std::numbers::sqrt2);
  return mul(g, add(cdf, mul(x, pdf)));
}

Tensor gelu_tanh_grad(const Tensor& g, const Tensor& x) {
  constexpr double kScale = std::numbers::sqrt2 * std::numbers::inv_sqrtpi, kCubic = 0.044715;  // sqrt(2 / pi)
  const Tensor xx = square(x);
  const Tensor t = tanh(mul(mul(x, add(mul(xx, kCubic), 1.0)), kScale));
  const Tensor inner = mul(add(mul(xx, 3 * kCubic), 1.0), kScale);
  const Tensor right = mul(mul(x, 0.5), mul(sub(1.0, square(t)), inner));
  return mul(g, add(mul(add(t, 1.0), 0.5), right));
}

}  // namespace

Tensor silu(const Tensor& x) {
  check_defined("silu", x);
  if (is_complex(x.dtype())) return mul(x, sigmoid(x));
  return activation("silu", OpId::silu, OpId::silu_grad, x, silu_grad);
}

Tensor gelu(const Tensor& x, const std::string& approximate) {
  if (approximate == "tanh") return activation("gelu", OpId::gelu_tanh, OpId::gelu_tanh_grad, x, gelu_tanh_grad);
  PF_CHECK(approximate == "none", Value, "gelu: unknown approximation; got '{}'; expected 'none' or 'tanh'",
           approximate);
  return activation("gelu", OpId::gelu, OpId::gelu_grad, x, gelu_grad);
}

Tensor softplus(const Tensor& input, double beta, double threshold) {
  check_defined("softplus", input);
  const Tensor x = as_float(input);
  Tensor out = emit(OpId::softplus, {x, Arg(beta, x.dtype()), Arg(threshold, x.dtype())}, x.shape(), x.dtype());
  attach("softplus", {out}, {x}, {x}, [beta, threshold](GradNode& n, const Tensors& g) -> Tensors {
    const Tensor scaled = mul(n.saved(0), beta);
    return {where(gt(scaled, threshold), g[0], mul(g[0], sigmoid(scaled)))};
  });
  return out;
}

Tensor leaky_relu(const Tensor& input, double negative_slope) {
  check_defined("leaky_relu", input);
  const Tensor x = as_float(input);
  Tensor out = emit(OpId::leaky_relu, {x, Arg(negative_slope, x.dtype())}, x.shape(), x.dtype());
  attach("leaky_relu", {out}, {x}, {x}, [negative_slope](GradNode& n, const Tensors& g) -> Tensors {
    return {where(gt(n.saved(0), 0.0), g[0], mul(g[0], negative_slope))};
  });
  return out;
}

// ---- casts and copies

Tensor cast(const Tensor& x, DType dtype) {
  check_defined("cast", x);
  if (x.dtype() == dtype) return x;
  if (is_complex(dtype) || is_complex(x.dtype())) return ops::complex_cast(x, dtype);
  Tensor out = emit(OpId::cast, {x}, x.shape(), dtype);
  if (is_float(dtype) && is_float(x.dtype()))
    attach("cast", {out}, {x}, {},
           [from = x.dtype()](GradNode&, const Tensors& g) -> Tensors { return {cast(g[0], from)}; });
  return out;
}

Tensor clone(const Tensor& x) {
  check_defined("clone", x);
  Tensor out = emit(OpId::cast, {x}, x.shape(), x.dtype());
  attach("clone", {out}, {x}, {}, [](GradNode&, const Tensors& g) -> Tensors { return {g[0]}; });
  return out;
}

bool is_contiguous(const Tensor& x, MemoryFormat format) {
  check_defined("is_contiguous", x);
  fix_layout(x);
  return has_format(x.shape(), x.strides(), format);
}

Tensor contiguous(const Tensor& x, MemoryFormat format) {
  check_defined("contiguous", x);
  if (format == MemoryFormat::contiguous) {
    fix_layout(x);
    return x.is_contiguous() ? x : clone(x);
  }
  PF_CHECK(x.dim() == 4, Value, "contiguous: channels_last needs images; got {}; expected (N, C, H, W)",
           x.shape().str());
  if (x.impl()->free_layout) {
    x.impl()->free_layout = false;  // the engine has chosen the layout that is wanted
    return x;
  }
  if (is_contiguous(x, format)) return x;
  Tensor out = emit(OpId::cast, {x}, OutSpec{x.shape(), x.dtype(), strides_of(x.shape(), format)});
  attach("contiguous", {out}, {x}, {}, [](GradNode&, const Tensors& g) -> Tensors { return {g[0]}; });
  return out;
}

Tensor to_device(const Tensor& x, Device device) {
  check_defined("to_device", x);
  if (x.device() == device) return x;
  const Tensor dense = contiguous(borrow(x));
  Tensor out = ops::copied_to(dense, device);
  attach("to_device", {out}, {x}, {},
         [from = x.device()](GradNode&, const Tensors& g) -> Tensors { return {to_device(g[0], from)}; });
  return out;
}

// ---- arithmetic

Tensor add(const Value& av, const Value& bv) {
  const Operands o = operands("add", av, bv);
  if (o.dtype == DType::bool_) return o.run(OpId::logical_or);
  Tensor out = o.run(OpId::add);
  attach("add", {out}, {o.a, o.b}, {}, [](GradNode& n, const Tensors& g) -> Tensors {
    return {n.needs(0) ? to_edge(n, 0, g[0]) : Tensor(), n.needs(1) ? to_edge(n, 1, g[0]) : Tensor()};
  });
  return out;
}

Tensor sub(const Value& av, const Value& bv) {
  const Operands o = operands("sub", av, bv);
  PF_CHECK(
      o.dtype != DType::bool_, Type,
      "sub: not defined for two bool tensors; got bool and bool; expected integers or floats; hint: logical_xor()");
  Tensor out = o.run(OpId::sub);
  attach("sub", {out}, {o.a, o.b}, {}, [](GradNode& n, const Tensors& g) -> Tensors {
    return {n.needs(0) ? to_edge(n, 0, g[0]) : Tensor(), n.needs(1) ? neg(to_edge(n, 1, g[0])) : Tensor()};
  });
  return out;
}

Tensor mul(const Value& av, const Value& bv) {
  const Operands o = operands("mul", av, bv);
  if (o.dtype == DType::bool_) return o.run(OpId::logical_and);
  Tensor out = o.run(OpId::mul);
  attach("mul", {out}, {o.a, o.b}, {if_needed(o.a, o.b), if_needed(o.b, o.a)},
         [a = o.a_number, b = o.b_number](GradNode& n, const Tensors& g) -> Tensors {
           Tensor ga, gb;
           if (n.needs(0)) ga = to_edge(n, 0, mul(g[0], operand(n, 1, b)));
           if (n.needs(1)) gb = to_edge(n, 1, mul(g[0], operand(n, 0, a)));
           return {ga, gb};
         });
  return out;
}

Tensor div(const Value& av, const Value& bv) {
  if (av.is_tensor) check_defined("div", av.tensor);
  if (bv.is_tensor) check_defined("div", bv.tensor);
  DType dtype = ops::result_type(av, bv);
  if (!has_gradient(dtype)) dtype = default_dtype();
  const Operands o("div", av, bv, dtype);
  Tensor out = o.run(OpId::div);
  // The gradient needs the operands, not the quotient: a program may write to that, as in PyTorch.
  attach("div", {out}, {o.a, o.b}, {if_needed(o.a, o.b), o.b},
         [a = o.a_number, b = o.b_number](GradNode& n, const Tensors& g) -> Tensors {
           const Value divisor = operand(n, 1, b);
           const Tensor scaled = div(g[0], divisor);
           return {n.needs(0) ? to_edge(n, 0, scaled) : Tensor(),
                   n.needs(1) ? to_edge(n, 1, neg(mul(scaled, div(operand(n, 0, a), divisor)))) : Tensor()};
         });
  return out;
}

Tensor atan2(const Value& y, const Value& x) {
  if (y.is_tensor) check_defined("atan2", y.tensor);
  if (x.is_tensor) check_defined("atan2", x.tensor);
  const DType dtype = ops::result_type(y, x);
  const Operands o("atan2", y, x, is_float(dtype) ? dtype : default_dtype());
  Tensor out = o.run(OpId::atan2);
  attach("atan2", {out}, {o.a, o.b}, {o.a, o.b},
         [a = o.a_number, b = o.b_number](GradNode& n, const Tensors& g) -> Tensors {
           const Value opposite = operand(n, 0, a), adjacent = operand(n, 1, b);
           const Tensor size = add(mul(opposite, opposite), mul(adjacent, adjacent));
           const Tensor scaled = div(g[0], where(eq(size, 0.0), 1.0, size));  // at the origin the gradient is 0
           return {n.needs(0) ? to_edge(n, 0, mul(scaled, adjacent)) : Tensor(),
                   n.needs(1) ? to_edge(n, 1, neg(mul(scaled, opposite))) : Tensor()};
         });
  return out;
}

namespace {

void check_divisor(const char* op, const Operands& o) {
  PF_CHECK(o.dtype != DType::bool_, Type, "{}: not defined for bool; got bool operands; expected integers or floats",
           op);
  PF_CHECK(o.b || is_float(o.dtype) || o.b_number.i != 0, Runtime,
           "{}: integer division by zero; got the divisor 0; expected a divisor that is not 0", op);
}

// The gradients of a function of two operands that is constant between its steps.
Tensors no_slope(GradNode& n, const Tensors& g) {
  return {n.needs(0) ? to_edge(n, 0, zeros_like(g[0])) : Tensor(),
          n.needs(1) ? to_edge(n, 1, zeros_like(g[0])) : Tensor()};
}

}  // namespace

Tensor floor_divide(const Value& av, const Value& bv) {
  const Operands o = operands("floor_divide", av, bv);
  check_divisor("floor_divide", o);
  Tensor out = o.run(OpId::floor_divide);
  if (is_float(o.dtype)) attach("floor_divide", {out}, {o.a, o.b}, {}, no_slope);
  return out;
}

Tensor div(const Value& a, const Value& b, const std::string& rounding_mode) {
  PF_CHECK(rounding_mode == "trunc" || rounding_mode == "floor", Value,
           "div: unknown rounding_mode; got '{}'; expected None, 'trunc' or 'floor'", rounding_mode);
  if (rounding_mode == "floor") return floor_divide(a, b);
  if (is_float(ops::result_type(a, b))) {
    const Operands o = operands("div", a, b);
    Tensor out;
    {
      const grad_mode::Guard off(false, grad_mode::inference());
      out = trunc(div(a, b));
    }
    attach("div", {out}, {o.a, o.b}, {}, no_slope);
    return out;
  }
  // The quotient that is rounded down is one too small where a negative one has a rest.
  const Tensor down = floor_divide(a, b);
  const Tensor rest = remainder(a, b);
  const Tensor inexact = logical_and(ne(rest, 0), lt(down, 0));
  return add(down, cast(inexact, down.dtype()));
}

Tensor remainder(const Value& av, const Value& bv) {
  const Operands o = operands("remainder", av, bv);
  check_divisor("remainder", o);
  Tensor out = o.run(OpId::remainder);
  if (is_float(o.dtype))
    attach("remainder", {out}, {o.a, o.b}, {if_needed(o.a, o.b), if_needed(o.b, o.b)},
           [a = o.a_number](GradNode& n, const Tensors& g) -> Tensors {
             Tensor ga, gb;
             if (n.needs(0)) ga = to_edge(n, 0, g[0]);
             if (n.needs(1)) gb = to_edge(n, 1, neg(mul(g[0], floor_divide(operand(n, 0, a), n.saved(1)))));
             return {ga, gb};
           });
  return out;
}

namespace {

// Exponents for which a cheaper op exists; an undefined tensor for all others. The gradients need the base alone, so that a
// program may write to the power.
Tensor pow_by_number(const Tensor& x, const Scalar& e) {
  if (e.kind == Category::Complex && e.imag != 0) return {};
  if (e.f == 2) return square(x);
  if (e.f == 3) return mul(square(x), x);
  if (!has_gradient(x.dtype())) return {};
  if (e.f == 0.5)
    return unary_op<Save::Input>("pow", OpId::sqrt, x, [](T g, T b) { return mul(mul(g, 0.5), rsqrt(b)); });
  if (e.f == -0.5)
    return unary_op<Save::Input>("pow", OpId::rsqrt, x, [](T g, T b) { return div(mul(mul(g, -0.5), rsqrt(b)), b); });
  if (e.f == -1)
    return unary_op<Save::Input>("pow", OpId::reciprocal, x, [](T g, T b) { return neg(div(g, square(b))); });
  return {};
}

Tensor pow_grad_base(const Tensor& g, const Value& base, const Value& exponent) {
  if (!exponent.is_tensor) {
    const Scalar e = exponent.scalar;
    if (e.kind == Category::Complex) return mul(g, mul(pow(base, Scalar::complex(e.f - 1, e.imag)), e));
    return e.f == 0 ? zeros_like(g) : mul(g, mul(pow(base, e.f - 1), e.f));
  }
  const Tensor& e = exponent.tensor;
  return where(eq(e, 0.0), 0.0, mul(g, mul(e, pow(base, sub(e, 1.0)))));
}

Tensor pow_grad_exponent(const Tensor& g, const Value& base, const Tensor& e, const Tensor& out) {
  const Tensor rises = ge(real(e), 0.0);
  if (!base.is_tensor) {
    const std::complex<double> b(base.scalar.f, base.scalar.imag), log_b = std::log(b);
    const bool complex_log = base.scalar.kind == Category::Complex || (is_complex(e.dtype()) && base.scalar.f < 0);
    const Scalar factor = complex_log ? Scalar::complex(log_b.real(), log_b.imag()) : Scalar(std::log(base.scalar.f));
    const Tensor plain = mul(g, mul(out, factor));
    return b == 0.0 ? where(rises, 0.0, plain) : plain;
  }
  return mul(g, where(logical_and(eq(base, 0.0), rises), 0.0, mul(out, log(base.tensor))));
}

}  // namespace

Tensor pow(const Value& x, const Value& y) {
  const auto wide = [](const Value& v) { return v.is_tensor ? Value(autocast::input<OpId::pow>(v.tensor)) : v; };
  const Value av = wide(x), bv = wide(y);
  Operands o = operands("pow", av, bv);
  PF_CHECK(o.dtype != DType::bool_, Type, "pow: not defined for bool; got bool operands; expected integers or floats");
  if (o.a && !o.b) {
    PF_CHECK(has_gradient(o.dtype) || o.b_number.i >= 0, Runtime,
             "pow: integers to a negative integer power are not integers; got the exponent {}; expected >= 0; hint: "
             "cast to a float",
             o.b_number.i);
    if (Tensor simple = pow_by_number(o.a, o.b_number)) return simple;
  }
  Tensor out = o.run(OpId::pow);
  if (has_gradient(o.dtype))
    attach("pow", {out}, {o.a, o.b}, {o.a, o.b, if_needed(out, o.b)},
           [a = o.a_number, b = o.b_number](GradNode& n, const Tensors& g) -> Tensors {
             const Value base = operand(n, 0, a), exponent = operand(n, 1, b);
             Tensor ga, gb;
             if (n.needs(0)) ga = to_edge(n, 0, pow_grad_base(g[0], base, exponent));
             if (n.needs(1)) gb = to_edge(n, 1, pow_grad_exponent(g[0], base, exponent.tensor, conj(n.saved(2))));
             return {ga, gb};
           });
  return out;
}

namespace {

// Equal values share the gradient; a NaN passes it to both operands, as in PyTorch.
template <class Loses>
Tensor extremum(const char* name, OpId op, OpId bool_op, const Value& av, const Value& bv, Loses loses) {
  const Operands o = operands(name, av, bv);
  if (o.dtype == DType::bool_) return o.run(bool_op);
  Tensor out = o.run(op);
  if (is_float(o.dtype))
    attach(name, {out}, {o.a, o.b}, {o.a, o.b},
           [loses, a = o.a_number, b = o.b_number](GradNode& n, const Tensors& g) -> Tensors {
             const Value x = operand(n, 0, a), y = operand(n, 1, b);
             const Tensor shared = where(eq(x, y), mul(g[0], 0.5), g[0]);
             return {n.needs(0) ? to_edge(n, 0, where(loses(x, y), 0.0, shared)) : Tensor(),
                     n.needs(1) ? to_edge(n, 1, where(loses(y, x), 0.0, shared)) : Tensor()};
           });
  return out;
}

}  // namespace

Tensor maximum(const Value& a, const Value& b) {
  return extremum("maximum", OpId::maximum, OpId::logical_or, a, b,
                  [](const Value& x, const Value& y) { return lt(x, y); });
}
Tensor minimum(const Value& a, const Value& b) {
  return extremum("minimum", OpId::minimum, OpId::logical_and, a, b,
                  [](const Value& x, const Value& y) { return gt(x, y); });
}

// ---- integers only

namespace {

Tensor of_integers(const char* name, OpId op, const Value& a, const Value& b) {
  const Operands o = operands(name, a, b);
  PF_CHECK(dtype_category(o.dtype) == Category::Integer, Type,
           "{}: only for integers; got {}; expected integer operands{}", name, dtype_name(o.dtype),
           is_float(o.dtype) ? "; hint: compare first, or use logical_and / logical_or" : "");
  return o.run(op);
}

Tensor bits(const char* name, OpId op, OpId bool_op, const Value& a, const Value& b) {
  const Operands o = operands(name, a, b);
  return o.dtype == DType::bool_ ? o.run(bool_op) : of_integers(name, op, a, b);
}

}  // namespace

Tensor bitwise_and(const Value& a, const Value& b) {
  return bits("bitwise_and", OpId::bitwise_and, OpId::logical_and, a, b);
}
Tensor bitwise_or(const Value& a, const Value& b) {
  return bits("bitwise_or", OpId::bitwise_or, OpId::logical_or, a, b);
}
Tensor bitwise_xor(const Value& a, const Value& b) {
  return bits("bitwise_xor", OpId::bitwise_xor, OpId::logical_xor, a, b);
}
Tensor bitwise_left_shift(const Value& a, const Value& b) {
  return of_integers("bitwise_left_shift", OpId::bitwise_left_shift, a, b);
}
Tensor bitwise_right_shift(const Value& a, const Value& b) {
  return of_integers("bitwise_right_shift", OpId::bitwise_right_shift, a, b);
}
Tensor gcd(const Value& a, const Value& b) { return of_integers("gcd", OpId::gcd, a, b); }
Tensor lcm(const Value& a, const Value& b) {
  const Tensor divisor = gcd(a, b);
  return abs(mul(floor_divide(a, where(eq(divisor, 0), 1, divisor)), b));
}

// ---- comparisons and logic

namespace {

bool fits(const Scalar& s, DType d) {
  if (dtype_category(d) != Category::Integer || s.kind != Category::Integer || dtype_size(d) == 8) return true;
  const int bits = static_cast<int>(dtype_size(d)) * 8;
  const int64_t low = d == DType::uint8 ? 0 : -(int64_t{1} << (bits - 1));
  const int64_t high = d == DType::uint8 ? 255 : (int64_t{1} << (bits - 1)) - 1;
  return s.i >= low && s.i <= high;
}

// A number that the tensor's integer type cannot hold is compared as int64 instead of being wrapped around.
Tensor compare(const char* name, OpId op, const Value& a, const Value& b) {
  if (a.is_tensor) check_defined(name, a.tensor);
  if (b.is_tensor) check_defined(name, b.tensor);
  DType dtype = ops::result_type(a, b);
  if ((!a.is_tensor && !fits(a.scalar, dtype)) || (!b.is_tensor && !fits(b.scalar, dtype))) dtype = DType::int64;
  return Operands(name, a, b, dtype).run(op, DType::bool_);
}

Value as_bool(const Value& v) {
  return v.is_tensor
             ? Value(v.tensor)
             : Value(v.scalar.kind >= Category::Float ? v.scalar.f != 0 || v.scalar.imag != 0 : v.scalar.i != 0);
}

Tensor logical(const char* name, OpId op, const Value& a, const Value& b) {
  if (a.is_tensor) check_defined(name, a.tensor);
  if (b.is_tensor) check_defined(name, b.tensor);
  return Operands(name, as_bool(a), as_bool(b), DType::bool_).run(op);
}

}  // namespace

// clang-format off
#define X(name) Tensor name(const Value& a, const Value& b) { return compare(#name, OpId::name, a, b); }
X(eq) X(ne) X(lt) X(le) X(gt) X(ge)
#undef X
#define X(name) Tensor name(const Value& a, const Value& b) { return logical(#name, OpId::name, a, b); }
X(logical_and) X(logical_or) X(logical_xor)
#undef X
    // clang-format on

    // ---- selection

    namespace {

  Tensor choose(const Tensor& condition, const Arg& a, const Arg& b, int64_t hides, const Dims& shape, DType dtype) {
    return hides ? emit(OpId::where, {condition, a, b}, shape, dtype, HidesAttrs{hides})
                 : emit(OpId::where, {condition, a, b}, shape, dtype);
  }

  // The gradient of a `where` between g's place and a number, g where the condition is `keeps`. Gradients of gradients need the public op.
  Tensor keep(const Tensor& condition, bool keeps, const Tensor& g, bool hidden) {
    if (!hidden || grad_mode::enabled() || g.shape() != broadcast_shapes("where", condition.shape(), g.shape()))
      return keeps ? where(condition, g, 0.0) : where(condition, 0.0, g);
    const Arg zero(Scalar(0.0), g.dtype());
    return keeps ? choose(condition, g, zero, kZeroForHidden, g.shape(), g.dtype())
                 : choose(condition, zero, g, kZeroForHidden, g.shape(), g.dtype());
  }

}  // namespace

Tensor where(const Tensor& mask, const Value& av, const Value& bv) {
  check_defined("where", mask);
  if (av.is_tensor) check_defined("where", av.tensor);
  if (bv.is_tensor) check_defined("where", bv.tensor);
  PF_CHECK(mask.dtype() == DType::bool_ || mask.dtype() == DType::uint8, Type,
           "where: the condition is not bool; got {}; expected bool; hint: compare with 0", dtype_name(mask.dtype()));
  const Tensor condition = cast(mask, DType::bool_);  // uint8 as in PyTorch, where masks had that dtype once
  const DType dtype = ops::result_type(av, bv);
  Dims shape = condition.shape();
  Tensor a, b;
  if (av.is_tensor) {
    a = cast(av.tensor, dtype);
    if (a.shape() != shape) shape = broadcast_shapes("where", shape, a.shape());
  }
  if (bv.is_tensor) {
    b = cast(bv.tensor, dtype);
    if (b.shape() != shape) shape = broadcast_shapes("where", shape, b.shape());
  }
  if (is_complex(dtype) && !a) a = full({}, av.scalar, dtype, condition.device());
  if (is_complex(dtype) && !b) b = full({}, bv.scalar, dtype, condition.device());
  const int64_t mark = !a && b ? hiding(av.scalar, dtype) : a && !b ? hiding(bv.scalar, dtype) : 0;
  const bool hidden = mark == kHidden;
  Tensor out =
      choose(condition, a ? Arg(a) : Arg(av.scalar, dtype), b ? Arg(b) : Arg(bv.scalar, dtype), mark, shape, dtype);
  if (has_gradient(dtype))
    attach("where", {out}, {a, b}, {condition}, [hidden](GradNode& n, const Tensors& g) -> Tensors {
      const Tensor c = n.saved(0);
      return {n.needs(0) ? to_edge(n, 0, keep(c, true, g[0], hidden)) : Tensor(),
              n.needs(1) ? to_edge(n, 1, keep(c, false, g[0], hidden)) : Tensor()};
    });
  return out;
}

namespace {

// A bound that an integer dtype can hold: the nearest one, which bounds the numbers of the dtype in the same way.
Scalar held(const Scalar& bound, DType dtype) {
  if (is_float(dtype) || is_complex(dtype) || bound.kind != Category::Integer) return bound;
  const int bits = 8 * static_cast<int>(dtype_size(dtype));
  const bool is_signed = dtype != DType::uint8;
  const int64_t top = is_signed ? std::numeric_limits<int64_t>::max() >> (64 - bits) : 255;
  return Scalar(std::clamp(bound.i, is_signed ? -top - 1 : int64_t{0}, top));
}

}  // namespace

Tensor clamp(const Tensor& input, std::optional<Scalar> min, std::optional<Scalar> max) {
  check_defined("clamp", input);
  PF_CHECK(min || max, Value, "clamp: no bounds; got neither min nor max; expected at least one");
  DType dtype = input.dtype();
  if (min) dtype = promote(dtype, *min);
  if (max) dtype = promote(dtype, *max);
  PF_CHECK(dtype != DType::bool_, Type, "clamp: not defined for bool; got a bool tensor; expected integers or floats");
  const Tensor x = cast(input, dtype);
  Tensor out = x;
  if (min) out = emit(OpId::maximum, {out, Arg(held(*min, dtype), dtype)}, x.shape(), dtype);
  if (max) out = emit(OpId::minimum, {out, Arg(held(*max, dtype), dtype)}, x.shape(), dtype);
  attach("clamp", {out}, {x}, {x}, [min, max](GradNode& n, const Tensors& g) -> Tensors {
    const Tensor saved = n.saved(0);
    Tensor inside = min ? ge(saved, *min) : le(saved, *max);
    if (min && max) inside = logical_and(inside, le(saved, *max));
    return {where(inside, g[0], 0.0)};
  });
  return out;
}

// A bound that is NaN gives NaN.
Tensor clamp_between(const Tensor& x, const Tensor& min, const Tensor& max) {
  check_defined("clamp", x);
  PF_CHECK(min || max, Value, "clamp: no bounds; got neither min nor max; expected at least one");
  DType dtype = x.dtype();
  for (const Tensor* bound : {&min, &max})
    if (*bound) dtype = ops::result_type(Value(x), Value(*bound));
  Tensor out = cast(x, dtype);
  if (min) out = where(logical_or(lt(out, min), isnan(min)), min, out);
  if (max) out = where(logical_or(gt(out, max), isnan(max)), max, out);
  return out;
}

Tensor masked_fill(const Tensor& x, const Tensor& mask, Scalar value) {
  check_defined("masked_fill", x);
  check_defined("masked_fill", mask);
  PF_CHECK(mask.dtype() == DType::bool_, Type, "masked_fill: the mask is not bool; got {}; expected bool",
           dtype_name(mask.dtype()));
  if (is_complex(x.dtype())) return where(mask, full({}, value, x.dtype(), x.device()), x);
  PF_CHECK(value.kind != Category::Complex, Type,
           "masked_fill: the value would change the dtype; got a complex number for a {} tensor; hint: cast the tensor",
           dtype_name(x.dtype()));
  if (x.dtype() == DType::bool_) value = Scalar(value.f != 0);
  else if (value.kind == Category::Float && !is_float(x.dtype())) value = Scalar(value.i);  // towards zero
  ops::check_fits("masked_fill", value, x.dtype());
  const Dims shape = x.shape() == mask.shape() ? x.shape() : broadcast_shapes("masked_fill", x.shape(), mask.shape());
  const int64_t mark = hiding(value, x.dtype());
  const bool hidden = mark == kHidden;
  Tensor out = choose(mask, Arg(value, x.dtype()), x, mark, shape, x.dtype());
  attach("masked_fill", {out}, {x}, {mask}, [hidden](GradNode& n, const Tensors& g) -> Tensors {
    return {to_edge(n, 0, keep(n.saved(0), false, g[0], hidden))};
  });
  return out;
}

}  // namespace pyflame
