#include "pyflame/backends/cpu/vec.h"

// Three versions are enough: the baseline, AVX2 and AVX-512. Others would cost build time and gain nothing measurable.
#include <hwy/detect_targets.h>
#undef HWY_DISABLED_TARGETS
#ifdef HWY_AVX3_ZEN4
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_AVX3_ZEN4)
#else
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pyflame/backends/cpu/vec.cpp"
#include <hwy/foreach_target.h>  // before highway.h

#include <hwy/highway.h>
#include "pyflame/backends/cpu/math-inl.h"

#include <hwy/cache_control.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace pyflame::cpu::vec {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int64_t kMaxLanes = 16;  // of float in the widest version
template <class T>
using Wide = hn::ScalableTag<T>;

template <class T>
int64_t lanes() {
  return static_cast<int64_t>(hn::Lanes(Wide<T>()));
}

// The last, incomplete vector. Masked access does not fault and does not touch masked elements, but only from AVX2 on;
// the baseline uses a buffer.
template <class T>
HWY_INLINE hn::Vec<Wide<T>> load_tail(const T* p, int64_t n, T fill) {
  const Wide<T> d;
#if HWY_TARGET <= HWY_AVX2
  const auto mask = hn::FirstN(d, static_cast<size_t>(n));
  return hn::IfThenElse(mask, hn::MaskedLoad(mask, d, p), hn::Set(d, fill));
#else
  alignas(64) T buffer[kMaxLanes];
  for (int64_t i = 0; i < lanes<T>(); ++i) buffer[i] = i < n ? p[i] : fill;
  return hn::Load(d, buffer);
#endif
}
template <class T>
HWY_INLINE void store_tail(hn::Vec<Wide<T>> v, T* p, int64_t n) {
  const Wide<T> d;
#if HWY_TARGET <= HWY_AVX2
  hn::BlendedStore(v, hn::FirstN(d, static_cast<size_t>(n)), d, p);
#else
  alignas(64) T buffer[kMaxLanes];
  hn::Store(v, d, buffer);
  std::memcpy(p, buffer, static_cast<size_t>(n) * sizeof(T));
#endif
}

void Stream(uint8_t* dst, const uint8_t* src, int64_t nbytes) {
  const hn::ScalableTag<uint8_t> d;
  const auto w = static_cast<int64_t>(hn::Lanes(d));
  constexpr int64_t kLine = 64;
  const int64_t head = std::min(nbytes, -static_cast<int64_t>(reinterpret_cast<uintptr_t>(dst)) & (kLine - 1));
  std::memcpy(dst, src, static_cast<size_t>(head));
  int64_t i = head;
  for (; i + kLine <= nbytes; i += kLine)
    for (int64_t k = 0; k < kLine; k += w) hn::Stream(hn::LoadU(d, src + i + k), d, dst + i + k);
  std::memcpy(dst + i, src + i, static_cast<size_t>(nbytes - i));
}

// Sum over i of term(vector of x, i): four accumulators, so that additions do not wait for each other.
template <class T, class F>
HWY_INLINE T reduce_sum(int64_t n, const F& term) {
  const Wide<T> d;
  const int64_t w = lanes<T>();
  auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  int64_t i = 0;
  for (; i + 4 * w <= n; i += 4 * w) {
    s0 = term(s0, i, w);
    s1 = term(s1, i + w, w);
    s2 = term(s2, i + 2 * w, w);
    s3 = term(s3, i + 3 * w, w);
  }
  for (; i < n; i += w) s0 = term(s0, i, n - i < w ? n - i : w);
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
}

template <class T>
HWY_INLINE hn::Vec<Wide<T>> load(const T* p, int64_t count, T fill = T(0)) {
  return HWY_LIKELY(count >= lanes<T>()) ? hn::LoadU(Wide<T>(), p) : load_tail(p, count, fill);
}
template <class T>
HWY_INLINE void store(hn::Vec<Wide<T>> v, T* p, int64_t count) {
  if (HWY_LIKELY(count >= lanes<T>())) hn::StoreU(v, Wide<T>(), p);
  else store_tail(v, p, count);
}

template <class T>
T MaxT(const T* x, int64_t n) {
  const Wide<T> d;
  const int64_t w = lanes<T>();
  const T low = -std::numeric_limits<T>::infinity();
  auto m0 = hn::Set(d, low), m1 = m0;
  int64_t i = 0;
  for (; i + 2 * w <= n; i += 2 * w) {
    m0 = hn::Max(m0, hn::LoadU(d, x + i));
    m1 = hn::Max(m1, hn::LoadU(d, x + i + w));
  }
  for (; i < n; i += w) m0 = hn::Max(m0, load(x + i, n - i, low));
  return hn::GetLane(hn::MaxOfLanes(d, hn::Max(m0, m1)));
}

template <class T>
T SumT(const T* x, int64_t n) {
  return reduce_sum<T>(n, [&](auto s, int64_t i, int64_t c) HWY_ATTR { return hn::Add(s, load(x + i, c)); });
}
template <class T>
T DotT(const T* x, const T* y, int64_t n) {
  return reduce_sum<T>(
      n, [&](auto s, int64_t i, int64_t c) HWY_ATTR { return hn::MulAdd(load(x + i, c), load(y + i, c), s); });
}
template <class T>
T SquareDeviationT(const T* x, T mean, int64_t n) {
  const Wide<T> d;
  return reduce_sum<T>(n, [&](auto s, int64_t i, int64_t c) HWY_ATTR {
    const auto v = hn::Sub(load(x + i, c, mean), hn::Set(d, mean));
    return hn::MulAdd(v, v, s);
  });
}
// exp(x) for softmax, with 0 where the result would be subnormal: subnormal numbers are slow, and masked scores produce
// them.
template <class D, class V>
HWY_INLINE V exp_normal(D d, V x) {
  const auto low = hn::Set(d, sizeof(hn::TFromD<D>) == 4 ? hn::TFromD<D>(-87) : hn::TFromD<D>(-708));
  const auto tiny = hn::Lt(x, low);
  return hn::IfThenElse(tiny, hn::Zero(d), math::HWY_NAMESPACE::exp(d, hn::IfThenElse(tiny, low, x)));
}

