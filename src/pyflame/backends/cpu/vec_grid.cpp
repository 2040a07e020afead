#include "pyflame/backends/cpu/vec_grid.h"

// The same versions as in vec.cpp.
#include <hwy/detect_targets.h>
#undef HWY_DISABLED_TARGETS
#ifdef HWY_AVX3_ZEN4
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_AVX3_ZEN4)
#else
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pyflame/backends/cpu/vec_grid.cpp"
#include <hwy/foreach_target.h>  // before highway.h

#include <hwy/highway.h>

#include <algorithm>

HWY_BEFORE_NAMESPACE();
namespace pyflame::cpu::vec {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The taps along a dim, as kernels/grid/taps.h defines them: the same operations in the same order. Blocks are as long as whole vectors.
template <class T>
struct TapsOfBlock {
  alignas(64) int32_t at[4][kGridBlock];
  alignas(64) T weight[4][kGridBlock], slope[4][kGridBlock];
};

template <class T>
class Taps {
  using D = hn::ScalableTag<T>;
  using V = hn::Vec<D>;

 public:
  Taps(const GridAttrs& a, int64_t size)
      : padding_(static_cast<GridPadding>(a.padding)), align_(a.align_corners != 0), size_(static_cast<T>(size)) {}

  template <GridMode kMode>
  HWY_INLINE void make(const T* places, TapsOfBlock<T>& to, int64_t n) const {
    const D d;
    const T scale = align_ ? (size_ - 1) / 2 : size_ / 2;
    for (int64_t i = 0; i < n; i += static_cast<int64_t>(hn::Lanes(d))) {
      const V more = hn::Add(hn::Load(d, places + i), set(1));
      V x = align_ ? hn::Mul(more, set(scale)) : hn::Mul(hn::Sub(hn::Mul(more, set(size_)), set(1)), set(T(0.5)));
      V slope = set(scale);
      if constexpr (kMode == GridMode::Cubic) {
        cubic(x, slope, to, i);
        continue;
      }
      pad(x, slope);
      if constexpr (kMode == GridMode::Nearest) {
        put(to, 0, i, hn::Round(x), set(1), hn::Zero(d));
      } else if constexpr (kMode == GridMode::Linear) {
        const V low = hn::Floor(x), next = hn::Add(low, set(1));
        put(to, 0, i, low, hn::Sub(next, x), hn::Neg(slope));
        put(to, 1, i, next, hn::Sub(x, low), slope);
      }
    }
  }

