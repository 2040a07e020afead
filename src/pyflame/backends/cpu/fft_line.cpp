// Stockham's algorithm for any radix: each pass reads one buffer and writes the other, and the results come out in order.
// A pass over m groups of s neighbours takes vectors of neighbours; the first passes, whose groups are shorter than a
// vector, take vectors across groups instead, which need tables of factors and shuffled stores.
#include "pyflame/backends/cpu/tile_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pyflame/backends/cpu/fft_line.cpp"
#include <hwy/foreach_target.h>  // before highway.h

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <utility>

#include "pyflame/backends/cpu/fft.h"

HWY_BEFORE_NAMESPACE();
namespace pyflame::cpu::fft {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// --- the transform of R elements in registers

template <class D, class V>
HWY_INLINE void small_dft2(D, V* a, V* b) {
  const V x = a[1], y = b[1];
  a[1] = hn::Sub(a[0], x), b[1] = hn::Sub(b[0], y);
  a[0] = hn::Add(a[0], x), b[0] = hn::Add(b[0], y);
}
template <class D, class V>
HWY_INLINE void small_dft3(D d, V* a, V* b) {
  using T = hn::TFromD<D>;
  const V sine = hn::Set(d, static_cast<T>(0.86602540378443864676)), half = hn::Set(d, static_cast<T>(-0.5));
  const V sr = hn::Add(a[1], a[2]), si = hn::Add(b[1], b[2]);
  const V dr = hn::Mul(hn::Sub(a[1], a[2]), sine), di = hn::Mul(hn::Sub(b[1], b[2]), sine);
  const V mr = hn::MulAdd(sr, half, a[0]), mi = hn::MulAdd(si, half, b[0]);
  a[0] = hn::Add(a[0], sr), b[0] = hn::Add(b[0], si);
  a[1] = hn::Add(mr, di), b[1] = hn::Sub(mi, dr);
  a[2] = hn::Sub(mr, di), b[2] = hn::Add(mi, dr);
}
template <class D, class V>
HWY_INLINE void small_dft4(D, V* a, V* b) {
  const V r0 = hn::Add(a[0], a[2]), r1 = hn::Sub(a[0], a[2]), r2 = hn::Add(a[1], a[3]), r3 = hn::Sub(a[1], a[3]);
  const V i0 = hn::Add(b[0], b[2]), i1 = hn::Sub(b[0], b[2]), i2 = hn::Add(b[1], b[3]), i3 = hn::Sub(b[1], b[3]);
  a[0] = hn::Add(r0, r2), b[0] = hn::Add(i0, i2);
  a[2] = hn::Sub(r0, r2), b[2] = hn::Sub(i0, i2);
  a[1] = hn::Add(r1, i3), b[1] = hn::Sub(i1, r3);
  a[3] = hn::Sub(r1, i3), b[3] = hn::Add(i1, r3);
}
template <class D, class V>
HWY_INLINE void small_dft8(D d, V* a, V* b) {
  const V h = hn::Set(d, static_cast<hn::TFromD<D>>(0.70710678118654752440));
  V er[4] = {a[0], a[2], a[4], a[6]}, ei[4] = {b[0], b[2], b[4], b[6]};
  V dr[4] = {a[1], a[3], a[5], a[7]}, di[4] = {b[1], b[3], b[5], b[7]};
  small_dft4(d, er, ei);
  small_dft4(d, dr, di);
  const V r1 = hn::Mul(h, hn::Add(dr[1], di[1])), i1 = hn::Mul(h, hn::Sub(di[1], dr[1]));
  const V r3 = hn::Mul(h, hn::Sub(di[3], dr[3])), i3 = hn::Neg(hn::Mul(h, hn::Add(di[3], dr[3])));
  a[0] = hn::Add(er[0], dr[0]), b[0] = hn::Add(ei[0], di[0]), a[4] = hn::Sub(er[0], dr[0]),
  b[4] = hn::Sub(ei[0], di[0]);
  a[1] = hn::Add(er[1], r1), b[1] = hn::Add(ei[1], i1), a[5] = hn::Sub(er[1], r1), b[5] = hn::Sub(ei[1], i1);
  a[2] = hn::Add(er[2], di[2]), b[2] = hn::Sub(ei[2], dr[2]), a[6] = hn::Sub(er[2], di[2]),
  b[6] = hn::Add(ei[2], dr[2]);
  a[3] = hn::Add(er[3], r3), b[3] = hn::Add(ei[3], i3), a[7] = hn::Sub(er[3], r3), b[7] = hn::Sub(ei[3], i3);
}
// An odd R: sums and differences of elements k and R - k.
template <int R, class D, class V>
HWY_INLINE void small_dft_odd(D d, V* a, V* b) {
  using T = hn::TFromD<D>;
  constexpr int kHalf = (R - 1) / 2;
  static const auto table = [] {
    struct {
      T cosine[R], sine[R];
    } t;
    for (int k = 0; k < R; ++k) {
      t.cosine[k] = static_cast<T>(std::cos(2 * std::numbers::pi * k / R));
      t.sine[k] = static_cast<T>(std::sin(2 * std::numbers::pi * k / R));
    }
    return t;
  }();
  V sr[kHalf + 1], si[kHalf + 1], dr[kHalf + 1], di[kHalf + 1];
  V tr = a[0], ti = b[0];
  for (int k = 1; k <= kHalf; ++k) {
    sr[k] = hn::Add(a[k], a[R - k]), si[k] = hn::Add(b[k], b[R - k]);
    dr[k] = hn::Sub(a[k], a[R - k]), di[k] = hn::Sub(b[k], b[R - k]);
    tr = hn::Add(tr, sr[k]), ti = hn::Add(ti, si[k]);
  }
  const V a0 = a[0], b0 = b[0];
  for (int j = 1; j <= kHalf; ++j) {
    V cr = a0, ci = b0, er = hn::Zero(d), ei = hn::Zero(d);
    for (int k = 1; k <= kHalf; ++k) {
      const V c = hn::Set(d, table.cosine[j * k % R]), s = hn::Set(d, table.sine[j * k % R]);
      cr = hn::MulAdd(c, sr[k], cr), ci = hn::MulAdd(c, si[k], ci);
      er = hn::MulAdd(s, dr[k], er), ei = hn::MulAdd(s, di[k], ei);
    }
    a[j] = hn::Add(cr, ei), b[j] = hn::Sub(ci, er);
    a[R - j] = hn::Sub(cr, ei), b[R - j] = hn::Add(ci, er);
  }
  a[0] = tr, b[0] = ti;
}
template <int R, class D, class V>
HWY_INLINE void small_dft(D d, V* a, V* b) {
  if constexpr (R == 2) small_dft2(d, a, b);
  else if constexpr (R == 3) small_dft3(d, a, b);
  else if constexpr (R == 4) small_dft4(d, a, b);
  else if constexpr (R == 8) small_dft8(d, a, b);
  else small_dft_odd<R>(d, a, b);
}

template <class V>
HWY_INLINE void twiddle(V& a, V& b, V wr, V wi) {
  const V x = hn::NegMulAdd(b, wi, hn::Mul(a, wr));
  b = hn::MulAdd(b, wr, hn::Mul(a, wi));
  a = x;
}

// --- reading and writing a line

template <class D, class V, class T>
HWY_INLINE void read(D d, const Line<T>& x, bool exchanged, int64_t at, V& a, V& b) {
  if (!x.pairs) {
    a = hn::LoadU(d, x.re + at), b = hn::LoadU(d, x.im + at);
    return;
  }
  hn::LoadInterleaved2(d, (exchanged ? x.im : x.re) + 2 * at, a, b);
  if (exchanged) std::swap(a, b);
}
template <class D, class V, class T>
HWY_INLINE void write(D d, const Line<T>& y, bool exchanged, int64_t at, V a, V b) {
  if (!y.pairs) {
    hn::StoreU(a, d, y.re + at), hn::StoreU(b, d, y.im + at);
    return;
  }
  if (exchanged) hn::StoreInterleaved2(b, a, d, y.im + 2 * at);
  else hn::StoreInterleaved2(a, b, d, y.re + 2 * at);
}
// Of pairs whose parts are exchanged, re points behind im.
template <class T>
bool is_exchanged(const Line<T>& x) {
  return x.pairs && x.im < x.re;
}

// --- passes

// Vectors of neighbours. kLast: m is 1, so there are no factors; the results are scaled.
template <int R, bool kLast, class D, class T>
HWY_INLINE void pass_neighbours(D d, const Pass& p, const T* w_re, const T* w_im, const Line<T>& in, const Line<T>& out,
                                T scale, int64_t begin, int64_t end) {
  using V = hn::Vec<D>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), s = p.s, m = p.m;
  const bool from = is_exchanged(in), to = is_exchanged(out);
  const V by = hn::Set(d, scale);
  for (int64_t g = 0; g < m; ++g) {
    V wr[R], wi[R];
    if constexpr (!kLast)
      for (int k = 1; k < R; ++k) wr[k] = hn::Set(d, w_re[(k - 1) * m + g]), wi[k] = hn::Set(d, w_im[(k - 1) * m + g]);
    for (int64_t q = begin; q + lanes <= end; q += lanes) {
      V a[R], b[R];
      for (int k = 0; k < R; ++k) read(d, in, from, q + s * (g + m * k), a[k], b[k]);
      small_dft<R>(d, a, b);
      for (int k = 0; k < R; ++k) {
        if constexpr (kLast) a[k] = hn::Mul(a[k], by), b[k] = hn::Mul(b[k], by);
        else if (k > 0) twiddle(a[k], b[k], wr[k], wi[k]);
        write(d, out, to, q + s * (R * g + k), a[k], b[k]);
      }
    }
  }
}

