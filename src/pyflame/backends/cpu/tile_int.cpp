// Integer and bool tiles: arithmetic, comparisons, casts between all types, selection. Plain loops that the compiler
// vectorises for each instruction set; integers wrap, as two's complement does.
#include "pyflame/backends/cpu/tile_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pyflame/backends/cpu/tile_int.cpp"
#include <hwy/foreach_target.h>  // before highway.h

#include <cmath>
#include <limits>
#include <numeric>
#include <type_traits>

#include "pyflame/backends/cpu/tile_loop-inl.h"
#include "pyflame/base/error.h"

HWY_BEFORE_NAMESPACE();
namespace pyflame::cpu::tile {
namespace HWY_NAMESPACE {

// Arithmetic modulo 2^bits without undefined behaviour (and without int promotion's surprise for 16-bit products).
template <class T>
using Wrap = std::conditional_t<(sizeof(T) < 4), uint32_t, std::make_unsigned_t<T>>;
template <class T>
HWY_INLINE T wrap(Wrap<T> v) {
  return static_cast<T>(v);
}

template <class U, class T>
HWY_INLINE U magnitude(T x) {
  return static_cast<U>(x < 0 ? U{0} - static_cast<U>(x) : static_cast<U>(x));
}

#define PF_INT1(name, expression)           \
  template <class T>                        \
  void name##_int(const Args& a) {          \
    using W = Wrap<T>;                      \
    plain_loop1<T, T>(a, [](T x) HWY_ATTR { \
      (void)sizeof(W);                      \
      return static_cast<T>(expression);    \
    });                                     \
  }
#define PF_INT2(name, expression)                \
  template <class T>                             \
  void name##_int(const Args& a) {               \
    using W = Wrap<T>;                           \
    plain_loop2<T, T>(a, [](T x, T y) HWY_ATTR { \
      (void)sizeof(W);                           \
      return static_cast<T>(expression);         \
    });                                          \
  }
#define PF_INT_COMPARE(name, op)                                                                \
  template <class T>                                                                            \
  void name##_int(const Args& a) {                                                              \
    plain_loop2<uint8_t, T>(a, [](T x, T y) HWY_ATTR { return static_cast<uint8_t>(x op y); }); \
  }

PF_INT1(neg, W{0} - static_cast<W>(x))
PF_INT1(abs, x < 0 ? W{0} - static_cast<W>(x) : static_cast<W>(x))
PF_INT1(sign, (x > 0) - (x < 0))
PF_INT1(relu, x < 0 ? T{0} : x)
PF_INT1(same, x)
PF_INT2(add, static_cast<W>(x) + static_cast<W>(y))
PF_INT2(sub, static_cast<W>(x) - static_cast<W>(y))
PF_INT2(mul, static_cast<W>(x) * static_cast<W>(y))
PF_INT2(maximum, x > y ? x : y)
PF_INT2(minimum, x < y ? x : y)
PF_INT1(bitwise_not, ~x)
PF_INT2(bitwise_and, x& y)
PF_INT2(bitwise_or, x | y)
PF_INT2(bitwise_xor, x ^ y)
// A shift by a negative number, or by as many bits as there are, leaves nothing but the sign.
constexpr int kEighth = 8;
PF_INT2(bitwise_left_shift,
        y < 0 || y >= static_cast<T>(kEighth * sizeof(T)) ? W{0} : static_cast<W>(static_cast<W>(x) << y))
PF_INT2(bitwise_right_shift,
        y < 0 || y >= static_cast<T>(kEighth * sizeof(T)) ? static_cast<T>(x < 0 ? -1 : 0) : static_cast<T>(x >> y))
