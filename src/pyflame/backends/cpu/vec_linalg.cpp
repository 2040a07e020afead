#include "pyflame/backends/cpu/vec_linalg.h"

// The same versions as in vec.cpp.
#include <hwy/detect_targets.h>
#undef HWY_DISABLED_TARGETS
#ifdef HWY_AVX3_ZEN4
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_AVX3_ZEN4)
#else
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pyflame/backends/cpu/vec_linalg.cpp"
#include <hwy/foreach_target.h>  // before highway.h

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace pyflame::cpu::vec {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// From element i on, as many whole vectors as there are; returns where it ends.
template <class D, class T>
HWY_INLINE int64_t subtract_vectors(D d, int64_t i, int64_t n, T factor, const T* x, T* y) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto f = hn::Set(d, factor);
  for (; i + lanes <= n; i += lanes) hn::StoreU(hn::NegMulAdd(f, hn::LoadU(d, x + i), hn::LoadU(d, y + i)), d, y + i);
  return i;
}

template <class T>
HWY_INLINE void subtract_multiple_of(int64_t n, T factor, const T* x, T* y) {
  int64_t i = subtract_vectors(hn::ScalableTag<T>(), 0, n, factor, x, y);
  i = subtract_vectors(hn::CappedTag<T, 4>(), i, n, factor, x, y);
  subtract_vectors(hn::CappedTag<T, 1>(), i, n, factor, x, y);
}

template <class T>
HWY_INLINE void divide_by(int64_t n, T divisor, T* x) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto by = hn::Set(d, divisor);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(hn::Div(hn::LoadU(d, x + i), by), d, x + i);
  for (; i < n; ++i) x[i] /= divisor;
}

// The largest value first, then its first place.
template <class T>
HWY_INLINE int64_t largest_at(int64_t n, const T* x) {
  if (x[0] != x[0]) return 0;
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto most = hn::Zero(d);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto v = hn::Abs(hn::LoadU(d, x + i));
    most = hn::IfThenElse(hn::Gt(v, most), v, most);
  }
  T found = hn::GetLane(hn::MaxOfLanes(d, most));
  for (; i < n; ++i) {
    const T v = x[i] < 0 ? -x[i] : x[i];
    if (v > found) found = v;
  }
  const auto wanted = hn::Set(d, found);
  for (i = 0; i + lanes <= n; i += lanes) {
    const auto at = hn::FindFirstTrue(d, hn::Eq(hn::Abs(hn::LoadU(d, x + i)), wanted));
    if (at >= 0) return i + at;
  }
  for (; i < n; ++i)
    if (x[i] == found || x[i] == -found) return i;
  return 0;
}

template <int kVectors, class D, class T>
HWY_INLINE void substitute_columns(D d, int64_t rows, const T* c, bool unit, T* x, int64_t step) {
  static_assert(kVectors == 1 || kVectors == 4);
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < rows; ++i) {
    T* const row = x + i * step;
    auto v0 = hn::LoadU(d, row), v1 = v0, v2 = v0, v3 = v0;
    if constexpr (kVectors == 4)
      v1 = hn::LoadU(d, row + lanes), v2 = hn::LoadU(d, row + 2 * lanes), v3 = hn::LoadU(d, row + 3 * lanes);
    for (int64_t j = 0; j < i; ++j) {
      const auto f = hn::Set(d, c[i * rows + j]);
      const T* const other = x + j * step;
      v0 = hn::NegMulAdd(f, hn::LoadU(d, other), v0);
      if constexpr (kVectors == 4) {
        v1 = hn::NegMulAdd(f, hn::LoadU(d, other + lanes), v1);
        v2 = hn::NegMulAdd(f, hn::LoadU(d, other + 2 * lanes), v2);
        v3 = hn::NegMulAdd(f, hn::LoadU(d, other + 3 * lanes), v3);
      }
    }
    if (!unit) {
      const auto by = hn::Set(d, c[i * rows + i]);
      v0 = hn::Div(v0, by);
      if constexpr (kVectors == 4) v1 = hn::Div(v1, by), v2 = hn::Div(v2, by), v3 = hn::Div(v3, by);
    }
    hn::StoreU(v0, d, row);
    if constexpr (kVectors == 4)
      hn::StoreU(v1, d, row + lanes), hn::StoreU(v2, d, row + 2 * lanes), hn::StoreU(v3, d, row + 3 * lanes);
  }
}