 private:
  static HWY_INLINE V set(T x) { return hn::Set(D(), x); }
  HWY_INLINE void put(TapsOfBlock<T>& to, int k, int64_t i, V at, V weight, V slope) const {
    const D d;
    const auto inside = hn::And(hn::Ge(at, hn::Zero(d)), hn::Le(at, set(size_ - 1)));
    const V where = hn::IfThenElse(inside, at, set(-1));
    if constexpr (sizeof(T) == 4)
      hn::Store(hn::ConvertTo(hn::RebindToSigned<D>(), where), hn::RebindToSigned<D>(), to.at[k] + i);
    else hn::Store(hn::DemoteTo(hn::Rebind<int32_t, D>(), where), hn::Rebind<int32_t, D>(), to.at[k] + i);
    hn::Store(weight, d, to.weight[k] + i);
    hn::Store(slope, d, to.slope[k] + i);
  }
  HWY_INLINE void pad(V& x, V& slope) const {
    if (padding_ == GridPadding::Zeros) return;
    const D d;
    const V zero = hn::Zero(d), last = set(size_ - 1);
    if (padding_ == GridPadding::Reflection) reflect(x, slope);
    const auto behind = hn::Gt(x, zero), inside = hn::And(behind, hn::Lt(x, last));
    x = hn::IfThenElse(inside, x, hn::IfThenElseZero(behind, last));
    slope = hn::IfThenElseZero(inside, slope);
  }
  HWY_INLINE void reflect(V& x, V& slope) const {
    const D d;
    const T low = align_ ? T(0) : T(-0.5), span = align_ ? size_ - 1 : size_;
    if (span == 0) {
      x = slope = hn::Zero(d);
      return;
    }
    const V away = hn::Sub(x, set(low)), distance = hn::Abs(away);
    const V turns = hn::Floor(hn::Div(distance, set(span)));
    const V rest = hn::Sub(distance, hn::Mul(turns, set(span)));
    const auto even = hn::Eq(hn::Sub(turns, hn::Mul(hn::Floor(hn::Mul(turns, set(T(0.5)))), set(2))), hn::Zero(d));
    x = hn::IfThenElse(even, hn::Add(rest, set(low)), hn::Sub(set(span + low), rest));
    slope = hn::IfThenElse(hn::Lt(away, hn::Zero(d)), hn::Neg(slope), slope);
    slope = hn::IfThenElse(even, slope, hn::Neg(slope));
  }
  static HWY_INLINE V near(V d) {
    return hn::Add(hn::Mul(hn::Mul(hn::Sub(hn::Mul(set(T(1.25)), d), set(T(2.25))), d), d), set(1));
  }
  static HWY_INLINE V far(V d) {
    const V y = hn::Sub(hn::Mul(hn::Add(hn::Mul(set(T(-0.75)), d), set(T(3.75))), d), set(6));
    return hn::Add(hn::Mul(y, d), set(3));
  }
  static HWY_INLINE V near_slope(V d) { return hn::Mul(hn::Sub(hn::Mul(set(T(3.75)), d), set(T(4.5))), d); }
  static HWY_INLINE V far_slope(V d) {
    return hn::Sub(hn::Mul(hn::Add(hn::Mul(set(T(-2.25)), d), set(T(7.5))), d), set(6));
  }
  HWY_INLINE void cubic(V x, V slope, TapsOfBlock<T>& to, int64_t i) const {
    const V low = hn::Floor(x), t = hn::Sub(x, low), one = set(1), rest = hn::Sub(one, t);
    const V t1 = hn::Add(t, one), rest1 = hn::Sub(set(2), t);
    const auto tap = [&](int k, V w, V s) HWY_ATTR {
      V at = hn::Add(low, set(static_cast<T>(k - 1))), unused = at;
      pad(at, unused);
      put(to, k, i, at, w, hn::Mul(s, slope));
    };
    tap(0, far(t1), far_slope(t1));
    tap(1, near(t), near_slope(t));
    tap(2, near(rest), hn::Neg(near_slope(rest)));
    tap(3, far(rest1), hn::Neg(far_slope(rest1)));
  }
  GridPadding padding_;
  bool align_;
  T size_;
};

template <class T>
HWY_NOINLINE void make_taps(const GridRule& rule, int64_t d, const T* places, TapsOfBlock<T>& to, int64_t n) {
  const Taps<T> taps(rule.attrs, rule.size[d]);
  switch (static_cast<GridMode>(rule.attrs.mode)) {
    case GridMode::Linear: return taps.template make<GridMode::Linear>(places, to, n);
    case GridMode::Nearest: return taps.template make<GridMode::Nearest>(places, to, n);
    case GridMode::Cubic: return taps.template make<GridMode::Cubic>(places, to, n);
  }
}

// One corner: the taps `tap` of the dims together.
template <class T>
HWY_INLINE void put_corner(const GridRule& rule, const TapsOfBlock<T>* along, const int64_t* tap, bool slopes,
                           GridBlock<T>& to, int64_t k, int64_t n) {
  const hn::ScalableTag<int32_t> di;
  const hn::ScalableTag<T> d;
  const int64_t dims = rule.dims;
  int32_t* at = to.at + k * kGridBlock;
  for (int64_t i = 0; i < n; i += static_cast<int64_t>(hn::Lanes(di))) {
    auto where = hn::Load(di, along[0].at[tap[0]] + i), any = where;
    for (int64_t e = 1; e < dims; ++e) {
      const auto more = hn::Load(di, along[e].at[tap[e]] + i);
      any = hn::Or(any, more);
      where = hn::Add(hn::Mul(where, hn::Set(di, static_cast<int32_t>(rule.size[e]))), more);
    }
    hn::Store(hn::IfThenElse(hn::Lt(any, hn::Zero(di)), hn::Set(di, -1), where), di, at + i);
  }
  const auto product = [&](int64_t by, T* w) HWY_ATTR {
    for (int64_t i = 0; i < n; i += static_cast<int64_t>(hn::Lanes(d))) {
      auto v = hn::Load(d, (by == 0 ? along[0].slope : along[0].weight)[tap[0]] + i);
      for (int64_t e = 1; e < dims; ++e)
        v = hn::Mul(v, hn::Load(d, (by == e ? along[e].slope : along[e].weight)[tap[e]] + i));
      hn::Store(v, d, w + k * kGridBlock + i);
    }
  };
  product(-1, to.weight);
  for (int64_t e = 0; slopes && e < dims; ++e) product(e, to.slope[dims - 1 - e]);
}

// The numbers of n places, by dims: those of the last dim come first in a place.
template <class T>
HWY_INLINE void take_apart(const T* places, int64_t dims, int64_t n, T (*lines)[kGridBlock]) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (hn::Vec<decltype(d)> x, y, z; i + lanes <= n; i += lanes) {
    if (dims == 2) {
      hn::LoadInterleaved2(d, places + i * 2, x, y);
      hn::Store(x, d, lines[1] + i), hn::Store(y, d, lines[0] + i);
    } else {
      hn::LoadInterleaved3(d, places + i * 3, x, y, z);
      hn::Store(x, d, lines[2] + i), hn::Store(y, d, lines[1] + i), hn::Store(z, d, lines[0] + i);
    }
  }
  for (; i < n; ++i)
    for (int64_t e = 0; e < dims; ++e) lines[dims - 1 - e][i] = places[i * dims + e];
}

