// Bytes that are chosen among those of two words.
#pragma once

namespace pf {

#ifdef PF_ON_DEVICE

// Four bytes: each is the byte of `low` (places 0 to 3) or `high` (4 to 7) whose place is in that byte of `places`. Places
// above 7 are undefined.
#if !defined(PF_EMULATED_WAVE) && (defined(__HIPCC_RTC__) || defined(__HIPCC__))
PF_DEVICE u32 permuted(u32 high, u32 low, u32 places) { return __builtin_amdgcn_perm(high, low, places); }
#elif defined(__CUDA_ARCH__)
PF_DEVICE u32 permuted(u32 high, u32 low, u32 places) {
  const u32 pairs = places | places >> 4;  // the instruction takes places of 4 bits
  return __byte_perm(low, high, (pairs & 0xffu) | (pairs >> 8 & 0xff00u));
}
#else
PF_DEVICE u32 permuted(u32 high, u32 low, u32 places) {
  u32 bytes = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const u32 place = places >> (8 * i) & 7u;
    bytes |= ((place < 4 ? low : high) >> (place % 4 * 8) & 255u) << (8 * i);
  }
  return bytes;
}
#endif

#endif

}  // namespace pf