template <class T>
T ExpShiftedT(const T* x, T shift, T* y, int64_t n) {
  const Wide<T> d;
  return reduce_sum<T>(n, [&](auto s, int64_t i, int64_t c) HWY_ATTR {
    const auto e = exp_normal(d, hn::Sub(load(x + i, c, -std::numeric_limits<T>::infinity()), hn::Set(d, shift)));
    store(e, y + i, c);
    return hn::Add(s, e);
  });
}
template <class T>
T SumExpShiftedT(const T* x, T shift, int64_t n) {
  const Wide<T> d;
  return reduce_sum<T>(n, [&](auto s, int64_t i, int64_t c) HWY_ATTR {
    return hn::Add(s, exp_normal(d, hn::Sub(load(x + i, c, -std::numeric_limits<T>::infinity()), hn::Set(d, shift))));
  });
}

template <class T, class F>
HWY_INLINE void map(int64_t n, const F& f) {
  const int64_t w = lanes<T>();
  int64_t i = 0;
  for (; i + w <= n; i += w) f(i, w);
  if (i < n) f(i, n - i);
}

template <class T>
void ScaleT(T* x, T factor, int64_t n) {
  const Wide<T> d;
  map<T>(n, [&](int64_t i, int64_t c) HWY_ATTR { store(hn::Mul(load(x + i, c), hn::Set(d, factor)), x + i, c); });
}
template <class T>
void ExpAllT(T* x, int64_t n) {
  const Wide<T> d;
  map<T>(n, [&](int64_t i, int64_t c) HWY_ATTR { store(math::HWY_NAMESPACE::exp(d, load(x + i, c)), x + i, c); });
}
template <class T>
void LogAllT(T* x, int64_t n) {
  const Wide<T> d;
  map<T>(n, [&](int64_t i, int64_t c) HWY_ATTR { store(math::HWY_NAMESPACE::log(d, load(x + i, c)), x + i, c); });
}
template <class T>
void ShiftT(const T* x, T a, T b, T* y, int64_t n) {
  const Wide<T> d;
  map<T>(n, [&](int64_t i, int64_t c)
                HWY_ATTR { store(hn::Sub(hn::Sub(load(x + i, c), hn::Set(d, a)), hn::Set(d, b)), y + i, c); });
}
template <class T>
void AddT(T* y, const T* x, int64_t n) {
  map<T>(n, [&](int64_t i, int64_t c) HWY_ATTR { store(hn::Add(load(y + i, c), load(x + i, c)), y + i, c); });
}
// y = the sum of the rows of x with these numbers, in their order.
// Where a row that is read soon lies; its lines are asked for now, because rows are anywhere in the table. The index need not be valid.
template <class T>
HWY_INLINE void expect_row(const T* x, int64_t ld, int64_t index, int64_t n) {
  constexpr int64_t kLine = 64;
  const uintptr_t row =
      reinterpret_cast<uintptr_t>(x) + static_cast<uintptr_t>(index) * static_cast<uintptr_t>(ld) * sizeof(T);
  for (int64_t at = 0; at < n * static_cast<int64_t>(sizeof(T)); at += kLine)
    hwy::Prefetch(
        reinterpret_cast<const char*>(row + static_cast<uintptr_t>(at)));  // NOLINT(performance-no-int-to-ptr)
}

// The first `n` elements of rows, kVectors vectors at a time, which are in registers.
template <int kVectors, class T>
HWY_INLINE int64_t SumColumns(const T* x, int64_t ld, const int64_t* index, int64_t rows, int64_t known, T* y,
                              int64_t n, int64_t j) {
  constexpr int64_t kAhead = 12;
  const Wide<T> d;
  const int64_t step = kVectors * lanes<T>();
  for (; j + step <= n; j += step) {
    decltype(hn::Zero(d)) sum[kVectors];
    for (auto& v : sum) v = hn::Zero(d);
    for (int64_t i = 0; i < rows; ++i) {
      if (i + kAhead < known) expect_row(x + j, ld, index[i + kAhead], step);
      const T* row = x + index[i] * ld + j;
      for (int k = 0; k < kVectors; ++k) sum[k] = hn::Add(sum[k], hn::LoadU(d, row + k * lanes<T>()));
    }
    for (int k = 0; k < kVectors; ++k) hn::StoreU(sum[k], d, y + j + k * lanes<T>());
  }
  return j;
}

