// Fourier transforms. A workgroup transforms one line in shared memory by Stockham's algorithm: in each pass a thread
// reads its elements into registers, waits for all others, and writes the results in their new order. A line that is too
// long is a matrix: its columns are transformed and multiplied with factors, then its rows. Lengths with a large prime
// factor are a convolution (Bluestein's algorithm) of a length without one.
#pragma once

namespace pf {

#ifdef PF_ON_DEVICE

enum FftKind { kFftComplex = 0, kFftFromReal = 1, kFftToReal = 2 };
enum FftRole { kFftWhole = 0, kFftColumns = 1, kFftRows = 2 };

template <class T>
struct Pair {
  T re, im;
};
template <class T>
PF_DEVICE Pair<T> times(Pair<T> a, Pair<T> b) {
  return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
PF_DEVICE Pair<float> root_at(float half_turns) { return {m_cospi(half_turns), m_sinpi(half_turns)}; }
PF_DEVICE Pair<double> root_at(double half_turns) {
  const double angle = 3.14159265358979323846 * half_turns;
  return {m_cos(angle), m_sin(angle)};
}
// exp(-2 pi i k / n), 0 <= k < n <= 2^26. Whole quarter turns are taken off first, in integers: so the angle is at most an eighth of a turn and
// is rounded relative to that.
template <class T>
PF_DEVICE Pair<T> unit_root(i64 k, i64 n, T) {
  const u32 quarters = (4 * (u32)k + (u32)n / 2) / (u32)n;
  const T half_turns = T(0.5) * ((T)((int)(4 * (u32)k) - (int)(quarters * (u32)n)) / (T)n);
  const Pair<T> a = root_at(half_turns);
  switch (quarters & 3) {
    case 0: return {a.re, -a.im};
    case 1: return {-a.im, -a.re};
    case 2: return {-a.re, a.im};
    default: return {a.im, a.re};
  }
}

// The transform of R elements. Four, two and three have formulas; others are sums over a table that the compiler folds.
template <int R, class T>
PF_DEVICE void small_dft(Pair<T>* a) {
  if constexpr (R == 2) {
    const Pair<T> x = a[1];
    a[1] = {a[0].re - x.re, a[0].im - x.im};
    a[0] = {a[0].re + x.re, a[0].im + x.im};
  } else if constexpr (R == 4) {
    const Pair<T> p = {a[0].re + a[2].re, a[0].im + a[2].im}, q = {a[0].re - a[2].re, a[0].im - a[2].im};
    const Pair<T> r = {a[1].re + a[3].re, a[1].im + a[3].im}, s = {a[1].re - a[3].re, a[1].im - a[3].im};
    a[0] = {p.re + r.re, p.im + r.im};
    a[2] = {p.re - r.re, p.im - r.im};
    a[1] = {q.re + s.im, q.im - s.re};
    a[3] = {q.re - s.im, q.im + s.re};
  } else {
    Pair<T> w[R], y[R];
#pragma unroll
    for (int k = 0; k < R; ++k) w[k] = unit_root(k, R, T(0));
#pragma unroll
    for (int j = 0; j < R; ++j) {
      y[j] = a[0];
#pragma unroll
      for (int k = 1; k < R; ++k) {
        const Pair<T> t = times(a[k], w[j * k % R]);
        y[j] = {y[j].re + t.re, y[j].im + t.im};
      }
    }
#pragma unroll
    for (int j = 0; j < R; ++j) a[j] = y[j];
  }
}

// N elements in groups of S neighbours, transformed by R.
template <int R, int N, int S, int kThreads, class T>
PF_DEVICE void fft_pass(T* re, T* im) {
  constexpr int kTotal = N / R, kEach = (kTotal + kThreads - 1) / kThreads;
  Pair<T> a[kEach][R];
  const int t = (int)thread();
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    const int i = t + e * kThreads;
    if (i < kTotal)
#pragma unroll
      for (int k = 0; k < R; ++k) a[e][k] = {re[i + kTotal * k], im[i + kTotal * k]};
  }
  barrier();
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    const int i = t + e * kThreads, p = i / S, q = i % S;
    if (i < kTotal) {
      small_dft<R, T>(a[e]);
#pragma unroll
      for (int k = 0; k < R; ++k) {
        if (k > 0 && N > R * S) a[e][k] = times(a[e][k], unit_root((i64)p * k, N / S, T(0)));
        const int to = q + S * (R * p + k);
        re[to] = a[e][k].re, im[to] = a[e][k].im;
      }
    }
  }
  barrier();
}