// Vectors across groups: place i of m * s belongs to group i / s.
template <int R, class D, class T>
HWY_INLINE void pass_flat(D d, const Pass& p, const T* w_re, const T* w_im, const Line<T>& in, const Line<T>& out) {
  using V = hn::Vec<D>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), s = p.s, total = p.m * s;
  const bool from = is_exchanged(in);
  HWY_ALIGN T part[hn::MaxLanes(d)];
  for (int64_t i = 0; i < total; i = i + lanes <= total - lanes ? i + lanes : std::max(i + 1, total - lanes)) {
    V a[R], b[R];
    for (int k = 0; k < R; ++k) read(d, in, from, i + total * k, a[k], b[k]);
    small_dft<R>(d, a, b);
    for (int k = 1; k < R; ++k)
      twiddle(a[k], b[k], hn::LoadU(d, w_re + (k - 1) * total + i), hn::LoadU(d, w_im + (k - 1) * total + i));
    if (s == 1) {
      if constexpr (R == 4) {
        hn::StoreInterleaved4(a[0], a[1], a[2], a[3], d, out.re + 4 * i);
        hn::StoreInterleaved4(b[0], b[1], b[2], b[3], d, out.im + 4 * i);
        if (i + lanes == total) break;
        continue;
      } else if constexpr (R == 3) {
        hn::StoreInterleaved3(a[0], a[1], a[2], d, out.re + 3 * i);
        hn::StoreInterleaved3(b[0], b[1], b[2], d, out.im + 3 * i);
        if (i + lanes == total) break;
        continue;
      } else if constexpr (R == 2) {
        hn::StoreInterleaved2(a[0], a[1], d, out.re + 2 * i);
        hn::StoreInterleaved2(b[0], b[1], d, out.im + 2 * i);
        if (i + lanes == total) break;
        continue;
      }
    }
    const auto scatter_runs = [&]<int kRun>(const T* v, T* to, int64_t at, int k) HWY_ATTR {
      T* y = to + R * at + kRun * k;
      for (int64_t j = 0; j < lanes; j += kRun, y += kRun * R) std::memcpy(y, v + j, kRun * sizeof(T));
    };
    const auto scatter = [&](V v, T* to, int k) HWY_ATTR {
      hn::Store(v, d, part);
      if (s == 2 && lanes >= 2) return scatter_runs.template operator()<2>(part, to, i, k);
      if (s == 4 && lanes >= 4) return scatter_runs.template operator()<4>(part, to, i, k);
      if (s == 8 && lanes >= 8) return scatter_runs.template operator()<8>(part, to, i, k);
      int64_t g = i / s, q = i % s;
      for (int64_t j = 0; j < lanes;) {
        const int64_t run = std::min(s - q, lanes - j);
        T* y = to + s * (R * g + k) + q;
        for (int64_t l = 0; l < run; ++l) y[l] = part[j + l];
        j += run, q = 0, ++g;
      }
    };
    for (int k = 0; k < R; ++k) scatter(a[k], out.re, k), scatter(b[k], out.im, k);
    if (i + lanes == total) break;
  }
}

