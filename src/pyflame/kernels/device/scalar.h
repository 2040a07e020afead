// Scalars of a kernel: 16-bit float types, conversions, and the mathematics of elementwise ops under the names of the
// ops, so that generated code is a list of calls. This text follows launch.h and includes nothing, because run-time
// compilers see only the text that they are given.
#pragma once

namespace pf {

using i8 = signed char;
using u8 = unsigned char;
using i16 = short;
using u16 = unsigned short;
using i32 = int;
using u32 = unsigned int;
using i64 = long long;
using u64 = unsigned long long;

// --- storage types: f16 and bf16 are stored in 16 bits and computed as float
struct f16 {
  u16 v;
};
struct bf16 {
  u16 v;
};
struct bool8 {
  u8 v;
};

// The hardware's conversions, if there are any: one instruction, the same results.
PF_DEVICE float half_to_float(u16 h) {
#if defined(__HIPCC_RTC__) || defined(__HIPCC__)
  return (float)__builtin_bit_cast(_Float16, h);
#elif defined(__CUDACC__)
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h));
  return x;
#else
  const u32 sign = (u32)(h & 0x8000u) << 16, exponent = (h >> 10) & 31u, fraction = h & 1023u;
  if (exponent == 31u) return float_of_bits(sign | 0x7f800000u | (fraction << 13));
  if (exponent != 0u) return float_of_bits(sign | ((exponent + 112u) << 23) | (fraction << 13));
  const float tiny = (float)fraction * 5.9604644775390625e-08f;  // 2^-24
  return sign ? -tiny : tiny;
#endif
}
// Rounds to the nearest, ties to even.
PF_DEVICE u16 float_to_half(float x) {
#if defined(__HIPCC_RTC__) || defined(__HIPCC__)
  const _Float16 h = (_Float16)x;
  return __builtin_bit_cast(u16, h);
#elif defined(__CUDACC__)
  u16 h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
  return h;
#else
  const u32 u = bits_of_float(x), sign = (u >> 16) & 0x8000u, a = u & 0x7fffffffu;
  if (a > 0x7f800000u) return (u16)(sign | 0x7e00u);
  if (a >= 0x477ff000u) return (u16)(sign | 0x7c00u);  // 65520 and above round to infinity
  if (a >= 0x38800000u) return (u16)(sign | ((a + 0xfffu + ((a >> 13) & 1u) - 0x38000000u) >> 13));
  const float scaled = float_of_bits(a) * 16777216.0f;  // scaled by 2^24: the fraction of a subnormal
  u32 n = (u32)scaled;
  const float rest = scaled - (float)n;
  if (rest > 0.5f || (rest == 0.5f && (n & 1u))) ++n;
  return (u16)(sign | n);
#endif
}
PF_DEVICE float bfloat_to_float(u16 b) { return float_of_bits((u32)b << 16); }
PF_DEVICE u16 float_to_bfloat(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  u16 b;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(b) : "f"(x));
  return b;
#elif defined(__gfx950__)
  const __bf16 b = (__bf16)x;
  return __builtin_bit_cast(u16, b);
#else
  const u32 u = bits_of_float(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return (u16)((u >> 16) | 0x40u);
  return (u16)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
#endif
}

// The type in which values of a storage type are computed.
template <class S>
struct compute {
  using type = S;
};
template <>
struct compute<f16> {
  using type = float;
};
template <>
struct compute<bf16> {
  using type = float;
};
template <>
struct compute<bool8> {
  using type = u8;
};
template <class S>
using C = typename compute<S>::type;

template <class S>
PF_DEVICE C<S> load(const S* p) {
  return *p;
}
PF_DEVICE float load(const f16* p) { return half_to_float(p->v); }
PF_DEVICE float load(const bf16* p) { return bfloat_to_float(p->v); }
PF_DEVICE u8 load(const bool8* p) { return p->v; }

