// Stockham's algorithm for any radix: each pass reads one buffer and writes the other, and the results come out in order.
// A pass over m groups of s neighbours takes vectors of neighbours. In the first pass, where s is 1, vectors span groups
// instead, and the results are transposed in registers as they are stored. Where groups are shorter than a vector, what a
// vector holds beyond its group is stored too; the next store, which begins there, replaces it.
#include "pyflame/backends/cpu/tile_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pyflame/backends/cpu/fft_line.cpp"
#include <hwy/foreach_target.h>  // before highway.h

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "pyflame/backends/cpu/fft-inl.h"
#include "pyflame/backends/cpu/fft.h"

HWY_BEFORE_NAMESPACE();
namespace pyflame::cpu::fft {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// --- the transform of R elements in registers

template <int R, class D, class V>
HWY_INLINE void small_dft(D d, V* a, V* b);

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
  PYFLAME_UNROLL
  for (int k = 1; k <= kHalf; ++k) {
    sr[k] = hn::Add(a[k], a[R - k]), si[k] = hn::Add(b[k], b[R - k]);
    dr[k] = hn::Sub(a[k], a[R - k]), di[k] = hn::Sub(b[k], b[R - k]);
    tr = hn::Add(tr, sr[k]), ti = hn::Add(ti, si[k]);
  }
  const V a0 = a[0], b0 = b[0];
  PYFLAME_UNROLL
  for (int j = 1; j <= kHalf; ++j) {
    V cr = a0, ci = b0, er = hn::Zero(d), ei = hn::Zero(d);
    PYFLAME_UNROLL
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
// A product of two: transforms of A elements that are B apart, factors, transforms of B neighbours.
template <int A, int B, class D, class V>
HWY_INLINE void small_dft_product(D d, V* a, V* b) {
  using T = hn::TFromD<D>;
  constexpr int kR = A * B;
  static_assert(kR == 9 || kR == 16);
  // cos and sin of 2 pi t / R; only t = i * j is used.
  constexpr double kCos9[] = {1, 0.76604444311897803520, 0.17364817766693034885, 0, -0.93969262078590838405};
  constexpr double kSin9[] = {0, 0.64278760968653932632, 0.98480775301220805937, 0, 0.34202014332566873304};
  constexpr double kCos16[] = {
      1, 0.92387953251128675613, 0.70710678118654752440, 0.38268343236508977173, 0, 0, -0.70710678118654752440, 0,
      0, -0.92387953251128675613};
  constexpr double kSin16[] = {
      0, 0.38268343236508977173, 0.70710678118654752440, 0.92387953251128675613, 1, 0, 0.70710678118654752440, 0,
      0, -0.38268343236508977173};
  V x[kR], y[kR];  // element i of the transform that began at j: i * B + j
  PYFLAME_UNROLL
  for (int j = 0; j < B; ++j) {
    V p[A], q[A];
    PYFLAME_UNROLL
    for (int i = 0; i < A; ++i) p[i] = a[i * B + j], q[i] = b[i * B + j];
    small_dft<A>(d, p, q);
    PYFLAME_UNROLL
    for (int i = 0; i < A; ++i) {
      const int t = i * j;
      if (t == 0) {
        x[i * B + j] = p[i], y[i * B + j] = q[i];
      } else if (4 * t == kR) {
        x[i * B + j] = q[i], y[i * B + j] = hn::Neg(p[i]);
      } else {
        const V c = hn::Set(d, static_cast<T>(kR == 9 ? kCos9[t % 5] : kCos16[t]));
        const V s = hn::Set(d, static_cast<T>(kR == 9 ? kSin9[t % 5] : kSin16[t]));
        x[i * B + j] = hn::MulAdd(q[i], s, hn::Mul(p[i], c));
        y[i * B + j] = hn::NegMulAdd(p[i], s, hn::Mul(q[i], c));
      }
    }
  }
  PYFLAME_UNROLL
  for (int i = 0; i < A; ++i) {
    small_dft<B>(d, x + i * B, y + i * B);
    PYFLAME_UNROLL
    for (int j = 0; j < B; ++j) a[i + A * j] = x[i * B + j], b[i + A * j] = y[i * B + j];
  }
}
template <int R, class D, class V>
HWY_INLINE void small_dft(D d, V* a, V* b) {
  if constexpr (R == 2) small_dft2(d, a, b);
  else if constexpr (R == 3) small_dft3(d, a, b);
  else if constexpr (R == 4) small_dft4(d, a, b);
  else if constexpr (R == 8) small_dft8(d, a, b);
  else if constexpr (R == 9) small_dft_product<3, 3>(d, a, b);
  else if constexpr (R == 16) small_dft_product<4, 4>(d, a, b);
  else small_dft_odd<R>(d, a, b);
}

// --- passes

// The first one: s is 1. The last vector overlaps the one before it.
template <int R, Form kForm, class D, class T>
HWY_NOINLINE void pass_first(D d, int64_t m, const T* w_re, const T* w_im, const Line<T>& in, const Line<T>& out) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t g = 0;; g = std::min(g + lanes, m - lanes)) {
    hn::Vec<D> a[R], b[R];
    PYFLAME_UNROLL
    for (int k = 0; k < R; ++k) read<kForm>(d, in, g + m * k, a[k], b[k]);
    small_dft<R>(d, a, b);
    PYFLAME_UNROLL
    for (int k = 1; k < R; ++k)
      twiddle(a[k], b[k], hn::LoadU(d, w_re + (k - 1) * m + g), hn::LoadU(d, w_im + (k - 1) * m + g));
    store_transposed<R>(d, a, out.re + R * g, R), store_transposed<R>(d, b, out.im + R * g, R);
    if (g + lanes >= m) return;
  }
}

