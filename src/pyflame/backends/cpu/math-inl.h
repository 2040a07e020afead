// The transcendental functions of the CPU's vector code, for float and double. All kernels use this one source, so a
// value does not depend on where it is computed. Errors are a few ulp over the whole range, and special values follow
// IEEE 754; tests check both. FMA is used explicitly (MulAdd) if the target has it.
#if defined(PYFLAME_CPU_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PYFLAME_CPU_MATH_INL_H_
#undef PYFLAME_CPU_MATH_INL_H_
#else
#define PYFLAME_CPU_MATH_INL_H_
#endif

// Ops of the tile interpreter that a function of this file computes, by the same name.
// clang-format off
#define PF_MATH_OPS(X)                                                                                                \
  X(exp) X(exp2) X(expm1) X(log) X(log2) X(log10) X(log1p) X(sin) X(cos) X(tan) X(asin) X(acos) X(atan) X(sinh) X(cosh) X(tanh) X(asinh) X(acosh) X(atanh) X(atan2) X(erf) X(sigmoid) X(gelu) X(gelu_tanh) X(silu)                \
  X(gelu_grad) X(gelu_tanh_grad) X(silu_grad) PF_SPECIAL_UNARY(X)
// clang-format on

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include <cmath>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace pyflame::cpu::math {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D>
HWY_INLINE hn::Vec<D> num(D d, double v) {
  return hn::Set(d, static_cast<hn::TFromD<D>>(v));
}
template <class D>
constexpr bool kIsFloat = sizeof(hn::TFromD<D>) == 4;

// 2^n for integral n within the exponent range of normal numbers. Adding 1.5 * 2^mantissa puts n into the low bits.
template <class D, class V>
HWY_INLINE V pow2(D d, V n) {
  using T = hn::TFromD<D>;
  const hn::RebindToSigned<D> di;
  constexpr int kMantissa = sizeof(T) == 4 ? 23 : 52;
  constexpr int kBias = sizeof(T) == 4 ? 127 : 1023;
  const V shifted = hn::Add(n, num(d, 1.5 * static_cast<double>(int64_t{1} << kMantissa) + kBias));
  return hn::BitCast(d, hn::ShiftLeft<kMantissa>(hn::BitCast(di, shifted)));
}

// Nearest integer for |x| < 2^(mantissa - 2).
template <class D, class V>
HWY_INLINE V nearest(D d, V x) {
  const V magic = num(d, 1.5 * static_cast<double>(int64_t{1} << (kIsFloat<D> ? 23 : 52)));
  return hn::Sub(hn::Add(x, magic), magic);
}

// expm1(r) for |r| <= ln2 / 2.
template <class D, class V>
HWY_INLINE V expm1_near_zero(D d, V r) {
  V p;
  if constexpr (kIsFloat<D>) {
    p = num(d, 1.0 / 5040);
    p = hn::MulAdd(p, r, num(d, 1.0 / 720));
    p = hn::MulAdd(p, r, num(d, 1.0 / 120));
    p = hn::MulAdd(p, r, num(d, 1.0 / 24));
  } else {
    p = num(d, 1.0 / 6227020800.0);
    p = hn::MulAdd(p, r, num(d, 1.0 / 479001600.0));
    p = hn::MulAdd(p, r, num(d, 1.0 / 39916800.0));
    p = hn::MulAdd(p, r, num(d, 1.0 / 3628800.0));
    p = hn::MulAdd(p, r, num(d, 1.0 / 362880.0));
    p = hn::MulAdd(p, r, num(d, 1.0 / 40320.0));
    p = hn::MulAdd(p, r, num(d, 1.0 / 5040.0));
    p = hn::MulAdd(p, r, num(d, 1.0 / 720.0));
    p = hn::MulAdd(p, r, num(d, 1.0 / 120.0));
    p = hn::MulAdd(p, r, num(d, 1.0 / 24.0));
  }
  p = hn::MulAdd(p, r, num(d, 1.0 / 6));
  p = hn::MulAdd(p, r, num(d, 0.5));
  return hn::MulAdd(hn::Mul(r, r), p, r);
}

// x = n ln2 + r with |r| <= ln2 / 2; returns expm1(r).
template <class D, class V>
HWY_INLINE V expm1_reduced(D d, V x, V& n) {
  n = nearest(d, hn::Mul(x, num(d, 1.44269504088896340736)));
  const double hi = kIsFloat<D> ? 0.693359375 : 6.93147180369123816490e-01;
  const double lo = kIsFloat<D> ? -2.12194440054690583e-4 : 1.90821492927058770002e-10;
  return expm1_near_zero(d, hn::NegMulAdd(n, num(d, lo), hn::NegMulAdd(n, num(d, hi), x)));
}

// Bounds that keep NaN. On x86, minimum and maximum return their second operand if one is NaN; elsewhere, a comparison
// decides.
template <class D, class V>
HWY_INLINE V at_most(D d, V x, double high) {
#if HWY_ARCH_X86
  return hn::Min(num(d, high), x);
#else
  return hn::IfThenElse(hn::Gt(x, num(d, high)), num(d, high), x);
#endif
}
template <class D, class V>
HWY_INLINE V at_least(D d, V x, double low) {
#if HWY_ARCH_X86
  return hn::Max(num(d, low), x);
#else
  return hn::IfThenElse(hn::Lt(x, num(d, low)), num(d, low), x);
#endif
}
template <class D, class V>
HWY_INLINE V clamp(D d, V x, double low, double high) {
  return at_most(d, at_least(d, x, low), high);
}

// 2^n (1 + p). 2^n is made in two steps, which also gives subnormal results.
template <class D, class V>
HWY_INLINE V times_power(D d, V p, V n) {
  const V half = nearest(d, hn::Mul(n, num(d, 0.5)));
  const V first = pow2(d, half);
  return hn::Mul(hn::MulAdd(p, first, first), pow2(d, hn::Sub(n, half)));
}

template <class D, class V>
HWY_INLINE V exp(D d, V x) {
  x = kIsFloat<D> ? clamp(d, x, -105.0, 90.0) : clamp(d, x, -747.0, 711.0);  // beyond these the result is 0 or inf
  V n;
  const V p = expm1_reduced(d, x, n);
  return times_power(d, p, n);
}

template <class D, class V>
HWY_INLINE V exp2(D d, V x) {
  x = kIsFloat<D> ? clamp(d, x, -151.0, 129.0) : clamp(d, x, -1077.0, 1025.0);
  const V n = nearest(d, x);
  return times_power(d, expm1_near_zero(d, hn::Mul(hn::Sub(x, n), num(d, 0.693147180559945309417))), n);
}

template <class D, class V>
HWY_INLINE V expm1(D d, V x) {
  const V c = kIsFloat<D> ? clamp(d, x, -40.0, 88.9) : clamp(d, x, -60.0, 709.9);
  V n;
  const V p = expm1_reduced(d, c, n);
  // Half the scale, because 2^n alone may overflow although the result does not.
  const V s = pow2(d, hn::Sub(n, num(d, 1)));
  const V y = hn::MulAdd(p, s, hn::Sub(s, num(d, 0.5)));
  return hn::IfThenElse(hn::Eq(x, hn::Zero(d)), x, hn::Add(y, y));
}

// expm1 for x in [-60, 0]; -0 may become +0.
template <class D, class V>
HWY_INLINE V expm1_negative(D d, V x) {
  V n;
  const V p = expm1_reduced(d, x, n);
  const V s = pow2(d, n);
  return hn::MulAdd(p, s, hn::Sub(s, num(d, 1)));
}

// y, a logarithm of x, but where x is infinite, 0, negative or NaN.
template <class D, class V>
HWY_INLINE V with_limits(D d, V x, V y) {
  constexpr double inf = std::numeric_limits<double>::infinity();
  y = hn::IfThenElse(hn::Eq(x, num(d, inf)), x, y);
  y = hn::IfThenElse(hn::Eq(x, hn::Zero(d)), num(d, -inf), y);
  return hn::IfThenElse(hn::Ge(x, hn::Zero(d)), y, num(d, std::numeric_limits<double>::quiet_NaN()));
}

template <class D, class V>
HWY_INLINE V log(D d, V x) {
  return with_limits(d, x, hwy::HWY_NAMESPACE::Log(d, x));
}

// x = 2^e m with m between sqrt(1/2) and sqrt(2), for positive finite x; returns log(m). Where x is a power of 2, that is 0.
template <class D, class V>
HWY_INLINE V log_reduced(D d, V x, V& e) {
  using T = hn::TFromD<D>;
  const hn::RebindToSigned<D> di;
  using I = hn::TFromD<decltype(di)>;
  constexpr int kMantissa = kIsFloat<D> ? 23 : 52;
  constexpr I kRootHalf = kIsFloat<D> ? I{0x3f3504f3} : static_cast<I>(0x3fe6a09e667f3bcd);  // the bits of sqrt(1/2)
  const auto subnormal = hn::Lt(x, num(d, std::numeric_limits<T>::min()));
  const V normal = hn::IfThenElse(subnormal, hn::Mul(x, num(d, static_cast<double>(int64_t{1} << kMantissa))), x);
  const auto bits = hn::BitCast(di, normal);
  const auto exponent = hn::ShiftRight<kMantissa>(hn::Sub(bits, hn::Set(di, kRootHalf)));
  e = hn::Sub(hn::ConvertTo(d, exponent), hn::IfThenElseZero(subnormal, num(d, kMantissa)));
  return hwy::HWY_NAMESPACE::Log(d, hn::BitCast(d, hn::Sub(bits, hn::ShiftLeft<kMantissa>(exponent))));
}

template <class D, class V>
HWY_INLINE V log2(D d, V x) {
  V e;
  const V m = log_reduced(d, x, e);
  return with_limits(d, x, hn::MulAdd(m, num(d, 1.44269504088896340736), e));
}

// log10(2) in two parts, of which the first times e is exact.
template <class D, class V>
HWY_INLINE V log10(D d, V x) {
  const double hi = kIsFloat<D> ? 3.0102920532e-01 : 3.01029995663611771306e-01;
  const double lo = kIsFloat<D> ? 7.9034151668e-07 : 3.69423907715893078616e-13;
  V e;
  const V m = log_reduced(d, x, e);
  const V rest = hn::MulAdd(e, num(d, lo), hn::Mul(m, num(d, 0.434294481903251827651)));
  return with_limits(d, x, hn::MulAdd(e, num(d, hi), rest));
}

template <class D, class V>
HWY_INLINE V log1p(D d, V x) {
  constexpr double inf = std::numeric_limits<double>::infinity();
  const V one = num(d, 1);
  // log(1 + x), plus a correction for the rounding of 1 + x.
  const V y = hn::Add(one, x);
  const V lost = hn::IfThenElse(hn::Gt(x, one), hn::Sub(one, hn::Sub(y, x)), hn::Sub(x, hn::Sub(y, one)));
  V r = hn::Add(hwy::HWY_NAMESPACE::Log(d, y), hn::Div(lost, y));
  r = hn::IfThenElse(hn::Lt(hn::Abs(x), num(d, kIsFloat<D> ? 0x1p-24 : 0x1p-53)), x, r);
  r = hn::IfThenElse(hn::Eq(x, num(d, inf)), x, r);
  r = hn::IfThenElse(hn::Eq(x, num(d, -1)), num(d, -inf), r);
  return hn::IfThenElse(hn::Ge(x, num(d, -1)), r, num(d, std::numeric_limits<double>::quiet_NaN()));
}

// For lanes where `scalar` holds, f computes the result one by one.
template <class D, class V, class M, class F>
HWY_INLINE V patch(D d, V x, V y, M scalar, F f) {
  if (HWY_LIKELY(hn::AllFalse(d, scalar))) return y;
  HWY_ALIGN hn::TFromD<D> in[64 / sizeof(hn::TFromD<D>)], out[64 / sizeof(hn::TFromD<D>)];
  hn::Store(x, d, in);
  for (size_t i = 0; i < hn::Lanes(d); ++i) out[i] = f(in[i]);
  return hn::IfThenElse(scalar, hn::Load(d, out), y);
}
template <class D, class V, class F>
HWY_INLINE V per_lane(D d, V x, F f) {
  HWY_ALIGN hn::TFromD<D> lanes[64 / sizeof(hn::TFromD<D>)];
  hn::Store(x, d, lanes);
  for (size_t i = 0; i < hn::Lanes(d); ++i) lanes[i] = f(lanes[i]);
  return hn::Load(d, lanes);
}

// Large arguments, and float arguments near a zero of the function, need more digits of pi than the vector code has.
template <class D, class V>
HWY_INLINE V sin(D d, V x) {
  const V bounded = hn::IfThenElse(hn::Lt(hn::Abs(x), num(d, 30000)), x, hn::Zero(d));
  const V y = hn::IfThenElse(hn::Eq(x, hn::Zero(d)), x, hwy::HWY_NAMESPACE::Sin(d, bounded));
  return patch(d, x, y, hn::Not(hn::Lt(hn::Abs(x), num(d, 30000))), [](auto v) { return std::sin(v); });
}
template <class D, class V>
HWY_INLINE V cos(D d, V x) {
  const V bounded = hn::IfThenElse(hn::Lt(hn::Abs(x), num(d, 30000)), x, hn::Zero(d));
  const V y = hwy::HWY_NAMESPACE::Cos(d, bounded);
  return patch(d, x, y, hn::Not(hn::Lt(hn::Abs(x), num(d, 30000))), [](auto v) { return std::cos(v); });
}

// x - q pi / 2 is between -pi / 4 and pi / 4. Its tangent by Cephes' polynomial, of which an odd q takes the negative inverse.
template <class D, class V>
HWY_INLINE V tan_of_bounded(D d, V x) {
  const auto q = hn::NearestInt(hn::Mul(x, num(d, 0.63661977236758134308)));
  const V turns = hn::ConvertTo(d, q);
  V r = hn::MulAdd(turns, num(d, -1.5703125), x);
  r = hn::MulAdd(turns, num(d, -0.00048351287841796875), r);
  r = hn::MulAdd(turns, num(d, -3.13855707645416259765625e-7), r);
  r = hn::MulAdd(turns, num(d, -6.077100628276710381e-11), r);
  const V z = hn::Mul(r, r);
  V p = hn::MulAdd(num(d, 9.38540185543e-3), z, num(d, 3.11992232697e-3));
  p = hn::MulAdd(p, z, num(d, 2.44301354525e-2));
  p = hn::MulAdd(p, z, num(d, 5.34112807005e-2));
  p = hn::MulAdd(p, z, num(d, 1.33387994085e-1));
  p = hn::MulAdd(p, z, num(d, 3.33331568548e-1));
  const V t = hn::MulAdd(hn::Mul(p, z), r, r);
  const auto odd = hn::RebindMask(d, hn::TestBit(q, hn::Set(hn::RebindToSigned<D>(), 1)));
  return hn::IfThenElse(odd, hn::Div(num(d, -1), t), t);
}
template <class D, class V>
HWY_INLINE V tan(D d, V x) {
  if constexpr (kIsFloat<D>) {
    const auto far = hn::Not(hn::Lt(hn::Abs(x), num(d, 30000)));
    return patch(d, x, tan_of_bounded(d, hn::IfThenZeroElse(far, x)), far, [](auto v) { return std::tan(v); });
  }
  return hn::IfThenElse(hn::Eq(x, hn::Zero(d)), x, hn::Div(sin(d, x), cos(d, x)));
}

// What the library computes for |x| <= 1, and NaN for all other x.
template <class D, class V>
HWY_INLINE V within_one(D d, V x, V y) {
  return hn::IfThenElse(hn::Le(hn::Abs(x), num(d, 1)), y, num(d, std::numeric_limits<double>::quiet_NaN()));
}
template <class D, class V>
HWY_INLINE V asin(D d, V x) {
  return within_one(d, x, hwy::HWY_NAMESPACE::Asin(d, clamp(d, x, -1, 1)));
}
template <class D, class V>
HWY_INLINE V acos(D d, V x) {
  return within_one(d, x, hwy::HWY_NAMESPACE::Acos(d, clamp(d, x, -1, 1)));
}
template <class D, class V>
HWY_INLINE V atan(D d, V x) {
  return hwy::HWY_NAMESPACE::Atan(d, x);
}

// The angle of (|x|, |y|) is that of the smaller over the larger, in the octant where its tangent is at most 1.
template <class D, class V>
HWY_INLINE V atan2(D d, V y, V x) {
  constexpr double pi = 3.14159265358979323846;
  const V ay = hn::Abs(y), ax = hn::Abs(x);
  const auto steep = hn::Gt(ay, ax);
  const V most = hn::IfThenElse(steep, ay, ax), least = hn::IfThenElse(steep, ax, ay);
  // Two zeros have the angle of 0, two infinities that of 1.
  const V both = hn::IfThenElse(hn::Eq(most, hn::Zero(d)), hn::Zero(d), num(d, 1));
  const auto same = hn::Eq(least, most);
  V angle = atan(d, hn::IfThenElse(same, both, hn::Div(least, most)));
  angle = hn::IfThenElse(steep, hn::Sub(num(d, pi / 2), angle), angle);
  const auto left = hn::Lt(hn::CopySign(num(d, 1), x), hn::Zero(d));
  angle = hn::CopySign(hn::IfThenElse(left, hn::Sub(num(d, pi), angle), angle), y);
  const V sum = hn::Add(x, y);
  return hn::IfThenElse(hn::Or(hn::IsNaN(x), hn::IsNaN(y)), sum, angle);
}

// exp(a) / 2 for an a whose exponential may overflow where the half of it does not.
template <class D, class V>
HWY_INLINE V half_exp(D d, V a) {
  const V root = exp(d, hn::Mul(a, num(d, 0.5)));
  return hn::Mul(hn::Mul(root, num(d, 0.5)), root);
}
template <class D, class V>
HWY_INLINE V sinh(D d, V x) {
  const V a = hn::Abs(x), t = expm1(d, a);
  const V y = hn::Mul(num(d, 0.5), hn::Add(t, hn::Div(t, hn::Add(t, num(d, 1)))));
  return hn::CopySign(hn::IfThenElse(hn::Lt(a, num(d, kIsFloat<D> ? 85 : 700)), y, half_exp(d, a)), x);
}
template <class D, class V>
HWY_INLINE V cosh(D d, V x) {
  const V a = hn::Abs(x), e = exp(d, a);
  const V y = hn::Mul(num(d, 0.5), hn::Add(e, hn::Div(num(d, 1), e)));
  return hn::IfThenElse(hn::Lt(a, num(d, kIsFloat<D> ? 85 : 700)), y, half_exp(d, a));
}

// log(2 a): what asinh and acosh are for large a, whose square may overflow.
template <class D, class V>
HWY_INLINE V log_of_twice(D d, V a) {
  return hn::Add(log(d, a), num(d, 0.693147180559945309417));
}
template <class D>
constexpr double kLargeArea = kIsFloat<D> ? 1e9 : 1e150;
// log(a + sqrt(a^2 + 1)), without cancellation where a is small.
template <class D, class V>
HWY_INLINE V asinh(D d, V x) {
  const V a = hn::Abs(x), one = num(d, 1), square = hn::Mul(a, a);
  const V y = log1p(d, hn::Add(a, hn::Div(square, hn::Add(one, hn::Sqrt(hn::Add(square, one))))));
  return hn::CopySign(hn::IfThenElse(hn::Gt(a, num(d, kLargeArea<D>)), log_of_twice(d, a), y), x);
}
// log(x + sqrt(x^2 - 1)), in t = x - 1.
template <class D, class V>
HWY_INLINE V acosh(D d, V x) {
  const V t = hn::Sub(x, num(d, 1));
  const V y = log1p(d, hn::Add(t, hn::Sqrt(hn::MulAdd(t, t, hn::Add(t, t)))));
  const V all = hn::IfThenElse(hn::Gt(x, num(d, kLargeArea<D>)), log_of_twice(d, x), y);
  return hn::IfThenElse(hn::Ge(x, num(d, 1)), all, num(d, std::numeric_limits<double>::quiet_NaN()));
}
template <class D, class V>
HWY_INLINE V atanh(D d, V x) {
  const V a = hn::Abs(x);
  const V y = hn::Mul(num(d, 0.5), log1p(d, hn::Div(hn::Add(a, a), hn::Sub(num(d, 1), a))));
  return hn::CopySign(y, x);
}

template <class D, class V>
HWY_INLINE V sigmoid(D d, V x) {
  const V one = num(d, 1);
  const V e = exp(d, hn::Neg(hn::Abs(x)));
  return hn::Div(hn::IfThenElse(hn::Lt(x, hn::Zero(d)), e, one), hn::Add(one, e));
}

template <class D, class V>
HWY_INLINE V tanh(D d, V x) {
  const V a = hn::Abs(x);
  const V bounded = hn::IfThenElse(hn::Gt(a, num(d, 20)), num(d, 20), a);
  const V t = expm1_negative(d, hn::Mul(bounded, num(d, -2)));
  return hn::CopySign(hn::Div(t, hn::Add(t, num(d, 2))), x);
}

// u Q(u) = Phi(-a) exp(a^2 / 2) with u = 1 / (1 + 0.3 a), Phi the normal distribution; fitted for 0 <= a <= 14.6.
template <class D, class V>
HWY_INLINE V normal_tail_scaled(D d, V a) {
  const V u = hn::Div(num(d, 1), hn::MulAdd(a, num(d, 0.3), num(d, 1)));
  V q = num(d, -0.02096273236);
  q = hn::MulAdd(q, u, num(d, 0.1142918206));
  q = hn::MulAdd(q, u, num(d, -0.232599679));
  q = hn::MulAdd(q, u, num(d, 0.197642555));
  q = hn::MulAdd(q, u, num(d, -0.08428206915));
  q = hn::MulAdd(q, u, num(d, 0.09874345139));
  q = hn::MulAdd(q, u, num(d, 0.07750862386));
  q = hn::MulAdd(q, u, num(d, 0.1104199801));
  q = hn::MulAdd(q, u, num(d, 0.1195502957));
  q = hn::MulAdd(q, u, num(d, 0.1196877519));
  return hn::Mul(q, u);
}

template <class D, class V>
HWY_INLINE V erf(D d, V x) {
  if constexpr (!kIsFloat<D>) {
    return per_lane(d, x, [](auto v) { return std::erf(v); });
  } else {
    const V a = hn::Abs(x);
    const V z = hn::Mul(x, x);
    V p = num(d, -0.0006102687037);
    p = hn::MulAdd(p, z, num(d, 0.005014484151));
    p = hn::MulAdd(p, z, num(d, -0.02678071913));
    p = hn::MulAdd(p, z, num(d, 0.1128219409));
    p = hn::MulAdd(p, z, num(d, -0.376125288));
    p = hn::MulAdd(p, z, num(d, 0.1283791547));
    const V small = hn::MulAdd(p, x, x);
    const V c = hn::IfThenElse(hn::Gt(a, num(d, 5)), num(d, 5), a);  // NaN passes
    const V tail = hn::Mul(normal_tail_scaled(d, hn::Mul(c, num(d, 1.41421356237309505))),
                           exp(d, hn::NegMulAdd(c, c, hn::Zero(d))));
    const V large = hn::CopySign(hn::NegMulAdd(num(d, 2), tail, num(d, 1)), x);
    return hn::IfThenElse(hn::Lt(a, num(d, 0.9)), small, large);
  }
}

// Phi(x), the normal distribution, with small relative error in the lower tail; `gauss` is exp(-x^2 / 2).
template <class D, class V>
HWY_INLINE V normal_cdf(D d, V x, V& gauss) {
  const V a = hn::Abs(x);
  const V c = at_most(d, a, kIsFloat<D> ? 16 : 40);
  const V hi = hn::Mul(c, c);
  const V lo = hn::MulSub(c, c, hi);  // the rounding error of the square (0 if the target has no FMA)
  const V exponent = hn::Mul(hi, num(d, -0.5));
  if constexpr (kIsFloat<D>) {
    // exp() times 2^64, so that one scale is enough and subnormal results are rounded once; at 16 the tail is 0.
    V n;
    const V p = expm1_reduced(d, exponent, n);
    const V s = pow2(d, hn::Add(n, num(d, 64)));
    const V e = hn::MulAdd(p, s, s);
    const V scaled = hn::NegMulAdd(e, hn::Mul(lo, num(d, 0.5)), e);
    gauss = hn::Mul(scaled, num(d, 0x1p-64));
    const V tail = hn::Mul(hn::Mul(scaled, normal_tail_scaled(d, c)), num(d, 0x1p-64));
    return hn::IfThenElse(hn::Lt(x, hn::Zero(d)), tail, hn::Sub(num(d, 1), tail));
  } else {
    const V e = exp(d, exponent);
    gauss = hn::NegMulAdd(e, hn::Mul(lo, num(d, 0.5)), e);
    return per_lane(d, x, [](double v) {
      // The rounding error of the argument matters where erfc is steep.
      constexpr double s = -0.70710678118654752440, s_low = 4.833646656726456e-17;
      const double t = v * s, lost = std::fma(v, s, -t) + v * s_low;
      const double y = std::erfc(t);
      return std::abs(lost) < 1 ? 0.5 * (y - lost * 1.1283791670955125739 * std::exp(-t * t)) : 0.5 * y;
    });
  }
}

// For very negative x, where the gate is 0, x times the gate is 0 for -inf as well.
template <class D, class V>
HWY_INLINE V above(D d, V x) {
  return at_least(d, x, -1e4);
}

template <class D, class V>
HWY_INLINE V gelu(D d, V x) {
  V gauss;
  return hn::Mul(above(d, x), normal_cdf(d, x, gauss));
}
template <class D, class V>
HWY_INLINE V gelu_grad(D d, V x, V g) {
  V gauss;
  const V phi = normal_cdf(d, x, gauss);
  return hn::Mul(g, hn::MulAdd(hn::Mul(clamp(d, x, -1e4, 1e4), num(d, 0.39894228040143267794)), gauss, phi));
}

// 0.5 x (1 + tanh(t)) = x sigmoid(2 t)
template <class D, class V>
HWY_INLINE V gelu_tanh(D d, V x) {
  const V t = hn::Mul(
      x, hn::MulAdd(hn::Mul(x, x), num(d, 2 * 0.79788456080286535588 * 0.044715), num(d, 2 * 0.79788456080286535588)));
  return hn::Mul(above(d, x), sigmoid(d, t));
}
template <class D, class V>
HWY_INLINE V gelu_tanh_grad(D d, V x, V g) {
  const V c = clamp(d, x, -100.0, 100.0);  // constant beyond these bounds, and inf * 0 would be NaN
  const V xx = hn::Mul(c, c);
  const V t =
      hn::Mul(c, hn::MulAdd(xx, num(d, 2 * 0.79788456080286535588 * 0.044715), num(d, 2 * 0.79788456080286535588)));
  const V dt = hn::MulAdd(xx, num(d, 6 * 0.79788456080286535588 * 0.044715), num(d, 2 * 0.79788456080286535588));
  const V s = sigmoid(d, t);
  const V rest = sigmoid(d, hn::Neg(t));
  return hn::Mul(g, hn::MulAdd(hn::Mul(c, hn::Mul(s, rest)), dt, s));
}

template <class D, class V>
HWY_INLINE V silu(D d, V x) {
  return hn::Mul(above(d, x), sigmoid(d, x));
}
template <class D, class V>
HWY_INLINE V silu_grad(D d, V x, V g) {
  const V c = clamp(d, x, -800.0, 800.0);
  const V s = sigmoid(d, c);
  const V rest = sigmoid(d, hn::Neg(c));
  return hn::Mul(g, hn::Mul(s, hn::MulAdd(c, rest, num(d, 1))));
}

// log1p of x in [0, 1], or NaN. It is 2 atanh(s) with s = x / (x + 2), at most 1/3, by the series of atanh.
template <class D, class V>
HWY_INLINE V log1p_of_fraction(D d, V x) {
  if constexpr (!kIsFloat<D>) return log1p(d, x);
  const V s = hn::Div(x, hn::Add(x, num(d, 2))), square = hn::Mul(s, s);
  V p = num(d, 1.0 / 15);
  p = hn::MulAdd(p, square, num(d, 1.0 / 13));
  p = hn::MulAdd(p, square, num(d, 1.0 / 11));
  p = hn::MulAdd(p, square, num(d, 1.0 / 9));
  p = hn::MulAdd(p, square, num(d, 1.0 / 7));
  p = hn::MulAdd(p, square, num(d, 1.0 / 5));
  p = hn::MulAdd(p, square, num(d, 1.0 / 3));
  return hn::Mul(hn::Add(s, s), hn::MulAdd(p, square, num(d, 1)));
}

// log(1 + exp(beta x)) / beta; x itself where beta x > threshold
template <class D, class V>
HWY_INLINE V softplus(D d, V x, V beta, V threshold) {
  const V z = hn::Mul(x, beta);
  const V positive = hn::IfThenElse(hn::Lt(z, hn::Zero(d)), hn::Zero(d), z);
  V y = hn::Add(positive, log1p_of_fraction(d, exp(d, hn::Neg(hn::Abs(z)))));
  if (!hn::AllTrue(d, hn::Eq(beta, num(d, 1)))) y = hn::Div(y, beta);
  return hn::IfThenElse(hn::Gt(z, threshold), x, y);
}

#define PF_SPECIAL_INSIDE
#include "pyflame/kernels/device/special.h"
#undef PF_SPECIAL_INSIDE

// What the formulas of special.h are computed with.
template <class D>
struct VectorMath {
  using V = hn::Vec<D>;
  using M = hn::Mask<D>;
  static constexpr bool kSingle = kIsFloat<D>;
  D d;
  HWY_INLINE V num(double x) const { return math::HWY_NAMESPACE::num(d, x); }
  HWY_INLINE V inf() const { return num(std::numeric_limits<double>::infinity()); }
  HWY_INLINE V nan() const { return num(std::numeric_limits<double>::quiet_NaN()); }
  HWY_INLINE V add(V a, V b) const { return hn::Add(a, b); }
  HWY_INLINE V sub(V a, V b) const { return hn::Sub(a, b); }
  HWY_INLINE V mul(V a, V b) const { return hn::Mul(a, b); }
  HWY_INLINE V div(V a, V b) const { return hn::Div(a, b); }
  HWY_INLINE V fma(V a, V b, V c) const { return hn::MulAdd(a, b, c); }
  HWY_INLINE V neg(V x) const { return hn::Neg(x); }
  HWY_INLINE V abs(V x) const { return hn::Abs(x); }
  HWY_INLINE V copysign(V x, V sign) const { return hn::CopySign(x, sign); }
  HWY_INLINE V sqrt(V x) const { return hn::Sqrt(x); }
  HWY_INLINE V exp(V x) const { return math::HWY_NAMESPACE::exp(d, x); }
  HWY_INLINE V log(V x) const { return math::HWY_NAMESPACE::log(d, x); }
  HWY_INLINE V sin(V x) const { return math::HWY_NAMESPACE::sin(d, x); }
  HWY_INLINE V cos(V x) const { return math::HWY_NAMESPACE::cos(d, x); }
  HWY_INLINE V nearest(V x) const { return hn::Round(x); }
  HWY_INLINE M lt(V a, V b) const { return hn::Lt(a, b); }
  HWY_INLINE M le(V a, V b) const { return hn::Le(a, b); }
  HWY_INLINE M eq(V a, V b) const { return hn::Eq(a, b); }
  HWY_INLINE M both(M a, M b) const { return hn::And(a, b); }
  HWY_INLINE M either(M a, M b) const { return hn::Or(a, b); }
  HWY_INLINE bool any(M a) const { return !hn::AllFalse(d, a); }
  HWY_INLINE bool all(M a) const { return hn::AllTrue(d, a); }
  HWY_INLINE V select(M c, V a, V b) const { return hn::IfThenElse(c, a, b); }
  HWY_INLINE V poly(V, double c) const { return num(c); }
  template <class... More>
  HWY_INLINE V poly(V x, double c, More... more) const {
    return hn::MulAdd(poly(x, more...), x, num(c));
  }
};
#define PF_SPECIAL_VECTOR(name)            \
  template <class D, class V>              \
  HWY_INLINE V name(D d, V x) {            \
    return name##_of(VectorMath<D>{d}, x); \
  }
PF_SPECIAL_UNARY(PF_SPECIAL_VECTOR)
#undef PF_SPECIAL_VECTOR

}  // namespace HWY_NAMESPACE
}  // namespace pyflame::cpu::math
HWY_AFTER_NAMESPACE();
#endif