template <class S>
PF_DEVICE void store(S* p, C<S> x) {
  *p = x;
}
PF_DEVICE void store(f16* p, float x) { p->v = float_to_half(x); }
PF_DEVICE void store(bf16* p, float x) { p->v = float_to_bfloat(x); }
PF_DEVICE void store(bool8* p, u8 x) { p->v = x; }

// Rounds a value to what the storage type S can represent.
template <class S, class T>
struct Convert {
  static PF_DEVICE C<S> to(T x) { return (C<S>)x; }
};
template <class T>
struct Convert<f16, T> {
  static PF_DEVICE float to(T x) { return half_to_float(float_to_half((float)x)); }
};
template <class T>
struct Convert<bf16, T> {
  static PF_DEVICE float to(T x) { return bfloat_to_float(float_to_bfloat((float)x)); }
};
template <class T>
struct Convert<bool8, T> {
  static PF_DEVICE u8 to(T x) { return x != (T)0 ? 1 : 0; }
};
template <class S, class T>
PF_DEVICE C<S> as(T x) {
  return Convert<S, T>::to(x);
}

// --- elementwise mathematics; T is a compute type
template <class T>
struct is_floating {
  static constexpr bool value = false;
};
template <>
struct is_floating<float> {
  static constexpr bool value = true;
};
template <>
struct is_floating<double> {
  static constexpr bool value = true;
};

// Ops that are functions of the C library, by the same name: exp<T>(x), and m_exp(x) for a float or a double.
// clang-format off
#define PF_C_FUNCTIONS(X)                                                                        \
  X(exp) X(exp2) X(expm1) X(log) X(log2) X(log10) X(log1p) X(sin) X(cos) X(tan) X(asin) X(acos) \
  X(atan) X(sinh) X(cosh) X(tanh) X(asinh) X(acosh) X(atanh) X(erf)
// clang-format on
#define PF_C_FUNCTION(name)                                 \
  PF_DEVICE float m_##name(float x) { return name##f(x); }  \
  PF_DEVICE double m_##name(double x) { return ::name(x); } \
  template <class T>                                        \
  PF_DEVICE T name(T x) {                                   \
    return m_##name(x);                                     \
  }
PF_C_FUNCTIONS(PF_C_FUNCTION)
#undef PF_C_FUNCTION
// sin(pi x) and cos(pi x): for the angle of normal random numbers, the argument stays exact. The host has no such
// functions.
#ifdef PF_ON_DEVICE
PF_DEVICE float m_sinpi(float x) { return sinpif(x); }
PF_DEVICE float m_cospi(float x) { return cospif(x); }
PF_DEVICE void m_sincospi(float x, float& sine, float& cosine) { sincospif(x, &sine, &cosine); }
#else
PF_DEVICE void m_sincospi(float x, float& sine, float& cosine) {
  sine = (float)::sin(3.141592653589793 * x), cosine = (float)::cos(3.141592653589793 * x);
}
#endif
PF_DEVICE float m_erfc(float x) { return erfcf(x); }
PF_DEVICE double m_erfc(double x) { return ::erfc(x); }
PF_DEVICE float m_sqrt(float x) { return sqrtf(x); }
PF_DEVICE double m_sqrt(double x) { return ::sqrt(x); }
PF_DEVICE float m_pow(float x, float y) { return powf(x, y); }
PF_DEVICE double m_pow(double x, double y) { return ::pow(x, y); }
PF_DEVICE float m_atan2(float y, float x) { return atan2f(y, x); }
PF_DEVICE double m_atan2(double y, double x) { return ::atan2(y, x); }
PF_DEVICE float m_mod(float x, float y) { return fmodf(x, y); }
PF_DEVICE double m_mod(double x, double y) { return ::fmod(x, y); }
PF_DEVICE float m_floor(float x) { return floorf(x); }
PF_DEVICE double m_floor(double x) { return ::floor(x); }
PF_DEVICE float m_ceil(float x) { return ceilf(x); }
PF_DEVICE double m_ceil(double x) { return ::ceil(x); }
PF_DEVICE float m_rint(float x) { return rintf(x); }
PF_DEVICE double m_rint(double x) { return ::rint(x); }
PF_DEVICE float m_copysign(float x, float y) { return copysignf(x, y); }
PF_DEVICE double m_copysign(double x, double y) { return ::copysign(x, y); }
PF_DEVICE float m_nextafter(float x, float y) { return nextafterf(x, y); }
PF_DEVICE double m_nextafter(double x, double y) { return ::nextafter(x, y); }
template <class T>
PF_DEVICE bool m_nan(T x) {
  return x != x;
}

