#include "pyflame/backends/cpu/vec_bins.h"

// The same versions as in vec.cpp.
#include <hwy/detect_targets.h>
#undef HWY_DISABLED_TARGETS
#ifdef HWY_AVX3_ZEN4
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_AVX3_ZEN4)
#else
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pyflame/backends/cpu/vec_bins.cpp"
#include <hwy/foreach_target.h>  // before highway.h

#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <cmath>

HWY_BEFORE_NAMESPACE();
namespace pyflame::cpu::vec {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int64_t kBinBlock = 512;
constexpr double kBinLimit = 1125899906842624.0;  // 2^50

// Vectors of float64 from either type.
template <class D>
HWY_INLINE hn::Vec<D> load_wide(D d, const double* p) {
  return hn::LoadU(d, p);
}
template <class D>
HWY_INLINE hn::Vec<D> load_wide(D d, const float* p) {
  return hn::PromoteTo(d, hn::LoadU(hn::Rebind<float, D>(), p));
}

// The places of a block's elements; a bin outside of the window has the place behind it. false: a value cannot be used.
template <class V>
HWY_INLINE bool places_of(const V* values, const Bins& b, int32_t* at, BinRange& range) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<int32_t, decltype(d)> places;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto scale = hn::Set(d, b.scale), start = hn::Set(d, static_cast<double>(b.start));
  const auto behind = hn::Set(d, static_cast<double>(b.bins)), limit = hn::Set(d, kBinLimit), zero = hn::Zero(d);
  auto good = hn::Eq(zero, zero);
  auto low = hn::Set(d, range.lowest), high = hn::Set(d, range.highest);
  for (int64_t i = 0; i < kBinBlock; i += lanes) {
    const auto value = load_wide(d, values + i), q = b.divide ? hn::Div(value, scale) : hn::Mul(value, scale);
    good = hn::And(good, hn::Lt(hn::Abs(q), limit));
    const auto bin = hn::Round(q), place = hn::Sub(bin, start);
    low = hn::Min(low, bin), high = hn::Max(high, bin);
    const auto inside = hn::And(hn::Ge(place, zero), hn::Lt(place, behind));
    hn::StoreU(hn::DemoteTo(places, hn::IfThenElse(inside, place, behind)), places, at + i);
  }
  if (!hn::AllTrue(d, good)) return false;
  range.lowest = hn::GetLane(hn::MinOfLanes(d, low)), range.highest = hn::GetLane(hn::MaxOfLanes(d, high));
  return true;
}

// The largest weight of a block. false: a weight cannot be used.
template <class W>
HWY_INLINE bool weights_are_good(const W* weights, BinRange& range) {
  const hn::ScalableTag<W> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  if constexpr (hwy::IsFloat<W>()) {
    const auto zero = hn::Zero(d), end = hn::Inf(d);
    auto good = hn::Eq(zero, zero);
    for (int64_t i = 0; i < kBinBlock; i += lanes) {
      const auto w = hn::LoadU(d, weights + i);
      good = hn::And(good, hn::And(hn::Ge(w, zero), hn::Lt(w, end)));
    }
    return hn::AllTrue(d, good);
  } else {
    auto most = hn::Zero(d), all = hn::Zero(d);  // all: the sign of negative ones
    for (int64_t i = 0; i < kBinBlock; i += lanes) {
      const auto w = hn::LoadU(d, weights + i);
      all = hn::Or(all, w), most = hn::Max(most, w);
    }
    if (!hn::AllFalse(d, hn::Lt(all, hn::Zero(d)))) return false;
    range.most = std::max(range.most, static_cast<int64_t>(hn::GetLane(hn::MaxOfLanes(d, most))));
    return true;
  }
}

// The same, one by one: for blocks in which something cannot be used.
template <class V, class W>
HWY_NOINLINE void places_one_by_one(const V* values, const W* weights, int64_t n, const Bins& b, int32_t* at,
                                    BinRange& range) {
  for (int64_t i = 0; i < n; ++i) {
    const auto value = static_cast<double>(values[i]);
    const double q = b.divide ? value / b.scale : value * b.scale;
    at[i] = static_cast<int32_t>(b.bins);
    if (!(std::abs(q) < kBinLimit && weights[i] >= 0 && std::isfinite(static_cast<double>(weights[i])))) {
      ++range.unusable;
      continue;
    }
    const double bin = std::nearbyint(q), place = bin - static_cast<double>(b.start);
    range.lowest = std::min(range.lowest, bin), range.highest = std::max(range.highest, bin);
    if constexpr (!hwy::IsFloat<W>()) range.most = std::max(range.most, static_cast<int64_t>(weights[i]));
    if (place >= 0 && place < static_cast<double>(b.bins)) at[i] = static_cast<int32_t>(place);
  }
}

