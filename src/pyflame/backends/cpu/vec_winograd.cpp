#include "pyflame/backends/cpu/vec_winograd.h"

// The same versions as in vec.cpp.
#include <hwy/detect_targets.h>
#undef HWY_DISABLED_TARGETS
#ifdef HWY_AVX3_ZEN4
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_AVX3_ZEN4)
#else
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pyflame/backends/cpu/vec_winograd.cpp"
#include <hwy/foreach_target.h>  // before highway.h

#include <hwy/highway.h>

#include <algorithm>

HWY_BEFORE_NAMESPACE();
namespace pyflame::cpu::vec {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// B^T applied to four numbers, or G to three.
#define PF_TRANSFORM(a, b, c, d, to0, to1, to2, to3) \
  to0 = hn::Sub(a, c), to1 = hn::Add(b, c), to2 = hn::Sub(c, b), to3 = hn::Sub(b, d);
#define PF_WEIGHTS(a, b, c, to0, to1, to2, to3) \
  to0 = a, to3 = c;                             \
  {                                             \
    const V sum = hn::Add(a, c);                \
    to1 = hn::Mul(half, hn::Add(sum, b));       \
    to2 = hn::Mul(half, hn::Sub(sum, b));       \
  }

void WinogradWeights(const float* taps, int64_t inputs, float* weights, int64_t step) {
  const D d;
  const V half = hn::Set(d, 0.5f);
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t count = inputs * 2 * lanes;
  for (int64_t i = 0; i < count; i += lanes) {
    const auto tap = [&](int64_t k) HWY_ATTR { return hn::LoadU(d, taps + k * count + i); };
    const V t0 = tap(0), t1 = tap(1), t2 = tap(2), t3 = tap(3), t4 = tap(4), t5 = tap(5), t6 = tap(6), t7 = tap(7),
            t8 = tap(8);
    V a0, a1, a2, a3, b0, b1, b2, b3, c0, c1, c2, c3;  // of each column of taps
    PF_WEIGHTS(t0, t3, t6, a0, a1, a2, a3)
    PF_WEIGHTS(t1, t4, t7, b0, b1, b2, b3)
    PF_WEIGHTS(t2, t5, t8, c0, c1, c2, c3)
    float* to = weights + i;
    const auto row = [&](V a, V b, V c) HWY_ATTR {
      V r0, r1, r2, r3;
      PF_WEIGHTS(a, b, c, r0, r1, r2, r3)
      hn::StoreU(r0, d, to);
      hn::StoreU(r1, d, to + step);
      hn::StoreU(r2, d, to + 2 * step);
      hn::StoreU(r3, d, to + 3 * step);
      to += 4 * step;
    };
    row(a0, b0, c0), row(a1, b1, c1), row(a2, b2, c2), row(a3, b3, c3);
  }
}

// One tile, for the channels of a vector; d is a tag of at most one vector.
template <class Tag>
HWY_INLINE void tile_pixels(Tag d, const float* const* from, int64_t c, float* HWY_RESTRICT to, int64_t step) {
  using W = hn::Vec<Tag>;
  const auto pixel = [&](int64_t i) HWY_ATTR { return hn::LoadU(d, from[i] + c); };
  W a0, a1, a2, a3, b0, b1, b2, b3, c0, c1, c2, c3, d0, d1, d2, d3;
  {
    const W p0 = pixel(0), p1 = pixel(4), p2 = pixel(8), p3 = pixel(12);
    PF_TRANSFORM(p0, p1, p2, p3, a0, a1, a2, a3)
  }
  {
    const W p0 = pixel(1), p1 = pixel(5), p2 = pixel(9), p3 = pixel(13);
    PF_TRANSFORM(p0, p1, p2, p3, b0, b1, b2, b3)
  }
  {
    const W p0 = pixel(2), p1 = pixel(6), p2 = pixel(10), p3 = pixel(14);
    PF_TRANSFORM(p0, p1, p2, p3, c0, c1, c2, c3)
  }
  {
    const W p0 = pixel(3), p1 = pixel(7), p2 = pixel(11), p3 = pixel(15);
    PF_TRANSFORM(p0, p1, p2, p3, d0, d1, d2, d3)
  }
  const auto row = [&](W p, W q, W r, W s) HWY_ATTR {
    W r0, r1, r2, r3;
    PF_TRANSFORM(p, q, r, s, r0, r1, r2, r3)
    hn::StoreU(r0, d, to);
    hn::StoreU(r1, d, to + step);
    hn::StoreU(r2, d, to + 2 * step);
    hn::StoreU(r3, d, to + 3 * step);
    to += 4 * step;
  };
  row(a0, b0, c0, d0), row(a1, b1, c1, d1), row(a2, b2, c2, d2), row(a3, b3, c3, d3);
}

// Calls f(i, image, row, column) for each tile, with its place in its image.
template <class F>
HWY_INLINE void for_tiles(const WinogradTiles& t, const F& f) {
  const int64_t per = t.tiles_h * t.tiles_w;
  int64_t image = t.first / per, y = t.first % per / t.tiles_w, x = t.first % t.tiles_w;
  for (int64_t i = 0; i < t.count; ++i) {
    f(i, image, y * kWinogradTile, x * kWinogradTile);
    if (++x < t.tiles_w) continue;
    x = 0;
    if (++y == t.tiles_h) y = 0, ++image;
  }
}

void WinogradPixels(const WinogradTiles& t, const float* x, const float* zeros, float* pixels) {
  const D d;
  const hn::CappedTag<float, 1> one;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for_tiles(t, [&](int64_t i, int64_t image, int64_t row, int64_t column) HWY_ATTR {
    const float* from[16];
    for (int64_t k = 0; k < 16; ++k) {
      const int64_t at_y = row - t.top + k / 4, at_x = column - t.left + k % 4;
      const bool inside = at_y >= 0 && at_y < t.height && at_x >= 0 && at_x < t.width;
      from[k] = inside ? x + ((image * t.height + at_y) * t.width + at_x) * t.inputs : zeros;
    }
    float* to = pixels + i * t.inputs;
    int64_t c = 0;
    for (; c + lanes <= t.inputs; c += lanes) tile_pixels(d, from, c, to + c, t.pixels_step);
    for (; c < t.inputs; ++c) tile_pixels(one, from, c, to + c, t.pixels_step);
  });
}

// kTiles tiles times a block of weights; six tiles use all registers. The sums of earlier inputs are continued.
template <int kTiles>
void tile_products(const float* HWY_RESTRICT x, int64_t x_row, int64_t inputs, const float* HWY_RESTRICT w, bool resume,
                   float* HWY_RESTRICT y, int64_t y_row) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const V none = hn::Zero(d);
  V a0 = none, b0 = none, a1 = none, b1 = none, a2 = none, b2 = none;
  V a3 = none, b3 = none, a4 = none, b4 = none, a5 = none, b5 = none;
#define PF_TILES(F) F(0, a0, b0) F(1, a1, b1) F(2, a2, b2) F(3, a3, b3) F(4, a4, b4) F(5, a5, b5)
#define PF_RESUME(i, a, b) \
  if constexpr (i < kTiles) a = hn::LoadU(d, y + i * y_row), b = hn::LoadU(d, y + i * y_row + lanes);
#define PF_PRODUCT(i, a, b)                           \
  if constexpr (i < kTiles) {                         \
    const V s = hn::Set(d, x[i * x_row + c]);         \
    a = hn::MulAdd(s, u, a), b = hn::MulAdd(s, v, b); \
  }
#define PF_STORE(i, a, b) \
  if constexpr (i < kTiles) hn::StoreU(a, d, y + i * y_row), hn::StoreU(b, d, y + i * y_row + lanes);
  if (resume) {
    PF_TILES(PF_RESUME)
  }
  for (int64_t c = 0; c < inputs; ++c, w += 2 * lanes) {
    const V u = hn::LoadU(d, w), v = hn::LoadU(d, w + lanes);
    PF_TILES(PF_PRODUCT)
  }
  PF_TILES(PF_STORE)
#undef PF_TILES
#undef PF_RESUME
#undef PF_PRODUCT
#undef PF_STORE
}