template <class T>
void GridCornersT(const GridRule& rule, const T* places, int64_t n, bool slopes, GridBlock<T>& to) {
  constexpr int64_t kWhole = 16;  // whole vectors of int32_t and T
  const int64_t whole = (n + kWhole - 1) / kWhole * kWhole, dims = rule.dims;
  alignas(64) T lines[3][kGridBlock];
  TapsOfBlock<T> along[3];
  take_apart(places, dims, n, lines);
  for (int64_t d = 0; d < dims; ++d) {
    std::fill(lines[d] + n, lines[d] + whole, T(0));
    make_taps(rule, d, lines[d], along[d], whole);
  }
  const GridMode mode = static_cast<GridMode>(rule.attrs.mode);
  const int64_t taps = mode == GridMode::Linear ? 2 : mode == GridMode::Nearest ? 1 : 4, corners = rule.corners();
  for (int64_t k = 0; k < corners; ++k) {
    const int64_t tap2[3] = {k / taps, k % taps, 0}, tap3[3] = {k / (taps * taps), k / taps % taps, k % taps};
    put_corner(rule, along, dims == 2 ? tap2 : tap3, slopes, to, k, whole);
  }
}

// Elements of a plane; 0 outside.
HWY_INLINE hn::Vec<hn::ScalableTag<float>> gather(const float* plane, const int32_t* at) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const auto index = hn::LoadU(di, at);
  const auto outside = hn::Lt(index, hn::Zero(di));
  const auto x = hn::GatherIndex(d, plane, hn::IfThenZeroElse(outside, index));
  return hn::IfThenZeroElse(hn::RebindMask(d, outside), x);
}
HWY_INLINE hn::Vec<hn::ScalableTag<double>> gather(const double* plane, const int32_t* at) {
  const hn::ScalableTag<double> d;
  const hn::RebindToSigned<decltype(d)> di;
  const auto index = hn::PromoteTo(di, hn::LoadU(hn::Rebind<int32_t, decltype(d)>(), at));
  const auto outside = hn::Lt(index, hn::Zero(di));
  const auto x = hn::GatherIndex(d, plane, hn::IfThenZeroElse(outside, index));
  return hn::IfThenZeroElse(hn::RebindMask(d, outside), x);
}