// How many zeros follow the last 1 of numbers other than 0: the exponent of that bit as a float.
template <class U, class V>
HWY_INLINE V trailing_zeros(U u, V v) {
  using T = hn::TFromD<U>;
  constexpr int kMantissa = sizeof(T) == 8 ? 52 : 23;
  constexpr T kBias = sizeof(T) == 8 ? 1023 : 127;
  const auto last = hn::And(v, hn::Sub(hn::Zero(u), v));
  const auto bits = hn::BitCast(u, hn::ConvertTo(hn::RebindToFloat<U>(), last));
  return hn::Sub(hn::ShiftRight<kMantissa>(bits), hn::Set(u, kBias));
}
// Stein's algorithm on all lanes at once: odd numbers have the greatest common divisor of the smaller one and of their
// difference, which is even.
struct VectorGcd {
  template <class D>
  HWY_INLINE VectorGcd(const Args&, D) {}
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x, V y) const {
    const hn::RebindToUnsigned<D> u;
    const auto one = hn::Set(u, 1);
    auto a = hn::BitCast(u, hn::Abs(x)), b = hn::BitCast(u, hn::Abs(y));
    const auto either = hn::Or(a, b), none = hn::Zero(u);
    const auto has_zero = hn::Or(hn::Eq(a, none), hn::Eq(b, none));  // the result is the other number
    a = hn::IfThenElse(has_zero, one, a);
    b = hn::IfThenElse(has_zero, one, b);
    const auto twos = trailing_zeros(u, hn::Or(a, b));
    a = a >> trailing_zeros(u, a);
    while (true) {
      b = b >> trailing_zeros(u, b);
      const auto least = hn::Min(a, b), difference = hn::Sub(hn::Max(a, b), least);
      a = least;
      const auto equal = hn::Eq(difference, none);
      if (hn::AllTrue(u, equal)) break;
      b = hn::IfThenElse(equal, a, difference);
    }
    return hn::BitCast(d, hn::IfThenElse(has_zero, either, a << twos));
  }
};
template <class T>
void gcd_int(const Args& a) {
  using U = std::make_unsigned_t<T>;
  if constexpr (sizeof(T) >= 4) vector_loop<T, VectorGcd, 2>(a);  // Highway shifts and counts in these
  else plain_loop2<T, T>(a, [](T x, T y) { return static_cast<T>(std::gcd(magnitude<U>(x), magnitude<U>(y))); });
}
PF_INT_COMPARE(eq, ==)
PF_INT_COMPARE(ne, !=)
PF_INT_COMPARE(lt, <)
PF_INT_COMPARE(le, <=)
PF_INT_COMPARE(gt, >)
PF_INT_COMPARE(ge, >=)

template <class T>
void check_divisor(const Args& a, const char* op) {
  const T* y = static_cast<const T*>(a.src[1]);
  for (int64_t i = 0; i < a.n; ++i)
    PF_CHECK(y[i] != 0, Runtime,
             "{}: division by zero; got a divisor of 0; expected integers other than 0; cast to a float type for inf",
             op);
}
template <class T>
void floor_divide_int(const Args& a) {
  check_divisor<T>(a, "floor_divide");
  plain_loop2<T, T>(a, [](T x, T y) {
    using W = Wrap<T>;
    if constexpr (std::is_signed_v<T>) {
      if (y == -1) return static_cast<T>(W{0} - static_cast<W>(x));  // the only overflow
    }
    const T q = static_cast<T>(x / y);
    return static_cast<T>(q - ((x % y != 0) && ((x < 0) != (y < 0))));
  });
}
template <class T>
void remainder_int(const Args& a) {
  check_divisor<T>(a, "remainder");
  plain_loop2<T, T>(a, [](T x, T y) {
    if constexpr (std::is_signed_v<T>) {
      if (y == -1) return T{0};
    }
    const T m = static_cast<T>(x % y);
    return static_cast<T>(m != 0 && ((m < 0) != (y < 0)) ? m + y : m);
  });
}
template <class T>
void pow_int(const Args& a) {
  plain_loop2<T, T>(a, [](T x, T y) {
    using W = Wrap<T>;
    PF_CHECK(!(y < 0), Value,
             "pow: integers to a negative power; got exponent {}; expected >= 0; cast to a float type first",
             static_cast<int64_t>(y));
    W base = static_cast<W>(x), result = 1;
    for (auto e = static_cast<std::make_unsigned_t<T>>(y); e != 0; e = static_cast<std::make_unsigned_t<T>>(e >> 1)) {
      if (e & 1) result *= base;
      base *= base;
    }
    return static_cast<T>(result);
  });
}

