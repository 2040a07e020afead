#include "pyflame/backends/cpu/vec_order.h"

// The same versions as in vec.cpp.
#include <hwy/detect_targets.h>
#undef HWY_DISABLED_TARGETS
#ifdef HWY_AVX3_ZEN4
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_AVX3_ZEN4)
#else
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pyflame/backends/cpu/vec_order.cpp"
#include <hwy/foreach_target.h>  // before highway.h

#include <hwy/highway.h>

#include <hwy/contrib/sort/vqsort.h>

#include <algorithm>
#include <array>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace pyflame::cpu::vec {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class T>
HWY_INLINE bool better(T a, T b, bool largest) {
  return largest ? a > b : a < b;
}

// Ne(x, x) is false for NaN on some targets.
template <class D, class V = hn::Vec<D>>
HWY_INLINE hn::Mask<D> nans(D, V x) {
  if constexpr (hwy::IsFloat<hn::TFromD<D>>()) return hn::IsNaN(x);
  else return hn::Lt(x, x);  // no lane
}

// The best of a block, and whether it has a NaN.
template <class T>
struct BlockBest {
  T value;
  bool nan;
};
template <class T, bool kLargest>
HWY_NOINLINE BlockBest<T> best_of(const T* x, int64_t n) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  T value = x[0];
  bool nan = false;
  int64_t i = 0;
  if (n >= 4 * lanes) {
    auto a = hn::LoadU(d, x), b = hn::LoadU(d, x + lanes);
    auto bad = hn::Or(nans(d, a), nans(d, b));
    for (i = 2 * lanes; i + 2 * lanes <= n; i += 2 * lanes) {
      const auto p = hn::LoadU(d, x + i), q = hn::LoadU(d, x + i + lanes);
      if constexpr (hwy::IsFloat<T>()) bad = hn::Or(bad, hn::Or(nans(d, p), nans(d, q)));
      a = kLargest ? hn::Max(a, p) : hn::Min(a, p);
      b = kLargest ? hn::Max(b, q) : hn::Min(b, q);
    }
    if constexpr (hwy::IsFloat<T>()) nan = !hn::AllFalse(d, bad);
    alignas(64) std::array<T, 64> all;
    hn::Store(kLargest ? hn::Max(a, b) : hn::Min(a, b), d, all.data());
    for (int64_t k = 0; k < lanes; ++k)
      if (better(all[static_cast<size_t>(k)], value, kLargest)) value = all[static_cast<size_t>(k)];
  }
  for (; i < n; ++i) {
    nan |= x[i] != x[i];
    if (better(x[i], value, kLargest)) value = x[i];
  }
  return {value, nan};
}

template <class T, bool kLargest>
int64_t arg_line(const T* x, int64_t n) {
  constexpr int64_t kBlock = 4096;
  int64_t where = 0;
  T value = x[0];
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t count = std::min(kBlock, n - begin);
    const BlockBest<T> best = best_of<T, kLargest>(x + begin, count);
    if (best.nan)
      for (int64_t i = begin;; ++i)
        if (x[i] != x[i]) return i;
    if (begin > 0 && !better(best.value, value, kLargest)) continue;
    value = best.value, where = begin;
  }
  while (x[where] != value) ++where;
  return where;
}

// m lines at once, in strips whose state stays in the first-level cache. A NaN is kept, because nothing is better than it.
template <class T, bool kLargest>
void arg_lines(const T* x, int64_t n, int64_t step, int64_t m, int64_t* at) {
  using Place = std::conditional_t<sizeof(T) == 8, int64_t, int32_t>;  // as wide as the element, if that is wide enough
  constexpr int64_t kStrip = 256;
  std::array<T, kStrip> value;
  std::array<Place, kStrip> where;
  for (int64_t begin = 0; begin < m; begin += kStrip) {
    const int64_t count = std::min(kStrip, m - begin);
    const T* row = x + begin;
    T* const v = value.data();
    Place* const w = where.data();
    for (int64_t j = 0; j < count; ++j) v[j] = row[j], w[j] = 0;
    for (int64_t i = 1; i < n; ++i) {
      row += step;
      const auto here = static_cast<Place>(i);
      for (int64_t j = 0; j < count; ++j) {
        const T a = row[j], b = v[j];
        const bool wins = kLargest ? !(a <= b) & (b == b) : !(a >= b) & (b == b);
        v[j] = wins ? a : b;
        w[j] = wins ? here : w[j];
      }
    }
    for (int64_t j = 0; j < count; ++j) at[begin + j] = w[j];
  }
}