template <class T>
void SumRowsT(const T* x, int64_t ld, const int64_t* index, int64_t rows, int64_t known, T* y, int64_t n) {
  const Wide<T> d;
  int64_t j = SumColumns<8>(x, ld, index, rows, known, y, n, 0);
  j = SumColumns<4>(x, ld, index, rows, known, y, n, j);
  for (; j < n; j += lanes<T>()) {
    auto sum = hn::Zero(d);
    for (int64_t i = 0; i < rows; ++i) sum = hn::Add(sum, load(x + index[i] * ld + j, n - j));
    store(sum, y + j, n - j);
  }
}
// Four rows at a time, so that additions do not wait for each other.
template <class T>
void DistancesT(const T* x, const T* rows, int64_t n, int64_t count, T* y) {
  const Wide<T> d;
  const int64_t w = lanes<T>();
  const auto add_square = [&](auto sum, auto v, const T* row, int64_t left) HWY_ATTR {
    const auto difference = hn::Sub(v, load(row, left));
    return hn::MulAdd(difference, difference, sum);
  };
  const auto root = [&](auto sum) HWY_ATTR { return std::sqrt(hn::GetLane(hn::SumOfLanes(d, sum))); };
  int64_t j = 0;
  for (; j + 4 <= count; j += 4, rows += 4 * n) {
    auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
    for (int64_t i = 0; i < n; i += w) {
      const auto v = load(x + i, n - i);
      s0 = add_square(s0, v, rows + i, n - i), s1 = add_square(s1, v, rows + n + i, n - i);
      s2 = add_square(s2, v, rows + 2 * n + i, n - i), s3 = add_square(s3, v, rows + 3 * n + i, n - i);
    }
    y[j] = root(s0), y[j + 1] = root(s1), y[j + 2] = root(s2), y[j + 3] = root(s3);
  }
  for (; j < count; ++j, rows += n) {
    auto sum = hn::Zero(d);
    for (int64_t i = 0; i < n; i += w) sum = add_square(sum, load(x + i, n - i), rows + i, n - i);
    y[j] = root(sum);
  }
}
// A weight of 0 ignores its element, which may be infinite: shorter sums are filled up with such taps.
template <class T>
void WeightedRowsT(const T* x, int64_t ld, const T* w, int64_t taps, T* y, int64_t n) {
  const Wide<T> d;
  for (int64_t j = 0; j < n; j += lanes<T>()) {
    auto sum = hn::Zero(d);
    for (int64_t t = 0; t < taps; ++t)
      if (w[t] != T(0)) sum = hn::MulAdd(hn::Set(d, w[t]), load(x + t * ld + j, n - j), sum);
    store(sum, y + j, n - j);
  }
}
template <class T>
void WeightedTapsT(const T* x, const int32_t* begin, const T* w, int64_t taps, T* y, int64_t n) {
  const Wide<T> d;
  const hn::RebindToSigned<Wide<T>> di;
  int64_t i = 0;
  for (; i + lanes<T>() <= n; i += lanes<T>()) {
    auto index = hn::Zero(di);
    if constexpr (sizeof(T) == sizeof(int32_t)) index = hn::LoadU(di, begin + i);
    else index = hn::PromoteTo(di, hn::LoadU(hn::Rebind<int32_t, Wide<T>>(), begin + i));
    auto sum = hn::Zero(d);
    for (int64_t t = 0; t < taps; ++t) {
      const auto weight = hn::LoadU(d, w + t * n + i);
      const auto product = hn::Mul(weight, hn::GatherIndex(d, x + t, index));
      sum = hn::Add(sum, hn::IfThenElseZero(hn::Ne(weight, hn::Zero(d)), product));
    }
    hn::StoreU(sum, d, y + i);
  }
  for (; i < n; ++i) {
    T sum = 0;
    for (int64_t t = 0; t < taps; ++t)
      if (w[t * n + i] != T(0)) sum += w[t * n + i] * x[begin[i] + t];
    y[i] = sum;
  }
}
template <class T>
void AxpyT(T* y, T a, const T* x, int64_t n) {
  const Wide<T> d;
  map<T>(n, [&](int64_t i, int64_t c)
                HWY_ATTR { store(hn::MulAdd(hn::Set(d, a), load(x + i, c), load(y + i, c)), y + i, c); });
}

// Updates a row of windows with their next tap: x[i * stride] replaces value[i] if it is greater, if it is the first
// NaN, or if there was no value (at[i] < 0); at[i] then becomes the tap.
template <class T>
void TakeMaxT(const T* x, int64_t stride, T tap, T* value, T* at, int64_t n) {
  const Wide<T> d;
  const int64_t l = lanes<T>();
  int64_t i = 0;
  const auto take = [&](auto v, auto mask) HWY_ATTR {
    const auto old = hn::MaskedLoad(mask, d, value + i), place = hn::MaskedLoad(mask, d, at + i);
    const auto first = hn::Or(hn::Lt(place, hn::Zero(d)), hn::AndNot(hn::IsNaN(old), hn::IsNaN(v)));
    const auto better = hn::Or(hn::Gt(v, old), first);
    hn::BlendedStore(hn::IfThenElse(better, v, old), mask, d, value + i);
    hn::BlendedStore(hn::IfThenElse(better, hn::Set(d, tap), place), mask, d, at + i);
  };
  if (stride == 1) {
    for (; i + l <= n; i += l) take(hn::LoadU(d, x + i), hn::FirstN(d, static_cast<size_t>(l)));
  } else if (stride == 2) {
    for (; i + l < n; i += l) {  // reads one element beyond the last one that it uses
      hn::Vec<Wide<T>> even, odd;
      hn::LoadInterleaved2(d, x + 2 * i, even, odd);
      take(even, hn::FirstN(d, static_cast<size_t>(l)));
    }
  }
  alignas(64) T rest[kMaxLanes] = {};
  for (; i < n; i += l) {
    const int64_t m = std::min(l, n - i);
    for (int64_t k = 0; k < m; ++k) rest[k] = x[(i + k) * stride];
    take(hn::Load(d, rest), hn::FirstN(d, static_cast<size_t>(m)));
  }
}