template <int R, class T>
void pass(const Plan<T>& plan, const Pass& p, const Line<T>& in, const Line<T>& out, T scale, bool last) {
  const hn::ScalableTag<T> d;
  const hn::CappedTag<T, 1> one;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const T* w_re = plan.re.data() + p.twiddles;
  const T* w_im = plan.im.data() + p.twiddles;
  if (p.flat) {
    if (p.m * p.s >= lanes) pass_flat<R>(d, p, w_re, w_im, in, out);
    else pass_flat<R>(one, p, w_re, w_im, in, out);
    return;
  }
  // What is left of the neighbours goes in shorter vectors.
  const auto run = [&](auto tag, int64_t begin) HWY_ATTR {
    const int64_t width = static_cast<int64_t>(hn::Lanes(tag)), end = begin + (p.s - begin) / width * width;
    if (begin == end) return end;
    if (last) pass_neighbours<R, true>(tag, p, w_re, w_im, in, out, scale, begin, end);
    else pass_neighbours<R, false>(tag, p, w_re, w_im, in, out, scale, begin, end);
    return end;
  };
  run(one, run(hn::CappedTag<T, 4>(), run(hn::CappedTag<T, 8>(), run(d, 0))));
}

template <class T>
void any_pass(const Plan<T>& plan, const Pass& p, const Line<T>& in, const Line<T>& out, T scale, bool last) {
  switch (p.radix) {
    case 2: return pass<2>(plan, p, in, out, scale, last);
    case 3: return pass<3>(plan, p, in, out, scale, last);
    case 4: return pass<4>(plan, p, in, out, scale, last);
    case 5: return pass<5>(plan, p, in, out, scale, last);
    case 7: return pass<7>(plan, p, in, out, scale, last);
    case 8: return pass<8>(plan, p, in, out, scale, last);
    case 11: return pass<11>(plan, p, in, out, scale, last);
    case 13: return pass<13>(plan, p, in, out, scale, last);
    default: return;
  }
}

