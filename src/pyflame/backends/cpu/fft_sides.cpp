// The sides of transforms: lines that lie apart are transposed; real numbers are pairs of neighbours, whose transform is split into that of
// the numbers; the factors between the two steps of a long line.
#include "pyflame/backends/cpu/tile_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pyflame/backends/cpu/fft_sides.cpp"
#include <hwy/foreach_target.h>  // before highway.h

#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "pyflame/backends/cpu/fft-inl.h"
#include "pyflame/backends/cpu/fft.h"

HWY_BEFORE_NAMESPACE();
namespace pyflame::cpu::fft {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// --- lines that lie apart

// Pairs of float are moved as one double.
template <class T>
HWY_INLINE void transpose_square(const double* from, int64_t from_pitch, double* to, int64_t to_pitch, T d) {
  hn::Vec<T> v[kPairsOfLine];
  PYFLAME_UNROLL
  for (int k = 0; k < kPairsOfLine; ++k) v[k] = hn::LoadU(d, from + k * from_pitch);
  store_transposed<kPairsOfLine>(d, v, to, to_pitch);
}
template <bool kFromFar>
HWY_NOINLINE void transpose_some(const double* from, int64_t from_pitch, int64_t rows, int64_t columns, double* to,
                                 int64_t to_pitch) {
  const hn::CappedTag<double, 8> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t whole_rows = rows / kPairsOfLine * kPairsOfLine, whole_columns = columns / lanes * lanes;
  constexpr int64_t kAhead = 16;
  if constexpr (kFromFar) {
    for (int64_t k = 0; k < whole_rows; k += kPairsOfLine) {
      for (int64_t r = k + kAhead; r < std::min(rows, k + kAhead + kPairsOfLine); ++r)
        for (int64_t l = 0; l < columns; l += kPairsOfLine) __builtin_prefetch(from + r * from_pitch + l, 0, 2);
      for (int64_t l = 0; l < whole_columns; l += lanes)
        transpose_square(from + k * from_pitch + l, from_pitch, to + l * to_pitch + k, to_pitch, d);
    }
  } else {
    for (int64_t l = 0; l < whole_columns; l += lanes) {
      for (int64_t r = l + kAhead; r < std::min(columns, l + kAhead + lanes); ++r)
        for (int64_t k = 0; k < rows; k += kPairsOfLine) __builtin_prefetch(to + r * to_pitch + k, 1, 2);
      for (int64_t k = 0; k < whole_rows; k += kPairsOfLine)
        transpose_square(from + k * from_pitch + l, from_pitch, to + l * to_pitch + k, to_pitch, d);
    }
  }
  for (int64_t k = 0; k < rows; ++k)
    for (int64_t l = k < whole_rows ? whole_columns : 0; l < columns; ++l)
      std::memcpy(to + l * to_pitch + k, from + k * from_pitch + l, sizeof(double));
}
void transpose_f32(bool from_far, const double* from, int64_t from_pitch, int64_t rows, int64_t columns, double* to,
                   int64_t to_pitch) {
  if (from_far) transpose_some<true>(from, from_pitch, rows, columns, to, to_pitch);
  else transpose_some<false>(from, from_pitch, rows, columns, to, to_pitch);
}

// Eight factors at a time; all eight are multiplied by `step` for the next eight places.
void times_powers_f32(int64_t n, const float* re, const float* im, double* w_re, double* w_im, double step_re,
                      double step_im, float* to) {
  const hn::CappedTag<double, 8> d;
  const hn::Rebind<float, decltype(d)> narrow;
  constexpr int64_t kLanes = hn::MaxLanes(d), kParts = 8 / kLanes;
  using V = hn::Vec<decltype(d)>;
  V c[kParts], s[kParts];
  for (int p = 0; p < kParts; ++p) c[p] = hn::LoadU(d, w_re + p * kLanes), s[p] = hn::LoadU(d, w_im + p * kLanes);
  const V by_re = hn::Set(d, step_re), by_im = hn::Set(d, step_im);
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    PYFLAME_UNROLL
    for (int p = 0; p < kParts; ++p) {
      auto x = hn::LoadU(narrow, re + i + p * kLanes), y = hn::LoadU(narrow, im + i + p * kLanes);
      twiddle(x, y, hn::DemoteTo(narrow, c[p]), hn::DemoteTo(narrow, s[p]));
      hn::StoreInterleaved2(x, y, narrow, to + 2 * (i + p * kLanes));
      twiddle(c[p], s[p], by_re, by_im);
    }
  }
  for (int p = 0; p < kParts; ++p) hn::StoreU(c[p], d, w_re + p * kLanes), hn::StoreU(s[p], d, w_im + p * kLanes);
  for (int64_t l = 0; i < n; ++i, ++l) {
    const float a = static_cast<float>(w_re[l]), b = static_cast<float>(w_im[l]);
    to[2 * i] = re[i] * a - im[i] * b, to[2 * i + 1] = re[i] * b + im[i] * a;
  }
}