// The last vector may be incomplete. Masked access does not touch what lies behind it, but only from AVX2 on; the baseline uses a buffer.
template <class T>
HWY_INLINE hn::Vec<hn::ScalableTag<T>> load_some(const T* p, int64_t n) {
  const hn::ScalableTag<T> d;
  if (HWY_LIKELY(n >= static_cast<int64_t>(hn::Lanes(d)))) return hn::LoadU(d, p);
#if HWY_TARGET <= HWY_AVX2
  return hn::MaskedLoad(hn::FirstN(d, static_cast<size_t>(n)), d, p);
#else
  alignas(64) T buffer[16] = {};
  std::copy(p, p + n, buffer);
  return hn::Load(d, buffer);
#endif
}
template <class T>
HWY_INLINE void store_some(hn::Vec<hn::ScalableTag<T>> v, T* p, int64_t n) {
  const hn::ScalableTag<T> d;
  if (HWY_LIKELY(n >= static_cast<int64_t>(hn::Lanes(d)))) return hn::StoreU(v, d, p);
#if HWY_TARGET <= HWY_AVX2
  hn::BlendedStore(v, hn::FirstN(d, static_cast<size_t>(n)), d, p);
#else
  alignas(64) T buffer[16];
  hn::Store(v, d, buffer);
  std::copy(buffer, buffer + n, p);
#endif
}

// Two neighbours at once: elements at[0] and at[0] + 1, which take one access of 8 bytes. All of them are inside.
#if HWY_TARGET != HWY_SCALAR
struct Pair {
  hn::Vec<hn::ScalableTag<float>> first, second;
};
HWY_INLINE Pair gather_pairs(const float* plane, const int32_t* at) {
  const hn::ScalableTag<float> d;
  const hn::ScalableTag<int64_t> dw;
  const auto half = static_cast<int64_t>(hn::Lanes(dw));
  const auto some = [&](const int32_t* from) HWY_ATTR {
    const auto bytes = hn::ShiftLeft<2>(hn::PromoteTo(dw, hn::LoadU(hn::Rebind<int32_t, decltype(dw)>(), from)));
    return hn::BitCast(d, hn::GatherOffset(dw, reinterpret_cast<const int64_t*>(plane), bytes));
  };
  const auto low = some(at), high = some(at + half);
  return {hn::ConcatEven(d, high, low), hn::ConcatOdd(d, high, low)};
}
#endif

// Whether all corners of the places i, i + 1, .. of a vector are inside. In linear modes, corners 2 k and 2 k + 1 are then neighbours.
template <class T>
HWY_INLINE bool all_inside(const GridBlock<T>& b, int64_t corners, int64_t i) {
  const hn::CappedTag<int32_t, hn::MaxLanes(hn::ScalableTag<T>())> d;
  auto any = hn::Load(d, b.at + i);
  for (int64_t k = i + kGridBlock; k < corners * kGridBlock; k += kGridBlock) any = hn::Or(any, hn::Load(d, b.at + k));
  return hn::AllFalse(d, hn::Lt(any, hn::Zero(d)));
}

