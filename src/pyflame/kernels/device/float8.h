// Instructions that decode 8-bit floats. A GPU has them for the formats that its matrix cores multiply. Values are those of float8_to_float
// (scalar.h); a NaN may have other bits.
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

#endif

}  // namespace pf