// Vectors of neighbours. kLast: m is 1, so there are no factors; the results are scaled.
template <int R, bool kLast, Form kForm, class D, class T>
HWY_NOINLINE void pass_neighbours(D d, const Pass& p, const T* w_re, const T* w_im, const Line<T>& in,
                                  const Line<T>& out, T scale) {
  using V = hn::Vec<D>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), s = p.s, m = p.m;
  const V by = hn::Set(d, scale);
  for (int64_t g = 0; g < m; ++g, w_re += R - 1, w_im += R - 1) {
    for (int64_t q = 0;; q = std::min(q + lanes, s - lanes)) {
      V a[R], b[R];
      PYFLAME_UNROLL
      for (int k = 0; k < R; ++k) read<Form::kArrays>(d, in, q + s * (g + m * k), a[k], b[k]);
      small_dft<R>(d, a, b);
      PYFLAME_UNROLL
      for (int k = 0; k < R; ++k) {
        if constexpr (kLast) a[k] = hn::Mul(a[k], by), b[k] = hn::Mul(b[k], by);
        else if (k > 0) twiddle(a[k], b[k], hn::Set(d, w_re[k - 1]), hn::Set(d, w_im[k - 1]));
        write<kForm>(d, out, q + s * (R * g + k), a[k], b[k]);
      }
      if (q + lanes >= s) break;
    }
  }
}

#if HWY_TARGET != HWY_SCALAR
// s is half a vector, which takes two groups.
template <int R, class D, class T>
HWY_NOINLINE void pass_halves(D d, const Pass& p, const T* w_re, const T* w_im, const Line<T>& in, const Line<T>& out) {
  const hn::Half<D> half;
  const int64_t s = p.s, m = p.m;
  for (int64_t g = 0;; g = std::min(g + 2, m - 2)) {
    hn::Vec<D> a[R], b[R];
    PYFLAME_UNROLL
    for (int k = 0; k < R; ++k) read<Form::kArrays>(d, in, s * (g + m * k), a[k], b[k]);
    small_dft<R>(d, a, b);
    PYFLAME_UNROLL
    for (int k = 0; k < R; ++k) {
      const int64_t low = s * (R * g + k), high = low + s * R;
      if (k > 0)
        twiddle(a[k], b[k], hn::LoadU(d, w_re + s * ((k - 1) * m + g)), hn::LoadU(d, w_im + s * ((k - 1) * m + g)));
      hn::StoreU(hn::LowerHalf(half, a[k]), half, out.re + low),
          hn::StoreU(hn::LowerHalf(half, b[k]), half, out.im + low);
      hn::StoreU(hn::UpperHalf(half, a[k]), half, out.re + high),
          hn::StoreU(hn::UpperHalf(half, b[k]), half, out.im + high);
    }
    if (g + 2 >= m) return;
  }
}
#endif

// The only one of a line of R elements.
template <int R, class T>
HWY_NOINLINE void pass_alone(const Line<T>& in, const Line<T>& out, T scale) {
  const hn::CappedTag<T, 1> d;
  const int64_t x = in.pairs ? 2 : 1, y = out.pairs ? 2 : 1;
  hn::Vec<decltype(d)> a[R], b[R];
  PYFLAME_UNROLL
  for (int k = 0; k < R; ++k) a[k] = hn::Set(d, in.re[k * x]), b[k] = hn::Set(d, in.im[k * x]);
  small_dft<R>(d, a, b);
  PYFLAME_UNROLL
  for (int k = 0; k < R; ++k) out.re[k * y] = hn::GetLane(a[k]) * scale, out.im[k * y] = hn::GetLane(b[k]) * scale;
}