template <class T>
constexpr Found find_int_loop(OpId op) {
  switch (op) {
    case OpId::neg: return neg_int<T>;
    case OpId::abs: return abs_int<T>;
    case OpId::sign: return sign_int<T>;
    case OpId::relu: return relu_int<T>;
    case OpId::floor:
    case OpId::ceil:
    case OpId::round: return same_int<T>;
    case OpId::add: return add_int<T>;
    case OpId::sub: return sub_int<T>;
    case OpId::mul: return mul_int<T>;
    case OpId::maximum: return maximum_int<T>;
    case OpId::minimum: return minimum_int<T>;
    case OpId::floor_divide: return floor_divide_int<T>;
    case OpId::remainder: return remainder_int<T>;
    case OpId::pow: return pow_int<T>;
    case OpId::gcd: return gcd_int<T>;
    case OpId::bitwise_not: return bitwise_not_int<T>;
    case OpId::bitwise_and: return bitwise_and_int<T>;
    case OpId::bitwise_or: return bitwise_or_int<T>;
    case OpId::bitwise_xor: return bitwise_xor_int<T>;
    case OpId::bitwise_left_shift: return bitwise_left_shift_int<T>;
    case OpId::bitwise_right_shift: return bitwise_right_shift_int<T>;
    case OpId::eq: return eq_int<T>;
    case OpId::ne: return ne_int<T>;
    case OpId::lt: return lt_int<T>;
    case OpId::le: return le_int<T>;
    case OpId::gt: return gt_int<T>;
    case OpId::ge: return ge_int<T>;
    default: return {};
  }
}

#define OP(name, ...)                                                                 \
  static_assert(!in_tile_int(OpId::name) || find_int_loop<int64_t>(OpId::name).known, \
                "tile_int.cpp has no instruction for " #name);
#include "pyflame/ops/ops.def"

Fn pick_int(OpId op, Reg in) {
  switch (in) {
    case Reg::i64: return find_int_loop<int64_t>(op).fn;
    case Reg::i32: return find_int_loop<int32_t>(op).fn;
    case Reg::i16: return find_int_loop<int16_t>(op).fn;
    case Reg::i8: return find_int_loop<int8_t>(op).fn;
    case Reg::u8: return find_int_loop<uint8_t>(op).fn;
    default: return nullptr;
  }
}

// --- bool
#define PF_BOOL2(name, expression)                                                                                    \
  void name##_bool(const Args& a) {                                                                                   \
    plain_loop2<uint8_t, uint8_t>(a, [](uint8_t x, uint8_t y) HWY_ATTR { return static_cast<uint8_t>(expression); }); \
  }
PF_BOOL2(and, x& y)
PF_BOOL2(or, x | y)
PF_BOOL2(xor, x ^ y)
void not_bool(const Args& a) {
  plain_loop1<uint8_t, uint8_t>(a, [](uint8_t x) HWY_ATTR { return static_cast<uint8_t>(x ^ 1); });
}

Fn pick_bool(OpId op) {
  switch (op) {
    case OpId::logical_and:
    case OpId::mul:
    case OpId::minimum: return and_bool;
    case OpId::logical_or:
    case OpId::add:
    case OpId::maximum: return or_bool;
    case OpId::logical_xor:
    case OpId::sub: return xor_bool;
    case OpId::neg: return find_int_loop<uint8_t>(OpId::abs).fn;
    case OpId::logical_not: return not_bool;
    case OpId::abs:
    case OpId::sign:
    case OpId::relu:
    case OpId::eq:
    case OpId::ne:
    case OpId::lt:
    case OpId::le:
    case OpId::gt:
    case OpId::ge: return find_int_loop<uint8_t>(op).fn;
    default: return nullptr;
  }
}

