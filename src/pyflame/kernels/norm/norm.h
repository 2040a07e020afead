// layer_norm, rms_norm (the same without the mean) and their gradients. x is [rows, n].
//
// Rows that are short enough are kept in registers and read once, with kPart threads per row and kVecs vectors of 16
// bytes per thread. Longer rows, and rows with strides, are read again in each pass. Gradients of weight and bias are
// summed in two stages: first within slices of rows, then over the slices. The order of both depends on the shape
// alone.
#pragma once

namespace pf {

#ifdef PF_ON_DEVICE

// Combines over each kPart of the workgroup's kThreads threads. All threads of the workgroup must call this.
template <class Op, int kPart, int kThreads, class T>
PF_DEVICE T over_part(T x, T* shared) {
  if constexpr (kPart > kWave) {
    const int t = (int)thread() % kPart;
    shared[thread()] = x;
    barrier();
    for (int step = kPart / 2; step >= kWave; step >>= 1) {
      if (t < step) shared[thread()] = Op::of(shared[thread()], shared[thread() + step]);
      barrier();
    }
    x = shared[(int)thread() / kPart * kPart + lane()];
    barrier();
  }
  return over_lanes<Op, (kPart < kWave ? kPart : kWave)>(x);
}

// Loads the elements; zeros beyond the end.
template <class S, int N>
PF_DEVICE void load_wide(C<S> (&v)[N], const S* p, bool inside) {
  Vec<S, N> x = {};  // initialized, so that each load has its own registers and does not wait for another one
  if (inside) x = load_vec<N>(p);
  for (int j = 0; j < N; ++j) v[j] = load(&x[j]);
}
template <class S, int N>
PF_DEVICE void store_wide(S* p, const C<S> (&v)[N]) {
  Vec<S, N> x;
  for (int j = 0; j < N; ++j) store(&x[j], v[j]);
  store_vec(p, x);
}

template <class S, int kThreads, int kPart, int kVecs, bool kCentered, bool kWeight, bool kBias>
PF_DEVICE void norm_rows(const S* x, const S* w, const S* b, S* y, C<S>* means, C<S>* rstds, const NormRows& a,
                         double eps) {
  using T = C<S>;
  constexpr int N = 16 / sizeof(S), kRows = kThreads / kPart;
  PF_SHARED T shared[kThreads];
  const int t = (int)thread() % kPart;
  for (i64 first = (i64)group().x * kRows; first < a.rows; first += (i64)groups().x * kRows) {
    const i64 r = first + (int)thread() / kPart;
    const bool here = r < a.rows;
    T v[kVecs][N], sum = 0;
#pragma unroll
    for (int k = 0; k < kVecs; ++k) {
      const int i = (k * kPart + t) * N;
      load_wide(v[k], x + r * a.x_row + i, here && i < a.n);
      for (int j = 0; j < N; ++j) sum += v[k][j];
    }
    const T mean = kCentered ? over_part<Sum, kPart, kThreads>(sum, shared) / (T)a.n : (T)0;
    T squares = 0;
#pragma unroll
    for (int k = 0; k < kVecs; ++k) {
      if ((k * kPart + t) * N < a.n)
        for (int j = 0; j < N; ++j) squares += (v[k][j] - mean) * (v[k][j] - mean);
    }
    const T rstd = 1 / m_sqrt(over_part<Sum, kPart, kThreads>(squares, shared) / (T)a.n + (T)eps);
    if (!here) continue;
    if (t == 0) {
      if (kCentered) means[r] = mean;
      rstds[r] = rstd;
    }
#pragma unroll
    for (int k = 0; k < kVecs; ++k) {
      const int i = (k * kPart + t) * N;
      if (i >= a.n) continue;
      T weight[N], bias[N];
      if (kWeight) load_wide(weight, w + i, true);
      if (kBias) load_wide(bias, b + i, true);
      for (int j = 0; j < N; ++j) {
        T out = (v[k][j] - mean) * rstd;
        if (kWeight) out = out * weight[j];
        if (kBias) out = out + bias[j];
        v[k][j] = out;
      }
      store_wide(y + r * a.n + i, v[k]);
    }
  }
}

template <class S, int kThreads, bool kCentered, bool kWeight, bool kBias>
PF_DEVICE void norm_any(const S* x, const S* w, const S* b, S* y, C<S>* means, C<S>* rstds, const NormRows& a,
                        double eps) {
  using T = C<S>;
  PF_SHARED T shared[kThreads];
  for (i64 r = group().x; r < a.rows; r += groups().x) {
    const S* from = x + r * a.x_row;
    T mean = 0;
    if (kCentered) {
      for (i64 i = thread(); i < a.n; i += kThreads) mean += load(from + i * a.x_step);
      mean = over_group<Sum, kThreads>(mean, shared) / (T)a.n;
    }
    T squares = 0;
    for (i64 i = thread(); i < a.n; i += kThreads) {
      const T c = load(from + i * a.x_step) - mean;
      squares += c * c;
    }
    const T rstd = 1 / m_sqrt(over_group<Sum, kThreads>(squares, shared) / (T)a.n + (T)eps);
    if (thread() == 0) {
      if (kCentered) means[r] = mean;
      rstds[r] = rstd;
    }
    for (i64 i = thread(); i < a.n; i += kThreads) {
      T out = (load(from + i * a.x_step) - mean) * rstd;
      if (kWeight) out = out * load(w + i * a.w_step);
      if (kBias) out = out + load(b + i * a.b_step);
      store(y + r * a.n + i, out);
    }
  }
}

// to[i] = the sum of v over the parts of the workgroup, for the columns i of its k-th vectors. All threads of the
// workgroup must call this.
template <int kThreads, int kPart, class T, int N>
PF_DEVICE void sum_parts(const T (&v)[N], T* to, int k, i64 n) {
  constexpr int kColumns = kPart * N, kParts = kThreads / kPart;
  PF_SHARED T values[kThreads * N];
  for (int j = 0; j < N; ++j) values[(int)thread() * N + j] = v[j];
  barrier();
  for (int c = (int)thread(); c < kColumns; c += kThreads) {
    T sum = values[c];
    for (int p = 1; p < kParts; ++p) sum += values[p * kColumns + c];
    if (k * kColumns + c < n) to[k * kColumns + c] = sum;
  }
  barrier();
}

// Combines two sums over a part at once, with half the barriers.
template <int kPart, class T>
PF_DEVICE void sums_over_part(T& x, T& y, T* shared) {
  constexpr int kLanes = kPart < kWave ? kPart : kWave, kWaves = kPart / kLanes;
  x = over_lanes<Sum, kLanes>(x), y = over_lanes<Sum, kLanes>(y);
  if constexpr (kWaves > 1) {
    const int wave = (int)thread() / kWave, first = wave / kWaves * kWaves;
    if (lane() == 0) shared[2 * wave] = x, shared[2 * wave + 1] = y;
    barrier();
    x = shared[2 * first], y = shared[2 * first + 1];
    for (int i = 1; i < kWaves; ++i) x += shared[2 * (first + i)], y += shared[2 * (first + i) + 1];
    barrier();
  }
}

// Computes dx, and for each workgroup the sums of its rows: totals is [2 (weight, bias)][groups][n]. A short row is
// loaded whole before it is used, so that all its loads run at once; longer rows do not fit the registers.
template <class S, int kThreads, int kPart, int kVecs, bool kCentered, bool kWeight, bool kTotals>
PF_DEVICE void norm_grad_rows(const S* g, const S* x, const C<S>* means, const C<S>* rstds, const S* w, S* dx,
                              C<S>* totals, const NormRows& a) {
  using T = C<S>;
  constexpr int N = 16 / sizeof(S), kRows = kThreads / kPart;
  constexpr bool kWhole = kVecs <= 2;
  PF_SHARED T shared[kThreads];
  const int t = (int)thread() % kPart, part = (int)thread() / kPart;
  T dw[kVecs][N], db[kVecs][N];
#pragma unroll
  for (int k = 0; k < kVecs; ++k)
    for (int j = 0; j < N; ++j) dw[k][j] = db[k][j] = 0;
  for (i64 first = (i64)group().x * kRows; first < a.rows; first += (i64)groups().x * kRows) {
    const i64 r = first + part;
    const bool here = r < a.rows;
    const T mean = kCentered && here ? means[r] : (T)0, rstd = here ? rstds[r] : (T)0;
    Vec<S, N> gs[kWhole ? kVecs : 1], xs[kWhole ? kVecs : 1];
#pragma unroll
    for (int k = 0; kWhole && k < kVecs; ++k) {
      const int i = (k * kPart + t) * N;
      if (!here || i >= a.n) continue;
      gs[k] = load_vec<N>(g + r * a.g_row + i);
      xs[k] = load_vec<N>(x + r * a.x_row + i);
    }
    T h[kVecs][N], q[kVecs][N], sum_q = 0, sum_qh = 0;
#pragma unroll
    for (int k = 0; k < kVecs; ++k) {
      const int i = (k * kPart + t) * N;
      const bool inside = here && i < a.n;
      T weight[N];
      if (kWeight) load_wide(weight, w + i, inside);
      if (!kWhole) load_wide(q[k], g + r * a.g_row + i, inside), load_wide(h[k], x + r * a.x_row + i, inside);
      for (int j = 0; j < N; ++j) {
        if (kWhole) q[k][j] = inside ? load(&gs[k][j]) : (T)0, h[k][j] = load(&xs[k][j]);
        h[k][j] = inside ? (h[k][j] - mean) * rstd : (T)0;
        if (kTotals) {
          dw[k][j] += q[k][j] * h[k][j];
          db[k][j] += q[k][j];
        }
        if (kWeight) q[k][j] = q[k][j] * weight[j];
        sum_q += q[k][j];
        sum_qh += q[k][j] * h[k][j];
      }
    }
    sums_over_part<kPart>(sum_q, sum_qh, shared);
    const T mean_q = kCentered ? sum_q / (T)a.n : (T)0, mean_qh = sum_qh / (T)a.n;
    if (!here) continue;
#pragma unroll
    for (int k = 0; k < kVecs; ++k) {
      const int i = (k * kPart + t) * N;
      if (i >= a.n) continue;
      for (int j = 0; j < N; ++j) q[k][j] = rstd * (q[k][j] - mean_q - h[k][j] * mean_qh);
      store_wide(dx + r * a.n + i, q[k]);
    }
  }
  if constexpr (kTotals) {
    const i64 at = (i64)group().x * a.n;
#pragma unroll
    for (int k = 0; k < kVecs; ++k) {
      sum_parts<kThreads, kPart>(dw[k], totals + at, k, a.n);
      if (kCentered) sum_parts<kThreads, kPart>(db[k], totals + groups().x * a.n + at, k, a.n);
    }
  }
}

template <class S, int kThreads, bool kCentered, bool kWeight>
PF_DEVICE void norm_grad_any(const S* g, const S* x, const C<S>* means, const C<S>* rstds, const S* w, S* dx,
                             const NormRows& a) {
  using T = C<S>;
  PF_SHARED T shared[kThreads];
  for (i64 r = group().x; r < a.rows; r += groups().x) {
    const T mean = kCentered ? means[r] : (T)0, rstd = rstds[r];
    T sum_q = 0, sum_qh = 0;
    const auto q_at = [&](i64 i) {
      const T q = load(g + r * a.g_row + i * a.g_step);
      return kWeight ? q * load(w + i * a.w_step) : q;
    };
    const auto h_at = [&](i64 i) { return (load(x + r * a.x_row + i * a.x_step) - mean) * rstd; };
    for (i64 i = thread(); i < a.n; i += kThreads) {
      const T q = q_at(i);
      sum_q += q;
      sum_qh += q * h_at(i);
    }
    const T mean_q = kCentered ? over_group<Sum, kThreads>(sum_q, shared) / (T)a.n : (T)0;
    const T mean_qh = over_group<Sum, kThreads>(sum_qh, shared) / (T)a.n;
    for (i64 i = thread(); i < a.n; i += kThreads)
      store(dx + r * a.n + i, rstd * (q_at(i) - mean_q - h_at(i) * mean_qh));
  }
}
// Sums of slices of rows, for any strides: workgroup (x, y) has kThreads columns of slice y.
template <class S, int kThreads, bool kCentered>
PF_DEVICE void norm_slice_totals(const S* g, const S* x, const C<S>* means, const C<S>* rstds, C<S>* totals,
                                 const NormRows& a) {
  using T = C<S>;
  const i64 slices = groups().y, slice = group().y;
  for (i64 i = (i64)group().x * kThreads + thread(); i < a.n; i += (i64)groups().x * kThreads) {
    T dw = 0, db = 0;
    for (i64 r = slice; r < a.rows; r += slices) {
      const T grad = load(g + r * a.g_row + i * a.g_step), mean = kCentered ? means[r] : (T)0;
      dw += grad * ((load(x + r * a.x_row + i * a.x_step) - mean) * rstds[r]);
      db += grad;
    }
    totals[slice * a.n + i] = dw;
    if (kCentered) totals[(slices + slice) * a.n + i] = db;
  }
}

// out[c][i] = the sum of totals[c][0..slices)[i]. A workgroup has kColumns columns, and its other threads share the
// slices. Grid: (columns, outputs).
template <class S, int kThreads, int kColumns>
PF_DEVICE void sum_slices(const C<S>* totals, S* dw, S* db, i64 slices, i64 n) {
  using T = C<S>;
  constexpr int kSlices = kThreads / kColumns;
  PF_SHARED T shared[kThreads];
  const int column = (int)thread() % kColumns, own = (int)thread() / kColumns;
  S* out = group().y == 0 ? dw : db;
  const i64 i = (i64)group().x * kColumns + column;
  const T* from = totals + group().y * slices * n;
  T sum = 0;
  if (i < n)
    for (i64 s = own; s < slices; s += kSlices) sum += from[s * n + i];
  shared[thread()] = sum;
  barrier();
  for (int step = kSlices / 2; step > 0; step >>= 1) {
    if (own < step) shared[thread()] += shared[thread() + step * kColumns];
    barrier();
  }
  if (own == 0 && i < n) store(out + i, shared[column]);
}
#endif

}  // namespace pf