template <int R, class T>
void pass(const Plan<T>& plan, const Pass& p, const Line<T>& in, const Line<T>& out, T scale) {
  if (p.m * p.s == 1) return pass_alone<R>(in, out, scale);
  const hn::CappedTag<T, kMostLanes> d;
  const T* w_re = plan.re.data() + p.twiddles;
  const T* w_im = plan.im.data() + p.twiddles;
  if (p.kind == Pass::kFirst) {
    switch (form_of(in)) {
      case Form::kPairs: return pass_first<R, Form::kPairs>(d, p.m, w_re, w_im, in, out);
      case Form::kExchangedPairs: return pass_first<R, Form::kExchangedPairs>(d, p.m, w_re, w_im, in, out);
      case Form::kArrays: return pass_first<R, Form::kArrays>(d, p.m, w_re, w_im, in, out);
    }
  }
#if HWY_TARGET != HWY_SCALAR
  if (p.kind == Pass::kHalves) return pass_halves<R>(d, p, w_re, w_im, in, out);
#endif
  if (p.m > 1) return pass_neighbours<R, false, Form::kArrays>(d, p, w_re, w_im, in, out, scale);
  switch (form_of(out)) {
    case Form::kPairs: return pass_neighbours<R, true, Form::kPairs>(d, p, w_re, w_im, in, out, scale);
    case Form::kExchangedPairs:
      return pass_neighbours<R, true, Form::kExchangedPairs>(d, p, w_re, w_im, in, out, scale);
    case Form::kArrays: return pass_neighbours<R, true, Form::kArrays>(d, p, w_re, w_im, in, out, scale);
  }
}

template <class T>
void any_pass(const Plan<T>& plan, const Pass& p, const Line<T>& in, const Line<T>& out, T scale) {
  switch (p.radix) {
    case 2: return pass<2>(plan, p, in, out, scale);
    case 3: return pass<3>(plan, p, in, out, scale);
    case 4: return pass<4>(plan, p, in, out, scale);
    case 5: return pass<5>(plan, p, in, out, scale);
    case 7: return pass<7>(plan, p, in, out, scale);
    case 8: return pass<8>(plan, p, in, out, scale);
    case 9: return pass<9>(plan, p, in, out, scale);
    case 11: return pass<11>(plan, p, in, out, scale);
    case 13: return pass<13>(plan, p, in, out, scale);
    case 16: return pass<16>(plan, p, in, out, scale);
    default: return;
  }
}

template <Form kFrom, Form kTo, class T>
HWY_NOINLINE void copy_formed(const Line<T>& in, const Line<T>& out, T scale, int64_t n) {
  const auto some = [&](auto d, int64_t begin) HWY_ATTR {
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    const auto by = hn::Set(d, scale);
    for (; begin + lanes <= n; begin += lanes) {
      auto a = by, b = by;
      read<kFrom>(d, in, begin, a, b);
      write<kTo>(d, out, begin, hn::Mul(a, by), hn::Mul(b, by));
    }
    return begin;
  };
  const int64_t rest = some(hn::CappedTag<T, kMostLanes>(), 0), x = in.pairs ? 2 : 1, y = out.pairs ? 2 : 1;
  for (int64_t i = rest; i < n; ++i) {
    const T a = in.re[i * x] * scale, b = in.im[i * x] * scale;
    out.re[i * y] = a, out.im[i * y] = b;
  }
}
template <class T>
void copy_to_arrays(const Line<T>& in, const Line<T>& out, T scale, int64_t n) {
  switch (form_of(in)) {
    case Form::kPairs: return copy_formed<Form::kPairs, Form::kArrays>(in, out, scale, n);
    case Form::kExchangedPairs: return copy_formed<Form::kExchangedPairs, Form::kArrays>(in, out, scale, n);
    case Form::kArrays: return copy_formed<Form::kArrays, Form::kArrays>(in, out, scale, n);
  }
}
template <class T>
void copy_from_arrays(const Line<T>& in, const Line<T>& out, T scale, int64_t n) {
  switch (form_of(out)) {
    case Form::kPairs: return copy_formed<Form::kArrays, Form::kPairs>(in, out, scale, n);
    case Form::kExchangedPairs: return copy_formed<Form::kArrays, Form::kExchangedPairs>(in, out, scale, n);
    case Form::kArrays: return copy_formed<Form::kArrays, Form::kArrays>(in, out, scale, n);
  }
}