template <class T>
void copy_line(const Line<T>& in, const Line<T>& out, T scale, int64_t n) {
  const int64_t x = in.pairs ? 2 : 1, y = out.pairs ? 2 : 1;
  for (int64_t i = 0; i < n; ++i) {
    const T a = in.re[i * x] * scale, b = in.im[i * x] * scale;
    out.re[i * y] = a, out.im[i * y] = b;
  }
}

template <class T>
void run_passes(const Plan<T>& plan, const Line<T>& in, const Line<T>& out, T scale, T* work) {
  const int64_t n = plan.n;
  Line<T> now = in;
  Line<T> buffers[2] = {{work, work + n, false}, {work + 2 * n, work + 3 * n, false}};
  const size_t count = plan.passes.size();
  for (size_t i = 0; i < count; ++i) {
    const Pass& p = plan.passes[i];
    const bool last = i + 1 == count, direct = last && !p.flat && now.re != out.re;
    const Line<T>& to = direct ? out : buffers[i % 2];
    any_pass(plan, p, now, to, scale, last);
    now = to;
    if (direct) return;
    if (last) copy_line(now, out, p.flat ? scale : T{1}, n);
  }
  if (count == 0) copy_line(in, out, scale, n);
}

// x_k c_k, then the convolution with the conjugate chirp by transforms, then times c_k. The transform back is one of the
// exchanged parts.
template <class T>
void bluestein(const Plan<T>& plan, const Line<T>& in, const Line<T>& out, T scale, T* work) {
  const Plan<T>& inner = plan.inner[0];
  const int64_t n = plan.n, m = inner.n, x = in.pairs ? 2 : 1, y = out.pairs ? 2 : 1;
  T *re = work, *im = work + m, *rest = work + 2 * m;
  for (int64_t k = 0; k < n; ++k) {
    const T a = in.re[k * x], b = in.im[k * x], c = plan.chirp_re[k], s = plan.chirp_im[k];
    re[k] = a * c - b * s, im[k] = a * s + b * c;
  }
  std::fill(re + n, re + m, T{0});
  std::fill(im + n, im + m, T{0});
  run_passes(inner, {re, im, false}, {re, im, false}, T{1}, rest);
  for (int64_t k = 0; k < m; ++k) {
    const T a = re[k], b = im[k], c = plan.kernel_re[k], s = plan.kernel_im[k];
    re[k] = a * c - b * s, im[k] = a * s + b * c;
  }
  run_passes(inner, {im, re, false}, {im, re, false}, T{1}, rest);
  for (int64_t k = 0; k < n; ++k) {
    const T a = re[k], b = im[k], c = plan.chirp_re[k] * scale, s = plan.chirp_im[k] * scale;
    out.re[k * y] = a * c - b * s, out.im[k * y] = a * s + b * c;
  }
}

template <class T>
void transform_line(const Plan<T>& plan, const Line<T>& in, const Line<T>& out, T scale, T* work) {
  if (plan.inner.empty()) run_passes(plan, in, out, scale, work);
  else bluestein(plan, in, out, scale, work);
}