void WinogradProducts(const WinogradTiles& t, const float* pixels, const float* weights, float* products) {
  constexpr int64_t kGroup = kWinogradGroup;
  constexpr int64_t kChunk = 256;  // inputs whose weights for a block of outputs stay in the L1 cache
  const auto lanes = static_cast<int64_t>(hn::Lanes(D()));
  const int64_t block = 2 * lanes;
  for (int64_t k = 0; k < kWinogradPlaces; ++k)
    for (int64_t c = 0; c < t.inputs; c += kChunk) {
      const int64_t inputs = std::min(kChunk, t.inputs - c);
      for (int64_t o = 0; o < t.outputs; o += block) {
        const float* w = weights + k * t.weights_step + o * t.inputs + c * block;
        for (int64_t i = 0; i < t.count; i += kGroup) {
          const float* x = pixels + k * t.pixels_step + i * t.inputs + c;
          float* y = products + k * t.products_step + i * t.outputs + o;
          const bool resume = c > 0;
          switch (std::min(kGroup, t.count - i)) {
            case 1: tile_products<1>(x, t.inputs, inputs, w, resume, y, t.outputs); break;
            case 2: tile_products<2>(x, t.inputs, inputs, w, resume, y, t.outputs); break;
            case 3: tile_products<3>(x, t.inputs, inputs, w, resume, y, t.outputs); break;
            case 4: tile_products<4>(x, t.inputs, inputs, w, resume, y, t.outputs); break;
            case 5: tile_products<5>(x, t.inputs, inputs, w, resume, y, t.outputs); break;
            default: tile_products<6>(x, t.inputs, inputs, w, resume, y, t.outputs);
          }
        }
      }
    }
}

