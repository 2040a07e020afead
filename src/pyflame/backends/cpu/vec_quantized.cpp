#include "pyflame/backends/cpu/vec_quantized.h"

// Versions for the baseline and for AVX2, which is the last one with another product of bytes.
#include <hwy/detect_targets.h>
#undef HWY_DISABLED_TARGETS
#ifdef HWY_AVX3_ZEN4
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3 | HWY_AVX3_DL | HWY_AVX3_ZEN4)
#else
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3 | HWY_AVX3_DL)
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pyflame/backends/cpu/vec_quantized.cpp"
#include <hwy/foreach_target.h>  // before highway.h

#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "pyflame/base/half.h"

HWY_BEFORE_NAMESPACE();
namespace pyflame::cpu::vec {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void RoundRows(const float* x, int64_t rows, const RoundedRows& to) {
  const hn::CappedTag<float, kTileBlock> d;
  const hn::Rebind<int32_t, decltype(d)> di;
  const hn::Rebind<int8_t, decltype(d)> d8;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int8_t* q = to.q;
  for (int64_t b = 0; b < rows * to.blocks(); ++b, x += kTileBlock, q += kTileBlock) {
    if (b != 0 && b % to.blocks() == 0) q += to.columns;  // over the row's low plane
    auto largest = hn::Zero(d), bad = hn::Zero(d);        // x * 0 is NaN where x is not finite
    for (int64_t i = 0; i < kTileBlock; i += lanes) {
      const auto v = hn::LoadU(d, x + i);
      largest = hn::Max(largest, hn::Abs(v));
      bad = hn::Add(bad, hn::Mul(v, hn::Zero(d)));
    }
    constexpr float kMost = kMostRounded, kLeast = 1e-30F;
    const float not_finite = hn::GetLane(hn::SumOfLanes(d, bad)), most = hn::GetLane(hn::MaxOfLanes(d, largest));
    const bool counts = most >= kLeast && not_finite == 0;
    const auto factor = hn::Set(d, counts ? kMost / most : 0.0F);
    auto sum = hn::Zero(di);
    for (int64_t i = 0; i < kTileBlock; i += lanes) {
      // Not a number times zero would not be an integer.
      const auto n = counts ? hn::NearestInt(hn::Mul(hn::LoadU(d, x + i), factor)) : hn::Zero(di);
      sum = hn::Add(sum, n);
      const auto high = hn::ShiftRight<kLowBits>(hn::Add(n, hn::Set(di, 1 << (kLowBits - 1))));
      hn::StoreU(hn::DemoteTo(d8, high), d8, q + i);
      hn::StoreU(hn::DemoteTo(d8, hn::Sub(n, hn::ShiftLeft<kLowBits>(high))), d8, q + to.columns + i);
    }
    to.scale[b] = (counts ? most / kMost : 0.0F) + not_finite;
    to.sum[b] = to.scale[b] * static_cast<float>(hn::GetLane(hn::SumOfLanes(di, sum)));
  }
}

#if HWY_TARGET == HWY_AVX2

HWY_INLINE __m256 EightHalves(const uint8_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
template <bool kSigned>
HWY_INLINE __m256 EightBytes(const uint8_t* p) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  return _mm256_cvtepi32_ps(kSigned ? _mm256_cvtepi8_epi32(bytes) : _mm256_cvtepu8_epi32(bytes));
}
HWY_INLINE __m256i FourElements(const int8_t* q) {
  int32_t four;
  std::memcpy(&four, q, 4);
  return _mm256_set1_epi32(four);
}
HWY_INLINE __m256i Part(const uint8_t* data) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(data)); }

// The planes of some rows: high and low of the first, then of the next.
template <int kRows>
using Planes = const int8_t * [kPlanes * kRows];

HWY_INLINE __m256i Joined(__m256i high, __m256i low) {
  return _mm256_add_epi32(_mm256_slli_epi32(high, kLowBits), low);
}