void transform_f32(const Plan<float>& plan, const Line<float>& in, const Line<float>& out, float scale, float* work) {
  transform_line(plan, in, out, scale, work);
}
void transform_f64(const Plan<double>& plan, const Line<double>& in, const Line<double>& out, double scale,
                   double* work) {
  transform_line(plan, in, out, scale, work);
}

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
int64_t lanes_of(bool wide) {
  return wide ? static_cast<int64_t>(hn::Lanes(hn::ScalableTag<double>()))
              : static_cast<int64_t>(hn::Lanes(hn::ScalableTag<float>()));
}

}  // namespace HWY_NAMESPACE
}  // namespace pyflame::cpu::fft
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pyflame::cpu::fft {
HWY_EXPORT(transform_f32);
HWY_EXPORT(transform_f64);
HWY_EXPORT(split_f32);
HWY_EXPORT(split_f64);
HWY_EXPORT(join_f32);
HWY_EXPORT(join_f64);
HWY_EXPORT(lanes_of);

template <>
void transform(const Plan<float>& p, const Line<float>& in, const Line<float>& out, float scale, float* work) {
  HWY_DYNAMIC_DISPATCH(transform_f32)(p, in, out, scale, work);
}
template <>
void transform(const Plan<double>& p, const Line<double>& in, const Line<double>& out, double scale, double* work) {
  HWY_DYNAMIC_DISPATCH(transform_f64)(p, in, out, scale, work);
}
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

namespace {

// Fours first, because the tables of the passes with short groups have the fewest rows then; large radices last.
std::vector<int> radices(int64_t n) {
  std::vector<int> r;
  while (n % 4 == 0) r.push_back(4), n /= 4;
  for (int f : {2, 3, 5, 7, 11, 13})
    while (n % f == 0) r.push_back(f), n /= f;
  return n == 1 ? r : std::vector<int>();
}

// The least length above n - 1 whose only factors are 2 and at most one 3 or 5.
int64_t smooth_length(int64_t n) {
  int64_t best = 1;
  while (best < n) best *= 2;
  for (int64_t f : {3, 5, 9}) {
    int64_t m = f;
    while (m < n) m *= 2;
    best = std::min(best, m);
  }
  return best;
}

}  // namespace

template <class T>
Plan<T>::Plan(int64_t length) : n(length) {
  const std::vector<int> factors = radices(n);
  const auto angle = [](int64_t k, int64_t of) {
    return -2 * std::numbers::pi * static_cast<double>(k) / static_cast<double>(of);
  };
  if (n > 1 && factors.empty()) {
    inner.emplace_back(smooth_length(2 * n - 1));
    const int64_t m = inner[0].n;
    std::vector<T> b_re(static_cast<size_t>(m)), b_im(static_cast<size_t>(m)),
        work(static_cast<size_t>(inner[0].work()));
    for (int64_t k = 0; k < n; ++k) {
      __extension__ using Wide = __int128;
      const double a = angle(static_cast<int64_t>(Wide{k} * k % (2 * n)), 2 * n);
      chirp_re.push_back(static_cast<T>(std::cos(a))), chirp_im.push_back(static_cast<T>(std::sin(a)));
      for (int64_t at : {k, k ? m - k : 0}) {
        b_re[static_cast<size_t>(at)] = static_cast<T>(std::cos(a));
        b_im[static_cast<size_t>(at)] = static_cast<T>(-std::sin(a));
      }
    }
    kernel_re.resize(b_re.size()), kernel_im.resize(b_re.size());
    transform<T>(inner[0], {b_re.data(), b_im.data(), false}, {kernel_re.data(), kernel_im.data(), false},
                 static_cast<T>(1.0 / static_cast<double>(m)), work.data());
    return;
  }
  const int64_t lanes = HWY_DYNAMIC_DISPATCH(lanes_of)(sizeof(T) == 8);
  int64_t rest = n, s = 1;
  for (int r : factors) {
    const int64_t m = rest / r;
    Pass p{r, m, s, s < lanes && m > 1, re.size()};
    for (int k = 1; k < r; ++k)
      for (int64_t g = 0; g < m; ++g)
        for (int64_t q = 0; q < (p.flat ? s : 1); ++q) {
          const double a = angle(g * k, rest);
          re.push_back(static_cast<T>(std::cos(a))), im.push_back(static_cast<T>(std::sin(a)));
        }
    passes.push_back(p);
    rest = m, s *= r;
  }
}

template struct Plan<float>;
template struct Plan<double>;

}  // namespace pyflame::cpu::fft
#endif