// --- real numbers

// X_k = (z_k + conj z_(h-k)) / 2 - i w_k (z_k - conj z_(h-k)) / 2, and X_(h-k) is the conjugate of the same with +.
template <class T>
void split_pairs(int64_t h, const T* z_re, const T* z_im, const T* w_re, const T* w_im, T scale, T* out) {
  const T half = scale / 2;
  out[0] = (z_re[0] + z_im[0]) * scale, out[1] = 0;
  out[2 * h] = (z_re[0] - z_im[0]) * scale, out[2 * h + 1] = 0;
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t k = 1;
  const int64_t end = h / 2 + 1;  // the middle one is done twice where h is even
  const auto by = hn::Set(d, half);
  for (; k + lanes <= end && 2 * (k + lanes) <= h; k += lanes) {
    const auto a = hn::LoadU(d, z_re + k), b = hn::LoadU(d, z_im + k);
    const auto c = hn::Reverse(d, hn::LoadU(d, z_re + h - k - lanes + 1)),
               e = hn::Reverse(d, hn::LoadU(d, z_im + h - k - lanes + 1));
    const auto wr = hn::LoadU(d, w_re + k), wi = hn::LoadU(d, w_im + k);
    const auto sr = hn::Add(a, c), si = hn::Sub(b, e), dr = hn::Sub(a, c), di = hn::Add(b, e);
    // -i w d
    const auto tr = hn::MulAdd(wr, di, hn::Mul(wi, dr)), ti = hn::NegMulAdd(wr, dr, hn::Mul(wi, di));
    hn::StoreInterleaved2(hn::Mul(hn::Add(sr, tr), by), hn::Mul(hn::Add(si, ti), by), d, out + 2 * k);
    hn::StoreInterleaved2(hn::Reverse(d, hn::Mul(hn::Sub(sr, tr), by)), hn::Reverse(d, hn::Mul(hn::Sub(ti, si), by)), d,
                          out + 2 * (h - k - lanes + 1));
  }
  for (; k < end; ++k) {
    const T a = z_re[k], b = z_im[k], c = z_re[h - k], e = z_im[h - k];
    const T sr = a + c, si = b - e, dr = a - c, di = b + e;
    const T tr = w_re[k] * di + w_im[k] * dr, ti = w_im[k] * di - w_re[k] * dr;
    out[2 * k] = (sr + tr) * half, out[2 * k + 1] = (si + ti) * half;
    out[2 * (h - k)] = (sr - tr) * half, out[2 * (h - k) + 1] = (ti - si) * half;
  }
}

