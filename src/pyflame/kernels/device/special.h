// Special functions, each as one formula for the reference, the GPUs' kernels and the CPU's vector code. M is what they are
// computed with: ScalarMath below, or VectorMath of backends/cpu/math-inl.h, which includes this file in its own namespace, once
// for each instruction set. Both sides of a choice may be computed, so no formula fails outside of its range.
//
// The sources of the formulas are chapters 5 (gamma), 7 (error function), 9 (Airy) and 10 (Bessel) of the Digital Library of
// Mathematical Functions. The polynomials are ours (special_fits.h). Errors are a few units in the last place, but near zeros that
// are not named below, where they are small against the values around.
#if defined(PF_SPECIAL_INSIDE) || !defined(PF_SPECIAL_H_)
#ifndef PF_ON_DEVICE  // a kernel is compiled as one text
#include "pyflame/kernels/device/special_fits.h"
#endif
#ifndef PF_SPECIAL_INSIDE
#define PF_SPECIAL_H_
namespace pf {
#endif

// The functions of one argument; each is name_of(m, x) here. PF_SPECIAL (special_fits.h) is PF_DEVICE, or HWY_INLINE in vector code.
// clang-format off
#define PF_SPECIAL_UNARY(X)                                                                                       \
  X(erfc) X(erfcx) X(erfinv) X(ndtri) X(lgamma) X(digamma) X(trigamma) X(i0e) X(i1e) X(scaled_modified_bessel_k0) \
  X(scaled_modified_bessel_k1) X(bessel_j0) X(bessel_j1) X(bessel_y0) X(bessel_y1) X(airy_ai) X(log_ndtr)         \
  X(frexp_mantissa) X(frexp_exponent)
// clang-format on

// The lesser of x and a bound; NaN stays.
template <class M>
PF_SPECIAL typename M::V bounded(M m, typename M::V x, double most) {
  return m.select(m.lt(m.num(most), x), m.num(most), x);
}

// --- error functions

// exp(x^2) or exp(-x^2), with the rounding error of the square taken into account.
template <class M>
PF_SPECIAL typename M::V exp_square_of(M m, typename M::V x, bool negative) {
  const auto square = m.mul(x, x), rest = m.fma(x, x, m.neg(square));
  const auto e = m.exp(negative ? m.neg(square) : square);
  return m.select(m.eq(e, m.inf()), e, m.fma(e, negative ? m.neg(rest) : rest, e));
}
// erfcx for x >= 0.
template <class M>
PF_SPECIAL typename M::V erfcx_positive(M m, typename M::V x) {
  const auto t = m.div(m.num(4), m.add(x, m.num(4)));
  return m.mul(t, fit_erfcx(m, t));
}
template <class M>
PF_SPECIAL typename M::V erfc_of(M m, typename M::V x) {
  const auto a = bounded(m, m.abs(x), M::kSingle ? 11 : 28);  // erfc is 0 beyond
  const auto tail = m.mul(exp_square_of(m, a, true), erfcx_positive(m, a));
  return m.select(m.lt(x, m.num(0)), m.sub(m.num(2), tail), tail);
}
template <class M>
PF_SPECIAL typename M::V erfcx_of(M m, typename M::V x) {
  const auto right = erfcx_positive(m, m.abs(x));
  const auto left = m.lt(x, m.num(0));
  if (!m.any(left)) return right;
  const auto e = exp_square_of(m, bounded(m, m.abs(x), M::kSingle ? 11 : 28), false);
  return m.select(left, m.sub(m.add(e, e), right), right);
}

// The logarithm of ndtr(x) = erfc(-x / sqrt 2) / 2. Below 0 by erfcx, because erfc vanishes; above it log(1 - h), where Kahan's quotient makes up for
// the rounding of 1 - h.
template <class M>
PF_SPECIAL typename M::V log_ndtr_of(M m, typename M::V x) {
  const auto half = m.num(0.5), one = m.num(1);
  const auto a = m.abs(m.mul(x, m.num(0.70710678118654752440)));
  const auto scaled = m.mul(erfcx_positive(m, a), half);
  const auto h = m.mul(exp_square_of(m, bounded(m, a, M::kSingle ? 11 : 28), true), scaled);
  const auto rest = m.sub(one, h), taken = m.sub(one, rest);
  const auto below = m.lt(x, m.num(0));
  const auto log = m.log(m.select(below, scaled, rest));
  const auto high = m.select(m.eq(taken, m.num(0)), m.neg(h), m.mul(log, m.div(h, taken)));
  return m.select(below, m.sub(log, m.mul(m.mul(x, x), half)), high);
}

// The x >= 0 for which w = -log(1 - erf(x)^2), where that is 6.25 or more.
template <class M>
PF_SPECIAL typename M::V erfinv_outside(M m, typename M::V w) {
  const auto r = m.sqrt(w);
  auto y = m.mul(r, fit_erfinv_tail(m, r));
  const auto far = m.lt(m.num(6.1), r);
  if (m.any(far)) y = m.select(far, m.mul(r, fit_erfinv_far(m, m.div(m.num(1), r))), y);
  return m.select(m.eq(w, m.inf()), w, y);
}
// The inverse of erf, for x and 1 - x^2.
template <class M>
PF_SPECIAL typename M::V erfinv_from(M m, typename M::V x, typename M::V rest) {
  const auto w = m.neg(m.log(rest));
  const auto inside = m.lt(w, m.num(6.25));
  const auto y = m.mul(x, fit_erfinv_center(m, w));
  if (m.all(inside)) return y;
  return m.select(inside, y, m.copysign(erfinv_outside(m, w), x));
}
template <class M>
PF_SPECIAL typename M::V erfinv_of(M m, typename M::V x) {
  return erfinv_from(m, x, m.mul(m.sub(m.num(1), x), m.add(m.num(1), x)));
}
template <class M>
PF_SPECIAL typename M::V ndtri_of(M m, typename M::V p) {
  const auto x = m.sub(m.add(p, p), m.num(1));
  const auto rest = m.mul(m.mul(m.num(4), p), m.sub(m.num(1), p));
  return m.mul(m.num(1.41421356237309504880), erfinv_from(m, x, rest));
}

// --- gamma functions

// Stirling's series: log gamma(x) - (x - 1/2) log x + x - log(2 pi) / 2, for x >= 8.
template <class M>
PF_SPECIAL typename M::V stirling(M m, typename M::V x) {
  const auto z = m.div(m.num(1), x), w = m.mul(z, z);
  if constexpr (M::kSingle) return m.mul(z, m.poly(w, 1.0 / 12, -1.0 / 360, 1.0 / 1260));
  return m.mul(z, m.poly(w, 1.0 / 12, -1.0 / 360, 1.0 / 1260, -1.0 / 1680, 1.0 / 1188, -691.0 / 360360, 1.0 / 156,
                         -3617.0 / 122400));
}
// log gamma(x) for x >= 0. Below 8 by gamma(x + 1) = x gamma(x) and polynomials around the zeros 1 and 2.
template <class M>
PF_SPECIAL typename M::V lgamma_positive(M m, typename M::V x) {
  const auto one = m.num(1), three = m.num(3);
  const auto tiny = m.lt(x, m.num(0.5)), large = m.le(m.num(8), x);
  auto y = x, product = one;
  for (int step = 0; step < 5; ++step) {
    const auto above = m.le(three, y);
    if (!m.any(above)) break;
    y = m.select(above, m.sub(y, one), y);
    product = m.select(above, m.mul(product, y), product);
  }
  const auto near_one = m.select(tiny, x, m.sub(x, one)), near_two = m.sub(y, m.num(2));
  const auto log = m.log(m.select(large, x, m.select(tiny, x, product)));
  const auto low = m.fma(near_one, fit_lgamma_one(m, near_one), m.select(tiny, m.neg(log), m.num(0)));
  const auto middle = m.fma(near_two, fit_lgamma_two(m, near_two), log);
  auto r = m.select(m.lt(x, m.num(1.5)), low, middle);
  if (m.any(large)) {
    const auto high =
        m.fma(m.sub(x, m.num(0.5)), m.sub(log, one), m.add(m.num(0.41893853320467274178), stirling(m, x)));
    r = m.select(large, high, r);
  }
  return r;
}
// sin(pi x) and cos(pi x), but for the sign of both, which are the same where x is odd.
template <class M>
PF_SPECIAL typename M::V part_of_period(M m, typename M::V x) {
  return m.mul(m.num(3.14159265358979323846), m.sub(x, m.nearest(x)));
}
template <class M>
PF_SPECIAL typename M::V lgamma_of(M m, typename M::V x) {
  const auto a = m.abs(x);
  const auto left = m.lt(x, m.num(0));
  const auto right = lgamma_positive(m, a);
  if (!m.any(left)) return right;
  // gamma(x) gamma(-x) = -pi / (x sin(pi x))
  const auto sine = m.abs(m.sin(part_of_period(m, a)));
  const auto reflected = m.sub(m.num(1.14472988584940017414), m.add(m.log(m.mul(a, sine)), right));
  const auto y = m.select(left, reflected, right);
  return m.select(m.eq(a, m.inf()), a, y);
}
template <class M>
PF_SPECIAL typename M::V digamma_of(M m, typename M::V x) {
  const auto one = m.num(1);
  const auto left = m.lt(x, m.num(0));
  auto y = m.select(left, m.sub(one, x), x);
  // 1 / y + 1 / (y + 1) + ... up to 8, as one fraction
  auto above = m.num(0), below = one;
  for (int step = 0; step < 8; ++step) {
    const auto small = m.lt(y, m.num(8));
    if (!m.any(small)) break;
    above = m.select(small, m.fma(above, y, below), above);
    below = m.select(small, m.mul(below, y), below);
    y = m.select(small, m.add(y, one), y);
  }
  const auto z = m.div(one, y), w = m.mul(z, z);
  typename M::V series;
  if constexpr (M::kSingle) series = m.poly(w, 1.0 / 12, -1.0 / 120, 1.0 / 252);
  else
    series = m.poly(w, 1.0 / 12, -1.0 / 120, 1.0 / 252, -1.0 / 240, 1.0 / 132, -691.0 / 32760, 1.0 / 12, -3617.0 / 8160,
                    43867.0 / 14364, -174611.0 / 6600);
  const auto tail = m.fma(m.num(0.5), z, m.mul(w, series));
  auto r = m.sub(m.sub(m.log(y), tail), m.div(above, below));
  if (!m.any(left)) return r;
  const auto angle = part_of_period(m, x);  // digamma(x) = digamma(1 - x) - pi / tan(pi x)
  const auto cotangent = m.div(m.mul(m.num(3.14159265358979323846), m.cos(angle)), m.sin(angle));
  r = m.select(left, m.sub(r, cotangent), r);
  return m.select(m.both(left, m.eq(angle, m.num(0))), m.nan(), r);
}
template <class M>
PF_SPECIAL typename M::V trigamma_of(M m, typename M::V x) {
  const auto one = m.num(1);
  const auto left = m.lt(x, m.num(0));
  auto y = m.select(left, m.sub(one, x), x);
  auto above = m.num(0), below = one;
  for (int step = 0; step < 8; ++step) {
    const auto small = m.lt(y, m.num(8));
    if (!m.any(small)) break;
    const auto square = m.mul(y, y);
    above = m.select(small, m.fma(above, square, below), above);
    below = m.select(small, m.mul(below, square), below);
    y = m.select(small, m.add(y, one), y);
  }
  const auto z = m.div(one, y), w = m.mul(z, z);
  typename M::V series;
  if constexpr (M::kSingle) series = m.poly(w, 1.0 / 6, -1.0 / 30, 1.0 / 42, -1.0 / 30);
  else
    series = m.poly(w, 1.0 / 6, -1.0 / 30, 1.0 / 42, -1.0 / 30, 5.0 / 66, -691.0 / 2730, 7.0 / 6, -3617.0 / 510,
                    43867.0 / 798, -174611.0 / 330, 854513.0 / 138);
  auto r = m.add(m.fma(m.num(0.5), w, z), m.fma(m.mul(z, w), series, m.div(above, below)));
  if (!m.any(left)) return r;
  const auto sine = m.sin(part_of_period(m, x));  // trigamma(x) = pi^2 / sin(pi x)^2 - trigamma(1 - x)
  const auto pole = m.div(m.num(9.86960440108935861883), m.mul(sine, sine));
  return m.select(left, m.sub(pole, r), r);
}

// --- Bessel functions

template <class M>
PF_SPECIAL typename M::V i0e_of(M m, typename M::V x) {
  const auto a = m.abs(x);
  const auto far = m.lt(m.num(8), a);
  const auto near = fit_i0e_near(m, a);
  if (!m.any(far)) return near;
  return m.select(far, m.div(fit_i0e_far(m, m.div(m.num(8), a)), m.sqrt(a)), near);
}
template <class M>
PF_SPECIAL typename M::V i1e_of(M m, typename M::V x) {
  const auto a = m.abs(x);
  const auto far = m.lt(m.num(8), a);
  const auto near = m.mul(x, fit_i1e_near(m, a));
  if (!m.any(far)) return near;
  return m.select(far, m.copysign(m.div(fit_i1e_far(m, m.div(m.num(8), a)), m.sqrt(a)), x), near);
}
template <class M>
PF_SPECIAL typename M::V scaled_modified_bessel_k0_of(M m, typename M::V x) {
  const auto near = m.le(x, m.num(2));
  const auto far = m.div(fit_k0e_far(m, m.div(m.num(2), x)), m.sqrt(x));
  if (!m.any(near)) return far;
  const auto q = m.mul(x, x), log = m.log(m.mul(x, m.num(0.5)));
  const auto k = m.sub(fit_k0_small(m, q), m.mul(log, fit_i0_small(m, q)));
  return m.select(near, m.mul(k, m.exp(x)), far);
}
template <class M>
PF_SPECIAL typename M::V scaled_modified_bessel_k1_of(M m, typename M::V x) {
  const auto near = m.le(x, m.num(2));
  const auto far = m.div(fit_k1e_far(m, m.div(m.num(2), x)), m.sqrt(x));
  if (!m.any(near)) return far;
  const auto q = m.mul(x, x), log = m.log(m.mul(x, m.num(0.5)));
  const auto k = m.fma(m.mul(log, x), fit_i1_small(m, q), m.div(fit_k1_small(m, q), x));
  return m.select(m.eq(x, m.num(0)), m.inf(), m.select(near, m.mul(k, m.exp(x)), far));
}

// (a - zero) (a + zero), exact near the zero, which is high + low; high has few digits.
template <class M>
PF_SPECIAL typename M::V around_zero(M m, typename M::V a, double high, double low) {
  return m.mul(m.sub(m.sub(a, m.num(high)), m.num(low)), m.add(a, m.num(high + low)));
}
// J0 for |x| <= 8; J1 / x.
template <class M>
PF_SPECIAL typename M::V j0_near(M m, typename M::V a, typename M::V q) {
  const auto zeros = m.mul(around_zero(m, a, 2.40478515625, 4.0401445772768622e-05),
                           around_zero(m, a, 5.52001953125, 5.8579036310649597e-05));
  return m.mul(zeros, fit_j0_near(m, q));
}
template <class M>
PF_SPECIAL typename M::V j1_near(M m, typename M::V a, typename M::V q) {
  const auto zeros = m.mul(around_zero(m, a, 3.8316650390625, 4.0931145012315614e-05),
                           around_zero(m, a, 7.0155029296875, 8.3740128118753537e-05));
  return m.mul(zeros, fit_j1_near(m, q));
}
// Hankel's expansion of J and Y for x > 8: with the sine and the cosine of x - pi/4 (order 0) or x - 3/4 pi (order 1).
template <int kOrder, bool kY, class M>
PF_SPECIAL typename M::V bessel_wave(M m, typename M::V x) {
  const auto inverse = m.div(m.num(8), x), u = m.mul(inverse, inverse);
  const auto s = m.sin(x), c = m.cos(x);
  const auto sum = m.add(s, c), difference = m.sub(s, c);
  const auto scale = m.div(m.num(0.56418958354775628695), m.sqrt(x));  // 1 / sqrt(pi x)
  typename M::V r;
  if constexpr (kOrder == 0) {
    const auto p = fit_bessel0_p(m, u), q = m.div(fit_bessel0_q(m, u), x);
    if constexpr (kY) r = m.fma(p, difference, m.mul(q, sum));
    else r = m.sub(m.mul(p, sum), m.mul(q, difference));
  } else {
    const auto p = fit_bessel1_p(m, u), q = m.div(fit_bessel1_q(m, u), x);
    if constexpr (kY) r = m.sub(m.mul(q, difference), m.mul(p, sum));
    else r = m.fma(p, difference, m.mul(q, sum));
  }
  return m.select(m.eq(x, m.inf()), m.num(0), m.mul(scale, r));
}
template <class M>
PF_SPECIAL typename M::V bessel_j0_of(M m, typename M::V x) {
  const auto a = m.abs(x);
  const auto far = m.lt(m.num(8), a);
  const auto near = j0_near(m, a, m.mul(a, a));
  if (!m.any(far)) return near;
  return m.select(far, bessel_wave<0, false>(m, a), near);
}
template <class M>
PF_SPECIAL typename M::V bessel_j1_of(M m, typename M::V x) {
  const auto a = m.abs(x);
  const auto far = m.lt(m.num(8), a);
  const auto near = m.mul(x, j1_near(m, a, m.mul(a, a)));
  if (!m.any(far)) return near;
  const auto wave = bessel_wave<1, false>(m, a);
  return m.select(far, m.select(m.lt(x, m.num(0)), m.neg(wave), wave), near);
}
// Y is NaN below 0 and -inf at 0.
template <class M>
PF_SPECIAL typename M::V bessel_y0_of(M m, typename M::V x) {
  const auto q = m.mul(x, x);
  const auto far = m.lt(m.num(8), x);
  const auto near = m.fma(m.mul(m.num(0.63661977236758134308), m.log(x)), j0_near(m, x, q), fit_y0_near(m, q));
  if (!m.any(far)) return near;
  return m.select(far, bessel_wave<0, true>(m, x), near);
}
template <class M>
PF_SPECIAL typename M::V bessel_y1_of(M m, typename M::V x) {
  const auto q = m.mul(x, x);
  const auto far = m.lt(m.num(8), x);
  const auto j = m.mul(x, j1_near(m, x, q));
  const auto poles = m.sub(m.mul(m.log(x), j), m.div(m.num(1), x));
  auto near = m.fma(m.num(0.63661977236758134308), poles, m.mul(x, fit_y1_near(m, q)));
  near = m.select(m.eq(x, m.num(0)), m.neg(m.inf()), near);
  if (!m.any(far)) return near;
  return m.select(far, bessel_wave<1, true>(m, x), near);
}
template <class M>
PF_SPECIAL typename M::V airy_ai_of(M m, typename M::V x) {
  const auto right = m.lt(m.num(2), x), left = m.lt(x, m.num(-4));
  auto r = fit_airy_middle(m, x);
  const auto outside = m.either(right, left);
  if (!m.any(outside)) return r;
  const auto a = m.abs(x), root = m.sqrt(a), z = m.mul(m.mul(a, root), m.num(2.0 / 3)), t = m.div(m.num(1), z);
  const auto scale = m.div(m.num(0.28209479177387814347), m.sqrt(root));  // 1 / (2 sqrt(pi) a^(1/4))
  if (m.any(right)) r = m.select(right, m.mul(m.mul(scale, m.exp(m.neg(z))), fit_airy_positive(m, t)), r);
  if (m.any(left)) {
    const auto u = m.mul(t, t), s = m.sin(z), c = m.cos(z);
    const auto wave = m.fma(fit_airy_p(m, u), m.add(s, c), m.mul(m.mul(t, fit_airy_q(m, u)), m.sub(s, c)));
    r = m.select(left, m.mul(m.mul(scale, m.num(1.41421356237309504880)), wave), r);
  }
  return r;
}

// --- x = f 2^e with 1/2 <= |f| < 1

// x is moved by a power of 2 to where nothing is subnormal or overflows.
template <class M>
PF_SPECIAL typename M::V frexp_scale(M m, typename M::V x) {
  constexpr double kUp = 18446744073709551616.0;  // 2^64
  return m.select(m.lt(m.abs(x), m.num(1)), m.num(kUp), m.num(1 / kUp));
}
// Twice the largest power of 2 that is not above |x|: all other bits vanish by rounding (Rump, 2009). 0 for 0; NaN for infinite numbers and NaN.
template <class M>
PF_SPECIAL typename M::V frexp_power(M m, typename M::V x) {
  constexpr double kDigits = M::kSingle ? 16777216.0 : 9007199254740992.0;  // 2^24, 2^53
  const auto shifted = m.mul(x, m.num(kDigits + 2));
  return m.abs(m.sub(shifted, m.mul(shifted, m.num(1 - 1 / kDigits))));
}
// f; x itself, where that is 0, infinite or NaN.
template <class M>
PF_SPECIAL typename M::V frexp_mantissa_of(M m, typename M::V x) {
  const auto moved = m.mul(x, frexp_scale(m, x)), power = frexp_power(m, moved);
  return m.select(m.lt(m.num(0), power), m.div(moved, power), x);
}
// e; 0 where x is 0, infinite or NaN.
template <class M>
PF_SPECIAL typename M::V frexp_exponent_of(M m, typename M::V x) {
  const auto power = frexp_power(m, m.mul(x, frexp_scale(m, x)));
  const auto exponent = m.nearest(m.mul(m.log(power), m.num(1.44269504088896340736)));
  const auto back = m.select(m.lt(m.abs(x), m.num(1)), m.num(-64), m.num(64));
  return m.select(m.lt(m.num(0), power), m.add(exponent, back), m.num(0));
}

#ifndef PF_SPECIAL_INSIDE

// --- computed with scalars
template <class T>
struct ScalarMath {
  using V = T;
  static constexpr bool kSingle = sizeof(T) == 4;
  PF_DEVICE T num(double x) const { return (T)x; }
  PF_DEVICE T inf() const { return (T)float_of_bits(0x7f800000u); }
  PF_DEVICE T nan() const { return (T)float_of_bits(0x7fc00000u); }
  PF_DEVICE T add(T a, T b) const { return a + b; }
  PF_DEVICE T sub(T a, T b) const { return a - b; }
  PF_DEVICE T mul(T a, T b) const { return a * b; }
  PF_DEVICE T div(T a, T b) const { return a / b; }
  PF_DEVICE T neg(T x) const { return -x; }
  PF_DEVICE T abs(T x) const { return m_copysign(x, (T)1); }
  PF_DEVICE T copysign(T x, T sign) const { return m_copysign(x, sign); }
  PF_DEVICE T sqrt(T x) const { return m_sqrt(x); }
  PF_DEVICE T exp(T x) const { return m_exp(x); }
  PF_DEVICE T log(T x) const { return m_log(x); }
  PF_DEVICE T sin(T x) const { return m_sin(x); }
  PF_DEVICE T cos(T x) const { return m_cos(x); }
  PF_DEVICE T nearest(T x) const { return m_rint(x); }
  PF_DEVICE bool lt(T a, T b) const { return a < b; }
  PF_DEVICE bool le(T a, T b) const { return a <= b; }
  PF_DEVICE bool eq(T a, T b) const { return a == b; }
  PF_DEVICE bool both(bool a, bool b) const { return a && b; }
  PF_DEVICE bool either(bool a, bool b) const { return a || b; }
  PF_DEVICE bool any(bool a) const { return a; }
  PF_DEVICE bool all(bool a) const { return a; }
  PF_DEVICE T select(bool c, T a, T b) const { return c ? a : b; }
  PF_DEVICE float fma(float a, float b, float c) const { return fmaf(a, b, c); }
  PF_DEVICE double fma(double a, double b, double c) const { return ::fma(a, b, c); }
  PF_DEVICE T poly(T, double c) const { return (T)c; }
  template <class... More>
  PF_DEVICE T poly(T x, double c, More... more) const {
    return fma(poly(x, more...), x, (T)c);
  }
};
#define PF_SPECIAL_SCALAR(name)           \
  template <class T>                      \
  PF_DEVICE T name(T x) {                 \
    return name##_of(ScalarMath<T>(), x); \
  }
PF_SPECIAL_UNARY(PF_SPECIAL_SCALAR)
#undef PF_SPECIAL_SCALAR

template <class T>
PF_DEVICE T half_ulp() {
  return sizeof(T) == 4 ? (T)5.9604644775390625e-08 : (T)1.1102230246251565e-16;
}

// Hurwitz' zeta function, the sum of (q + k)^-x over all k >= 0, by Euler and Maclaurin's formula once q + k is above 9.
template <class T>
PF_DEVICE T zeta(T x, T q) {
  const ScalarMath<T> m;
  if (x == 1) return m.inf();
  if (!(x > 1) || m_nan(q)) return m.nan();
  if (q <= 0 && m_floor(q) == q) return m.inf();
  if (q <= 0 && m_floor(x) != x) return m.nan();                // q^-x is not real
  if (q * half_ulp<T>() > x) return m_pow(q, 1 - x) / (x - 1);  // the integral; the powers of large q underflow
  T sum = 0, at = q, term = 0;
  for (int k = 0; k < 10 || at <= 9; ++k, at += 1) {
    term = m_pow(at, -x);
    sum += term;
    if (at > 0 && term < half_ulp<T>() * m.abs(sum)) return sum;
  }
  at -= 1;  // that of the last term
  sum += term * at / (x - 1) - term / 2;
  // Bernoulli numbers over factorials: B(2k) / (2k)!
  T power = term * x / at, rest = 0;
  const T inverse = 1 / (at * at);
  const auto next = [&](double c, int k) {
    rest += (T)c * power;
    power *= (x + (T)(2 * k - 1)) * (x + (T)(2 * k)) * inverse;
  };
  next(8.333333333333333e-02, 1), next(-1.388888888888889e-03, 2), next(3.306878306878307e-05, 3);
  next(-8.267195767195767e-07, 4), next(2.08767569878681e-08, 5), next(-5.284190138687493e-10, 6);
  next(1.3382536530684679e-11, 7), next(-3.3896802963225827e-13, 8), next(8.586062056277845e-15, 9);
  next(-2.1748686985580617e-16, 10), next(5.5090028283602295e-18, 11), next(-1.3954464685812524e-19, 12);
  return sum + rest;
}

// mu - log(1 + mu), without cancellation.
template <class T>
PF_DEVICE T above_log(T mu) {
  if (mu < (T)-0.2 || mu > (T)0.2) return mu - m_log1p(mu);
  T sum = 0, power = mu;
  for (int k = 2; k < 30; ++k) {
    power *= -mu;
    sum -= power / (T)k;
    if (ScalarMath<T>().abs(power) < half_ulp<T>() * ScalarMath<T>().abs(sum)) break;
  }
  return sum;
}
// x^a exp(-x) / gamma(a + 1)
template <class T>
PF_DEVICE T gamma_weight(T a, T x) {
  if (a < 10) return m_exp(a * m_log(x) - x - lgamma<T>(a + 1));
  const T spread = m_exp(-a * above_log((x - a) / a) - stirling(ScalarMath<T>(), a));
  return spread / m_sqrt((T)6.28318530717958647693 * a);
}
constexpr int kMostGammaTerms = 100000;  // enough for a up to the next number
constexpr float kLargestGammaSum = 1e8f;
template <class T>
PF_DEVICE T lower_gamma_series(T a, T x) {
  T sum = 1, term = 1;
  for (int k = 1; k < kMostGammaTerms; ++k) {
    term *= x / (a + (T)k);
    sum += term;
    if (term < half_ulp<T>() * sum) break;
  }
  return sum * gamma_weight(a, x);
}
// Legendre's continued fraction, by Lentz's method.
template <class T>
PF_DEVICE T upper_gamma_fraction(T a, T x) {
  const T tiny = sizeof(T) == 4 ? (T)1e-30 : (T)1e-300;
  T b = x + 1 - a, c = 1 / tiny, d = 1 / b, h = d;
  for (int k = 1; k < kMostGammaTerms; ++k) {
    const T up = -(T)k * ((T)k - a);
    b += 2;
    d = up * d + b;
    c = b + up / c;
    if (d == 0) d = tiny;
    if (c == 0) c = tiny;
    d = 1 / d;
    h *= c * d;
    if (ScalarMath<T>().abs(c * d - 1) < 2 * half_ulp<T>()) break;
  }
  return h * gamma_weight(a, x) * a;
}
// The upper part for small a and x, where it is not one minus the lower part.
template <class T>
PF_DEVICE T upper_gamma_small(T a, T x) {
  const T log = a * m_log(x) - lgamma<T>(a + 1);
  T sum = 0, power = 1;
  for (int k = 1; k < 40; ++k) {
    power *= -x / (T)k;
    sum += power / (a + (T)k);
  }
  return -m_expm1(log) - m_exp(log) * a * sum;
}
// The upper part for a large a, by the error function and Temme's first correction (DLMF 8.12.4). It differs from 0 and 1
// only near x = a.
template <class T>
PF_DEVICE T upper_gamma_large(T a, T x) {
  T eta = m_sqrt(2 * above_log((x - a) / a));
  if (x < a) eta = -eta;
  const T c = (T)-0.33333333333333333 + eta / 12 - eta * eta * (T)0.014814814814814815;
  return (T)0.5 * m_erfc(eta * m_sqrt(a / 2)) + c * m_exp(-a * eta * eta / 2) / m_sqrt((T)6.28318530717958647693 * a);
}
// Where one of the numbers is 0, infinite, negative or NaN: whether that decides, and the lower part.
template <class T>
PF_DEVICE bool gamma_at_limits(T a, T x, T* lower) {
  const ScalarMath<T> m;
  const bool bad = !(a >= 0) || !(x >= 0) || (a == 0 && x == 0) || (a == m.inf() && x == m.inf());
  *lower = bad ? m.nan() : a == 0 || x == m.inf() ? (T)1 : (T)0;
  return bad || a == 0 || x == 0 || a == m.inf() || x == m.inf();
}
// The regularised incomplete gamma functions P(a, x) and Q(a, x).
template <class T>
PF_DEVICE T igamma(T a, T x) {
  T limit;
  if (gamma_at_limits(a, x, &limit)) return limit;
  if (a > kLargestGammaSum) return 1 - upper_gamma_large(a, x);
  return x < a + 1 ? lower_gamma_series(a, x) : 1 - upper_gamma_fraction(a, x);
}
template <class T>
PF_DEVICE T igammac(T a, T x) {
  T limit;
  if (gamma_at_limits(a, x, &limit)) return 1 - limit;
  if (a > kLargestGammaSum) return upper_gamma_large(a, x);
  if (x < (T)1.1 && a < 1) return upper_gamma_small(a, x);
  return x < a + 1 ? 1 - lower_gamma_series(a, x) : upper_gamma_fraction(a, x);
}

}  // namespace pf
#endif
#undef PF_SPECIAL
#endif