// Element j of a line of the whole transform; the parts exchanged for the inverse.
template <class T, int kKind, bool kInverse>
PF_DEVICE Pair<T> fft_input(const T* x, const FftShape& s, i64 j) {
  if (kKind == kFftFromReal) return {x[j * s.step], T(0)};
  const bool mirrored = kKind == kFftToReal && 2 * j > s.n;
  const T* from = x + (mirrored ? s.n - j : j) * s.step;
  const bool alone = kKind == kFftToReal && (j == 0 || 2 * j == s.n);
  const T re = from[0], im = alone ? T(0) : mirrored ? -from[s.part] : from[s.part];
  return kInverse ? Pair<T>{im, re} : Pair<T>{re, im};
}
template <class T, int kKind, bool kInverse>
PF_DEVICE void fft_output(T* y, const FftShape& s, i64 line, i64 k, Pair<T> a) {
  const T re = (kInverse ? a.im : a.re) * (T)s.scale, im = (kInverse ? a.re : a.im) * (T)s.scale;
  if (kKind == kFftToReal) {
    y[line * s.n + k] = re;
    return;
  }
  const i64 kept = kKind == kFftFromReal ? s.n / 2 + 1 : s.n;
  if (k >= kept) return;
  y[2 * (line * kept + k)] = re, y[2 * (line * kept + k) + 1] = im;
}

// Fills shared memory with a line, calls `passes`, and writes the results. `room` is between columns and rows.
template <class T, int N, int kRole, int kKind, bool kInverse, int kThreads, class F>
PF_DEVICE void fft_line(const T* x, T* y, T* room, const FftShape& s, T* re, T* im, F passes) {
  const i64 g = group().x + (i64)group().y * groups().x;
  const i64 along = kRole == kFftColumns ? s.columns : kRole == kFftRows ? s.rows : 1;
  if (g >= s.lines * along) return;  // the whole workgroup
  const i64 line = g / along, at = g % along;
  const T* const from = x + s.x_lines.at(line);
  for (int i = (int)thread(); i < N; i += kThreads) {
    Pair<T> a;
    if (kRole == kFftRows) {
      const T* const p = room + 2 * (line * s.n + at * s.columns + i);
      a = {p[0], p[1]};
    } else {
      a = fft_input<T, kKind, kInverse>(from, s, kRole == kFftColumns ? i * s.columns + at : i);
    }
    re[i] = a.re, im[i] = a.im;
  }
  barrier();
  passes();
  for (int i = (int)thread(); i < N; i += kThreads) {
    Pair<T> a = {re[i], im[i]};
    if (kRole == kFftColumns) {
      a = times(a, unit_root((i64)i * at, s.n, T(0)));
      T* const p = room + 2 * (line * s.n + i * s.columns + at);
      p[0] = a.re, p[1] = a.im;
    } else {
      fft_output<T, kKind, kInverse>(y, s, line, kRole == kFftRows ? at + s.rows * i : i, a);
    }
  }
}

// Each element of a result that a library has written.
template <class T>
PF_DEVICE void fft_scale(T* y, i64 count, double scale) {
  const i64 i = (group().x + (i64)group().y * groups().x) * threads() + thread();
  if (i < count) y[i] *= (T)scale;
}

// --- Bluestein's algorithm: n elements, padded to s.padded

// exp(-i pi k^2 / n)
template <class T>
PF_DEVICE Pair<T> chirp(i64 k, i64 n) {
  return unit_root((i64)((u64)k * (u64)k % (u64)(2 * n)), 2 * n, T(0));
}
// The line times the chirp, then zeros; and as the last line the conjugate chirp around 0.
template <class T, int kKind, bool kInverse>
PF_DEVICE void chirp_in(const T* x, T* out, const FftShape& s) {
  const i64 i = (group().x + (i64)group().y * groups().x) * threads() + thread();
  if (i >= (s.lines + 1) * s.padded) return;
  const i64 line = i / s.padded, k = i % s.padded;
  Pair<T> a = {T(0), T(0)};
  if (line == s.lines) {
    const i64 from = 2 * k > s.padded ? s.padded - k : k;
    if (from < s.n) {
      a = chirp<T>(from, s.n);
      a.im = -a.im;
    }
  } else if (k < s.n) {
    a = times(fft_input<T, kKind, kInverse>(x + s.x_lines.at(line), s, k), chirp<T>(k, s.n));
  }
  out[2 * i] = a.re, out[2 * i + 1] = a.im;
}
// Each line times the last one.
template <class T>
PF_DEVICE void chirp_multiply(T* out, const FftShape& s) {
  const i64 i = (group().x + (i64)group().y * groups().x) * threads() + thread();
  if (i >= s.lines * s.padded) return;
  const i64 k = s.lines * s.padded + i % s.padded;
  const Pair<T> a = times(Pair<T>{out[2 * i], out[2 * i + 1]}, Pair<T>{out[2 * k], out[2 * k + 1]});
  out[2 * i] = a.re, out[2 * i + 1] = a.im;
}
template <class T, int kKind, bool kInverse>
PF_DEVICE void chirp_out(const T* in, T* y, const FftShape& s) {
  const i64 i = (group().x + (i64)group().y * groups().x) * threads() + thread();
  if (i >= s.lines * s.n) return;
  const i64 line = i / s.n, k = i % s.n, at = 2 * (line * s.padded + k);
  fft_output<T, kKind, kInverse>(y, s, line, k, times(Pair<T>{in[at], in[at + 1]}, chirp<T>(k, s.n)));
}

#endif

}  // namespace pf
