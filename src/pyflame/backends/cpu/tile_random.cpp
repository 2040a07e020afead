// Random numbers of a tile: blocks of Philox in vectors, one block in each lane, and the mapping of base/philox.h.
#include "pyflame/backends/cpu/tile_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pyflame/backends/cpu/tile_random.cpp"
#include <hwy/foreach_target.h>  // before highway.h

#include <algorithm>
#include <cmath>
#include <cstring>

#include "pyflame/backends/cpu/math-inl.h"
#include "pyflame/backends/cpu/tile_kernels.h"
#include "pyflame/backends/cpu/tile_loop-inl.h"
#include "pyflame/backends/cpu/vec.h"
#include "pyflame/base/error.h"
#include "pyflame/base/philox.h"

HWY_BEFORE_NAMESPACE();
namespace pyflame::cpu::tile {
namespace HWY_NAMESPACE {

constexpr int64_t kBlocks = 256;    // that are computed at once
constexpr int64_t kMostLanes = 16;  // of a vector, beyond which a part may be written
struct Words {
  HWY_ALIGN uint64_t v[2 * (kBlocks + kMostLanes)];  // two for each block, its words in order
};

// Blocks first, first + 1, .... A lane of 64 bits holds a word in its lower half; what is in the upper half does not matter.
#if HWY_TARGET == HWY_SCALAR
void philox_blocks(uint64_t seed, uint64_t offset, uint64_t first, int64_t blocks, Words& out) {
  for (int64_t b = 0; b < blocks; ++b) {
    const PhiloxBlock w = philox(seed, offset, first + static_cast<uint64_t>(b));
    out.v[2 * b] = philox_word64(w, 0), out.v[2 * b + 1] = philox_word64(w, 1);
  }
}
#else
void philox_blocks(uint64_t seed, uint64_t offset, uint64_t first, int64_t blocks, Words& out) {
  const hn::ScalableTag<uint64_t> d;
  const hn::Repartition<uint32_t, decltype(d)> d32;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto m0 = hn::BitCast(d32, hn::Set(d, 0xD2511F53u)), m1 = hn::BitCast(d32, hn::Set(d, 0xCD9E8D57u));
  const auto low = hn::Set(d, 0xffffffffu);
  for (int64_t b = 0; b < blocks; b += lanes) {
    const auto number = hn::Add(hn::Set(d, first + static_cast<uint64_t>(b)), hn::Iota(d, 0));
    auto c0 = hn::Set(d, offset & 0xffffffffu), c1 = hn::Set(d, offset >> 32);
    auto c2 = number, c3 = hn::ShiftRight<32>(number);
    auto k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
    for (int round = 0; round < 10; ++round) {
      const auto p0 = hn::MulEven(m0, hn::BitCast(d32, c0)), p1 = hn::MulEven(m1, hn::BitCast(d32, c2));
      c0 = hn::Xor(hn::ShiftRight<32>(p1), hn::Xor(c1, hn::Set(d, k0)));
      c2 = hn::Xor(hn::ShiftRight<32>(p0), hn::Xor(c3, hn::Set(d, k1)));
      c1 = p1, c3 = p0;
      k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    hn::StoreInterleaved2(hn::Or(hn::And(c0, low), hn::ShiftLeft<32>(c1)),
                          hn::Or(hn::And(c2, low), hn::ShiftLeft<32>(c3)), d, out.v + 2 * b);
  }
}
#endif

// Calls f(words, position in the tile, count, elements of the first block that the tile does not have) for parts of the tile.
template <int64_t kPer, class F>
HWY_INLINE void for_parts(const Args& a, F f) {
  const auto seed = static_cast<uint64_t>(a.i64(0)), offset = static_cast<uint64_t>(a.i64(1));
  Words words;
  for (int64_t i = 0; i < a.n;) {
    const int64_t at = a.index + i, skip = at % kPer;
    const int64_t blocks = std::min(kBlocks, (skip + a.n - i + kPer - 1) / kPer);
    philox_blocks(seed, offset, static_cast<uint64_t>(at / kPer), blocks, words);
    const int64_t count = std::min(blocks * kPer - skip, a.n - i);
    f(words, i, count, skip);
    i += count;
  }
}

template <DType kOut>
void uniform_single(const Args& a) {
  constexpr int kShift = kOut == DType::float16 ? 21 : kOut == DType::bfloat16 ? 24 : 8;
  constexpr float kUnit = kOut == DType::float16 ? 0x1p-11f : kOut == DType::bfloat16 ? 0x1p-8f : 0x1p-24f;
  for_parts<4>(a, [&](const Words& words, int64_t i, int64_t count, int64_t skip) HWY_ATTR {
    uint32_t bits[4 * kBlocks];
    std::memcpy(bits, words.v, sizeof bits);
    float* out = static_cast<float*>(a.dst) + i;
    const uint32_t* w = bits + skip;
    PF_NO_ALIAS_LOOP
    for (int64_t k = 0; k < count; ++k) out[k] = static_cast<float>(static_cast<int32_t>(w[k] >> kShift)) * kUnit;
  });
}
void uniform_double(const Args& a) {
  for_parts<2>(a, [&](const Words& words, int64_t i, int64_t count, int64_t skip) HWY_ATTR {
    double* out = static_cast<double*>(a.dst) + i;
    for (int64_t k = 0; k < count; ++k) out[k] = philox_uniform_f64(words.v[skip + k]);
  });
}

// Box and Muller's pair of normal numbers from u in (0, 1] and an angle of t turns. In float, the angle is reduced to an eighth of a
// turn exactly.
template <class V>
HWY_INLINE void normal_pair(V u, V t, V& even, V& odd) {
  using T = hn::TFromV<V>;
  const hn::ScalableTag<T> d;
  namespace m = math::HWY_NAMESPACE;
  const V r = hn::Sqrt(hn::Mul(hn::Set(d, T{-2}), m::log(d, u)));
  if constexpr (sizeof(T) == 8) {
    const V angle = hn::Mul(t, hn::Set(d, 6.283185307179586477));
    even = hn::Mul(r, m::cos(d, angle)), odd = hn::Mul(r, m::sin(d, angle));
  } else {
    const V quarter = m::nearest(d, hn::Mul(t, hn::Set(d, T{4})));
    const V rest = hn::NegMulAdd(quarter, hn::Set(d, T{0.25}), t);
    const m::VectorMath<decltype(d)> of{d};
    const V square = hn::Mul(rest, rest);
    // Interpolations of sin(2 pi x) / x and of cos(2 pi x) at Chebyshev points in x^2, for |x| <= 1/8; errors are below 1e-10.
    const V s =
        hn::Mul(rest, of.poly(square, 6.28318530715, -41.3417021534, 81.6052047287, -76.6978681532, 41.472890931));
    const V c = of.poly(square, 0.999999999953, -19.7392086502, 64.9393161721, -85.4428483977, 59.2202881339);
    const hn::RebindToSigned<decltype(d)> di;
    const auto q = hn::ConvertTo(di, quarter);
    const auto one = hn::Set(di, 1);
    const auto swapped = hn::MaskFromVec(hn::BitCast(d, hn::Neg(hn::And(q, one))));
    const V sine = hn::IfThenElse(swapped, c, s), cosine = hn::IfThenElse(swapped, s, c);
    // The sine is negative in quarters 2 and 3, the cosine in 1 and 2.
    const V sine_sign = hn::BitCast(d, hn::ShiftLeft<30>(hn::AndNot(one, q)));
    const V cosine_sign = hn::BitCast(d, hn::ShiftLeft<30>(hn::AndNot(one, hn::Add(q, one))));
    const V top = hn::SignBit(d);
    even = hn::Mul(r, hn::Xor(cosine, hn::And(cosine_sign, top)));
    odd = hn::Mul(r, hn::Xor(sine, hn::And(sine_sign, top)));
  }
}

// The numbers of all blocks of a part, in order.
void normals_single(const Words& words, int64_t blocks, float* out) {
  const hn::ScalableTag<float> d;
  const hn::ScalableTag<uint32_t> du;
  const hn::RebindToSigned<decltype(d)> di;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  HWY_ALIGN uint32_t bits[4 * (kBlocks + kMostLanes)];
  std::memcpy(bits, words.v, sizeof bits);
  const auto unit = hn::Set(d, 0x1p-24f);
  const auto as_float = [&](auto w) HWY_ATTR { return hn::Mul(hn::ConvertTo(d, hn::BitCast(di, w)), unit); };
  for (int64_t k = 0; k < 4 * blocks; k += 2 * lanes) {
    hn::Vec<decltype(du)> first, second;
    hn::LoadInterleaved2(du, bits + k, first, second);
    hn::Vec<decltype(d)> even, odd;
    normal_pair(as_float(hn::Add(hn::ShiftRight<8>(first), hn::Set(du, 1u))), as_float(hn::ShiftRight<8>(second)), even,
                odd);
    hn::StoreInterleaved2(even, odd, d, out + k);
  }
}
void normals_double(const Words& words, int64_t blocks, double* out) {
  const hn::ScalableTag<double> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  HWY_ALIGN double u[kMostLanes], t[kMostLanes];
  for (int64_t b = 0; b < blocks; b += lanes) {
    for (int64_t l = 0; l < lanes; ++l) {
      u[l] = philox_open_uniform_f64(words.v[2 * (b + l)]);
      t[l] = philox_uniform_f64(words.v[2 * (b + l) + 1]);
    }
    hn::Vec<decltype(d)> even, odd;
    normal_pair(hn::Load(d, u), hn::Load(d, t), even, odd);
    hn::StoreInterleaved2(even, odd, d, out + 2 * b);
  }
}
template <DType kOut>
void normal_single(const Args& a) {
  HWY_ALIGN float part[4 * (kBlocks + kMostLanes)];
  for_parts<4>(a, [&](const Words& words, int64_t i, int64_t count, int64_t skip) HWY_ATTR {
    float* out = static_cast<float*>(a.dst) + i;
    normals_single(words, (skip + count + 3) / 4, part);
    if constexpr (kOut == DType::float32) {
      std::memcpy(out, part + skip, static_cast<size_t>(count) * sizeof(float));
    } else {
      uint16_t half[4 * kBlocks];
      store_convert(kOut, part + skip, half, count);
      load_convert(kOut, half, out, count);
    }
  });
}
void normal_double(const Args& a) {
  HWY_ALIGN double part[2 * (kBlocks + kMostLanes)];
  for_parts<2>(a, [&](const Words& words, int64_t i, int64_t count, int64_t skip) HWY_ATTR {
    normals_double(words, (skip + count + 1) / 2, part);
    std::memcpy(static_cast<double*>(a.dst) + i, part + skip, static_cast<size_t>(count) * sizeof(double));
  });
}

// low + x modulo range, for ranges up to kSmallRange, in whole vectors of doubles. The rest of x's upper half is put before the lower half, which
// makes a number below 2^53, so each step is exact. Returns how many numbers were made.
constexpr uint64_t kSmallRange = uint64_t{1} << 20;
int64_t small_integers(const uint64_t* x, int64_t count, uint64_t range, int64_t low, int64_t* out) {
  const hn::ScalableTag<double> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto zero = hn::Zero(d), divisor = hn::Set(d, static_cast<double>(range));
  const auto inverse = hn::Set(d, 1 / static_cast<double>(range)), two52 = hn::Set(d, 0x1p52);
  const auto exponent = hn::BitCast(du, two52), lower = hn::Set(du, uint64_t{0xffffffff});
  const auto mantissa = hn::Set(du, (uint64_t{1} << 52) - 1), first = hn::Set(du, static_cast<uint64_t>(low));
  const auto number = [&](auto bits) HWY_ATTR { return hn::Sub(hn::BitCast(d, hn::Or(bits, exponent)), two52); };
  const auto rest = [&](auto v) HWY_ATTR {  // the quotient is at most one too small or too large
    const auto r = hn::NegMulAdd(hn::Floor(hn::Mul(v, inverse)), divisor, v);
    const auto above = hn::IfThenElse(hn::Lt(r, zero), hn::Add(r, divisor), r);
    return hn::IfThenElse(hn::Ge(above, divisor), hn::Sub(above, divisor), above);
  };
  int64_t k = 0;
  for (; k + lanes <= count; k += lanes) {
    const auto words = hn::LoadU(du, x + k);
    const auto upper = rest(number(hn::ShiftRight<32>(words)));
    const auto whole = rest(hn::MulAdd(upper, hn::Set(d, 0x1p32), number(hn::And(words, lower))));
    const auto found = hn::And(hn::BitCast(du, hn::Add(whole, two52)), mantissa);
    hn::StoreU(hn::Add(found, first), du, reinterpret_cast<uint64_t*>(out) + k);
  }
  return k;
}

// x modulo range by a multiplication with 2^64 / range, which is at most two too small.
template <class T>
void integers(const Args& a) {
  const int64_t low = a.i64(2), high = a.i64(3);
  PF_CHECK(low < high, Value, "rand_int: empty range; got low {} and high {}; expected low < high", low, high);
  const uint64_t range = static_cast<uint64_t>(high) - static_cast<uint64_t>(low), inverse = ~uint64_t{0} / range;
  __extension__ using Wide = unsigned __int128;
  for_parts<2>(a, [&](const Words& words, int64_t i, int64_t count, int64_t skip) HWY_ATTR {
    T* out = static_cast<T*>(a.dst) + i;
    int64_t done = 0;
    if (range <= kSmallRange) {
      if constexpr (sizeof(T) == 8) {
        done = small_integers(words.v + skip, count, range, low, reinterpret_cast<int64_t*>(out));
      } else {
        int64_t wide[2 * kBlocks];
        done = small_integers(words.v + skip, count, range, low, wide);
        for (int64_t k = 0; k < done; ++k) out[k] = static_cast<T>(wide[k]);
      }
    }
    for (int64_t k = done; k < count; ++k) {
      const uint64_t x = words.v[skip + k], quotient = static_cast<uint64_t>(static_cast<Wide>(x) * inverse >> 64);
      uint64_t rest = x - quotient * range;
      rest -= rest >= range ? range : 0;
      rest -= rest >= range ? range : 0;
      out[k] = static_cast<T>(static_cast<uint64_t>(low) + rest);
    }
  });
}

template <DType kOut>
Fn random_floats(OpId op) {
  if constexpr (kOut == DType::float64) return op == OpId::rand_uniform ? uniform_double : normal_double;
  else return op == OpId::rand_uniform ? uniform_single<kOut> : normal_single<kOut>;
}
Fn pick_random(OpId op, DType out) {
  const bool whole = op == OpId::rand_int;
  switch (out) {
    case DType::float64: return whole ? nullptr : random_floats<DType::float64>(op);
    case DType::float32: return whole ? nullptr : random_floats<DType::float32>(op);
    case DType::float16: return whole ? nullptr : random_floats<DType::float16>(op);
    case DType::bfloat16: return whole ? nullptr : random_floats<DType::bfloat16>(op);
    case DType::int64: return whole ? integers<int64_t> : nullptr;
    case DType::int32: return whole ? integers<int32_t> : nullptr;
    case DType::int16: return whole ? integers<int16_t> : nullptr;
    case DType::int8: return whole ? integers<int8_t> : nullptr;
    case DType::uint8: return whole ? integers<uint8_t> : nullptr;
    default: return nullptr;
  }
  return nullptr;
}

}  // namespace HWY_NAMESPACE
}  // namespace pyflame::cpu::tile
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pyflame::cpu::tile {
HWY_EXPORT(pick_random);
Fn find_random(OpId op, DType out) { return HWY_DYNAMIC_DISPATCH(pick_random)(op, out); }
}  // namespace pyflame::cpu::tile
#endif