// Two vectors at a time, so that comparisons do not wait for each other.
template <bool kWhere, class T>
HWY_INLINE void max_of_taps(const T* x, const int64_t* offset, int64_t taps, T* value, T* at, int64_t n) {
  const Wide<T> d;
  const int64_t l = lanes<T>();
  using V = hn::Vec<Wide<T>>;
  const auto take = [&](V v, int64_t i, V& best, V& where) HWY_ATTR {
    const auto better = hn::Or(hn::Gt(v, best), hn::AndNot(hn::IsNaN(best), hn::IsNaN(v)));
    best = hn::IfThenElse(better, v, best);
    if constexpr (kWhere) where = hn::IfThenElse(better, hn::Set(d, static_cast<T>(i)), where);
  };
  int64_t j = 0;
  for (; j + 2 * l <= n; j += 2 * l) {
    const T* from = x + offset[0] + j;
    V a = hn::LoadU(d, from), b = hn::LoadU(d, from + l), at_a = hn::Zero(d), at_b = at_a;
    for (int64_t i = 1; i < taps; ++i) {
      from = x + offset[i] + j;
      take(hn::LoadU(d, from), i, a, at_a), take(hn::LoadU(d, from + l), i, b, at_b);
    }
    hn::StoreU(a, d, value + j), hn::StoreU(b, d, value + j + l);
    if constexpr (kWhere) hn::StoreU(at_a, d, at + j), hn::StoreU(at_b, d, at + j + l);
  }
  for (; j < n; j += l) {
    V a = load(x + offset[0] + j, n - j), at_a = hn::Zero(d);
    for (int64_t i = 1; i < taps; ++i) take(load(x + offset[i] + j, n - j), i, a, at_a);
    store(a, value + j, n - j);
    if constexpr (kWhere) store(at_a, at + j, n - j);
  }
}
template <class T>
void MaxOfTapsT(const T* x, const int64_t* offset, int64_t taps, T* value, T* at, int64_t n) {
  if (at) max_of_taps<true>(x, offset, taps, value, at, n);
  else max_of_taps<false>(x, offset, taps, value, at, n);
}

// Strips of eight vectors of columns are held in registers: w is read once, and y is not touched in between.
template <class T>
void GemvRowsT(const T* x, const T* w, int64_t ld, int64_t k, int64_t n, T* y) {
  const Wide<T> d;
  const int64_t l = lanes<T>();
  int64_t j = 0;
  for (; j + 8 * l <= n; j += 8 * l) {
    auto a0 = hn::Zero(d), a1 = a0, a2 = a0, a3 = a0, a4 = a0, a5 = a0, a6 = a0, a7 = a0;
    const T* p = w + j;
    for (int64_t i = 0; i < k; ++i, p += ld) {
      const auto s = hn::Set(d, x[i]);
      a0 = hn::MulAdd(s, hn::LoadU(d, p), a0);
      a1 = hn::MulAdd(s, hn::LoadU(d, p + l), a1);
      a2 = hn::MulAdd(s, hn::LoadU(d, p + 2 * l), a2);
      a3 = hn::MulAdd(s, hn::LoadU(d, p + 3 * l), a3);
      a4 = hn::MulAdd(s, hn::LoadU(d, p + 4 * l), a4);
      a5 = hn::MulAdd(s, hn::LoadU(d, p + 5 * l), a5);
      a6 = hn::MulAdd(s, hn::LoadU(d, p + 6 * l), a6);
      a7 = hn::MulAdd(s, hn::LoadU(d, p + 7 * l), a7);
    }
    hn::StoreU(a0, d, y + j);
    hn::StoreU(a1, d, y + j + l);
    hn::StoreU(a2, d, y + j + 2 * l);
    hn::StoreU(a3, d, y + j + 3 * l);
    hn::StoreU(a4, d, y + j + 4 * l);
    hn::StoreU(a5, d, y + j + 5 * l);
    hn::StoreU(a6, d, y + j + 6 * l);
    hn::StoreU(a7, d, y + j + 7 * l);
  }
  for (; j < n; j += l) {
    auto a0 = hn::Zero(d);
    const int64_t c = n - j;
    for (int64_t i = 0; i < k; ++i) a0 = hn::MulAdd(hn::Set(d, x[i]), load(w + i * ld + j, c), a0);
    store(a0, y + j, c);
  }
}

template <class T>
void NormalizeT(const T* x, T mean, T rstd, const T* w, const T* b, T* y, int64_t n) {
  const Wide<T> d;
  map<T>(n, [&](int64_t i, int64_t c) HWY_ATTR {
    auto v = hn::Mul(hn::Sub(load(x + i, c), hn::Set(d, mean)), hn::Set(d, rstd));
    if (w) v = hn::Mul(v, load(w + i, c));
    if (b) v = hn::Add(v, load(b + i, c));
    store(v, y + i, c);
  });
}

template <class T>
void NormalizeGradT(const T* g, const T* x, T mean, T rstd, const T* w, bool centered, T* dx, T* dw, T* db, int64_t n) {
  const Wide<T> d;
  const auto vm = hn::Set(d, mean), vr = hn::Set(d, rstd);
  auto s1 = hn::Zero(d), s2 = hn::Zero(d);
  map<T>(n, [&](int64_t i, int64_t c) HWY_ATTR {
    const auto gv = load(g + i, c);
    const auto xhat = hn::Mul(hn::Sub(load(x + i, c, mean), vm), vr);
    if (dw) store(hn::MulAdd(gv, xhat, load(dw + i, c)), dw + i, c);
    if (db) store(hn::Add(gv, load(db + i, c)), db + i, c);
    const auto gw = w ? hn::Mul(gv, load(w + i, c)) : gv;
    s1 = hn::Add(s1, gw);
    s2 = hn::MulAdd(gw, xhat, s2);
  });
  const T inv = T(1) / static_cast<T>(n);
  const auto c1 = hn::Set(d, centered ? hn::GetLane(hn::SumOfLanes(d, s1)) * inv : T(0));
  const auto c2 = hn::Set(d, hn::GetLane(hn::SumOfLanes(d, s2)) * inv);
  map<T>(n, [&](int64_t i, int64_t c) HWY_ATTR {
    const auto gv = load(g + i, c);
    const auto xhat = hn::Mul(hn::Sub(load(x + i, c), vm), vr);
    const auto gw = w ? hn::Mul(gv, load(w + i, c)) : gv;
    store(hn::Mul(vr, hn::Sub(hn::Sub(gw, c1), hn::Mul(xhat, c2))), dx + i, c);
  });
}