// Integer arithmetic that wraps around, by way of the unsigned type.
#define PF_WRAP(name, sign)                                            \
  template <class T>                                                   \
  PF_DEVICE T name(T a, T b) {                                         \
    if constexpr (is_floating<T>::value) return a sign b;              \
    else if constexpr (sizeof(T) == 8) return (T)((u64)a sign(u64) b); \
    else return (T)((u32)a sign(u32) b);                               \
  }
PF_WRAP(add, +)
PF_WRAP(sub, -)
PF_WRAP(mul, *)
#undef PF_WRAP
template <class T>
PF_DEVICE T cast(T x) {
  return x;
}
template <class T>
PF_DEVICE T neg(T x) {
  if constexpr (is_floating<T>::value) return -x;
  else return sub<T>((T)0, x);
}
template <class T>
PF_DEVICE T abs(T x) {
  if constexpr (is_floating<T>::value) return x < 0 ? -x : x == 0 ? (T)0 : x;
  else return x < 0 ? sub<T>((T)0, x) : x;
}
template <class T>
PF_DEVICE T sign(T x) {
  return m_nan(x) ? x : (T)((x > 0) - (x < 0));
}
template <class T>
PF_DEVICE T sqrt(T x) {
  return m_sqrt(x);
}
template <class T>
PF_DEVICE T rsqrt(T x) {
  return 1 / m_sqrt(x);
}
template <class T>
PF_DEVICE T reciprocal(T x) {
  return 1 / x;
}
// 1 / x to one unit in the last place, for x between 1 and 1e6. It is faster than a division, which must handle all
// special cases.
PF_DEVICE float fast_reciprocal(float x) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
#elif defined(__AMDGCN__)
  const float y = __builtin_amdgcn_rcpf(x);
#else
  const float y = 1.0f / x;
