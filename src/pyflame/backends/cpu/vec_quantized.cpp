#include "pyflame/backends/cpu/vec_quantized.h"

// There are two versions on x86: one has AVX2's instructions, and that for the baseline is a loop. Sets above AVX2 are disabled, so a processor with
// one of them runs AVX2's version. Highway gives these sets smaller numbers than AVX2, which are all disabled, also those of later releases.
#include <hwy/detect_targets.h>
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | (HWY_AVX2 - 1))

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
  constexpr int64_t kHalf = kTileBlock / 2;
  const hn::CappedTag<float, kHalf> d;
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
    to.scale[b] = (counts ? most / kMost : 0.0F) + not_finite;
    auto sum = hn::Zero(di);
    for (int64_t i = 0; i < kTileBlock; i += lanes) {
      // Not a number times zero would not be an integer.
      const auto n = counts ? hn::NearestInt(hn::Mul(hn::LoadU(d, x + i), factor)) : hn::Zero(di);
      sum = i == kHalf ? n : hn::Add(sum, n);
      const auto high = hn::ShiftRight<kLowBits>(hn::Add(n, hn::Set(di, 1 << (kLowBits - 1))));
      hn::StoreU(hn::DemoteTo(d8, high), d8, q + i);
      hn::StoreU(hn::DemoteTo(d8, hn::Sub(n, hn::ShiftLeft<kLowBits>(high))), d8, q + to.columns + i);
      if ((i + lanes) % kHalf == 0)
        to.sum[2 * b + i / kHalf] = to.scale[b] * static_cast<float>(hn::GetLane(hn::SumOfLanes(di, sum)));
    }
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
// Eight scales and minima in the halves of bytes, times those of the group.
HWY_INLINE void EightPairs(const uint8_t* p, __m256 outer, __m256 outer_minimum, __m256& scale, __m256& minimum) {
  const __m256i both = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  scale = _mm256_mul_ps(outer, _mm256_cvtepi32_ps(_mm256_and_si256(both, _mm256_set1_epi32(15))));
  minimum = _mm256_mul_ps(outer_minimum, _mm256_cvtepi32_ps(_mm256_srli_epi32(both, 4)));
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

// Sums over the elements in the places kFrom to kTo - 1 of each byte, numbers of kBits. Eight products of pairs of nibbles with bytes are at most
// 8 * 2 * 15 * 127 < 2^15.
template <int kBits, int kFrom, int kTo, int kRows>
HWY_INLINE void SmallSums(const uint8_t* data, const Planes<kRows>& q, int64_t at, __m256i (&sums)[kRows]) {
  static_assert(kBits * (kTo - kFrom) * 2 * ((1 << kBits) - 1) * 127 < 1 << 15);
  const __m256i mask = _mm256_set1_epi8((1 << kBits) - 1), ones = _mm256_set1_epi16(1);
  __m256i pairs[kPlanes * kRows];
  for (__m256i& p : pairs) p = _mm256_setzero_si256();
  for (int part = 0; part < kBits; ++part) {
    const __m256i w = Part(data + part * 32);
    for (int place = kFrom; place < kTo; ++place) {
      const __m256i shifted = place == 0 ? w : _mm256_srli_epi16(w, place * kBits);
      const __m256i numbers = _mm256_and_si256(shifted, mask);
      for (int n = 0; n < kPlanes * kRows; ++n) {
        const __m256i x = FourElements(q[n] + at + place * 4 * kBits + part * 4);
        pairs[n] = _mm256_add_epi16(pairs[n], _mm256_maddubs_epi16(numbers, x));
      }
    }
  }
  for (int n = 0; n < kRows; ++n)
    sums[n] = Joined(_mm256_madd_epi16(pairs[2 * n], ones), _mm256_madd_epi16(pairs[2 * n + 1], ones));
}
// Sums over the 16 elements of four parts, which are bytes with sign. kNarrow: weights of 5 or 6 bits, of which 4 * 2 * 32 * 127 < 2^15; those of 8
// bits are widened at once.
template <bool kNarrow, int kRows, class Bytes>
HWY_INLINE void ByteSums(const Bytes& bytes, const Planes<kRows>& q, int64_t at, __m256i (&sums)[kRows]) {
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i all[kPlanes * kRows];
  for (__m256i& s : all) s = _mm256_setzero_si256();
  for (int part = 0; part < 4; ++part) {
    const __m256i w = bytes(part), size = _mm256_abs_epi8(w);
    for (int n = 0; n < kPlanes * kRows; ++n) {
      const __m256i signed_x = _mm256_sign_epi8(FourElements(q[n] + at + part * 4), w);
      const __m256i pairs = _mm256_maddubs_epi16(size, signed_x);
      all[n] = kNarrow ? _mm256_add_epi16(all[n], pairs) : _mm256_add_epi32(all[n], _mm256_madd_epi16(pairs, ones));
    }
  }
  for (int n = 0; n < kRows; ++n) {
    const __m256i high = all[2 * n], low = all[2 * n + 1];
    sums[n] = kNarrow ? Joined(_mm256_madd_epi16(high, ones), _mm256_madd_epi16(low, ones)) : Joined(high, low);
  }
}
// Sums over one half of a block, of any data.
template <TileData kData, bool kNarrow, int kHalf, int kRows>
HWY_INLINE void HalfSums(const uint8_t* data, const Planes<kRows>& q, int64_t at, __m256i (&sums)[kRows]) {
  if constexpr (kData == TileData::Quarters) {
    SmallSums<2, 2 * kHalf, 2 * kHalf + 2, kRows>(data, q, at, sums);
  } else if constexpr (kData == TileData::Nibbles) {
    SmallSums<4, kHalf, kHalf + 1, kRows>(data, q, at, sums);
  } else if constexpr (kData == TileData::Places) {
    const __m256i mask = _mm256_set1_epi8(15);
    const __m256i table =
        _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(gguf::kNonLinear.data())));
    const auto bytes = [&](int part) HWY_ATTR {
      const __m256i places = _mm256_srli_epi16(Part(data + part * 32), 4 * kHalf);
      return _mm256_shuffle_epi8(table, _mm256_and_si256(places, mask));
    };
    ByteSums<false, kRows>(bytes, q, at + 16 * kHalf, sums);
  } else {
    const auto bytes = [&](int part) HWY_ATTR { return Part(data + (4 * kHalf + part) * 32); };
    ByteSums<kNarrow, kRows>(bytes, q, at + 16 * kHalf, sums);
  }
}