template <class T>
void run_passes(const Plan<T>& plan, const Line<T>& in, const Line<T>& out, T scale, T* work) {
  const int64_t n = plan.n, pitch = pitch_of(n);
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(hn::CappedTag<T, kMostLanes>()));
  const Line<T> buffers[2] = {{work, work + pitch, false}, {work + 2 * pitch, work + 3 * pitch, false}};
  const size_t count = plan.passes.size();
  if (count == 1) return any_pass(plan, plan.passes[0], in, out, scale);
  Line<T> now = in;
  // Vectors reach beyond a short line.
  if (count == 0 || plan.passes[0].m < lanes) copy_to_arrays(in, now = buffers[1], T{1}, n);
  for (size_t i = 0; i < count; ++i) {
    const Pass& p = plan.passes[i];
    const bool direct = i + 1 == count && p.s >= lanes;
    const Line<T>& to = direct ? out : buffers[i % 2];
    any_pass(plan, p, now, to, scale);
    if (direct) return;
    now = to;
  }
  copy_from_arrays(now, out, count == 0 ? scale : T{1}, n);
}

// By the transform of the other side of a convolution.
template <class T>
void multiply(const Plan<T>& plan, T* re, T* im, int64_t m) {
  const T *c = plan.kernel_re.data(), *s = plan.kernel_im.data();
  for (int64_t k = 0; k < m; ++k) {
    const T a = re[k], b = im[k];
    re[k] = a * c[k] - b * s[k], im[k] = a * s[k] + b * c[k];
  }
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
  multiply(plan, re, im, m);
  run_passes(inner, {im, re, false}, {im, re, false}, T{1}, rest);
  for (int64_t k = 0; k < n; ++k) {
    const T a = re[k], b = im[k], c = plan.chirp_re[k] * scale, s = plan.chirp_im[k] * scale;
    out.re[k * y] = a * c - b * s, out.im[k * y] = a * s + b * c;
  }
}

// The elements in the order of the powers of a generator: a convolution with the roots in that order. The first result is
// the sum; the first element is added to the others as a constant, which has the frequency 0.
template <class T>
void rader(const Plan<T>& plan, const Line<T>& in, const Line<T>& out, T scale, T* work) {
  const Plan<T>& inner = plan.inner[0];
  const int64_t m = inner.n, x = in.pairs ? 2 : 1, y = out.pairs ? 2 : 1;
  T *re = work, *im = work + m, *rest = work + 2 * m;
  const int32_t* order = plan.order.data();
  for (int64_t k = 0; k < m; ++k) re[k] = in.re[order[k] * x], im[k] = in.im[order[k] * x];
  const T first_re = in.re[0], first_im = in.im[0];
  run_passes(inner, {re, im, false}, {re, im, false}, T{1}, rest);
  const T sum_re = first_re + re[0], sum_im = first_im + im[0];
  multiply(plan, re, im, m);
  re[0] += first_re, im[0] += first_im;
  run_passes(inner, {im, re, false}, {im, re, false}, T{1}, rest);
  out.re[0] = sum_re * scale, out.im[0] = sum_im * scale;
  // Result q belongs to the power -q.
  out.re[y] = re[0] * scale, out.im[y] = im[0] * scale;
  for (int64_t k = 1; k < m; ++k) {
    const int64_t to = order[m - k] * y;
    out.re[to] = re[k] * scale, out.im[to] = im[k] * scale;
  }
}

template <class T>
void transform_line(const Plan<T>& plan, const Line<T>& in, const Line<T>& out, T scale, T* work) {
  if (plan.inner.empty()) run_passes(plan, in, out, scale, work);
  else if (!plan.order.empty()) rader(plan, in, out, scale, work);
  else bluestein(plan, in, out, scale, work);
}

void transform_f32(const Plan<float>& plan, const Line<float>& in, const Line<float>& out, float scale, float* work) {
  transform_line(plan, in, out, scale, work);
}
void transform_f64(const Plan<double>& plan, const Line<double>& in, const Line<double>& out, double scale,
                   double* work) {
  transform_line(plan, in, out, scale, work);
}

int64_t lanes_of(bool wide) {
  return wide ? static_cast<int64_t>(hn::Lanes(hn::CappedTag<double, kMostLanes>()))
              : static_cast<int64_t>(hn::Lanes(hn::CappedTag<float, kMostLanes>()));
}

}  // namespace HWY_NAMESPACE
}  // namespace pyflame::cpu::fft
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pyflame::cpu::fft {
HWY_EXPORT(transform_f32);
HWY_EXPORT(transform_f64);
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
int64_t lanes<float>() {
  return HWY_DYNAMIC_DISPATCH(lanes_of)(false);
}
template <>
int64_t lanes<double>() {
  return HWY_DYNAMIC_DISPATCH(lanes_of)(true);
}

}  // namespace pyflame::cpu::fft
#endif