#endif
  return fmaf(y, fmaf(-x, y, 1.0f), y);
}
PF_DEVICE double fast_reciprocal(double x) { return 1.0 / x; }
template <class T>
PF_DEVICE T sigmoid(T x) {
  const T e = m_exp(x < 0 ? x : -x), r = fast_reciprocal(1 + e);
  return x < 0 ? e * r : r;
}
template <class T>
PF_DEVICE T relu(T x) {
  return x <= 0 ? (T)0 : x;
}
// x times a factor that is 0 for very negative x: -inf gives 0, not NaN.
template <class T>
PF_DEVICE T gate(T x, T factor) {
  return factor == 0 ? (T)0 : x * factor;
}
// The standard normal distribution at x: its cumulative probability, and exp(-x x / 2).
template <class T>
struct Normality {
  T below, bell;
};
PF_DEVICE Normality<double> normality(double x) {
  return {0.5 * m_erfc(-x * 0.70710678118654752440), m_exp(-0.5 * x * x)};
}
// float32: exp(-x x / 2), with the rounding error of the square taken into account, times t Q(t) with t = 1 / (1 + 0.3
// |x|). This is the scaled complementary error function to 4e-9. The coefficients are a minimax fit for |x| <= 15;
// beyond that, the tail is 0.
PF_DEVICE Normality<float> normality(float x) {
  const float magnitude = x < 0 ? -x : x, a = magnitude > 15.0f ? 15.0f : magnitude;
  const float square = a * a, rest = fmaf(a, a, -square);
  const float y = square * -0.72134752044448f;  // -log2(e) / 2
  const float error = fmaf(rest, -0.72134752044448f, fmaf(square, -0.72134752044448f, -y) + square * -9.629814945e-09f);
  const float scale = exp2f(y), bell = fmaf(scale, error * 0.69314718055994f, scale);
  const float t = fast_reciprocal(fmaf(0.3f, a, 1.0f)), s = fmaf(t, 2.4444444f, -1.4444444f);
  float q = -1.3239740837889258e-05f;
  q = fmaf(q, s, 4.326685939304298e-06f);
  q = fmaf(q, s, 0.00016896979650482535f);
  q = fmaf(q, s, -9.71481713349931e-05f);
  q = fmaf(q, s, -0.0020751641131937504f);
  q = fmaf(q, s, -0.0005428999429568648f);
  q = fmaf(q, s, 0.03091585822403431f);
  q = fmaf(q, s, 0.13642562925815582f);
  q = fmaf(q, s, 0.32536637783050537f);
  q = fmaf(q, s, 0.5098472833633423f);
  const float tail = 0.5f * (bell * (q * t));
  return {x < 0 ? tail : 1.0f - tail, bell};
}
template <class T>
PF_DEVICE T gelu(T x) {
  return gate(x, normality(x).below);
}
// (1 + tanh u) / 2 is computed as sigmoid(2u), because 1 + tanh u loses digits for very negative u.
template <class T>
PF_DEVICE T gelu_tanh_argument(T x) {
  return (T)1.59576912160573071176 * (x + (T)0.044715 * x * x * x);
}
template <class T>
PF_DEVICE T gelu_tanh(T x) {
  return gate(x, sigmoid(gelu_tanh_argument(x)));
}
template <class T>
PF_DEVICE T silu(T x) {
  return gate(x, sigmoid(x));
}
template <class T>
PF_DEVICE T softplus(T x, T beta, T threshold) {
  return x * beta > threshold ? x : m_log1p(m_exp(x * beta)) / beta;
}
template <class T>
PF_DEVICE T leaky_relu(T x, T slope) {
  return x < 0 ? x * slope : x;
}
template <class T>
PF_DEVICE T floor(T x) {
  if constexpr (is_floating<T>::value) return m_floor(x);
  else return x;
}
template <class T>
PF_DEVICE T ceil(T x) {
  if constexpr (is_floating<T>::value) return m_ceil(x);
  else return x;
}
template <class T>
PF_DEVICE T round(T x) {
  if constexpr (is_floating<T>::value) return m_rint(x);
  else return x;
}
template <class T>
PF_DEVICE T bitwise_not(T x) {
  return (T)~x;
}
template <class T>
PF_DEVICE u8 isnan(T x) {
  return m_nan(x);
}
template <class T>
PF_DEVICE u8 isinf(T x) {
  if constexpr (is_floating<T>::value) return !m_nan(x) && m_nan(x - x);
  else return 0;
}
template <class T>
PF_DEVICE u8 logical_not(T x) {
  return x == 0;
}
template <class T>
PF_DEVICE T div(T a, T b) {
  return a / b;
}
// The divisor with which the lowest integer has no representable quotient, -1. Unsigned types have none.
template <class T>
PF_DEVICE bool minus_one(T b) {
  if constexpr ((T)-1 < (T)0) return b == (T)-1;
  else return false;
}
template <class T>
PF_DEVICE T floor_divide(T a, T b) {
  if constexpr (is_floating<T>::value) {
    if (b == 0) return a / b;
    const T m = m_mod(a, b);
    T q = (a - m) / b;
    if (m != 0 && (b < 0) != (m < 0)) q -= 1;
    if (q == 0) return m_copysign((T)0, a / b);
    const T f = m_floor(q);
    return q - f > (T)0.5 ? f + 1 : f;
  } else {
    if (minus_one(b)) return sub<T>((T)0, a);
    const T q = a / b;
    return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
  }
}
template <class T>
PF_DEVICE T remainder(T a, T b) {
  if constexpr (is_floating<T>::value) {
    const T m = m_mod(a, b);
    return m != 0 && (b < 0) != (m < 0) ? m + b : m;
  } else {
    if (minus_one(b)) return 0;
    const T m = a % b;
    return m != 0 && (m < 0) != (b < 0) ? m + b : m;
  }
}
template <class T>
PF_DEVICE T pow(T a, T b) {
  if constexpr (is_floating<T>::value) return m_pow(a, b);
  else {
    T r = 1;
    for (; b > 0; b >>= 1, a = mul<T>(a, a))
      if (b & 1) r = mul<T>(r, a);
    return r;
  }
}
template <class T>
PF_DEVICE T atan2(T y, T x) {
  return m_atan2(y, x);
}
template <class T>
PF_DEVICE T maximum(T a, T b) {
  return m_nan(a) || a > b ? a : b;
}
template <class T>
PF_DEVICE T minimum(T a, T b) {
  return m_nan(a) || a < b ? a : b;
}
// --- integers only
#define PF_BITS(name, sign)    \
  template <class T>           \
  PF_DEVICE T name(T a, T b) { \
    return (T)(a sign b);      \
  }