template <int64_t kCopies, class W, class Sum>
HWY_INLINE void add_places(const int32_t* at, const W* weights, int64_t n, int64_t row, Sum* sums) {
  int64_t i = 0;
  if constexpr (kCopies == 4) {
    Sum *const second = sums + row, *const third = second + row, *const fourth = third + row;
    for (; i + 4 <= n; i += 4) {
      sums[at[i]] += static_cast<Sum>(weights[i]);
      second[at[i + 1]] += static_cast<Sum>(weights[i + 1]);
      third[at[i + 2]] += static_cast<Sum>(weights[i + 2]);
      fourth[at[i + 3]] += static_cast<Sum>(weights[i + 3]);
    }
  }
  for (; i < n; ++i) sums[at[i]] += static_cast<Sum>(weights[i]);
}

template <class V, class W, class Sum>
void add_bins(const V* values, const W* weights, int64_t n, const Bins& b, int64_t copies, Sum* sums, BinRange& range) {
  std::array<int32_t, kBinBlock + 64> at;
  std::array<V, kBinBlock> some_values;
  std::array<W, kBinBlock> some_weights;
  for (int64_t begin = 0; begin < n; begin += kBinBlock) {
    const V* v = values + begin;
    const W* w = weights + begin;
    const int64_t count = std::min(kBinBlock, n - begin);
    if (count < kBinBlock) {  // the last block is filled up with its first element, whose copies are not added
      some_values.fill(v[0]), some_weights.fill(w[0]);
      std::copy_n(v, count, some_values.begin()), std::copy_n(w, count, some_weights.begin());
      v = some_values.data(), w = some_weights.data();
    }
    const BinRange before = range;
    if (!places_of(v, b, at.data(), range) || !weights_are_good(w, range)) {
      range = before;
      places_one_by_one(v, w, count, b, at.data(), range);
    }
    if (copies == 4) add_places<4>(at.data(), w, count, b.bins + 1, sums);
    else add_places<1>(at.data(), w, count, b.bins + 1, sums);
  }
}

#define PF_BINS_OF(V, W, Sum, suffix)                                                                            \
  void add_bins_##suffix(const V* values, const W* weights, int64_t n, const Bins& b, int64_t copies, Sum* sums, \
                         BinRange& range) {                                                                      \
    add_bins(values, weights, n, b, copies, sums, range);                                                        \
  }
PF_BINS_OF(double, int64_t, uint64_t, f64_i64)
PF_BINS_OF(double, int32_t, uint64_t, f64_i32)
PF_BINS_OF(double, double, double, f64_f64)
PF_BINS_OF(double, float, double, f64_f32)
PF_BINS_OF(float, int64_t, uint64_t, f32_i64)
PF_BINS_OF(float, int32_t, uint64_t, f32_i32)
PF_BINS_OF(float, double, double, f32_f64)
PF_BINS_OF(float, float, double, f32_f32)
#undef PF_BINS_OF

}  // namespace HWY_NAMESPACE
}  // namespace pyflame::cpu::vec
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pyflame::cpu::vec {

#define PF_BINS_OF(V, W, Sum, suffix)                                                                      \
  HWY_EXPORT(add_bins_##suffix);                                                                           \
  void add_to_bins(const V* values, const W* weights, int64_t n, const Bins& b, int64_t copies, Sum* sums, \
                   BinRange& range) {                                                                      \
    HWY_DYNAMIC_DISPATCH(add_bins_##suffix)(values, weights, n, b, copies, sums, range);                   \
  }
PF_BINS_OF(double, int64_t, uint64_t, f64_i64)
PF_BINS_OF(double, int32_t, uint64_t, f64_i32)
PF_BINS_OF(double, double, double, f64_f64)
PF_BINS_OF(double, float, double, f64_f32)
PF_BINS_OF(float, int64_t, uint64_t, f32_i64)
PF_BINS_OF(float, int32_t, uint64_t, f32_i32)
PF_BINS_OF(float, double, double, f32_f64)
PF_BINS_OF(float, float, double, f32_f32)
#undef PF_BINS_OF

}  // namespace pyflame::cpu::vec
#endif