bool WinogradResults(const WinogradTiles& t, const float* products, const float* bias, float* y) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t step = t.products_step;
  V bad = hn::Zero(d);  // 0 * a number that is not finite is NaN
  for_tiles(t, [&](int64_t i, int64_t image, int64_t row, int64_t column) HWY_ATTR {
    const bool two_rows = row + 1 < t.rows, two_columns = column + 1 < t.columns;
    const float* HWY_RESTRICT from = products + i * t.outputs;
    float* HWY_RESTRICT to = y + ((image * t.rows + row) * t.columns + column) * t.outputs;
    const int64_t line = t.columns * t.outputs;
    for (int64_t o = 0; o < t.outputs; o += lanes) {
      const auto product = [&](int64_t k) HWY_ATTR { return hn::LoadU(d, from + k * step + o); };
      const auto sums = [&](int64_t k, V& first, V& second) HWY_ATTR {
        const V m0 = product(k), m1 = product(k + 4), m2 = product(k + 8), m3 = product(k + 12);
        first = hn::Add(hn::Add(m0, m1), m2), second = hn::Sub(hn::Sub(m1, m2), m3);
      };
      V a0, a1, b0, b1, c0, c1, d0, d1;
      sums(0, a0, a1), sums(1, b0, b1), sums(2, c0, c1), sums(3, d0, d1);
      const V y00 = hn::Add(hn::Add(a0, b0), c0), y01 = hn::Sub(hn::Sub(b0, c0), d0);
      const V y10 = hn::Add(hn::Add(a1, b1), c1), y11 = hn::Sub(hn::Sub(b1, c1), d1);
      const V shift = bias ? hn::LoadU(d, bias + o) : hn::Zero(d);
      const auto store = [&](V v, float* at) HWY_ATTR {
        bad = hn::MulAdd(v, hn::Zero(d), bad);
        hn::StoreU(hn::Add(v, shift), d, at);
      };
      store(y00, to + o);
      if (two_columns) store(y01, to + t.outputs + o);
      if (two_rows) store(y10, to + line + o);
      if (two_rows && two_columns) store(y11, to + line + t.outputs + o);
    }
  });
  return hn::AllTrue(d, hn::Eq(bad, hn::Zero(d)));
}

// One tile of a gradient, for the channels of a vector; null: that row or column is outside of the result.
template <class Tag>
HWY_INLINE void tile_gradients(Tag d, const float* const* from, int64_t c, float* HWY_RESTRICT to, int64_t step) {
  using W = hn::Vec<Tag>;
  const auto pixel = [&](int64_t i) HWY_ATTR { return from[i] ? hn::LoadU(d, from[i] + c) : hn::Zero(d); };
  const W p00 = pixel(0), p01 = pixel(1), p10 = pixel(2), p11 = pixel(3);
  const auto row = [&](W a, W b) HWY_ATTR {
    hn::StoreU(a, d, to);
    hn::StoreU(hn::Add(a, b), d, to + step);
    hn::StoreU(hn::Sub(a, b), d, to + 2 * step);
    hn::StoreU(hn::Neg(b), d, to + 3 * step);
    to += 4 * step;
  };
  row(p00, p01), row(hn::Add(p00, p10), hn::Add(p01, p11)), row(hn::Sub(p00, p10), hn::Sub(p01, p11));
  row(hn::Neg(p10), hn::Neg(p11));
}

void WinogradGradients(const WinogradTiles& t, const float* g, float* gradients) {
  const D d;
  const hn::CappedTag<float, 1> one;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for_tiles(t, [&](int64_t i, int64_t image, int64_t row, int64_t column) HWY_ATTR {
    const float* from[4];
    for (int64_t k = 0; k < 4; ++k) {
      const int64_t y = row + k / 2, x = column + k % 2;
      from[k] = y < t.rows && x < t.columns ? g + ((image * t.rows + y) * t.columns + x) * t.outputs : nullptr;
    }
    float* to = gradients + i * t.outputs;
    int64_t c = 0;
    for (; c + lanes <= t.outputs; c += lanes) tile_gradients(d, from, c, to + c, t.products_step);
    for (; c < t.outputs; ++c) tile_gradients(one, from, c, to + c, t.products_step);
  });
}