PF_BITS(bitwise_and, &)
PF_BITS(bitwise_or, |)
PF_BITS(bitwise_xor, ^)
#undef PF_BITS
// Shifts by negative numbers, or by as many bits as there are, leave 0, or the sign's bits on the right.
template <class T>
PF_DEVICE T bitwise_left_shift(T a, T b) {
  return b < 0 || b >= (T)(8 * sizeof(T)) ? (T)0 : (T)((u64)a << b);
}
template <class T>
PF_DEVICE T bitwise_right_shift(T a, T b) {
  if (b < 0 || b >= (T)(8 * sizeof(T))) return a < 0 ? (T)-1 : (T)0;
  return (T)(a >> b);
}
template <class T>
PF_DEVICE T gcd(T a, T b) {
  u64 x = a < 0 ? 0 - (u64)a : (u64)a, y = b < 0 ? 0 - (u64)b : (u64)b;
  while (y != 0) {
    const u64 rest = x % y;
    x = y, y = rest;
  }
  return (T)x;
}

template <class T>
PF_DEVICE T nextafter(T a, T b) {
  return m_nextafter(a, b);
}
#define PF_COMPARE(name, sign)  \
  template <class T>            \
  PF_DEVICE u8 name(T a, T b) { \
    return a sign b;            \
  }
PF_COMPARE(eq, ==)
PF_COMPARE(ne, !=)
PF_COMPARE(lt, <)
PF_COMPARE(le, <=)
PF_COMPARE(gt, >)
PF_COMPARE(ge, >=)
#undef PF_COMPARE
template <class T>
PF_DEVICE u8 logical_and(T a, T b) {
  return a != 0 && b != 0;
}
template <class T>
PF_DEVICE u8 logical_or(T a, T b) {
  return a != 0 || b != 0;
}
template <class T>
PF_DEVICE u8 logical_xor(T a, T b) {
  return (a != 0) != (b != 0);
}
template <class T>
PF_DEVICE T gelu_grad(T x, T g) {
  const Normality<T> n = normality(x);
  return g * (n.below + gate(x, (T)0.39894228040143267794 * n.bell));
}
template <class T>
PF_DEVICE T gelu_tanh_grad(T x, T g) {
  const T u = gelu_tanh_argument(x);
  const T slope = (T)1.59576912160573071176 * (1 + 3 * (T)0.044715 * x * x);
  return g * (sigmoid(u) + gate(x * slope, sigmoid(u) * sigmoid(-u)));
}
template <class T>
PF_DEVICE T silu_grad(T x, T g) {
  return g * (sigmoid(x) + gate(x, sigmoid(x) * sigmoid(-x)));
}
template <class T>
PF_DEVICE T where(u8 condition, T a, T b) {
  return condition ? a : b;
}