// Binary search without branches, for several vectors of values at a time, so that their loads do not wait for each other.
template <class T, bool kRight, int kVectors>
HWY_INLINE void search_vectors(const T* line, int64_t n, const T* value, int64_t* to) {
  const hn::ScalableTag<T> d;
  const hn::RebindToSigned<decltype(d)> di;
  using I = hn::TFromD<decltype(di)>;
  using V = hn::Vec<decltype(d)>;
  using VI = hn::Vec<decltype(di)>;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  // An array of vectors: their size is known at compile time on these targets.
  V v[kVectors];
  VI at[kVectors];
  for (int k = 0; k < kVectors; ++k) v[k] = hn::LoadU(d, value + k * lanes), at[k] = hn::Zero(di);
  const auto step = [&](int k, int64_t offset, int64_t half) HWY_ATTR {
    const auto here = hn::GatherIndex(d, line + offset, at[k]);
    auto passes = hn::Lt(here, v[k]);
    if constexpr (kRight) passes = hn::Or(passes, hn::Eq(here, v[k]));
    if constexpr (hwy::IsFloat<T>()) passes = hn::Or(passes, nans(d, v[k]));
    at[k] = hn::Add(at[k], hn::IfThenElseZero(hn::RebindMask(di, passes), hn::Set(di, static_cast<I>(half))));
  };
  for (; n > 1; n -= n / 2)
    for (int k = 0; k < kVectors; ++k) step(k, n / 2 - 1, n / 2);
  if (n == 1)
    for (int k = 0; k < kVectors; ++k) step(k, 0, 1);
  alignas(64) std::array<I, 64> some;
  for (int k = 0; k < kVectors; ++k) {
    hn::Store(at[k], di, some.data());
    for (int64_t j = 0; j < lanes; ++j) to[k * lanes + j] = some[static_cast<size_t>(j)];
  }
}
template <class T, bool kRight>
void search_line(const T* line, int64_t n, const T* value, int64_t m, int64_t* at) {
  constexpr int kVectors = 4;
  const auto lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<T>()));
  int64_t i = 0;
  for (; i + kVectors * lanes <= m; i += kVectors * lanes)
    search_vectors<T, kRight, kVectors>(line, n, value + i, at + i);
  for (; i + lanes <= m; i += lanes) search_vectors<T, kRight, 1>(line, n, value + i, at + i);
  for (; i < m; ++i) {
    const auto end = line + n;
    const T v = value[i];
    at[i] = std::partition_point(line, end, [v](T here) { return (kRight ? here <= v : here < v) || v != v; }) - line;
  }
}
#define PF_SEARCH(T, suffix)                                                                            \
  void search_##suffix(const T* line, int64_t n, const T* value, int64_t m, bool right, int64_t* at) {  \
    right ? search_line<T, true>(line, n, value, m, at) : search_line<T, false>(line, n, value, m, at); \
  }
PF_SEARCH(float, f32)
PF_SEARCH(double, f64)
PF_SEARCH(int32_t, i32)
PF_SEARCH(int64_t, i64)
#undef PF_SEARCH

// Elements are compared as many as a word has bits, or four vectors at a time. Most such blocks have no candidate.
template <class T, bool kLargest>
int64_t candidates_of(const T* x, int64_t n, T bound, int64_t room, int64_t* at, int64_t* scanned) {
  const hn::ScalableTag<T> d;
  constexpr int64_t kLanes = hn::MaxLanes(d), kVectors = std::clamp<int64_t>(64 / kLanes, 1, 4);
  constexpr int64_t kMany = kLanes * kVectors;
  const auto limit = hn::Set(d, bound);
  const auto pass = [&](const T* p) HWY_ATTR {  // as bits
    const auto v = hn::LoadU(d, p);
    std::array<uint8_t, 8> bytes{};
    if constexpr (hwy::IsFloat<T>())
      hn::StoreMaskBits(d, hn::Not(kLargest ? hn::Le(v, limit) : hn::Ge(v, limit)), bytes.data());
    else hn::StoreMaskBits(d, kLargest ? hn::Gt(v, limit) : hn::Lt(v, limit), bytes.data());
    uint64_t bits;
    std::memcpy(&bits, bytes.data(), sizeof(bits));
    return bits;
  };
  int64_t i = 0, count = 0;
  for (; i + kMany <= n && count + 64 <= room; i += kMany) {
    uint64_t passing = 0;
    for (int64_t k = 0; k < kVectors; ++k) passing |= pass(x + i + k * kLanes) << (k * kLanes);
    for (; passing != 0; passing &= passing - 1) at[count++] = i + hwy::Num0BitsBelowLS1Bit_Nonzero64(passing);
  }
  if (i + kMany > n)
    for (; i < n && count + 64 <= room; ++i)
      if (kLargest ? !(x[i] <= bound) : !(x[i] >= bound)) at[count++] = i;
  *scanned = i;
  return count;
}
#define PF_CANDIDATES(T, suffix)                                                                                     \
  int64_t candidates_##suffix(const T* x, int64_t n, T bound, bool largest, int64_t room, int64_t* at, int64_t* s) { \
    return largest ? candidates_of<T, true>(x, n, bound, room, at, s)                                                \
                   : candidates_of<T, false>(x, n, bound, room, at, s);                                              \
  }