template <TileData kData, TileScales kScales, int kRows>
void ProductOfRows(const TileForm& form, const uint8_t* tile, const RoundedRows& x, float* y, int64_t ldy,
                   int64_t outputs) {
  constexpr bool kNested = kScales == TileScales::Nested, kFinerMinima = kScales == TileScales::FinerMinima;
  constexpr bool kFiner = kScales == TileScales::Finer || kFinerMinima;  // the halves of a block have their own scales
  constexpr bool kMinima = kScales == TileScales::WithMinima;
  constexpr int kZero = TileForm{kData, kScales}.zero();
  const int64_t blocks = x.blocks(), data = form.data_bytes();
  Planes<kRows> q;
  __m256 total[kRows];
  for (int n = 0; n < kPlanes * kRows; ++n) q[n] = x.q + n * x.columns;
  for (__m256& t : total) t = _mm256_setzero_ps();
  __m256 outer = _mm256_setzero_ps(), outer_minimum = outer;
  for (int64_t b = 0; b < blocks; ++b) {
    __m256 scale = outer, minimum = outer, last_scale = outer, last_minimum = outer;
    if (kNested || kFiner) {
      if (b % 8 == 0) {
        outer = EightHalves(tile);
        if (kNested || kFinerMinima) outer_minimum = EightHalves(tile + 16);
        tile += form.first_bytes();
      }
      if constexpr (kFinerMinima) {
        EightPairs(tile, outer, outer_minimum, scale, minimum);
        EightPairs(tile + 8, outer, outer_minimum, last_scale, last_minimum);
      } else {
        scale = _mm256_mul_ps(outer, EightBytes<kFiner>(tile));
        if (kNested) minimum = _mm256_mul_ps(outer_minimum, EightBytes<false>(tile + 8));
        else last_scale = _mm256_mul_ps(outer, EightBytes<true>(tile + 8));
      }
      tile += 16;
    } else {
      scale = EightHalves(tile);
      if (kMinima) minimum = EightHalves(tile + 16);
      tile += kMinima ? 32 : 16;
    }
    __m256i sums[kRows], last[kRows];
    constexpr bool kNarrow = kScales != TileScales::Halves;
    if constexpr (kData == TileData::Nibbles && !kFiner) {
      SmallSums<4, 0, 2, kRows>(tile, q, b * kTileBlock, sums);
    } else {
      HalfSums<kData, kNarrow, 0, kRows>(tile, q, b * kTileBlock, sums);
      HalfSums<kData, kNarrow, 1, kRows>(tile, q, b * kTileBlock, last);
      if (!kFiner)
        for (int n = 0; n < kRows; ++n) sums[n] = _mm256_add_epi32(sums[n], last[n]);
    }
    tile += data;
    for (int n = 0; n < kRows; ++n) {
      const __m256 step = _mm256_set1_ps(x.scale[n * blocks + b]);
      const float* halves = x.sum + 2 * (n * blocks + b);
      const __m256 sum = _mm256_set1_ps(kFiner ? halves[0] : halves[0] + halves[1]);
      const auto add = [&](__m256i products, __m256 of_x, __m256 factor) HWY_ATTR {
        __m256 product = _mm256_mul_ps(_mm256_cvtepi32_ps(products), step);
        if (kZero != 0) product = _mm256_fnmadd_ps(_mm256_set1_ps(kZero), of_x, product);
        total[n] = _mm256_fmadd_ps(product, factor, total[n]);
      };
      add(sums[n], sum, scale);
      if (kMinima) total[n] = _mm256_fmadd_ps(minimum, sum, total[n]);
      if (kNested || kFinerMinima) total[n] = _mm256_fnmadd_ps(minimum, sum, total[n]);
      if constexpr (kFiner) {
        const __m256 last_sum = _mm256_set1_ps(halves[1]);
        add(last[n], last_sum, last_scale);
        if (kFinerMinima) total[n] = _mm256_fnmadd_ps(last_minimum, last_sum, total[n]);
      }
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

template <TileData kData, TileScales kScales>
void Product(const TileForm& form, const uint8_t* tile, const RoundedRows& x, int64_t rows, float* y, int64_t ldy,
             int64_t outputs) {
  int64_t i = 0;
  for (; i + 4 <= rows; i += 4) ProductOfRows<kData, kScales, 4>(form, tile, x.from(i), y + i * ldy, ldy, outputs);
  for (; i + 2 <= rows; i += 2) ProductOfRows<kData, kScales, 2>(form, tile, x.from(i), y + i * ldy, ldy, outputs);
  for (; i < rows; ++i) ProductOfRows<kData, kScales, 1>(form, tile, x.from(i), y + i * ldy, ldy, outputs);
}

#else

HWY_INLINE float HalfAt(const uint8_t* p, int64_t i) {
  float16 h;
  std::memcpy(&h, p + 2 * i, sizeof h);
  return static_cast<float>(h);
}
static_assert(HWY_TARGET > HWY_AVX2, "a set above AVX2 would run the slow loop");

// sums[r] += the products of n elements of row r; kNibbles: and of the 16 after them, which are in the same bytes. x: the high plane; the low one is
// `columns` after it.
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
// The same for the numbers in the places kFrom to kTo - 1 of each byte, of kBits.
template <TileData kData, int kBits, int kFrom, int kTo>
HWY_INLINE void SomeSums(const uint8_t* data, const int8_t* x, int64_t columns, int32_t* sums) {
  for (int64_t part = 0; part < kBits; ++part)
    for (int64_t place = kFrom; place < kTo; ++place)
      for (int64_t r = 0; r < kTileRows; ++r)
        for (int64_t j = 0; j < 4; ++j) {
          int32_t w = data[(part * kTileRows + r) * 4 + j] >> (place * kBits) & ((1 << kBits) - 1);
          if (kData == TileData::Places) w = gguf::kNonLinear[static_cast<size_t>(w)];
          const int64_t e = place * 4 * kBits + part * 4 + j;
          sums[r] += w * ((int32_t{x[e]} << kLowBits) + x[columns + e]);
        }
}

template <TileData kData, TileScales kScales>
void Product(const TileForm& form, const uint8_t* tile, const RoundedRows& x, int64_t rows, float* y, int64_t ldy,
             int64_t outputs) {
  constexpr bool kNested = kScales == TileScales::Nested, kFinerMinima = kScales == TileScales::FinerMinima;
  constexpr bool kFiner = kScales == TileScales::Finer || kFinerMinima;
  constexpr bool kMinima = kScales == TileScales::WithMinima || kNested || kFinerMinima;
  constexpr int kZero = TileForm{kData, kScales}.zero();
  for (int64_t i = 0; i < rows; ++i) {
    const uint8_t* at = tile;
    float total[kTileRows] = {}, outer[kTileRows] = {}, outer_minimum[kTileRows] = {};
    for (int64_t b = 0; b < x.blocks(); ++b) {
      if ((!kNested && !kFiner) || b % 8 == 0) {
        for (int64_t r = 0; r < kTileRows; ++r) {
          outer[r] = HalfAt(at, r);
          if (kMinima) outer_minimum[r] = HalfAt(at + 16, r);
        }
        at += form.first_bytes();
      }
      const uint8_t* fine = at;
      if (kNested || kFiner) at += 16;
      int32_t sums[kTileRows] = {}, last[kTileRows] = {};  // over the halves of the block, or over all in `sums`
      const int8_t* q = x.q + i * kPlanes * x.columns + b * kTileBlock;
      if constexpr (kData == TileData::Bytes) {
        Sums<false>(at, q, x.columns, 16, sums);
        Sums<false>(at + 128, q + 16, x.columns, 16, last);
      } else if constexpr (kData == TileData::Nibbles && !kFiner) {
        Sums<true>(at, q, x.columns, 16, sums);
      } else {
        constexpr int kBits = kData == TileData::Quarters ? 2 : 4, kPlaces = 8 / kBits;
        SomeSums<kData, kBits, 0, kPlaces / 2>(at, q, x.columns, sums);
        SomeSums<kData, kBits, kPlaces / 2, kPlaces>(at, q, x.columns, last);
      }
      at += form.data_bytes();
      const float* halves = x.sum + 2 * (i * x.blocks() + b);
      const float step = x.scale[i * x.blocks() + b], sum = kFiner ? halves[0] : halves[0] + halves[1];
      const auto scaled = [=](int32_t products, float of_x, float scale) {
        return (static_cast<float>(products) * step - static_cast<float>(kZero) * of_x) * scale;
      };
      for (int64_t r = 0; r < kTileRows; ++r) {
        const uint8_t first = fine[r], second = fine[8 + r];
        if constexpr (kScales == TileScales::Finer) {
          total[r] += scaled(sums[r], sum, outer[r] * static_cast<float>(static_cast<int8_t>(first)));
          total[r] += scaled(last[r], halves[1], outer[r] * static_cast<float>(static_cast<int8_t>(second)));
        } else if constexpr (kFinerMinima) {
          total[r] += scaled(sums[r], sum, outer[r] * static_cast<float>(first & 15));
          total[r] += scaled(last[r], halves[1], outer[r] * static_cast<float>(second & 15));
          total[r] -=
              outer_minimum[r] * (static_cast<float>(first >> 4) * sum + static_cast<float>(second >> 4) * halves[1]);
        } else {
          total[r] += scaled(sums[r] + last[r], sum, kNested ? outer[r] * static_cast<float>(first) : outer[r]);
          if (kNested) total[r] -= outer_minimum[r] * static_cast<float>(second) * sum;
          else if (kMinima) total[r] += outer_minimum[r] * sum;
        }
      }
    }
    std::copy_n(total, outputs, y + i * ldy);
  }
}

#endif

void TileProduct(const TileForm& form, const uint8_t* tile, const RoundedRows& x, int64_t rows, float* y, int64_t ldy,
                 int64_t outputs) {
  using D = TileData;
  using S = TileScales;
  switch (form.data) {
    case D::Quarters: return Product<D::Quarters, S::FinerMinima>(form, tile, x, rows, y, ldy, outputs);
    case D::Places:
      if (form.scales == S::Halves) return Product<D::Places, S::Halves>(form, tile, x, rows, y, ldy, outputs);
      return Product<D::Places, S::Finer>(form, tile, x, rows, y, ldy, outputs);
    case D::Nibbles:
      switch (form.scales) {
        case S::Halves: return Product<D::Nibbles, S::Halves>(form, tile, x, rows, y, ldy, outputs);
        case S::WithMinima: return Product<D::Nibbles, S::WithMinima>(form, tile, x, rows, y, ldy, outputs);
        case S::Nested: return Product<D::Nibbles, S::Nested>(form, tile, x, rows, y, ldy, outputs);
        default: return Product<D::Nibbles, S::Finer>(form, tile, x, rows, y, ldy, outputs);
      }
    case D::Bytes:
      switch (form.scales) {
        case S::Halves: return Product<D::Bytes, S::Halves>(form, tile, x, rows, y, ldy, outputs);
        case S::WithMinima: return Product<D::Bytes, S::WithMinima>(form, tile, x, rows, y, ldy, outputs);
        case S::Nested: return Product<D::Bytes, S::Nested>(form, tile, x, rows, y, ldy, outputs);
        default: return Product<D::Bytes, S::Finer>(form, tile, x, rows, y, ldy, outputs);
      }
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