// --- a complex64 element: the bits of its parts, the real one in the lower half
template <class T>
PF_DEVICE i64 pack_complex(T re, T im) {
  return (i64)((u64)bits_of_float((float)im) << 32 | bits_of_float((float)re));
}
template <class T>
PF_DEVICE float real_part(T bits) {
  return float_of_bits((u32)(u64)(i64)bits);
}
template <class T>
PF_DEVICE float imag_part(T bits) {
  return float_of_bits((u32)((u64)(i64)bits >> 32));
}

template <class T>
PF_DEVICE i64 mul_complex(T a, T b) {
  const float ar = real_part(a), ai = imag_part(a), br = real_part(b), bi = imag_part(b);
  return pack_complex(ar * br - ai * bi, ar * bi + ai * br);
}

// By Smith's formula (Algorithm 116, 1962): without squares, which overflow.
template <class T>
PF_DEVICE i64 div_complex(T a, T b) {
  const float ar = real_part(a), ai = imag_part(a), br = real_part(b), bi = imag_part(b);
  const bool real = m_copysign(br, 1.0f) >= m_copysign(bi, 1.0f);
  const float large = real ? br : bi, small = real ? bi : br, p = real ? ar : ai, q = real ? ai : ar;
  const float ratio = large == 0 ? 0 : small / large, size = large + small * ratio;
  const float im = (q - p * ratio) / size;
  return pack_complex((p + q * ratio) / size, real ? im : -im);
}

// --- 8-bit floats: the value of a code, and the code of the nearest value. tensor/float8.h has the formats.
enum Float8Codes { InfinityAndNan, OneNan, NanAtMinusZero };

// Without conditions, which need scalar registers on AMD. The fields of the code are those of a float, possibly a subnormal one, whose exponent has
// another bias, so that one exact product gives the value.
template <int kFraction, int kBias, int kCodes>
PF_DEVICE float float8_to_float(u32 code) {
  const u32 size = code & 127u;
  const u32 finite = bits_of_float(float_of_bits(size << (23 - kFraction)) * float_of_bits((u32)(254 - kBias) << 23));
  const u32 special = kCodes == InfinityAndNan ? (size + 4) >> 7
                      : kCodes == OneNan       ? (size + 1) >> 7
                                               : ((code ^ 128u) - 1) >> 31;
  const u32 ones =
      kCodes == InfinityAndNan ? 0x7f800000u : 0x7fc00000u;  // of infinity, whose fraction decides about NaN, or NaN
  return float_of_bits(finite | ((0u - special) & ones) | (code & 128u) << 24);
}
template <int kFraction, int kBias, int kCodes>
PF_DEVICE u8 float_to_float8(float x) {
  const u32 u = bits_of_float(x), sign = (u >> 24) & 128u, a = u & 0x7fffffffu, shift = 23 - kFraction;
  // Below the smallest normal number: added to a number whose last digit is worth the smallest subnormal one, which rounds.
  const float large = float_of_bits((u32)(151 - kBias - kFraction) << 23);
  const u32 tiny = bits_of_float(float_of_bits(a) + large) - bits_of_float(large);
  const u32 normal = (a - ((u32)(127 - kBias) << 23) + ((1u << (shift - 1)) - 1) + ((a >> shift) & 1u)) >> shift;
  u32 code = a < (u32)(128 - kBias) << 23 ? tiny : normal;
  if (kCodes == InfinityAndNan) code = a > 0x7f800000u ? 127u : code > 0x7cu ? 0x7cu : code;
  if (kCodes == OneNan) code = code > 127u ? 127u : code;
  if (kCodes == NanAtMinusZero) return (u8)(code > 127u ? 128u : code ? sign | code : 0u);
  return (u8)(sign | code);
}