// Sums over 32 elements. Eight products of pairs of nibbles with bytes are at most 8 * 2 * 15 * 127 < 2^15.
template <int kRows>
HWY_INLINE void NibbleSums(const uint8_t* data, const Planes<kRows>& q, int64_t at, __m256i (&sums)[kRows]) {
  const __m256i low = _mm256_set1_epi8(15), ones = _mm256_set1_epi16(1);
  __m256i pairs[kPlanes * kRows];
  for (__m256i& p : pairs) p = _mm256_setzero_si256();
  for (int part = 0; part < 4; ++part) {
    const __m256i w = Part(data + part * 32);
    const __m256i first = _mm256_and_si256(w, low), last = _mm256_and_si256(_mm256_srli_epi16(w, 4), low);
    for (int n = 0; n < kPlanes * kRows; ++n) {
      const int8_t* x = q[n] + at + part * 4;
      pairs[n] = _mm256_add_epi16(pairs[n], _mm256_maddubs_epi16(first, FourElements(x)));
      pairs[n] = _mm256_add_epi16(pairs[n], _mm256_maddubs_epi16(last, FourElements(x + 16)));
    }
  }
  for (int n = 0; n < kRows; ++n)
    sums[n] = Joined(_mm256_madd_epi16(pairs[2 * n], ones), _mm256_madd_epi16(pairs[2 * n + 1], ones));
}
// Sums over the 16 elements of four parts. Weights of 6 bits: 4 * 2 * 32 * 127 < 2^15; those of 8 bits are widened at once.
template <bool kSix, int kRows>
HWY_INLINE void ByteSums(const uint8_t* data, const Planes<kRows>& q, int64_t at, __m256i (&sums)[kRows]) {
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i all[kPlanes * kRows];
  for (__m256i& s : all) s = _mm256_setzero_si256();
  for (int part = 0; part < 4; ++part) {
    const __m256i w = Part(data + part * 32), size = _mm256_abs_epi8(w);
    for (int n = 0; n < kPlanes * kRows; ++n) {
      const __m256i signed_x = _mm256_sign_epi8(FourElements(q[n] + at + part * 4), w);
      const __m256i pairs = _mm256_maddubs_epi16(size, signed_x);
      all[n] = kSix ? _mm256_add_epi16(all[n], pairs) : _mm256_add_epi32(all[n], _mm256_madd_epi16(pairs, ones));
    }
  }
  for (int n = 0; n < kRows; ++n) {
    const __m256i high = all[2 * n], low = all[2 * n + 1];
    sums[n] = kSix ? Joined(_mm256_madd_epi16(high, ones), _mm256_madd_epi16(low, ones)) : Joined(high, low);
  }
}

