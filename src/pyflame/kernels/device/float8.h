// Instructions that decode 8-bit floats, and that round to them. A GPU has them for the formats that its matrix cores multiply. Values are those of
// float8_to_float and float_to_float8 (scalar.h); a NaN that is decoded may have other bits.
#pragma once

namespace pf {

#ifdef PF_ON_DEVICE

// Whether the GPU has an instruction for format F, such as float8_e4m3fn.
template <class F>
constexpr bool kDecodesFloat8 = false;
// The lower or the upper two codes of a word, decoded by the instruction.
template <class F>
PF_DEVICE void decode_float8_pair(u32 word, bool upper, float* to);
// Code i (0 to 3) of a word.
template <class F>
PF_DEVICE float decoded_float8(u32 word, int i) {
  float pair[2];
  decode_float8_pair<F>(word, (i & 2) != 0, pair);
  return pair[i & 1];
}

#if defined(__gfx942__)
#define PF_FLOAT8_WIDE float8_e4m3fnuz
#define PF_FLOAT8_NARROW float8_e5m2fnuz
#elif defined(__gfx950__) || defined(__gfx1200__) || defined(__gfx1201__)
#define PF_FLOAT8_WIDE float8_e4m3fn
#define PF_FLOAT8_NARROW float8_e5m2
#endif
#ifdef PF_FLOAT8_WIDE
#define PF_DECODED_FLOAT8(format, instruction)                                              \
  template <>                                                                               \
  constexpr bool kDecodesFloat8<format> = true;                                             \
  template <>                                                                               \
  PF_DEVICE void decode_float8_pair<format>(u32 word, bool upper, float* to) {              \
    const auto pair = upper ? instruction((int)word, true) : instruction((int)word, false); \
    to[0] = pair[0], to[1] = pair[1];                                                       \
  }
PF_DECODED_FLOAT8(PF_FLOAT8_WIDE, __builtin_amdgcn_cvt_pk_f32_fp8)
PF_DECODED_FLOAT8(PF_FLOAT8_NARROW, __builtin_amdgcn_cvt_pk_f32_bf8)
#undef PF_DECODED_FLOAT8
#undef PF_FLOAT8_WIDE
#undef PF_FLOAT8_NARROW
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
// Two codes become two numbers of float16, which holds them exactly.
#define PF_DECODED_FLOAT8(format, name)                                                                    \
  template <>                                                                                              \
  constexpr bool kDecodesFloat8<format> = true;                                                            \
  template <>                                                                                              \
  PF_DEVICE void decode_float8_pair<format>(u32 word, bool upper, float* to) {                             \
    u32 pair;                                                                                              \
    asm("cvt.rn.f16x2." name "x2 %0, %1;" : "=r"(pair) : "h"((u16)(upper ? word >> 16 : word & 0xffffu))); \
    to[0] = half_to_float((u16)(pair & 0xffffu)), to[1] = half_to_float((u16)(pair >> 16));                \
  }
PF_DECODED_FLOAT8(float8_e4m3fn, "e4m3")
PF_DECODED_FLOAT8(float8_e5m2, "e5m2")
#undef PF_DECODED_FLOAT8
#endif

// The code of a float with the bits `bits`, where an instruction has rounded its magnitude to `code`. Instructions differ in what they make of
// magnitudes from that with the bits kFirst on, which are too large for the format.
template <int kCodes, u32 kFirst>
PF_DEVICE u8 whole_float8(u32 bits, u32 code) {
  const u32 sign = (bits >> 24) & 128u, a = bits & 0x7fffffffu;
  if (a >= kFirst) code = kCodes == NanAtMinusZero ? 128u : kCodes == InfinityAndNan && a <= 0x7f800000u ? 124u : 127u;
  if (kCodes == NanAtMinusZero && code == 0) return 0;
  return (u8)(sign | code);
}
// rounded: an expression with the code of the float `a`, which is not negative, in its lowest 8 bits.
#define PF_ENCODED_FLOAT8(fraction, bias, codes, first, rounded)              \
  template <>                                                                 \
  PF_DEVICE u8 float_to_float8<fraction, bias, codes>(float x) {              \
    const float a = float_of_bits(bits_of_float(x) & 0x7fffffffu);            \
    return whole_float8<codes, first>(bits_of_float(x), (u32)(rounded)&255u); \
  }
#if defined(__gfx942__)
PF_ENCODED_FLOAT8(3, 8, NanAtMinusZero, 0x43780000u, __builtin_amdgcn_cvt_pk_fp8_f32(a, 0.0f, 0, false))
PF_ENCODED_FLOAT8(2, 16, NanAtMinusZero, 0x47700000u, __builtin_amdgcn_cvt_pk_bf8_f32(a, 0.0f, 0, false))
#elif defined(__gfx950__) || defined(__gfx1200__) || defined(__gfx1201__)
PF_ENCODED_FLOAT8(3, 7, OneNan, 0x43e80001u, __builtin_amdgcn_cvt_pk_fp8_f32(a, 0.0f, 0, false))
PF_ENCODED_FLOAT8(2, 15, InfinityAndNan, 0x47700000u, __builtin_amdgcn_cvt_pk_bf8_f32(a, 0.0f, 0, false))
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
// The first operand is the upper half of the result.
PF_DEVICE u16 rounded_e4m3(float a) {
  u16 pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(a));
  return pair;
}
PF_DEVICE u16 rounded_e5m2(float a) {
  u16 pair;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(a));
  return pair;
}
PF_ENCODED_FLOAT8(3, 7, OneNan, 0x43e80001u, rounded_e4m3(a))
PF_ENCODED_FLOAT8(2, 15, InfinityAndNan, 0x47700000u, rounded_e5m2(a))
#endif
#undef PF_ENCODED_FLOAT8

#endif

}  // namespace pf
