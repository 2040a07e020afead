// The product of four integers of 8 bits with four others, added to an integer.
#pragma once

namespace pf {

#ifdef PF_ON_DEVICE

#if !defined(PF_EMULATED_WAVE) && (defined(__HIPCC_RTC__) || defined(__HIPCC__)) && \
    (defined(__GFX11__) || defined(__GFX12__))
PF_DEVICE int dot4(u32 a, u32 b, int c) { return __builtin_amdgcn_sudot4(true, (int)a, true, (int)b, c, false); }
#elif !defined(PF_EMULATED_WAVE) && (defined(__HIPCC_RTC__) || defined(__HIPCC__)) &&               \
    (defined(__gfx906__) || defined(__gfx908__) || defined(__gfx90a__) || defined(__gfx942__) ||    \
     defined(__gfx950__) || defined(__gfx1011__) || defined(__gfx1012__) || defined(__gfx1030__) || \
     defined(__gfx1031__) || defined(__gfx1032__) || defined(__gfx1034__) || defined(__gfx1035__))
PF_DEVICE int dot4(u32 a, u32 b, int c) { return __builtin_amdgcn_sdot4((int)a, (int)b, c, false); }
#elif defined(__CUDA_ARCH__)
PF_DEVICE int dot4(u32 a, u32 b, int c) { return __dp4a((int)a, (int)b, c); }
#else
PF_DEVICE int dot4(u32 a, u32 b, int c) {
#pragma unroll
  for (int i = 0; i < 4; ++i) c += (int)(i8)(u8)(a >> (8 * i)) * (int)(i8)(u8)(b >> (8 * i));
  return c;
}
#endif

#endif

}  // namespace pf
