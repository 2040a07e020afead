// Philox4x32-10 (Salmon et al., 2011) and the one mapping from its words to random numbers. Every backend uses exactly
// this mapping, so that a seed gives the same numbers on every device; integers and uniforms are equal bit by bit,
// normals to 2 ulp.
//
//   key     = (seed low, seed high)
//   counter = (offset low, offset high, block low, block high)
//
// `offset` tells one op from the next (each random op gets a fresh one), `block` counts along the op's elements:
// element i is the row-major index in the output's shape, whatever the output's strides. A block has four words
// w[0..3].
//
//   what                 elements a block   element i uses                     value
//   uniform float32      4                  w[i % 4] of block i / 4            (w >> 8) * 2^-24
//   uniform float16      4                  w[i % 4] of block i / 4            (w >> 21) * 2^-11   exact, so that it is
//   never 1 uniform bfloat16     4                  w[i % 4] of block i / 4            (w >> 24) * 2^-8    likewise
//   uniform float64      2                  x = word64(i % 2) of block i / 2   (x >> 11) * 2^-53
//   normal float32       4                  pair p = i / 2: a = w[2 (p % 2)], b = w[2 (p % 2) + 1] of block p / 2
//                                           u = ((a >> 8) + 1) * 2^-24, t = (b >> 8) * 2^-24, r = sqrt(-2 ln u)
//                                           even i: r cos(2 pi t)   odd i: r sin(2 pi t)
//   normal 16-bit types  as float32, rounded to the type
//   normal float64       2                  pair p = i / 2, block p: r and t as above with
//                                           u = ((word64(0) >> 11) + 1) * 2^-53, t = (word64(1) >> 11) * 2^-53
//   rand_int             2                  x = word64(i % 2) of block i / 2   low + x mod (high - low), all modulo
//   2^64 randperm             2                  key_i = word64(i % 2) of block i / 2; the permutation sorts by (key_i,
//   i)
//
//   word64(h) = w[2h] | w[2h + 1] << 32
#pragma once
#include <array>
#include <cstdint>

namespace pyflame {

using PhiloxBlock = std::array<uint32_t, 4>;

inline PhiloxBlock philox_rounds(PhiloxBlock c, uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ key0, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ key1, static_cast<uint32_t>(p0)};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return c;
}

inline PhiloxBlock philox(uint64_t seed, uint64_t offset, uint64_t block) {
  return philox_rounds({static_cast<uint32_t>(offset), static_cast<uint32_t>(offset >> 32),
                        static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32)},
                       static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
}

inline uint64_t philox_word64(const PhiloxBlock& w, int half) {
  const auto at = static_cast<unsigned>(2 * half);
  return w[at] | static_cast<uint64_t>(w[at + 1]) << 32;
}

// The 64 random bits of element i where two elements share a block (float64 uniform, rand_int, randperm).
inline uint64_t philox_element64(uint64_t seed, uint64_t offset, int64_t i) {
  return philox_word64(philox(seed, offset, static_cast<uint64_t>(i / 2)), static_cast<int>(i % 2));
}

// Uniform numbers in [0, 1); exact in the type they are for.
inline float philox_uniform_f32(uint32_t w) { return static_cast<float>(w >> 8) * 0x1p-24f; }
inline float philox_uniform_f16(uint32_t w) { return static_cast<float>(w >> 21) * 0x1p-11f; }
inline float philox_uniform_bf16(uint32_t w) { return static_cast<float>(w >> 24) * 0x1p-8f; }
inline double philox_uniform_f64(uint64_t x) { return static_cast<double>(x >> 11) * 0x1p-53; }
// The same in (0, 1]: the argument of Box-Muller's logarithm.
inline float philox_open_uniform_f32(uint32_t w) { return static_cast<float>((w >> 8) + 1) * 0x1p-24f; }
inline double philox_open_uniform_f64(uint64_t x) { return static_cast<double>((x >> 11) + 1) * 0x1p-53; }

inline int64_t philox_int(uint64_t x, int64_t low, int64_t high) {
  return static_cast<int64_t>(static_cast<uint64_t>(low) +
                              x % (static_cast<uint64_t>(high) - static_cast<uint64_t>(low)));
}

}  // namespace pyflame