#define PF_FLOAT8(name, fraction, bias, codes)                                                     \
  struct name {                                                                                    \
    PF_DEVICE static float value(u8 code) { return float8_to_float<fraction, bias, codes>(code); } \
  };                                                                                               \
  template <class T>                                                                               \
  PF_DEVICE float from_##name(T code) {                                                            \
    return name::value((u8)code);                                                                  \
  }                                                                                                \
  template <class T>                                                                               \
  PF_DEVICE u8 to_##name(T x) {                                                                    \
    return float_to_float8<fraction, bias, codes>((float)x);                                       \
  }
PF_FLOAT8(float8_e4m3fn, 3, 7, OneNan)
PF_FLOAT8(float8_e5m2, 2, 15, InfinityAndNan)
PF_FLOAT8(float8_e4m3fnuz, 3, 8, NanAtMinusZero)
PF_FLOAT8(float8_e5m2fnuz, 2, 16, NanAtMinusZero)
#undef PF_FLOAT8

// --- random numbers: Philox4x32-10, the mapping of base/philox.h
struct Words {
  u32 w[4];
  // Word i % 4. It is selected by conditions: indexing with a run-time value would move the array from registers to
  // memory.
  PF_DEVICE u32 at(u64 i) const {
    const u32 low = i & 1 ? w[1] : w[0], high = i & 1 ? w[3] : w[2];
    return i & 2 ? high : low;
  }
};
PF_DEVICE Words philox(u64 seed, u64 offset, u64 block) {
  u32 c0 = (u32)offset, c1 = (u32)(offset >> 32), c2 = (u32)block, c3 = (u32)(block >> 32), k0 = (u32)seed,
      k1 = (u32)(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const u64 p0 = (u64)0xD2511F53u * c0, p1 = (u64)0xCD9E8D57u * c2;
    const u32 n0 = (u32)(p1 >> 32) ^ c1 ^ k0, n2 = (u32)(p0 >> 32) ^ c3 ^ k1;
    c0 = n0, c1 = (u32)p1, c2 = n2, c3 = (u32)p0;
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}
PF_DEVICE u64 philox64(u64 seed, u64 offset, u64 i) {
  const Words w = philox(seed, offset, i / 2);
  return i % 2 ? w.w[2] | (u64)w.w[3] << 32 : w.w[0] | (u64)w.w[1] << 32;
}
template <class S>
struct Uniform {  // float32
  static PF_DEVICE float of(u32 word) { return (float)(word >> 8) * 5.9604644775390625e-08f; }
  static PF_DEVICE float at(u64 seed, u64 offset, u64 i) { return of(philox(seed, offset, i / 4).at(i)); }
};
template <>
struct Uniform<f16> {
  static PF_DEVICE float of(u32 word) { return (float)(word >> 21) * 4.8828125e-04f; }
  static PF_DEVICE float at(u64 seed, u64 offset, u64 i) { return of(philox(seed, offset, i / 4).at(i)); }
};
template <>
struct Uniform<bf16> {
  static PF_DEVICE float of(u32 word) { return (float)(word >> 24) * 3.90625e-03f; }
  static PF_DEVICE float at(u64 seed, u64 offset, u64 i) { return of(philox(seed, offset, i / 4).at(i)); }
};
template <>
struct Uniform<double> {
  static PF_DEVICE double at(u64 seed, u64 offset, u64 i) {
    return (double)(philox64(seed, offset, i) >> 11) * 1.1102230246251565e-16;
  }
};
// The two normal numbers of two words.
struct NormalPair {
  float even, odd;
  PF_DEVICE NormalPair() {}
  PF_DEVICE NormalPair(u32 a, u32 b) {
    const float u = (float)((a >> 8) + 1) * 5.9604644775390625e-08f,
                phase = (float)(b >> 8) * 1.1920928955078125e-07f;  // in units of pi
    const float r = m_sqrt(-2 * m_log(u));
    float sine, cosine;
    m_sincospi(phase, sine, cosine);
    even = r * cosine, odd = r * sine;
  }
};
template <class S>
struct Normal {
  static PF_DEVICE float at(u64 seed, u64 offset, u64 i) {
    const u64 pair = i / 2;
    const Words w = philox(seed, offset, pair / 2);
    const NormalPair both(pair & 1 ? w.w[2] : w.w[0], pair & 1 ? w.w[3] : w.w[1]);
    return i % 2 ? both.odd : both.even;
  }
};
// The words of kCount neighbours, the first of which is a multiple of kCount: 2, or a multiple of 4. Compilers do not find by themselves that
// neighbours share their block, if what is computed from a word has branches.
template <int kCount>
struct DrawnWords {
  u32 w[kCount];
  PF_DEVICE DrawnWords(u64 seed, u64 offset, u64 first) {
    static_assert(kCount == 2 || kCount % 4 == 0);
    if constexpr (kCount == 2) {
      const Words all = philox(seed, offset, first / 4);
      w[0] = all.at(first), w[1] = all.at(first + 1);
    } else {
      for (int i = 0; i < kCount; i += 4) {
        const Words all = philox(seed, offset, (first + i) / 4);
        for (int k = 0; k < 4; ++k) w[i + k] = all.w[k];
      }
    }
  }
};
// Their uniform and their normal numbers.
template <class S, int kCount>
struct Uniforms {
  DrawnWords<kCount> words;
  PF_DEVICE Uniforms(u64 seed, u64 offset, u64 first) : words(seed, offset, first) {}
  PF_DEVICE float operator[](int i) const { return Uniform<S>::of(words.w[i]); }
};
template <class S, int kCount>
struct Normals {
  NormalPair pairs[kCount / 2];
  PF_DEVICE Normals(u64 seed, u64 offset, u64 first) {
    const DrawnWords<kCount> words(seed, offset, first);
    for (int i = 0; i < kCount / 2; ++i) pairs[i] = NormalPair(words.w[2 * i], words.w[2 * i + 1]);
  }
  PF_DEVICE float operator[](int i) const { return i % 2 ? pairs[i / 2].odd : pairs[i / 2].even; }
};
template <>
struct Normal<double> {
  static PF_DEVICE double at(u64 seed, u64 offset, u64 i) {
    const Words w = philox(seed, offset, i / 2);
    const u64 a = w.w[0] | (u64)w.w[1] << 32, b = w.w[2] | (u64)w.w[3] << 32;
    const double u = (double)((a >> 11) + 1) * 1.1102230246251565e-16,
                 t = 6.283185307179586476925 * ((double)(b >> 11) * 1.1102230246251565e-16);
    const double r = m_sqrt(-2 * m_log(u));
    return r * (i % 2 ? m_sin(t) : m_cos(t));  // by the definition of the op, which rounds the angle
  }
};
// The upper half of a product of 128 bits.
PF_DEVICE u64 upper_product(u64 a, u64 b) {
  const u64 a0 = (u32)a, a1 = a >> 32, b0 = (u32)b, b1 = b >> 32;
  const u64 middle = a1 * b0 + (a0 * b0 >> 32), other = a0 * b1 + (u32)middle;
  return a1 * b1 + (middle >> 32) + (other >> 32);
}
PF_DEVICE i64 random_int(u64 seed, u64 offset, u64 i, i64 low, i64 high) {
  // x % range. GPUs divide 64-bit integers in some hundred instructions, so one division is for all elements of a thread. With
  // inverse = floor((2^64 - 1) / range), the quotient below is right or too small by 1.
  const u64 range = (u64)high - (u64)low, inverse = ~(u64)0 / range, x = philox64(seed, offset, i);
  const u64 rest = x - upper_product(x, inverse) * range;
  return (i64)((u64)low + (rest >= range ? rest - range : rest));
}

}  // namespace pf