template <bool kNibbles, TileScales kScales, int kZero, int kRows>
void ProductOfRows(const TileForm& form, const uint8_t* tile, const RoundedRows& x, float* y, int64_t ldy,
                   int64_t outputs) {
  constexpr bool kNested = kScales == TileScales::Nested, kFiner = kScales == TileScales::Finer;
  constexpr bool kMinima = kScales == TileScales::WithMinima;
  const int64_t blocks = x.blocks(), data = form.data_bytes();
  Planes<kRows> q;
  __m256 total[kRows];
  for (int n = 0; n < kPlanes * kRows; ++n) q[n] = x.q + n * x.columns;
  for (__m256& t : total) t = _mm256_setzero_ps();
  __m256 outer = _mm256_setzero_ps(), outer_minimum = outer;
  for (int64_t b = 0; b < blocks; ++b) {
    __m256 scale = outer, minimum = outer, last_scale = outer;
    if (kNested || kFiner) {
      if (b % 8 == 0) {
        outer = EightHalves(tile);
        if (kNested) outer_minimum = EightHalves(tile + 16);
        tile += kNested ? 32 : 16;
      }
      scale = _mm256_mul_ps(outer, EightBytes<kFiner>(tile));
      if (kNested) minimum = _mm256_mul_ps(outer_minimum, EightBytes<false>(tile + 8));
      else last_scale = _mm256_mul_ps(outer, EightBytes<true>(tile + 8));
      tile += 16;
    } else {
      scale = EightHalves(tile);
      if (kMinima) minimum = EightHalves(tile + 16);
      tile += kMinima ? 32 : 16;
    }
    __m256i sums[kRows], last[kRows];
    constexpr bool kSix = kScales != TileScales::Halves;
    if (kNibbles) {
      NibbleSums<kRows>(tile, q, b * kTileBlock, sums);
    } else {
      ByteSums<kSix, kRows>(tile, q, b * kTileBlock, sums);
      ByteSums<kSix, kRows>(tile + 128, q, b * kTileBlock + 16, last);
    }
    tile += data;
    for (int n = 0; n < kRows; ++n) {
      const __m256 step = _mm256_set1_ps(x.scale[n * blocks + b]), sum = _mm256_set1_ps(x.sum[n * blocks + b]);
      if (!kNibbles && !kFiner) sums[n] = _mm256_add_epi32(sums[n], last[n]);
      __m256 product = _mm256_mul_ps(_mm256_cvtepi32_ps(sums[n]), step);
      if (kZero != 0) product = _mm256_fnmadd_ps(_mm256_set1_ps(kZero), sum, product);
      total[n] = _mm256_fmadd_ps(product, scale, total[n]);
      if (kFiner) total[n] = _mm256_fmadd_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(last[n]), step), last_scale, total[n]);
      if (kMinima) total[n] = _mm256_fmadd_ps(minimum, sum, total[n]);
      if (kNested) total[n] = _mm256_fnmadd_ps(minimum, sum, total[n]);
    }
  }
  for (int n = 0; n < kRows; ++n) {
    alignas(32) float all[kTileRows];
    if (outputs == kTileRows) {
      _mm256_storeu_ps(y + n * ldy, total[n]);
    } else {
      _mm256_store_ps(all, total[n]);
      std::copy_n(all, outputs, y + n * ldy);
    }
  }
}

template <bool kNibbles, TileScales kScales, int kZero>
void Product(const TileForm& form, const uint8_t* tile, const RoundedRows& x, int64_t rows, float* y, int64_t ldy,
             int64_t outputs) {
  int64_t i = 0;
  for (; i + 4 <= rows; i += 4)
    ProductOfRows<kNibbles, kScales, kZero, 4>(form, tile, x.from(i), y + i * ldy, ldy, outputs);
  for (; i + 2 <= rows; i += 2)
    ProductOfRows<kNibbles, kScales, kZero, 2>(form, tile, x.from(i), y + i * ldy, ldy, outputs);
  for (; i < rows; ++i) ProductOfRows<kNibbles, kScales, kZero, 1>(form, tile, x.from(i), y + i * ldy, ldy, outputs);
}

#else

HWY_INLINE float HalfAt(const uint8_t* p, int64_t i) {
  float16 h;
  std::memcpy(&h, p + 2 * i, sizeof h);
  return static_cast<float>(h);
}
// sums[r] += the products of n elements of row r. x: the high plane; the low one is `columns` after it.
template <bool kNibbles>
HWY_INLINE void Sums(const uint8_t* data, const int8_t* x, int64_t columns, int64_t n, int32_t* sums) {
  const auto joined = [&](int64_t i) { return (int32_t{x[i]} << kLowBits) + x[columns + i]; };
  for (int64_t part = 0; part < n / 4; ++part)
    for (int64_t r = 0; r < kTileRows; ++r)
      for (int64_t j = 0; j < 4; ++j) {
        const uint8_t byte = data[(part * kTileRows + r) * 4 + j];
        if (kNibbles) sums[r] += (byte & 15) * joined(part * 4 + j) + (byte >> 4) * joined(part * 4 + j + 16);
        else sums[r] += static_cast<int8_t>(byte) * joined(part * 4 + j);
      }
}