// f(number of a corner, its elements in a plane), for the corners of the places i, i + 1, .. of a vector.
template <class T, class F>
HWY_INLINE void for_corners(const GridBlock<T>& b, int64_t corners, [[maybe_unused]] bool pairs, const T* plane,
                            int64_t i, const F& f) {
  const int64_t last = corners * kGridBlock;
#if HWY_TARGET != HWY_SCALAR
  if constexpr (sizeof(T) == 4) {
    for (int64_t k = i; pairs && k < last; k += 2 * kGridBlock) {
      const Pair x = gather_pairs(plane, b.at + k);
      f(k, x.first), f(k + kGridBlock, x.second);
    }
    if (pairs) return;
  }
#endif
  for (int64_t k = i; k < last; k += kGridBlock) f(k, gather(plane, b.at + k));
}
template <class T>
HWY_INLINE bool in_pairs(const GridBlock<T>& b, int64_t corners, int64_t i) {
  return sizeof(T) == 4 && (corners == 4 || corners == 8) && all_inside(b, corners, i);
}

template <class T>
void SamplePlaneT(const GridBlock<T>& b, int64_t corners, const T* plane, T* y, int64_t n) {
  const hn::ScalableTag<T> d;
  for (int64_t i = 0; i < n; i += static_cast<int64_t>(hn::Lanes(d))) {
    auto sum = hn::Zero(d);
    for_corners(b, corners, in_pairs(b, corners, i), plane, i,
                [&](int64_t k, auto x) HWY_ATTR { sum = hn::MulAdd(hn::Load(d, b.weight + k), x, sum); });
    store_some(sum, y + i, n - i);
  }
}

template <class T>
void GridSlopesOfPlanesT(const GridBlock<T>& b, const GridRule& rule, const T* planes, int64_t elements, const T* g,
                         int64_t ld, int64_t channels, T* to, int64_t n) {
  const hn::ScalableTag<T> d;
  alignas(64) T result[3][16];
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t corners = rule.corners(), dims = rule.dims;
  for (int64_t i = 0; i < n; i += lanes) {
    const bool pairs = in_pairs(b, corners, i);
    auto x = hn::Zero(d), y = x, z = x;
    for (int64_t c = 0; c < channels; ++c) {
      auto dx = hn::Zero(d), dy = dx, dz = dx;
      for_corners(b, corners, pairs, planes + c * elements, i, [&](int64_t k, auto v) HWY_ATTR {
        dx = hn::MulAdd(v, hn::Load(d, b.slope[0] + k), dx), dy = hn::MulAdd(v, hn::Load(d, b.slope[1] + k), dy);
        if (dims == 3) dz = hn::MulAdd(v, hn::Load(d, b.slope[2] + k), dz);
      });
      const auto factor = load_some(g + c * ld + i, n - i);
      x = hn::MulAdd(factor, dx, x), y = hn::MulAdd(factor, dy, y), z = hn::MulAdd(factor, dz, z);
    }
    hn::Store(x, d, result[0]), hn::Store(y, d, result[1]), hn::Store(z, d, result[2]);
    for (int64_t j = 0; j < std::min(lanes, n - i); ++j)
      for (int64_t e = 0; e < dims; ++e) to[(i + j) * dims + e] = result[e][j];
  }
}

// The corners of a place that are inside of the image.
template <class T>
struct Inside {
  const T* row[kGridCorners];
  T weight[kGridCorners];
  int64_t count = 0;
  T rest = 0;  // of those outside: 0, or NaN
  HWY_INLINE Inside(const GridBlock<T>& b, int64_t corners, const T* rows, int64_t channels, int64_t i) {
    for (int64_t k = i; k < corners * kGridBlock; k += kGridBlock) {
      if (b.at[k] < 0) rest += b.weight[k] * 0;
      else row[count] = rows + b.at[k] * channels, weight[count++] = b.weight[k];
    }
  }
};