template <class T>
void SoftmaxGradT(const T* p, const T* dp, T delta, T scale, T* ds, int64_t n) {
  const Wide<T> d;
  map<T>(n, [&](int64_t i, int64_t c) HWY_ATTR {
    store(hn::Mul(hn::Mul(load(p + i, c), hn::Sub(load(dp + i, c), hn::Set(d, delta))), hn::Set(d, scale)), ds + i, c);
  });
}

// The rows of a causal block have different lengths. Filling them up with -inf, whose exponential is 0, is faster than
// the mispredicted branches of different row ends. All rows see the columns before `from`, a multiple of the vector
// length.
template <class T>
HWY_INLINE void hide_unseen(T* row, int64_t seen, int64_t from, int64_t n) {
  const Wide<T> d;
  const int64_t w = lanes<T>();
  const auto low = hn::Set(d, -std::numeric_limits<T>::infinity());
  for (int64_t i = from; i < n; i += w) {
    const int64_t open = seen - i < 0 ? 0 : seen - i > w ? w : seen - i;
    const auto v = hn::IfThenElse(hn::FirstN(d, static_cast<size_t>(open)), load(row + i, n - i), low);
    store(v, row + i, n - i);
  }
}
HWY_INLINE int64_t fewest(const int64_t* seen, int64_t rows, int64_t n) {
  int64_t least = n;
  for (int64_t r = 0; r < rows; ++r) least = seen[r] < least ? seen[r] : least;
  return least;
}

template <class T>
void SoftmaxBlockT(T* s, int64_t rows, int64_t n, const int64_t* seen, T* top, T* sum, T* shrink) {
  const T low = -std::numeric_limits<T>::infinity();
  const int64_t least = fewest(seen, rows, n), from = least / lanes<T>() * lanes<T>();
  for (int64_t r = 0; r < rows; ++r) {
    T* row = s + r * n;
    if (least < n) hide_unseen(row, seen[r], from, n);
    const T highest = MaxT(row, n), high = highest > top[r] ? highest : top[r];
    shrink[r] = T(1);
    if (high == low) {  // nothing seen so far, or only NaN, which is never a maximum
      for (int64_t i = 0; i < n; ++i) {
        row[i] = std::isnan(row[i]) ? row[i] : T(0);
        sum[r] += row[i];
      }
      continue;
    }
    const T block = ExpShiftedT(row, high, row, n);
    if (high != top[r]) shrink[r] = std::exp(top[r] - high);
    sum[r] = sum[r] * shrink[r] + block;
    top[r] = high;
  }
}

template <class T>
void SoftmaxGradBlockT(T* p, T* ds, int64_t rows, int64_t n, const int64_t* seen, const T* lse, const T* delta,
                       T scale) {
  const T low = -std::numeric_limits<T>::infinity();
  const int64_t least = fewest(seen, rows, n), from = least / lanes<T>() * lanes<T>();
  for (int64_t r = 0; r < rows; ++r) {
    T *prow = p + r * n, *drow = ds + r * n;
    if (lse[r] == low) {
      for (int64_t i = 0; i < n; ++i) prow[i] = drow[i] = T(0);
      continue;
    }
    if (least < n) hide_unseen(prow, seen[r], from, n);
    ExpShiftedT(prow, lse[r], prow, n);
    SoftmaxGradT(prow, drow, delta[r], scale, drow, n);
  }
}

template <class T>
void AdamT(const AdamNumbers& a, const T* p, const T* g, const T* m, const T* v, T* po, T* mo, T* vo, int64_t n) {
  const Wide<T> d;
  const auto set = [&](double x) HWY_ATTR { return hn::Set(d, static_cast<T>(x)); };
  const auto b1 = set(1 - a.beta1), b2 = set(a.beta2), c2 = set(1 - a.beta2), eps = set(a.eps);
  const auto step = set(-a.lr / a.bias1), root = set(1 / std::sqrt(a.bias2));
  const auto decay = set(a.decoupled ? 1 - a.lr * a.weight_decay : 1.0);
  const auto l2 = set(a.decoupled ? 0.0 : a.weight_decay), sign = set(a.maximize ? -1.0 : 1.0);
  map<T>(n, [&](int64_t i, int64_t c) HWY_ATTR {
    const auto pv = load(p + i, c);
    auto gv = hn::Mul(load(g + i, c), sign);
    if (!a.decoupled && a.weight_decay != 0) gv = hn::MulAdd(l2, pv, gv);
    const auto m0 = load(m + i, c);
    const auto mv = hn::MulAdd(hn::Sub(gv, m0), b1, m0);
    const auto vv = hn::MulAdd(hn::Mul(c2, gv), gv, hn::Mul(load(v + i, c), b2));
    const auto denominator = hn::MulAdd(hn::Sqrt(vv), root, eps);
    store(mv, mo + i, c);
    store(vv, vo + i, c);
    store(hn::MulAdd(step, hn::Div(mv, denominator), hn::Mul(pv, decay)), po + i, c);
  });
}

template <class T>
void SgdT(const SgdNumbers& a, const T* p, const T* g, const T* m, T* po, T* mo, int64_t n) {
  const Wide<T> d;
  const auto set = [&](double x) HWY_ATTR { return hn::Set(d, static_cast<T>(x)); };
  const auto lr = set(-a.lr), mu = set(a.momentum), damp = set(1 - a.dampening), wd = set(a.weight_decay),
             sign = set(a.maximize ? -1.0 : 1.0);
  map<T>(n, [&](int64_t i, int64_t c) HWY_ATTR {
    const auto pv = load(p + i, c);
    auto gv = hn::Mul(load(g + i, c), sign);
    if (a.weight_decay != 0) gv = hn::MulAdd(wd, pv, gv);
    if (m) {
      const auto mv = a.first ? gv : hn::MulAdd(mu, load(m + i, c), hn::Mul(damp, gv));
      store(mv, mo + i, c);
      gv = a.nesterov ? hn::MulAdd(mu, mv, gv) : mv;
    }
    store(hn::MulAdd(lr, gv, pv), po + i, c);
  });
}

