#include "pyflame/backends/cpu/vec_conv.h"

// The same versions as in vec.cpp.
#include <hwy/detect_targets.h>
#undef HWY_DISABLED_TARGETS
#ifdef HWY_AVX3_ZEN4
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_AVX3_ZEN4)
#else
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pyflame/backends/cpu/vec_conv.cpp"
#include <hwy/foreach_target.h>  // before highway.h

#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace pyflame::cpu::vec {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

int64_t WeightLanes() { return static_cast<int64_t>(hn::Lanes(D())); }

void WeightPanels(const WeightTile& t, const float* image, int64_t height, int64_t width, int64_t channels, int64_t top,
                  int64_t left, float* to) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t block = t.images * t.panel_rows * t.panel_columns * lanes;
  const int64_t first = std::clamp<int64_t>(-left, 0, t.panel_columns),
                last = std::clamp<int64_t>(width - left, first, t.panel_columns);
  const auto zero = [&](float* pixel) {
    for (int64_t k = 0; k < t.blocks; ++k) hn::StoreU(hn::Zero(d), d, pixel + k * block);
  };
  for (int64_t y = 0; y < t.panel_rows; ++y, to += t.panel_columns * lanes) {
    const bool inside = top + y >= 0 && top + y < height;
    const int64_t begin = inside ? first : t.panel_columns, end = inside ? last : t.panel_columns;
    for (int64_t x = 0; x < begin; ++x) zero(to + x * lanes);
    for (int64_t x = begin; x < end; ++x) {
      const float* from = image + ((top + y) * width + left + x) * channels;
      for (int64_t k = 0; k < t.blocks; ++k) hn::StoreU(hn::LoadU(d, from + k * lanes), d, to + x * lanes + k * block);
    }
    for (int64_t x = end; x < t.panel_columns; ++x) zero(to + x * lanes);
  }
}

void WeightOutputs(const float* image, int64_t begin, int64_t end, int64_t pixels, int64_t channels, float* to) {
  constexpr int64_t kBlock = 8;
  for (int64_t first = begin; first < end; first += kBlock) {
    const int64_t last = std::min(end, first + kBlock);
    for (int64_t c = 0; c < channels; c += kWeightOutputs)
      for (int64_t p = first; p < last; ++p)
        std::memcpy(to + c * pixels + p * kWeightOutputs, image + p * channels + c, kWeightOutputs * sizeof(float));
  }
}

// All columns of a row of taps, for kWeightOutputs outputs: as many sums as hide the latency of a product.
HWY_INLINE void add_rows(const WeightTile& t, int64_t images, int64_t rows, const float* HWY_RESTRICT panel,
                         const float* HWY_RESTRICT outputs, float* HWY_RESTRICT sums) {
  static_assert(kWeightColumns == 3 && kWeightOutputs == 4);
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t step = t.stride_w * lanes, tap = t.dilation_w * lanes, line = t.stride_h * t.panel_columns * lanes;
  V a00 = hn::Zero(d), a01 = a00, a02 = a00, a10 = a00, a11 = a00, a12 = a00;
  V a20 = a00, a21 = a00, a22 = a00, a30 = a00, a31 = a00, a32 = a00;
  const int64_t next_panel = t.panel_rows * t.panel_columns * lanes, next_outputs = t.plane;
  for (int64_t i = 0; i < images; ++i, panel += next_panel, outputs += next_outputs) {
    const float* HWY_RESTRICT g = outputs;
    for (int64_t y = 0; y < rows; ++y) {
      const float* HWY_RESTRICT x = panel + y * line;
      for (int64_t k = 0; k < t.columns; ++k, x += step, g += kWeightOutputs) {
        const V x0 = hn::LoadU(d, x), x1 = hn::LoadU(d, x + tap), x2 = hn::LoadU(d, x + 2 * tap);
        V s = hn::Set(d, g[0]);
        a00 = hn::MulAdd(s, x0, a00), a01 = hn::MulAdd(s, x1, a01), a02 = hn::MulAdd(s, x2, a02);
        s = hn::Set(d, g[1]);
        a10 = hn::MulAdd(s, x0, a10), a11 = hn::MulAdd(s, x1, a11), a12 = hn::MulAdd(s, x2, a12);
        s = hn::Set(d, g[2]);
        a20 = hn::MulAdd(s, x0, a20), a21 = hn::MulAdd(s, x1, a21), a22 = hn::MulAdd(s, x2, a22);
        s = hn::Set(d, g[3]);
        a30 = hn::MulAdd(s, x0, a30), a31 = hn::MulAdd(s, x1, a31), a32 = hn::MulAdd(s, x2, a32);
      }
    }
  }
  const auto add = [&](int64_t i, V v) {
    float* to = sums + i * lanes;
    hn::StoreU(hn::Add(hn::LoadU(d, to), v), d, to);
  };
  add(0, a00), add(1, a01), add(2, a02), add(3, a10), add(4, a11), add(5, a12);
  add(6, a20), add(7, a21), add(8, a22), add(9, a30), add(10, a31), add(11, a32);
}

