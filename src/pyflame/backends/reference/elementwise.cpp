// Elementwise ops: lines of the output are processed in blocks, which are loaded as double or int64, computed, and
// stored with one rounding. Floats are computed in float64, also for dtypes of 16 or 32 bits; integers and bool in
// wrapping int64.
#include <cmath>

#include "pyflame/backends/reference/access.h"

namespace pyflame::reference {
namespace {

constexpr int64_t kBlock = 256;
constexpr double kSqrtHalf = 0.70710678118654752440;
constexpr double kSqrtTwoOverPi = 0.79788456080286535588;
constexpr double kInvSqrtTwoPi = 0.39894228040143267794;
constexpr double kGeluCubic = 0.044715;

double sigmoid(double x) {
  if (x >= 0) return 1 / (1 + std::exp(-x));
  const double e = std::exp(x);
  return e / (1 + e);
}
// (1 + tanh u) / 2 is computed as sigmoid(2u), because 1 + tanh u loses digits for very negative u.
double gelu_tanh_gate_arg(double x) { return 2 * kSqrtTwoOverPi * (x + kGeluCubic * x * x * x); }
// x times a factor that is 0 for very negative x: -inf gives 0, not NaN.
double gate(double x, double factor) { return factor == 0 ? 0.0 : x * factor; }

double gelu_grad(double x, double g) {
  const double cdf = 0.5 * std::erfc(-x * kSqrtHalf);
  return g * (cdf + gate(x, kInvSqrtTwoPi * std::exp(-0.5 * x * x)));
}
double gelu_tanh_grad(double x, double g) {
  const double u = gelu_tanh_gate_arg(x);
  const double slope = 2 * kSqrtTwoOverPi * (1 + 3 * kGeluCubic * x * x);
  return g * (sigmoid(u) + gate(x * slope, sigmoid(u) * sigmoid(-u)));
}
double silu_grad(double x, double g) { return g * (sigmoid(x) + gate(x, sigmoid(x) * sigmoid(-x))); }

double floor_divide(double a, double b) {
  if (b == 0) return a / b;
  const double m = std::fmod(a, b);
  double q = (a - m) / b;
  if (m != 0 && (b < 0) != (m < 0)) q -= 1;
  if (q == 0) return std::copysign(0.0, a / b);
  const double f = std::floor(q);
  return q - f > 0.5 ? f + 1 : f;
}
double remainder(double a, double b) {
  const double m = std::fmod(a, b);
  return m != 0 && (b < 0) != (m < 0) ? m + b : m;
}

void check_divisor(const char* op, int64_t b) {
  PF_CHECK(b != 0, Runtime,
           "{}: division by zero; got a divisor of 0; expected integers other than 0; cast to a float type for inf",
           op);
}
int64_t floor_divide(int64_t a, int64_t b) {
  check_divisor("floor_divide", b);
  if (b == -1) return sub(int64_t{0}, a);  // the one quotient that overflows wraps
  const int64_t q = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}
int64_t remainder(int64_t a, int64_t b) {
  check_divisor("remainder", b);
  if (b == -1) return 0;
  const int64_t m = a % b;
  return m != 0 && (m < 0) != (b < 0) ? m + b : m;
}
double power(double a, double b) { return std::pow(a, b); }
int64_t power(int64_t a, int64_t b) {
  PF_CHECK(b >= 0, Value,
           "pow: integers to a negative power; got exponent {}; expected >= 0; cast to a float type first", b);
  int64_t r = 1;
  for (; b != 0; b >>= 1, a = mul(a, a))
    if (b & 1) r = mul(r, a);
  return r;
}

template <class T, class F>
void each(const T* a, int64_t n, T* to, F f) {
  for (int64_t i = 0; i < n; ++i) to[i] = static_cast<T>(f(a[i]));
}
template <class T, class F>
void each(const T* a, const T* b, int64_t n, T* to, F f) {
  for (int64_t i = 0; i < n; ++i) to[i] = static_cast<T>(f(a[i], b[i]));
}

// Ops that are defined for floats only.
void compute_float_only(OpId op, const double* a, const double* b, const double* c, int64_t n, double* y) {
  switch (op) {
    case OpId::sqrt: return each(a, n, y, [](double x) { return std::sqrt(x); });
    case OpId::rsqrt: return each(a, n, y, [](double x) { return 1 / std::sqrt(x); });
    case OpId::reciprocal: return each(a, n, y, [](double x) { return 1 / x; });
    case OpId::exp: return each(a, n, y, [](double x) { return std::exp(x); });
    case OpId::expm1: return each(a, n, y, [](double x) { return std::expm1(x); });
    case OpId::log: return each(a, n, y, [](double x) { return std::log(x); });
    case OpId::log1p: return each(a, n, y, [](double x) { return std::log1p(x); });
    case OpId::sin: return each(a, n, y, [](double x) { return std::sin(x); });
    case OpId::cos: return each(a, n, y, [](double x) { return std::cos(x); });
    case OpId::tanh: return each(a, n, y, [](double x) { return std::tanh(x); });
    case OpId::erf: return each(a, n, y, [](double x) { return std::erf(x); });
    case OpId::sigmoid: return each(a, n, y, [](double x) { return sigmoid(x); });
    case OpId::gelu: return each(a, n, y, [](double x) { return gate(x, 0.5 * std::erfc(-x * kSqrtHalf)); });
    case OpId::gelu_tanh: return each(a, n, y, [](double x) { return gate(x, sigmoid(gelu_tanh_gate_arg(x))); });
    case OpId::silu: return each(a, n, y, [](double x) { return gate(x, sigmoid(x)); });
    case OpId::softplus:  // b is beta, c the threshold
      for (int64_t i = 0; i < n; ++i) y[i] = a[i] * b[i] > c[i] ? a[i] : std::log1p(std::exp(a[i] * b[i])) / b[i];
      return;
    case OpId::leaky_relu: return each(a, b, n, y, [](double x, double slope) { return x < 0 ? x * slope : x; });
    case OpId::div: return each(a, b, n, y, [](double x, double z) { return x / z; });
    case OpId::gelu_grad: return each(a, b, n, y, [](double x, double g) { return gelu_grad(x, g); });
    case OpId::gelu_tanh_grad: return each(a, b, n, y, [](double x, double g) { return gelu_tanh_grad(x, g); });
    case OpId::silu_grad: return each(a, b, n, y, [](double x, double g) { return silu_grad(x, g); });
    default: PF_FAIL(NotImplemented, "{}: the reference has no kernel for it", op_name(op));
  }
}

template <class T>
void compute(OpId op, const T* a, const T* b, const T* c, int64_t n, T* y) {
  switch (op) {
    case OpId::cast: return each(a, n, y, [](T x) { return x; });
    case OpId::neg: return each(a, n, y, [](T x) { return std::is_same_v<T, double> ? -x : sub(T{0}, x); });
    case OpId::abs:
      if constexpr (std::is_same_v<T, double>) return each(a, n, y, [](T x) { return std::fabs(x); });
      else return each(a, n, y, [](T x) { return x < 0 ? sub(T{0}, x) : x; });
    case OpId::sign: return each(a, n, y, [](T x) { return is_nan(x) ? x : static_cast<T>((x > 0) - (x < 0)); });
    case OpId::relu: return each(a, n, y, [](T x) { return x <= 0 ? T{0} : x; });
    case OpId::floor:
      if constexpr (std::is_same_v<T, double>) return each(a, n, y, [](T x) { return std::floor(x); });
      else return each(a, n, y, [](T x) { return x; });
    case OpId::ceil:
      if constexpr (std::is_same_v<T, double>) return each(a, n, y, [](T x) { return std::ceil(x); });
      else return each(a, n, y, [](T x) { return x; });
    case OpId::round:
      if constexpr (std::is_same_v<T, double>) return each(a, n, y, [](T x) { return std::nearbyint(x); });
      else return each(a, n, y, [](T x) { return x; });
    case OpId::isnan: return each(a, n, y, [](T x) { return is_nan(x); });
    case OpId::isinf:
      return each(a, n, y, [](T x) { return std::is_same_v<T, double> && std::isinf(static_cast<double>(x)); });
    case OpId::logical_not: return each(a, n, y, [](T x) { return x == 0; });
    case OpId::add: return each(a, b, n, y, [](T x, T z) { return add(x, z); });
    case OpId::sub: return each(a, b, n, y, [](T x, T z) { return sub(x, z); });
    case OpId::mul: return each(a, b, n, y, [](T x, T z) { return mul(x, z); });
    case OpId::floor_divide: return each(a, b, n, y, [](T x, T z) { return floor_divide(x, z); });
    case OpId::remainder: return each(a, b, n, y, [](T x, T z) { return remainder(x, z); });
    case OpId::pow: return each(a, b, n, y, [](T x, T z) { return power(x, z); });
    case OpId::maximum: return each(a, b, n, y, [](T x, T z) { return is_nan(x) || x > z ? x : z; });
    case OpId::minimum: return each(a, b, n, y, [](T x, T z) { return is_nan(x) || x < z ? x : z; });
    case OpId::eq: return each(a, b, n, y, [](T x, T z) { return x == z; });
    case OpId::ne: return each(a, b, n, y, [](T x, T z) { return x != z; });
    case OpId::lt: return each(a, b, n, y, [](T x, T z) { return x < z; });
    case OpId::le: return each(a, b, n, y, [](T x, T z) { return x <= z; });
    case OpId::gt: return each(a, b, n, y, [](T x, T z) { return x > z; });
    case OpId::ge: return each(a, b, n, y, [](T x, T z) { return x >= z; });
    case OpId::logical_and: return each(a, b, n, y, [](T x, T z) { return x != 0 && z != 0; });
    case OpId::logical_or: return each(a, b, n, y, [](T x, T z) { return x != 0 || z != 0; });
    case OpId::logical_xor: return each(a, b, n, y, [](T x, T z) { return (x != 0) != (z != 0); });
    case OpId::where:
      for (int64_t i = 0; i < n; ++i) y[i] = a[i] != 0 ? b[i] : c[i];
      return;
    default:
      if constexpr (std::is_same_v<T, double>) return compute_float_only(op, a, b, c, n, y);
      PF_FAIL(Type, "{}: no meaning for integers; got an integer dtype; expected a float dtype", op_name(op));
  }
}

template <class T>
void run(const Call& c) {
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
      const Param& p = c.params[o.index];
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
      compute<T>(c.node.op, block[0].data(), block[1].data(), block[2].data(), n, result.data());
      store(out, offset[kMost] + at * step[kMost], step[kMost], n, result.data());
    }
  });
}

}  // namespace

void run_elementwise(const Call& c) {
  // The computation is in the inputs' dtype (for where: in that of its values), but an integer input of a float op is
  // computed as a float.
  const Operand& decides = c.node.ins[c.node.op == OpId::where ? 1 : 0];
  const bool keeps_integers = c.node.op == OpId::cast || !is_float(c.node.outs[0].dtype);
  if (is_float(decides.dtype) || !keeps_integers) run<double>(c);
  else run<int64_t>(c);
}

}  // namespace pyflame::reference