template <class T>
void SampleRowsT(const GridBlock<T>& b, int64_t corners, const T* rows, int64_t channels, T* y, int64_t n) {
  const hn::ScalableTag<T> d;
  for (int64_t i = 0; i < n; ++i, y += channels) {
    const Inside<T> in(b, corners, rows, channels, i);
    for (int64_t j = 0; j < channels; j += static_cast<int64_t>(hn::Lanes(d))) {
      auto sum = hn::Set(d, in.rest);
      for (int64_t k = 0; k < in.count; ++k)
        sum = hn::MulAdd(hn::Set(d, in.weight[k]), load_some(in.row[k] + j, channels - j), sum);
      store_some(sum, y + j, channels - j);
    }
  }
}

template <class T>
void GridSlopesOfRowsT(const GridBlock<T>& b, const GridRule& rule, const T* rows, int64_t channels, const T* g, T* to,
                       int64_t n) {
  const hn::ScalableTag<T> d;
  const int64_t last = rule.corners() * kGridBlock, dims = rule.dims;
  for (int64_t i = 0; i < n; ++i, g += channels, to += dims) {
    auto x = hn::Zero(d), y = x, z = x;
    for (int64_t j = 0; j < channels; j += static_cast<int64_t>(hn::Lanes(d))) {
      auto dx = hn::Zero(d), dy = dx, dz = dx;
      for (int64_t k = i; k < last; k += kGridBlock) {
        if (b.at[k] < 0) continue;
        const auto v = load_some(rows + b.at[k] * channels + j, channels - j);
        dx = hn::MulAdd(v, hn::Set(d, b.slope[0][k]), dx), dy = hn::MulAdd(v, hn::Set(d, b.slope[1][k]), dy);
        if (dims == 3) dz = hn::MulAdd(v, hn::Set(d, b.slope[2][k]), dz);
      }
      const auto factor = load_some(g + j, channels - j);
      x = hn::MulAdd(factor, dx, x), y = hn::MulAdd(factor, dy, y), z = hn::MulAdd(factor, dz, z);
    }
    to[0] = hn::GetLane(hn::SumOfLanes(d, x)), to[1] = hn::GetLane(hn::SumOfLanes(d, y));
    if (dims == 3) to[2] = hn::GetLane(hn::SumOfLanes(d, z));
  }
}

template <class T>
void AddToRowsT(const GridBlock<T>& b, int64_t corners, const T* g, int64_t channels, T* rows, int64_t n) {
  const hn::ScalableTag<T> d;
  for (int64_t i = 0; i < n; ++i, g += channels)
    for (int64_t k = i; k < corners * kGridBlock; k += kGridBlock) {
      if (b.at[k] < 0) continue;
      T* row = rows + b.at[k] * channels;
      const auto w = hn::Set(d, b.weight[k]);
      for (int64_t j = 0; j < channels; j += static_cast<int64_t>(hn::Lanes(d)))
        store_some(hn::MulAdd(w, load_some(g + j, channels - j), load_some(row + j, channels - j)), row + j,
                   channels - j);
    }
}

// A square of as many elements as a vector of 16 bytes has.
#if HWY_TARGET == HWY_SCALAR
template <class T>
HWY_INLINE void transpose_square(const T* x, int64_t ldx, T* y, int64_t ldy) {
  constexpr int64_t kSide = 16 / sizeof(T);
  for (int64_t i = 0; i < kSide; ++i)
    for (int64_t j = 0; j < kSide; ++j) y[j * ldy + i] = x[i * ldx + j];
}
#else
HWY_INLINE void transpose_square(const float* x, int64_t ldx, float* y, int64_t ldy) {
  const hn::FixedTag<float, 4> d;
  const auto a = hn::LoadU(d, x), b = hn::LoadU(d, x + ldx), c = hn::LoadU(d, x + 2 * ldx),
             e = hn::LoadU(d, x + 3 * ldx);
  const auto p = hn::InterleaveLower(d, a, c), q = hn::InterleaveUpper(d, a, c);
  const auto r = hn::InterleaveLower(d, b, e), s = hn::InterleaveUpper(d, b, e);
  hn::StoreU(hn::InterleaveLower(d, p, r), d, y), hn::StoreU(hn::InterleaveUpper(d, p, r), d, y + ldy);
  hn::StoreU(hn::InterleaveLower(d, q, s), d, y + 2 * ldy), hn::StoreU(hn::InterleaveUpper(d, q, s), d, y + 3 * ldy);
}
HWY_INLINE void transpose_square(const double* x, int64_t ldx, double* y, int64_t ldy) {
  const hn::FixedTag<double, 2> d;
  const auto a = hn::LoadU(d, x), b = hn::LoadU(d, x + ldx);
  hn::StoreU(hn::InterleaveLower(d, a, b), d, y), hn::StoreU(hn::InterleaveUpper(d, a, b), d, y + ldy);
}
#endif