double SumSquaresF64(const double* x, int64_t n) { return DotT<double>(x, x, n); }

double SumSquaresF32(const float* x, int64_t n) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> df;
  const int64_t w = static_cast<int64_t>(hn::Lanes(d));
  auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  int64_t i = 0;
  for (; i + 4 * w <= n; i += 4 * w) {
    const auto a = hn::PromoteTo(d, hn::LoadU(df, x + i)), b = hn::PromoteTo(d, hn::LoadU(df, x + i + w));
    const auto c = hn::PromoteTo(d, hn::LoadU(df, x + i + 2 * w)), e = hn::PromoteTo(d, hn::LoadU(df, x + i + 3 * w));
    s0 = hn::MulAdd(a, a, s0);
    s1 = hn::MulAdd(b, b, s1);
    s2 = hn::MulAdd(c, c, s2);
    s3 = hn::MulAdd(e, e, s3);
  }
  double s = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
  for (; i < n; ++i) s += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return s;
}

void FromBf16(const bfloat16* x, float* y, int64_t n) {
  const hn::ScalableTag<float> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const hn::Rebind<uint16_t, decltype(d)> dh;
  const int64_t w = lanes<float>();
  int64_t i = 0;
  const uint16_t* bits = reinterpret_cast<const uint16_t*>(x);
  for (; i + w <= n; i += w)
    hn::StoreU(hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(dh, bits + i)))), d, y + i);
  for (; i < n; ++i) y[i] = static_cast<float>(x[i]);
}

void ToBf16(const float* x, bfloat16* y, int64_t n) {
  const hn::ScalableTag<float> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::Rebind<uint16_t, decltype(d)> dh;
  const int64_t w = lanes<float>();
  int64_t i = 0;
  uint16_t* bits = reinterpret_cast<uint16_t*>(y);
  for (; i + w <= n; i += w) {
    const auto f = hn::LoadU(d, x + i);
    const auto u = hn::BitCast(du, f);
    const auto odd = hn::And(hn::ShiftRight<16>(u), hn::Set(du, 1u));
    const auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(u, hn::Set(du, 0x7fffu)), odd));
    const auto nan = hn::Or(hn::ShiftRight<16>(u), hn::Set(du, 0x40u));
    const auto r = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(f)), nan, rounded);
    hn::StoreU(hn::DemoteTo(dh, hn::BitCast(di, r)), dh, bits + i);
  }
  for (; i < n; ++i) y[i] = bfloat16(x[i]);
}

void FromF16(const float16* x, float* y, int64_t n) {
  int64_t i = 0;
#if HWY_TARGET <= HWY_AVX2
  const hn::ScalableTag<float> d;
  const hn::Rebind<hwy::float16_t, decltype(d)> dh;
  for (; i + lanes<float>() <= n; i += lanes<float>())
    hn::StoreU(hn::PromoteTo(d, hn::LoadU(dh, reinterpret_cast<const hwy::float16_t*>(x) + i)), d, y + i);
#endif
  for (; i < n; ++i) y[i] = static_cast<float>(x[i]);
}

void ToF16(const float* x, float16* y, int64_t n) {
  int64_t i = 0;
#if HWY_TARGET <= HWY_AVX2  // the baseline's emulation truncates
  const hn::ScalableTag<float> d;
  const hn::Rebind<hwy::float16_t, decltype(d)> dh;
  for (; i + lanes<float>() <= n; i += lanes<float>())
    hn::StoreU(hn::DemoteTo(dh, hn::LoadU(d, x + i)), dh, reinterpret_cast<hwy::float16_t*>(y) + i);
#endif
  for (; i < n; ++i) y[i] = float16(x[i]);
}