template <bool kNibbles, TileScales kScales, int kZero>
void Product(const TileForm& form, const uint8_t* tile, const RoundedRows& x, int64_t rows, float* y, int64_t ldy,
             int64_t outputs) {
  constexpr bool kNested = kScales == TileScales::Nested, kFiner = kScales == TileScales::Finer;
  constexpr bool kMinima = kScales == TileScales::WithMinima || kNested;
  for (int64_t i = 0; i < rows; ++i) {
    const uint8_t* at = tile;
    float total[kTileRows] = {}, outer[kTileRows] = {}, outer_minimum[kTileRows] = {};
    for (int64_t b = 0; b < x.blocks(); ++b) {
      if ((!kNested && !kFiner) || b % 8 == 0) {
        for (int64_t r = 0; r < kTileRows; ++r) {
          outer[r] = HalfAt(at, r);
          if (kMinima) outer_minimum[r] = HalfAt(at + 16, r);
        }
        at += kMinima ? 32 : 16;
      }
      const uint8_t* fine = at;
      if (kNested || kFiner) at += 16;
      int32_t sums[kTileRows] = {}, last[kTileRows] = {};
      const int8_t* q = x.q + i * kPlanes * x.columns + b * kTileBlock;
      Sums<kNibbles>(at, q, x.columns, 16, sums);
      if (!kNibbles) Sums<kNibbles>(at + 128, q + 16, x.columns, 16, last);
      at += form.data_bytes();
      const float step = x.scale[i * x.blocks() + b], sum = x.sum[i * x.blocks() + b];
      for (int64_t r = 0; r < kTileRows; ++r) {
        const auto first = static_cast<float>(kFiner ? sums[r] : sums[r] + last[r]);
        float scale = outer[r];
        if (kNested) scale *= static_cast<float>(fine[r]);
        if (kFiner) scale *= static_cast<float>(static_cast<int8_t>(fine[r]));
        total[r] += (first * step - static_cast<float>(kZero) * sum) * scale;
        if (kFiner)
          total[r] +=
              static_cast<float>(last[r]) * step * outer[r] * static_cast<float>(static_cast<int8_t>(fine[8 + r]));
        if (kNested) total[r] -= outer_minimum[r] * static_cast<float>(fine[8 + r]) * sum;
        else if (kMinima) total[r] += outer_minimum[r] * sum;
      }
    }
    std::copy_n(total, outputs, y + i * ldy);
  }
}

#endif

void TileProduct(const TileForm& form, const uint8_t* tile, const RoundedRows& x, int64_t rows, float* y, int64_t ldy,
                 int64_t outputs) {
  using S = TileScales;
  if (form.nibbles) {
    switch (form.scales) {
      case S::Halves: return Product<true, S::Halves, 8>(form, tile, x, rows, y, ldy, outputs);
      case S::WithMinima: return Product<true, S::WithMinima, 0>(form, tile, x, rows, y, ldy, outputs);
      default: return Product<true, S::Nested, 0>(form, tile, x, rows, y, ldy, outputs);
    }
  }
  switch (form.scales) {
    case S::Halves: return Product<false, S::Halves, 0>(form, tile, x, rows, y, ldy, outputs);
    case S::WithMinima: return Product<false, S::WithMinima, 0>(form, tile, x, rows, y, ldy, outputs);
    case S::Nested: return Product<false, S::Nested, 0>(form, tile, x, rows, y, ldy, outputs);
    case S::Finer: return Product<false, S::Finer, 0>(form, tile, x, rows, y, ldy, outputs);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace pyflame::cpu::vec
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pyflame::cpu::vec {

HWY_EXPORT(RoundRows);
HWY_EXPORT(TileProduct);
void round_rows(const float* x, int64_t rows, const RoundedRows& to) { HWY_DYNAMIC_DISPATCH(RoundRows)(x, rows, to); }
void tile_product(const TileForm& form, const uint8_t* tile, const RoundedRows& x, int64_t rows, float* y, int64_t ldy,
                  int64_t outputs) {
  HWY_DYNAMIC_DISPATCH(TileProduct)(form, tile, x, rows, y, ldy, outputs);
}

}  // namespace pyflame::cpu::vec
#endif