void AddWeightSums(const WeightTile& t, const float* panels, const float* outputs, float* sums) {
  constexpr int64_t kPixels = 256;  // whose panel stays in the L1 cache while all outputs read it
  const auto lanes = static_cast<int64_t>(hn::Lanes(D()));
  const int64_t pixels = t.rows * t.columns, row = t.panel_columns * lanes, image = t.panel_rows * row;
  const int64_t some_rows = std::clamp<int64_t>(kPixels / t.columns, 1, t.rows);
  const int64_t some_images = some_rows < t.rows ? 1 : std::clamp<int64_t>(kPixels / pixels, 1, t.images);
  for (int64_t i = 0; i < t.images; i += some_images)
    for (int64_t y = 0; y < t.rows; y += some_rows) {
      const int64_t images = std::min(some_images, t.images - i), rows = std::min(some_rows, t.rows - y);
      float* to = sums;
      for (int64_t b = 0; b < t.blocks; ++b) {
        const float* panel = panels + (b * t.images + i) * image + y * t.stride_h * row;
        for (int64_t c = 0; c < t.outputs; c += kWeightOutputs) {
          const float* g = outputs + i * t.plane + c * t.pixels + y * t.columns * kWeightOutputs;
          for (int64_t k = 0; k < t.taps; ++k, to += kWeightOutputs * kWeightColumns * lanes)
            add_rows(t, images, rows, panel + k * t.dilation_h * row, g, to);
        }
      }
    }
}

// The products of kPixels pixels with a block of weights; six pixels use all registers. A chunk continues the sums that the one before it stored.
template <int kPixels>
void tap_pixels(const TapTile& t, const float* const* from, int64_t inputs, const float* HWY_RESTRICT w,
                const float* bias, float* HWY_RESTRICT y) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const V none = hn::Zero(d);
  V a0 = none, b0 = none, a1 = none, b1 = none, a2 = none, b2 = none;
  V a3 = none, b3 = none, a4 = none, b4 = none, a5 = none, b5 = none;
#define PF_PIXELS(F) F(0, a0, b0) F(1, a1, b1) F(2, a2, b2) F(3, a3, b3) F(4, a4, b4) F(5, a5, b5)
#define PF_START(i, a, b) a = hn::LoadU(d, bias), b = hn::LoadU(d, bias + lanes);
#define PF_RESUME(i, a, b) \
  if constexpr (i < kPixels) a = hn::LoadU(d, y + i * t.outputs), b = hn::LoadU(d, y + i * t.outputs + lanes);