// --- casts
template <class To, class From>
HWY_INLINE To convert(From x) {
  if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    constexpr To low = std::numeric_limits<To>::min(), high = std::numeric_limits<To>::max();
    constexpr From past = From{2} * static_cast<From>(high / 2 + 1);
    if (!(x == x)) return 0;
    return x < static_cast<From>(low) ? low : x >= past ? high : static_cast<To>(x);
  } else {
    return static_cast<To>(x);
  }
}
template <class To, class From>
void cast_loop(const Args& a) {
  plain_loop1<To, From>(a, [](From x) HWY_ATTR { return convert<To>(x); });
}
template <class From>
void to_bool_loop(const Args& a) {
  plain_loop1<uint8_t, From>(a, [](From x) HWY_ATTR { return static_cast<uint8_t>(x != From{0}); });
}
template <class From>
Fn pick_cast_from(Reg to) {
  switch (to) {
    case Reg::f32: return cast_loop<float, From>;
    case Reg::f64: return cast_loop<double, From>;
    case Reg::i64: return cast_loop<int64_t, From>;
    case Reg::i32: return cast_loop<int32_t, From>;
    case Reg::i16: return cast_loop<int16_t, From>;
    case Reg::i8: return cast_loop<int8_t, From>;
    case Reg::u8: return cast_loop<uint8_t, From>;
  }
  return nullptr;
}
Fn pick_cast(Reg from, Reg to) {
  switch (from) {
    case Reg::f32: return pick_cast_from<float>(to);
    case Reg::f64: return pick_cast_from<double>(to);
    case Reg::i64: return pick_cast_from<int64_t>(to);
    case Reg::i32: return pick_cast_from<int32_t>(to);
    case Reg::i16: return pick_cast_from<int16_t>(to);
    case Reg::i8: return pick_cast_from<int8_t>(to);
    case Reg::u8: return pick_cast_from<uint8_t>(to);
  }
  return nullptr;
}
template <class From>
void cast_odd_loop(const Args& a) {
  plain_loop1<float, From>(a, [](From x) {
    if constexpr (std::is_same_v<From, int64_t>) {  // what a double cannot hold goes into a sticky bit
      constexpr int64_t exact = int64_t{1} << 53;
      if (x < -exact || x > exact)
        return round_to_odd(static_cast<double>((x & ~int64_t{0xfff}) | ((x & 0xfff) != 0 ? 0x800 : 0)));
    }
    return round_to_odd(static_cast<double>(x));
  });
}
Fn pick_cast_odd(Reg from) {
  if (from == Reg::f64) return cast_odd_loop<double>;
  if (from == Reg::i64) return cast_odd_loop<int64_t>;
  if (from == Reg::i32) return cast_odd_loop<int32_t>;
  return nullptr;
}
Fn pick_to_bool(Reg from) {
  switch (from) {
    case Reg::f32: return to_bool_loop<float>;
    case Reg::f64: return to_bool_loop<double>;
    case Reg::i64: return to_bool_loop<int64_t>;
    case Reg::i32: return to_bool_loop<int32_t>;
    case Reg::i16: return to_bool_loop<int16_t>;
    case Reg::i8: return to_bool_loop<int8_t>;
    case Reg::u8: return to_bool_loop<uint8_t>;
  }
  return nullptr;
}

// --- where: bits are moved, so only the size counts
template <class T>
void where_loop(const Args& a) {
  const uint8_t* c = static_cast<const uint8_t*>(a.src[0]);
  const T* x = static_cast<const T*>(a.src[1]);
  const T* y = static_cast<const T*>(a.src[2]);
  T* out = static_cast<T*>(a.dst);
  const int64_t n = a.n;
  PF_NO_ALIAS_LOOP
  for (int64_t i = 0; i < n; ++i) {
    const T xi = x[i], yi = y[i];
    out[i] = c[i] ? xi : yi;
  }
}
Fn pick_where(Reg value) {
  switch (reg_size(value)) {
    case 8: return where_loop<uint64_t>;
    case 4: return where_loop<uint32_t>;
    case 2: return where_loop<uint16_t>;
    default: return where_loop<uint8_t>;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace pyflame::cpu::tile
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pyflame::cpu::tile {
HWY_EXPORT(pick_int);
HWY_EXPORT(pick_bool);
HWY_EXPORT(pick_cast);
HWY_EXPORT(pick_cast_odd);
HWY_EXPORT(pick_to_bool);
HWY_EXPORT(pick_where);
Fn find_int_arith(OpId op, Reg in) { return HWY_DYNAMIC_DISPATCH(pick_int)(op, in); }
Fn find_bool_arith(OpId op) { return HWY_DYNAMIC_DISPATCH(pick_bool)(op); }
Fn find_cast(Reg from, Reg to) { return HWY_DYNAMIC_DISPATCH(pick_cast)(from, to); }
Fn find_cast_odd(Reg from) { return HWY_DYNAMIC_DISPATCH(pick_cast_odd)(from); }
Fn find_to_bool(Reg from) { return HWY_DYNAMIC_DISPATCH(pick_to_bool)(from); }
Fn find_where(Reg value) { return HWY_DYNAMIC_DISPATCH(pick_where)(value); }
}  // namespace pyflame::cpu::tile
#endif