// Highway exports functions by name, not templates.
#define PF_EXPORTS(T, S)                                                                                               \
  T Max##S(const T* x, int64_t n) { return MaxT<T>(x, n); }                                                            \
  T Sum##S(const T* x, int64_t n) { return SumT<T>(x, n); }                                                            \
  T Dot##S(const T* x, const T* y, int64_t n) { return DotT<T>(x, y, n); }                                             \
  T SquareDeviation##S(const T* x, T mean, int64_t n) { return SquareDeviationT<T>(x, mean, n); }                      \
  T ExpShifted##S(const T* x, T shift, T* y, int64_t n) { return ExpShiftedT<T>(x, shift, y, n); }                     \
  T SumExpShifted##S(const T* x, T shift, int64_t n) { return SumExpShiftedT<T>(x, shift, n); }                        \
  void ExpAll##S(T* x, int64_t n) { ExpAllT<T>(x, n); }                                                                \
  void LogAll##S(T* x, int64_t n) { LogAllT<T>(x, n); }                                                                \
  void Scale##S(T* x, T factor, int64_t n) { ScaleT<T>(x, factor, n); }                                                \
  void Shift##S(const T* x, T a, T b, T* y, int64_t n) { ShiftT<T>(x, a, b, y, n); }                                   \
  void Add##S(T* y, const T* x, int64_t n) { AddT<T>(y, x, n); }                                                       \
  void Axpy##S(T* y, T a, const T* x, int64_t n) { AxpyT<T>(y, a, x, n); }                                             \
  void TakeMax##S(const T* x, int64_t stride, T tap, T* value, T* at, int64_t n) {                                     \
    TakeMaxT<T>(x, stride, tap, value, at, n);                                                                         \
  }                                                                                                                    \
  void MaxOfTaps##S(const T* x, const int64_t* offset, int64_t taps, T* value, T* at, int64_t n) {                     \
    MaxOfTapsT<T>(x, offset, taps, value, at, n);                                                                      \
  }                                                                                                                    \
  void GemvRows##S(const T* x, const T* w, int64_t ld, int64_t k, int64_t n, T* y) {                                   \
    GemvRowsT<T>(x, w, ld, k, n, y);                                                                                   \
  }                                                                                                                    \
  void SumRows##S(const T* x, int64_t ld, const int64_t* index, int64_t rows, int64_t known, T* y, int64_t n) {        \
    SumRowsT<T>(x, ld, index, rows, known, y, n);                                                                      \
  }                                                                                                                    \
  void WeightedRows##S(const T* x, int64_t ld, const T* w, int64_t taps, T* y, int64_t n) {                            \
    WeightedRowsT<T>(x, ld, w, taps, y, n);                                                                            \
  }                                                                                                                    \
  void WeightedTaps##S(const T* x, const int32_t* begin, const T* w, int64_t taps, T* y, int64_t n) {                  \
    WeightedTapsT<T>(x, begin, w, taps, y, n);                                                                         \
  }                                                                                                                    \
  void Distances##S(const T* x, const T* rows, int64_t n, int64_t count, T* y) {                                       \
    DistancesT<T>(x, rows, n, count, y);                                                                               \
  }                                                                                                                    \
  void Normalize##S(const T* x, T mean, T rstd, const T* w, const T* b, T* y, int64_t n) {                             \
    NormalizeT<T>(x, mean, rstd, w, b, y, n);                                                                          \
  }                                                                                                                    \
  void NormalizeGrad##S(const T* g, const T* x, T mean, T rstd, const T* w, bool centered, T* dx, T* dw, T* db,        \
                        int64_t n) {                                                                                   \
    NormalizeGradT<T>(g, x, mean, rstd, w, centered, dx, dw, db, n);                                                   \
  }                                                                                                                    \
  void SoftmaxBlock##S(T* s, int64_t rows, int64_t n, const int64_t* seen, T* top, T* sum, T* shrink) {                \
    SoftmaxBlockT<T>(s, rows, n, seen, top, sum, shrink);                                                              \
  }                                                                                                                    \
  void SoftmaxGradBlock##S(T* p, T* ds, int64_t rows, int64_t n, const int64_t* seen, const T* lse, const T* delta,    \
                           T scale) {                                                                                  \
    SoftmaxGradBlockT<T>(p, ds, rows, n, seen, lse, delta, scale);                                                     \
  }                                                                                                                    \
  void Adam##S(const AdamNumbers& c, const T* p, const T* g, const T* m, const T* v, T* po, T* mo, T* vo, int64_t n) { \
    AdamT<T>(c, p, g, m, v, po, mo, vo, n);                                                                            \
  }                                                                                                                    \
  void Sgd##S(const SgdNumbers& c, const T* p, const T* g, const T* m, T* po, T* mo, int64_t n) {                      \
    SgdT<T>(c, p, g, m, po, mo, n);                                                                                    \
  }
