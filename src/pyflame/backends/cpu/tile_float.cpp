// Arithmetic and comparisons on float32 and float64 tiles.
#include "pyflame/backends/cpu/tile_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pyflame/backends/cpu/tile_float.cpp"
#include <hwy/foreach_target.h>  // before highway.h

#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

#include "pyflame/backends/cpu/tile_loop-inl.h"
#include "pyflame/kernels/device/launch.h"

#include "pyflame/kernels/device/scalar.h"  // after launch.h

#include "pyflame/kernels/device/special.h"  // after scalar.h

HWY_BEFORE_NAMESPACE();
namespace pyflame::cpu::tile {
namespace HWY_NAMESPACE {

#define PF_OP1(Name, expression)              \
  struct Name {                               \
    template <class D>                        \
    HWY_INLINE Name(const Args&, D) {}        \
    template <class D, class V>               \
    HWY_INLINE V operator()(D d, V x) const { \
      (void)d;                                \
      return expression;                      \
    }                                         \
  };
#define PF_OP2(Name, expression)                   \
  struct Name {                                    \
    template <class D>                             \
    HWY_INLINE Name(const Args&, D) {}             \
    template <class D, class V>                    \
    HWY_INLINE V operator()(D d, V x, V y) const { \
      (void)d;                                     \
      return expression;                           \
    }                                              \
  };

PF_OP1(Neg, hn::Neg(x))
PF_OP1(Abs, hn::Abs(x))
PF_OP1(Sqrt, hn::Sqrt(x))
PF_OP1(Rsqrt, hn::Div(hn::Set(d, hn::TFromD<D>{1}), hn::Sqrt(x)))
PF_OP1(Reciprocal, hn::Div(hn::Set(d, hn::TFromD<D>{1}), x))
// Comparisons with NaN are false, so NaN passes through.
PF_OP1(Relu, hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Zero(d), x))
PF_OP1(Sign, hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Set(d, hn::TFromD<D>{-1}),
                            hn::IfThenElse(hn::Gt(x, hn::Zero(d)), hn::Set(d, hn::TFromD<D>{1}), x)))
PF_OP2(Add, hn::Add(x, y))
PF_OP2(Sub, hn::Sub(x, y))
PF_OP2(Mul, hn::Mul(x, y))
PF_OP2(Div, hn::Div(x, y))
PF_OP2(Maximum, hn::IfThenElse(hn::Or(hn::Gt(x, y), hn::IsNaN(x)), x, y))
PF_OP2(Minimum, hn::IfThenElse(hn::Or(hn::Lt(x, y), hn::IsNaN(x)), x, y))

// The slope is converted to the type of the computation.
struct LeakyRelu {
  double slope;
  template <class D>
  HWY_INLINE LeakyRelu(const Args& a, D) : slope(a.f64(0)) {}
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x) const {
    return hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Mul(x, hn::Set(d, static_cast<hn::TFromD<D>>(slope))), x);
  }
};

// Vectors of the wider instruction sets round directly; the emulated baseline goes through the C library.
template <class T>
void floor_loop(const Args& a) {
  plain_loop1<T, T>(a, [](T x) HWY_ATTR { return std::floor(x); });
}
template <class T>
void ceil_loop(const Args& a) {
  plain_loop1<T, T>(a, [](T x) HWY_ATTR { return std::ceil(x); });
}
template <class T>
void round_loop(const Args& a) {
  plain_loop1<T, T>(a, [](T x) HWY_ATTR { return std::nearbyint(x); });
}
template <class T>
void isnan_loop(const Args& a) {
  plain_loop1<uint8_t, T>(a, [](T x) HWY_ATTR { return static_cast<uint8_t>(x != x); });
}
template <class T>
void isinf_loop(const Args& a) {
  constexpr T inf = std::numeric_limits<T>::infinity();
  plain_loop1<uint8_t, T>(a, [](T x) HWY_ATTR { return static_cast<uint8_t>((x == inf) | (x == -inf)); });
}
#define PF_COMPARE(name, op)                                                                    \
  template <class T>                                                                            \
  void name##_loop(const Args& a) {                                                             \
    plain_loop2<uint8_t, T>(a, [](T x, T y) HWY_ATTR { return static_cast<uint8_t>(x op y); }); \
  }
PF_COMPARE(eq, ==)
PF_COMPARE(ne, !=)
PF_COMPARE(lt, <)
PF_COMPARE(le, <=)
PF_COMPARE(gt, >)
PF_COMPARE(ge, >=)