PF_CANDIDATES(float, f32)
PF_CANDIDATES(double, f64)
PF_CANDIDATES(int8_t, i8)
PF_CANDIDATES(uint8_t, u8)
PF_CANDIDATES(int16_t, i16)
PF_CANDIDATES(int32_t, i32)
PF_CANDIDATES(int64_t, i64)
#undef PF_CANDIDATES

#define PF_ARG(T, suffix)                                                                                   \
  int64_t arg_best_##suffix(const T* x, int64_t n, bool largest) {                                          \
    return largest ? arg_line<T, true>(x, n) : arg_line<T, false>(x, n);                                    \
  }                                                                                                         \
  void arg_best_lines_##suffix(const T* x, int64_t n, int64_t step, int64_t m, bool largest, int64_t* at) { \
    largest ? arg_lines<T, true>(x, n, step, m, at) : arg_lines<T, false>(x, n, step, m, at);               \
  }
PF_ARG(float, f32)
PF_ARG(double, f64)
PF_ARG(int8_t, i8)
PF_ARG(uint8_t, u8)
PF_ARG(int16_t, i16)
PF_ARG(int32_t, i32)
PF_ARG(int64_t, i64)
#undef PF_ARG

}  // namespace HWY_NAMESPACE
}  // namespace pyflame::cpu::vec
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pyflame::cpu::vec {

namespace {
template <class T>
void sort_ascending(T* keys, int64_t n) {
  static const hwy::Sorter sorter;
  sorter(keys, static_cast<size_t>(n), hwy::SortAscending());
}
}  // namespace
void sort_keys(uint32_t* keys, int64_t n) { sort_ascending(keys, n); }
void sort_keys(uint64_t* keys, int64_t n) { sort_ascending(keys, n); }
void sort_keys(Key128* keys, int64_t n) {
  static_assert(sizeof(Key128) == sizeof(hwy::uint128_t));  // the low word first, there too
  sort_ascending(reinterpret_cast<hwy::uint128_t*>(keys), n);
}

#define PF_ARG(T, suffix)                                                                    \
  HWY_EXPORT(arg_best_##suffix);                                                             \
  HWY_EXPORT(arg_best_lines_##suffix);                                                       \
  int64_t arg_best(const T* x, int64_t n, bool largest) {                                    \
    return HWY_DYNAMIC_DISPATCH(arg_best_##suffix)(x, n, largest);                           \
  }                                                                                          \
  void arg_best(const T* x, int64_t n, int64_t step, int64_t m, bool largest, int64_t* at) { \
    HWY_DYNAMIC_DISPATCH(arg_best_lines_##suffix)(x, n, step, m, largest, at);               \
  }
PF_ARG(float, f32)
PF_ARG(double, f64)
PF_ARG(int8_t, i8)
PF_ARG(uint8_t, u8)
PF_ARG(int16_t, i16)
PF_ARG(int32_t, i32)
PF_ARG(int64_t, i64)
#undef PF_ARG

#define PF_CANDIDATES(T, suffix)                                                                            \
  HWY_EXPORT(candidates_##suffix);                                                                          \
  int64_t candidates(const T* x, int64_t n, T bound, bool largest, int64_t room, int64_t* at, int64_t* s) { \
    return HWY_DYNAMIC_DISPATCH(candidates_##suffix)(x, n, bound, largest, room, at, s);                    \
  }
PF_CANDIDATES(float, f32)
PF_CANDIDATES(double, f64)
PF_CANDIDATES(int8_t, i8)
PF_CANDIDATES(uint8_t, u8)
PF_CANDIDATES(int16_t, i16)
PF_CANDIDATES(int32_t, i32)
PF_CANDIDATES(int64_t, i64)
#undef PF_CANDIDATES

#define PF_SEARCH(T, suffix)                                                                  \
  HWY_EXPORT(search_##suffix);                                                                \
  void search(const T* line, int64_t n, const T* value, int64_t m, bool right, int64_t* at) { \
    HWY_DYNAMIC_DISPATCH(search_##suffix)(line, n, value, m, right, at);                      \
  }
PF_SEARCH(float, f32)
PF_SEARCH(double, f64)
PF_SEARCH(int32_t, i32)
PF_SEARCH(int64_t, i64)
#undef PF_SEARCH

}  // namespace pyflame::cpu::vec
#endif