PF_EXPORTS(float, F32)
PF_EXPORTS(double, F64)
#undef PF_EXPORTS

}  // namespace HWY_NAMESPACE
}  // namespace pyflame::cpu::vec
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pyflame::cpu::vec {

#define PF_ENTRY(Name)   \
  HWY_EXPORT(Name##F32); \
  HWY_EXPORT(Name##F64)
PF_ENTRY(Max);
PF_ENTRY(Sum);
PF_ENTRY(Dot);
PF_ENTRY(SquareDeviation);
PF_ENTRY(ExpShifted);
PF_ENTRY(SumExpShifted);
PF_ENTRY(ExpAll);
PF_ENTRY(LogAll);
PF_ENTRY(Scale);
PF_ENTRY(Shift);
PF_ENTRY(Add);
PF_ENTRY(Axpy);
PF_ENTRY(TakeMax);
PF_ENTRY(MaxOfTaps);
PF_ENTRY(GemvRows);
PF_ENTRY(SumRows);
PF_ENTRY(WeightedRows);
PF_ENTRY(WeightedTaps);
PF_ENTRY(Distances);
PF_ENTRY(Normalize);
PF_ENTRY(NormalizeGrad);
PF_ENTRY(SoftmaxBlock);
PF_ENTRY(SoftmaxGradBlock);
PF_ENTRY(Adam);
PF_ENTRY(Sgd);
PF_ENTRY(SumSquares);
#undef PF_ENTRY
HWY_EXPORT(Stream);
HWY_EXPORT(FromBf16);
HWY_EXPORT(ToBf16);
HWY_EXPORT(FromF16);
HWY_EXPORT(ToF16);

void stream(void* dst, const void* src, int64_t nbytes) {
  HWY_DYNAMIC_DISPATCH(Stream)(static_cast<uint8_t*>(dst), static_cast<const uint8_t*>(src), nbytes);
}
void stream_fence() { hwy::FlushStream(); }
void from_bf16(const bfloat16* x, float* y, int64_t n) { HWY_DYNAMIC_DISPATCH(FromBf16)(x, y, n); }
void to_bf16(const float* x, bfloat16* y, int64_t n) { HWY_DYNAMIC_DISPATCH(ToBf16)(x, y, n); }
void from_f16(const float16* x, float* y, int64_t n) { HWY_DYNAMIC_DISPATCH(FromF16)(x, y, n); }
void to_f16(const float* x, float16* y, int64_t n) { HWY_DYNAMIC_DISPATCH(ToF16)(x, y, n); }
double sum_squares(const float* x, int64_t n) { return HWY_DYNAMIC_DISPATCH(SumSquaresF32)(x, n); }
double sum_squares(const double* x, int64_t n) { return HWY_DYNAMIC_DISPATCH(SumSquaresF64)(x, n); }

#define PF_WRAP(T, S)                                                                                                 \
  T max(const T* x, int64_t n) { return HWY_DYNAMIC_DISPATCH(Max##S)(x, n); }                                         \
  T sum(const T* x, int64_t n) { return HWY_DYNAMIC_DISPATCH(Sum##S)(x, n); }                                         \
  T dot(const T* x, const T* y, int64_t n) { return HWY_DYNAMIC_DISPATCH(Dot##S)(x, y, n); }                          \
  T square_deviation(const T* x, T mean, int64_t n) { return HWY_DYNAMIC_DISPATCH(SquareDeviation##S)(x, mean, n); }  \
  T exp_shifted(const T* x, T shift, T* y, int64_t n) { return HWY_DYNAMIC_DISPATCH(ExpShifted##S)(x, shift, y, n); } \
  T sum_exp_shifted(const T* x, T shift, int64_t n) { return HWY_DYNAMIC_DISPATCH(SumExpShifted##S)(x, shift, n); }   \
  void exp_all(T* x, int64_t n) { HWY_DYNAMIC_DISPATCH(ExpAll##S)(x, n); }                                            \
  void log_all(T* x, int64_t n) { HWY_DYNAMIC_DISPATCH(LogAll##S)(x, n); }                                            \
  void scale(T* x, T factor, int64_t n) { HWY_DYNAMIC_DISPATCH(Scale##S)(x, factor, n); }                             \
  void shift(const T* x, T a, T b, T* y, int64_t n) { HWY_DYNAMIC_DISPATCH(Shift##S)(x, a, b, y, n); }                \
  void add(T* y, const T* x, int64_t n) { HWY_DYNAMIC_DISPATCH(Add##S)(y, x, n); }                                    \
  void axpy(T* y, T a, const T* x, int64_t n) { HWY_DYNAMIC_DISPATCH(Axpy##S)(y, a, x, n); }                          \
  void take_max(const T* x, int64_t stride, T tap, T* value, T* at, int64_t n) {                                      \
    HWY_DYNAMIC_DISPATCH(TakeMax##S)(x, stride, tap, value, at, n);                                                   \
  }                                                                                                                   \
  void max_of_taps(const T* x, const int64_t* offset, int64_t taps, T* value, T* at, int64_t n) {                     \
    HWY_DYNAMIC_DISPATCH(MaxOfTaps##S)(x, offset, taps, value, at, n);                                                \
  }                                                                                                                   \
  void gemv_rows(const T* x, const T* w, int64_t ld, int64_t k, int64_t n, T* y) {                                    \
    HWY_DYNAMIC_DISPATCH(GemvRows##S)(x, w, ld, k, n, y);                                                             \
  }                                                                                                                   \
  void sum_rows(const T* x, int64_t ld, const int64_t* index, int64_t rows, int64_t known, T* y, int64_t n) {         \
    HWY_DYNAMIC_DISPATCH(SumRows##S)(x, ld, index, rows, known, y, n);                                                \
  }                                                                                                                   \
  void weighted_rows(const T* x, int64_t ld, const T* w, int64_t taps, T* y, int64_t n) {                             \
    HWY_DYNAMIC_DISPATCH(WeightedRows##S)(x, ld, w, taps, y, n);                                                      \
  }                                                                                                                   \
  void weighted_taps(const T* x, const int32_t* begin, const T* w, int64_t taps, T* y, int64_t n) {                   \
    HWY_DYNAMIC_DISPATCH(WeightedTaps##S)(x, begin, w, taps, y, n);                                                   \
  }                                                                                                                   \
  void distances(const T* x, const T* rows, int64_t n, int64_t count, T* y) {                                         \
    HWY_DYNAMIC_DISPATCH(Distances##S)(x, rows, n, count, y);                                                         \
  }                                                                                                                   \
  void normalize(const T* x, T mean, T rstd, const T* w, const T* b, T* y, int64_t n) {                               \
    HWY_DYNAMIC_DISPATCH(Normalize##S)(x, mean, rstd, w, b, y, n);                                                    \
  }                                                                                                                   \
  void normalize_grad(const T* g, const T* x, T mean, T rstd, const T* w, bool centered, T* dx, T* dw, T* db,         \
                      int64_t n) {                                                                                    \
    HWY_DYNAMIC_DISPATCH(NormalizeGrad##S)(g, x, mean, rstd, w, centered, dx, dw, db, n);                             \
  }                                                                                                                   \
  void softmax_block(T* s, int64_t rows, int64_t n, const int64_t* seen, T* top, T* sum, T* shrink) {                 \
    HWY_DYNAMIC_DISPATCH(SoftmaxBlock##S)(s, rows, n, seen, top, sum, shrink);                                        \
  }                                                                                                                   \
  void softmax_grad_block(T* p, T* ds, int64_t rows, int64_t n, const int64_t* seen, const T* lse, const T* delta,    \
                          T scale) {                                                                                  \
    HWY_DYNAMIC_DISPATCH(SoftmaxGradBlock##S)(p, ds, rows, n, seen, lse, delta, scale);                               \
  }                                                                                                                   \
  void adam(const AdamNumbers& c, const T* p, const T* g, const T* m, const T* v, T* po, T* mo, T* vo, int64_t n) {   \
    HWY_DYNAMIC_DISPATCH(Adam##S)(c, p, g, m, v, po, mo, vo, n);                                                      \
  }                                                                                                                   \
  void sgd(const SgdNumbers& c, const T* p, const T* g, const T* m, T* po, T* mo, int64_t n) {                        \
    HWY_DYNAMIC_DISPATCH(Sgd##S)(c, p, g, m, po, mo, n);                                                              \
  }
PF_WRAP(float, F32)
PF_WRAP(double, F64)
#undef PF_WRAP

}  // namespace pyflame::cpu::vec
#endif  // HWY_ONCE