// Python's rules: the remainder has the divisor's sign, and the quotient follows from that.
template <class T>
void remainder_loop(const Args& a) {
  plain_loop2<T, T>(a, [](T x, T y) {
    T m = std::fmod(x, y);
    if (m != 0 && ((m < 0) != (y < 0))) m += y;
    return m;
  });
}
template <class T>
void floor_divide_loop(const Args& a) {
  plain_loop2<T, T>(a, [](T x, T y) -> T {
    if (y == 0) return x / y;
    T m = std::fmod(x, y);
    T q = (x - m) / y;
    if (m != 0 && ((m < 0) != (y < 0))) q -= 1;
    if (q == 0) return std::copysign(T{0}, x / y);
    const T f = std::floor(q);
    return q - f > T{0.5} ? f + 1 : f;
  });
}

// Iterations of their own length for each element.
template <class T>
void zeta_loop(const Args& a) {
  plain_loop2<T, T>(a, [](T x, T q) { return pf::zeta<T>(x, q); });
}
template <class T>
void igamma_loop(const Args& a) {
  plain_loop2<T, T>(a, [](T x, T y) { return pf::igamma<T>(x, y); });
}
template <class T>
void igammac_loop(const Args& a) {
  plain_loop2<T, T>(a, [](T x, T y) { return pf::igammac<T>(x, y); });
}
// The numbers of one sign have the order of their bits.
template <class T>
void nextafter_loop(const Args& a) {
  using I = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;
  plain_loop2<T, T>(a, [](T x, T y) HWY_ATTR {
    const I bits = std::bit_cast<I>(x), sign = std::bit_cast<I>(y) & std::numeric_limits<I>::min();
    const I step = (x < y) == (x > 0) ? 1 : -1;
    const T next = std::bit_cast<T>(x == 0 ? static_cast<I>(sign | 1) : static_cast<I>(bits + step));
    const T kept = x == y ? y : next;
    return (x != x) | (y != y) ? x + y : kept;
  });
}

template <class T>
constexpr Found find_float_loop(OpId op) {
  switch (op) {
    case OpId::neg: return vector_loop<T, Neg, 1>;
    case OpId::abs: return vector_loop<T, Abs, 1>;
    case OpId::sign: return vector_loop<T, Sign, 1>;
    case OpId::sqrt: return vector_loop<T, Sqrt, 1>;
    case OpId::rsqrt: return vector_loop<T, Rsqrt, 1>;
    case OpId::reciprocal: return vector_loop<T, Reciprocal, 1>;
    case OpId::relu: return vector_loop<T, Relu, 1>;
    case OpId::leaky_relu: return vector_loop<T, LeakyRelu, 1>;
    case OpId::floor: return floor_loop<T>;
    case OpId::ceil: return ceil_loop<T>;
    case OpId::round: return round_loop<T>;
    case OpId::isnan: return isnan_loop<T>;
    case OpId::isinf: return isinf_loop<T>;
    case OpId::add: return vector_loop<T, Add, 2>;
    case OpId::sub: return vector_loop<T, Sub, 2>;
    case OpId::mul: return vector_loop<T, Mul, 2>;
    case OpId::div: return vector_loop<T, Div, 2>;
    case OpId::maximum: return vector_loop<T, Maximum, 2>;
    case OpId::minimum: return vector_loop<T, Minimum, 2>;
    case OpId::floor_divide: return floor_divide_loop<T>;
    case OpId::remainder: return remainder_loop<T>;
    case OpId::zeta: return zeta_loop<T>;
    case OpId::igamma: return igamma_loop<T>;
    case OpId::igammac: return igammac_loop<T>;
    case OpId::nextafter: return nextafter_loop<T>;
    case OpId::eq: return eq_loop<T>;
    case OpId::ne: return ne_loop<T>;
    case OpId::lt: return lt_loop<T>;
    case OpId::le: return le_loop<T>;
    case OpId::gt: return gt_loop<T>;
    case OpId::ge: return ge_loop<T>;
    default: return {};
  }
}

#define OP(name, ...)                                                                   \
  static_assert(!in_tile_float(OpId::name) || find_float_loop<float>(OpId::name).known, \
                "tile_float.cpp has no instruction for " #name);
#include "pyflame/ops/ops.def"

Fn pick_float(OpId op, Reg in) {
  if (in == Reg::f32) return find_float_loop<float>(op).fn;
  if (in == Reg::f64) return find_float_loop<double>(op).fn;
  return nullptr;
}

}  // namespace HWY_NAMESPACE
}  // namespace pyflame::cpu::tile
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pyflame::cpu::tile {
HWY_EXPORT(pick_float);
Fn find_float_arith(OpId op, Reg in) { return HWY_DYNAMIC_DISPATCH(pick_float)(op, in); }
}  // namespace pyflame::cpu::tile
#endif