template <class T>
HWY_INLINE void substitute_rows(int64_t rows, const T* c, bool unit, int64_t width, T* x, int64_t step) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + 4 * lanes <= width; i += 4 * lanes) substitute_columns<4>(d, rows, c, unit, x + i, step);
  for (; i + lanes <= width; i += lanes) substitute_columns<1>(d, rows, c, unit, x + i, step);
  const hn::CappedTag<T, 1> one;
  for (; i < width; ++i) substitute_columns<1>(one, rows, c, unit, x + i, step);
}

double sum_of_float_products(int64_t n, const float* x, const float* y) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> half;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto wide = [&](const float* p) HWY_ATTR { return hn::PromoteTo(d, hn::LoadU(half, p)); };
  auto first = hn::Zero(d), second = hn::Zero(d);
  int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    first = hn::MulAdd(wide(x + i), wide(y + i), first);
    second = hn::MulAdd(wide(x + i + lanes), wide(y + i + lanes), second);
  }
  double sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(first, second)));
  for (; i < n; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(y[i]);
  return sum;
}

void divide_floats(int64_t n, double divisor, float* x) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> half;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto by = hn::Set(d, divisor);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes)
    hn::StoreU(hn::DemoteTo(half, hn::Div(hn::PromoteTo(d, hn::LoadU(half, x + i)), by)), half, x + i);
  for (; i < n; ++i) x[i] = static_cast<float>(static_cast<double>(x[i]) / divisor);
}

#define PF_LINALG_OF(T, suffix)                                                                                     \
  void subtract_multiple_##suffix(int64_t n, T factor, const T* x, T* y) { subtract_multiple_of(n, factor, x, y); } \
  void divide_##suffix(int64_t n, T divisor, T* x) { divide_by(n, divisor, x); }                                    \
  int64_t place_of_largest_##suffix(int64_t n, const T* x) { return largest_at(n, x); }                             \
  void substitute_##suffix(int64_t rows, const T* c, bool unit, int64_t width, T* x, int64_t step) {                \
    substitute_rows(rows, c, unit, width, x, step);                                                                 \
  }
PF_LINALG_OF(float, f32)
PF_LINALG_OF(double, f64)
#undef PF_LINALG_OF

}  // namespace HWY_NAMESPACE
}  // namespace pyflame::cpu::vec
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pyflame::cpu::vec {

#define PF_LINALG_OF(T, suffix)                                                                                     \
  HWY_EXPORT(subtract_multiple_##suffix);                                                                           \
  HWY_EXPORT(divide_##suffix);                                                                                      \
  HWY_EXPORT(place_of_largest_##suffix);                                                                            \
  HWY_EXPORT(substitute_##suffix);                                                                                  \
  void subtract_multiple(int64_t n, T factor, const T* x, T* y) {                                                   \
    HWY_DYNAMIC_DISPATCH(subtract_multiple_##suffix)(n, factor, x, y);                                              \
  }                                                                                                                 \
  void divide(int64_t n, T divisor, T* x) { HWY_DYNAMIC_DISPATCH(divide_##suffix)(n, divisor, x); }                 \
  int64_t place_of_largest(int64_t n, const T* x) { return HWY_DYNAMIC_DISPATCH(place_of_largest_##suffix)(n, x); } \
  void substitute(int64_t rows, const T* c, bool unit, int64_t width, T* x, int64_t step) {                         \
    HWY_DYNAMIC_DISPATCH(substitute_##suffix)(rows, c, unit, width, x, step);                                       \
  }
PF_LINALG_OF(float, f32)
PF_LINALG_OF(double, f64)
#undef PF_LINALG_OF

HWY_EXPORT(sum_of_float_products);
HWY_EXPORT(divide_floats);
double sum_of_products(int64_t n, const float* x, const float* y) {
  return HWY_DYNAMIC_DISPATCH(sum_of_float_products)(n, x, y);
}
void divide(int64_t n, double divisor, float* x) { HWY_DYNAMIC_DISPATCH(divide_floats)(n, divisor, x); }

}  // namespace pyflame::cpu::vec
#endif