// G^T applied to four numbers.
#define PF_TAPS(a, b, c, d, to0, to1, to2)      \
  {                                             \
    const W sum = hn::Mul(half, hn::Add(b, c)); \
    to0 = hn::Add(a, sum);                      \
    to1 = hn::Mul(half, hn::Sub(b, c));         \
    to2 = hn::Add(sum, d);                      \
  }

template <class Tag>
HWY_INLINE hn::Vec<Tag> tap_gradients(Tag d, const float* HWY_RESTRICT from, int64_t step, float* HWY_RESTRICT to,
                                      int64_t taps_step) {
  using W = hn::Vec<Tag>;
  const W half = hn::Set(d, 0.5f);
  const auto sum_of = [&](int64_t k) HWY_ATTR { return hn::LoadU(d, from + k * step); };
  W bad = hn::Zero(d);
  W a0, a1, a2, b0, b1, b2, c0, c1, c2, d0, d1, d2;  // of each column of places
  PF_TAPS(sum_of(0), sum_of(4), sum_of(8), sum_of(12), a0, a1, a2)
  PF_TAPS(sum_of(1), sum_of(5), sum_of(9), sum_of(13), b0, b1, b2)
  PF_TAPS(sum_of(2), sum_of(6), sum_of(10), sum_of(14), c0, c1, c2)
  PF_TAPS(sum_of(3), sum_of(7), sum_of(11), sum_of(15), d0, d1, d2)
  const auto row = [&](W p, W q, W r, W s) HWY_ATTR {
    W r0, r1, r2;
    PF_TAPS(p, q, r, s, r0, r1, r2)
    const auto store = [&](W v) HWY_ATTR {
      bad = hn::MulAdd(v, hn::Zero(d), bad);
      hn::StoreU(v, d, to);
      to += taps_step;
    };
    store(r0), store(r1), store(r2);
  };
  row(a0, b0, c0, d0), row(a1, b1, c1, d1), row(a2, b2, c2, d2);
  return bad;
}

bool WinogradWeightGradients(const float* sums, int64_t step, int64_t count, float* taps, int64_t taps_step) {
  const D d;
  const hn::CappedTag<float, 1> one;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  V bad = hn::Zero(d);  // 0 * a number that is not finite is NaN
  bool finite = true;
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) bad = hn::Add(bad, tap_gradients(d, sums + i, step, taps + i, taps_step));
  for (; i < count; ++i) finite &= hn::GetLane(tap_gradients(one, sums + i, step, taps + i, taps_step)) == 0.0f;
  return finite && hn::AllTrue(d, hn::Eq(bad, hn::Zero(d)));
}

#undef PF_TRANSFORM
#undef PF_WEIGHTS
#undef PF_TAPS

}  // namespace HWY_NAMESPACE
}  // namespace pyflame::cpu::vec
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pyflame::cpu::vec {

HWY_EXPORT(WinogradWeights);
HWY_EXPORT(WinogradPixels);
HWY_EXPORT(WinogradProducts);
HWY_EXPORT(WinogradResults);
HWY_EXPORT(WinogradGradients);
HWY_EXPORT(WinogradWeightGradients);

int64_t winograd_step(int64_t count) {
  constexpr int64_t kLine = 16, kPage = 1024;  // numbers in a line of a cache, and in a page
  const int64_t lines = (count + kLine - 1) / kLine * kLine;
  // An odd number of lines beyond whole pages: 16 places fall into 16 sets.
  return lines % kPage % (2 * kLine) == 0 ? lines + kLine : lines;
}
void winograd_weights(const float* taps, int64_t inputs, float* weights, int64_t step) {
  HWY_DYNAMIC_DISPATCH(WinogradWeights)(taps, inputs, weights, step);
}
void winograd_pixels(const WinogradTiles& t, const float* x, const float* zeros, float* pixels) {
  HWY_DYNAMIC_DISPATCH(WinogradPixels)(t, x, zeros, pixels);
}
void winograd_products(const WinogradTiles& t, const float* pixels, const float* weights, float* products) {
  HWY_DYNAMIC_DISPATCH(WinogradProducts)(t, pixels, weights, products);
}
bool winograd_results(const WinogradTiles& t, const float* products, const float* bias, float* y) {
  return HWY_DYNAMIC_DISPATCH(WinogradResults)(t, products, bias, y);
}
void winograd_gradients(const WinogradTiles& t, const float* g, float* gradients) {
  HWY_DYNAMIC_DISPATCH(WinogradGradients)(t, g, gradients);
}
bool winograd_weight_gradients(const float* sums, int64_t step, int64_t count, float* taps, int64_t taps_step) {
  return HWY_DYNAMIC_DISPATCH(WinogradWeightGradients)(sums, step, count, taps, taps_step);
}

}  // namespace pyflame::cpu::vec
#endif