// The inverse, without the halves: z_k = (X_k + conj X_(h-k)) + i conj(w_k) (X_k - conj X_(h-k)).
template <class T>
void join_pairs(int64_t h, const T* in, const T* w_re, const T* w_im, T* z_re, T* z_im) {
  z_re[0] = in[0] + in[2 * h], z_im[0] = in[0] - in[2 * h];
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t k = 1;
  const int64_t end = h / 2 + 1;
  for (; k + lanes <= end && 2 * (k + lanes) <= h; k += lanes) {
    hn::Vec<decltype(d)> a, b, c, e;
    hn::LoadInterleaved2(d, in + 2 * k, a, b);
    hn::LoadInterleaved2(d, in + 2 * (h - k - lanes + 1), c, e);
    c = hn::Reverse(d, c), e = hn::Reverse(d, e);
    const auto wr = hn::LoadU(d, w_re + k), wi = hn::LoadU(d, w_im + k);
    const auto sr = hn::Add(a, c), si = hn::Sub(b, e), dr = hn::Sub(a, c), di = hn::Add(b, e);
    // i conj(w) d
    const auto tr = hn::NegMulAdd(wr, di, hn::Mul(wi, dr)), ti = hn::MulAdd(wr, dr, hn::Mul(wi, di));
    hn::StoreU(hn::Add(sr, tr), d, z_re + k), hn::StoreU(hn::Add(si, ti), d, z_im + k);
    hn::StoreU(hn::Reverse(d, hn::Sub(sr, tr)), d, z_re + h - k - lanes + 1);
    hn::StoreU(hn::Reverse(d, hn::Sub(ti, si)), d, z_im + h - k - lanes + 1);
  }
  for (; k < end; ++k) {
    const T a = in[2 * k], b = in[2 * k + 1], c = in[2 * (h - k)], e = in[2 * (h - k) + 1];
    const T sr = a + c, si = b - e, dr = a - c, di = b + e;
    const T tr = w_im[k] * dr - w_re[k] * di, ti = w_re[k] * dr + w_im[k] * di;
    z_re[k] = sr + tr, z_im[k] = si + ti;
    z_re[h - k] = sr - tr, z_im[h - k] = ti - si;
  }
}

void split_f32(int64_t h, const float* a, const float* b, const float* c, const float* e, float s, float* o) {
  split_pairs(h, a, b, c, e, s, o);
}
void split_f64(int64_t h, const double* a, const double* b, const double* c, const double* e, double s, double* o) {
  split_pairs(h, a, b, c, e, s, o);
}
void join_f32(int64_t h, const float* i, const float* c, const float* e, float* a, float* b) {
  join_pairs(h, i, c, e, a, b);
}
void join_f64(int64_t h, const double* i, const double* c, const double* e, double* a, double* b) {
  join_pairs(h, i, c, e, a, b);
}

}  // namespace HWY_NAMESPACE
}  // namespace pyflame::cpu::fft
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pyflame::cpu::fft {
HWY_EXPORT(split_f32);
HWY_EXPORT(split_f64);
HWY_EXPORT(join_f32);
HWY_EXPORT(join_f64);
HWY_EXPORT(transpose_f32);
HWY_EXPORT(times_powers_f32);

template <>
void frequencies_of_pairs(int64_t h, const float* a, const float* b, const float* c, const float* e, float s,
                          float* o) {
  HWY_DYNAMIC_DISPATCH(split_f32)(h, a, b, c, e, s, o);
}
template <>
void frequencies_of_pairs(int64_t h, const double* a, const double* b, const double* c, const double* e, double s,
                          double* o) {
  HWY_DYNAMIC_DISPATCH(split_f64)(h, a, b, c, e, s, o);
}
template <>
void pairs_of_frequencies(int64_t h, const float* i, const float* c, const float* e, float* a, float* b) {
  HWY_DYNAMIC_DISPATCH(join_f32)(h, i, c, e, a, b);
}
template <>
void pairs_of_frequencies(int64_t h, const double* i, const double* c, const double* e, double* a, double* b) {
  HWY_DYNAMIC_DISPATCH(join_f64)(h, i, c, e, a, b);
}

template <>
void transpose_pairs(bool from_far, const float* from, int64_t from_pitch, int64_t rows, int64_t columns, float* to,
                     int64_t to_pitch) {
  HWY_DYNAMIC_DISPATCH(transpose_f32)
  (from_far, reinterpret_cast<const double*>(from), from_pitch, rows, columns, reinterpret_cast<double*>(to), to_pitch);
}
template <>
void transpose_pairs(bool, const double* from, int64_t from_pitch, int64_t rows, int64_t columns, double* to,
                     int64_t to_pitch) {
  for (int64_t k = 0; k < rows; ++k)
    for (int64_t l = 0; l < columns; ++l) std::copy_n(from + 2 * (k * from_pitch + l), 2, to + 2 * (l * to_pitch + k));
}
void times_powers(int64_t n, const float* re, const float* im, double* w_re, double* w_im, double step_re,
                  double step_im, float* to) {
  HWY_DYNAMIC_DISPATCH(times_powers_f32)(n, re, im, w_re, w_im, step_re, step_im, to);
}
}  // namespace pyflame::cpu::fft
#endif