#define PF_PRODUCT(i, a, b)                           \
  if constexpr (i < kPixels) {                        \
    const V x = hn::Set(d, x##i[c]);                  \
    a = hn::MulAdd(x, u, a), b = hn::MulAdd(x, v, b); \
  }
#define PF_STORE(i, a, b) \
  if constexpr (i < kPixels) hn::StoreU(a, d, y + i * t.outputs), hn::StoreU(b, d, y + i * t.outputs + lanes);
  if (bias) {
    PF_PIXELS(PF_START)
  } else {
    PF_PIXELS(PF_RESUME)
  }
  for (int64_t ky = 0; ky < t.taps_h; ++ky)
    for (int64_t kx = 0; kx < t.taps_w; ++kx) {
      const int64_t at = ky * t.dilation_h * t.row + kx * t.dilation_w * t.inputs;
      const float *x0 = from[0] + at, *x1 = from[1] + at, *x2 = from[2] + at, *x3 = from[3] + at, *x4 = from[4] + at,
                  *x5 = from[5] + at;
      for (int64_t c = 0; c < inputs; ++c, w += 2 * lanes) {
        const V u = hn::LoadU(d, w), v = hn::LoadU(d, w + lanes);
        PF_PIXELS(PF_PRODUCT)
      }
    }
  PF_PIXELS(PF_STORE)
#undef PF_PIXELS
#undef PF_START
#undef PF_RESUME
#undef PF_PRODUCT
#undef PF_STORE
}

void TapRows(const TapTile& t, const float* x, const float* weight, const float* bias, float* y) {
  constexpr int64_t kGroup = 6;
  const auto lanes = static_cast<int64_t>(hn::Lanes(D()));
  const int64_t block = 2 * lanes, pixels = t.rows * t.columns, taps = t.taps_h * t.taps_w;
  for (int64_t c = 0; c < t.inputs; c += kTapChunk) {
    const int64_t inputs = std::min(kTapChunk, t.inputs - c);
    for (int64_t o = 0; o < t.outputs; o += block) {
      const float* w = weight + (o * t.inputs + c * block) * taps;
      const float* first = c == 0 ? bias + o : nullptr;
      int64_t row = 0, column = 0;
      for (int64_t p = 0; p < pixels; p += kGroup) {
        const float* from[kGroup];
        const int64_t count = std::min(kGroup, pixels - p);
        for (int64_t i = 0; i < kGroup; ++i) {
          from[i] = i < count ? x + row * t.stride_h * t.row + column * t.stride_w * t.inputs + c : from[0];
          if (++column == t.columns) column = 0, ++row;
        }
        float* to = y + p * t.outputs + o;
        switch (count) {
          case 1: tap_pixels<1>(t, from, inputs, w, first, to); break;
          case 2: tap_pixels<2>(t, from, inputs, w, first, to); break;
          case 3: tap_pixels<3>(t, from, inputs, w, first, to); break;
          case 4: tap_pixels<4>(t, from, inputs, w, first, to); break;
          case 5: tap_pixels<5>(t, from, inputs, w, first, to); break;
          default: tap_pixels<6>(t, from, inputs, w, first, to);
        }
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace pyflame::cpu::vec
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pyflame::cpu::vec {

HWY_EXPORT(WeightLanes);
HWY_EXPORT(WeightPanels);
HWY_EXPORT(WeightOutputs);
HWY_EXPORT(AddWeightSums);
HWY_EXPORT(TapRows);

int64_t weight_lanes() { return HWY_DYNAMIC_DISPATCH(WeightLanes)(); }
void weight_panels(const WeightTile& t, const float* image, int64_t height, int64_t width, int64_t channels,
                   int64_t top, int64_t left, float* to) {
  HWY_DYNAMIC_DISPATCH(WeightPanels)(t, image, height, width, channels, top, left, to);
}
void weight_outputs(const float* image, int64_t begin, int64_t end, int64_t pixels, int64_t channels, float* to) {
  HWY_DYNAMIC_DISPATCH(WeightOutputs)(image, begin, end, pixels, channels, to);
}
void add_weight_sums(const WeightTile& t, const float* panels, const float* outputs, float* sums) {
  HWY_DYNAMIC_DISPATCH(AddWeightSums)(t, panels, outputs, sums);
}
void tap_rows(const TapTile& t, const float* x, const float* weight, const float* bias, float* y) {
  HWY_DYNAMIC_DISPATCH(TapRows)(t, x, weight, bias, y);
}

}  // namespace pyflame::cpu::vec
#endif