// One line of the cache from each of up to as many rows as it has elements. Rows are often a power of 2 apart, so that few of their lines
// stay in the cache: all of a line is read (kByRows) or written before the next.
template <bool kByRows, class T>
HWY_INLINE void transpose_tile(const T* x, int64_t ldx, T* y, int64_t ldy, int64_t rows, int64_t columns) {
  constexpr int64_t kSide = 16 / sizeof(T);
  const int64_t whole_rows = rows / kSide * kSide, whole_columns = columns / kSide * kSide;
  if constexpr (kByRows) {
    for (int64_t i = 0; i < whole_rows; i += kSide)
      for (int64_t j = 0; j < whole_columns; j += kSide) transpose_square(x + i * ldx + j, ldx, y + j * ldy + i, ldy);
  } else {
    for (int64_t j = 0; j < whole_columns; j += kSide)
      for (int64_t i = 0; i < whole_rows; i += kSide) transpose_square(x + i * ldx + j, ldx, y + j * ldy + i, ldy);
  }
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = i < whole_rows ? whole_columns : 0; j < columns; ++j) y[j * ldy + i] = x[i * ldx + j];
}

template <class T>
void TransposeT(const T* x, int64_t ldx, T* y, int64_t ldy, int64_t rows, int64_t columns) {
  constexpr int64_t kLine = 64 / sizeof(T);
  for (int64_t i = 0; i < rows; i += kLine)
    for (int64_t j = 0; j < columns; j += kLine) {
      const int64_t m = std::min(kLine, rows - i), n = std::min(kLine, columns - j);
      if (ldx > ldy) transpose_tile<true>(x + i * ldx + j, ldx, y + j * ldy + i, ldy, m, n);
      else transpose_tile<false>(x + i * ldx + j, ldx, y + j * ldy + i, ldy, m, n);
    }
}

#define PF_GRID_FUNCTIONS(T, S)                                                                                      \
  void GridCorners##S(const GridRule& rule, const T* places, int64_t n, bool slopes, GridBlock<T>& to) {             \
    GridCornersT<T>(rule, places, n, slopes, to);                                                                    \
  }                                                                                                                  \
  void SamplePlane##S(const GridBlock<T>& b, int64_t corners, const T* plane, T* y, int64_t n) {                     \
    SamplePlaneT<T>(b, corners, plane, y, n);                                                                        \
  }                                                                                                                  \
  void GridSlopesOfPlanes##S(const GridBlock<T>& b, const GridRule& rule, const T* planes, int64_t elements,         \
                             const T* g, int64_t ld, int64_t channels, T* to, int64_t n) {                           \
    GridSlopesOfPlanesT<T>(b, rule, planes, elements, g, ld, channels, to, n);                                       \
  }                                                                                                                  \
  void SampleRows##S(const GridBlock<T>& b, int64_t corners, const T* rows, int64_t channels, T* y, int64_t n) {     \
    SampleRowsT<T>(b, corners, rows, channels, y, n);                                                                \
  }                                                                                                                  \
  void GridSlopesOfRows##S(const GridBlock<T>& b, const GridRule& rule, const T* rows, int64_t channels, const T* g, \
                           T* to, int64_t n) {                                                                       \
    GridSlopesOfRowsT<T>(b, rule, rows, channels, g, to, n);                                                         \
  }                                                                                                                  \
  void AddToRows##S(const GridBlock<T>& b, int64_t corners, const T* g, int64_t channels, T* rows, int64_t n) {      \
    AddToRowsT<T>(b, corners, g, channels, rows, n);                                                                 \
  }                                                                                                                  \
  void Transpose##S(const T* x, int64_t ldx, T* y, int64_t ldy, int64_t rows, int64_t columns) {                     \
    TransposeT<T>(x, ldx, y, ldy, rows, columns);                                                                    \
  }
PF_GRID_FUNCTIONS(float, F32)
PF_GRID_FUNCTIONS(double, F64)
#undef PF_GRID_FUNCTIONS

}  // namespace HWY_NAMESPACE
}  // namespace pyflame::cpu::vec
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pyflame::cpu::vec {

#define PF_ENTRIES(T, S)                                                                                             \
  HWY_EXPORT(GridCorners##S);                                                                                        \
  HWY_EXPORT(SamplePlane##S);                                                                                        \
  HWY_EXPORT(GridSlopesOfPlanes##S);                                                                                 \
  HWY_EXPORT(SampleRows##S);                                                                                         \
  HWY_EXPORT(GridSlopesOfRows##S);                                                                                   \
  HWY_EXPORT(AddToRows##S);                                                                                          \
  HWY_EXPORT(Transpose##S);                                                                                          \
  void grid_corners(const GridRule& rule, const T* places, int64_t n, bool slopes, GridBlock<T>& to) {               \
    HWY_DYNAMIC_DISPATCH(GridCorners##S)(rule, places, n, slopes, to);                                               \
  }                                                                                                                  \
  void sample_plane(const GridBlock<T>& b, int64_t corners, const T* plane, T* y, int64_t n) {                       \
    HWY_DYNAMIC_DISPATCH(SamplePlane##S)(b, corners, plane, y, n);                                                   \
  }                                                                                                                  \
  void grid_slopes_of_planes(const GridBlock<T>& b, const GridRule& rule, const T* planes, int64_t elements,         \
                             const T* g, int64_t ld, int64_t channels, T* to, int64_t n) {                           \
    HWY_DYNAMIC_DISPATCH(GridSlopesOfPlanes##S)(b, rule, planes, elements, g, ld, channels, to, n);                  \
  }                                                                                                                  \
  void sample_rows(const GridBlock<T>& b, int64_t corners, const T* rows, int64_t channels, T* y, int64_t n) {       \
    HWY_DYNAMIC_DISPATCH(SampleRows##S)(b, corners, rows, channels, y, n);                                           \
  }                                                                                                                  \
  void grid_slopes_of_rows(const GridBlock<T>& b, const GridRule& rule, const T* rows, int64_t channels, const T* g, \
                           T* to, int64_t n) {                                                                       \
    HWY_DYNAMIC_DISPATCH(GridSlopesOfRows##S)(b, rule, rows, channels, g, to, n);                                    \
  }                                                                                                                  \
  void add_to_rows(const GridBlock<T>& b, int64_t corners, const T* g, int64_t channels, T* rows, int64_t n) {       \
    HWY_DYNAMIC_DISPATCH(AddToRows##S)(b, corners, g, channels, rows, n);                                            \
  }                                                                                                                  \
  void transpose(const T* x, int64_t ldx, T* y, int64_t ldy, int64_t rows, int64_t columns) {                        \
    HWY_DYNAMIC_DISPATCH(Transpose##S)(x, ldx, y, ldy, rows, columns);                                               \
  }
PF_ENTRIES(float, F32)
PF_ENTRIES(double, F64)
#undef PF_ENTRIES

}  // namespace pyflame::cpu::vec
#endif
