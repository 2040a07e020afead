// softmax and log_softmax over the last dim. A row stays in the registers of kLanes threads, a part of a wave for short
// rows and a workgroup for longer ones, so memory is read once. Which thread has which element depends on the row's
// length and dtype alone, not on the width of accesses or on the wave, so the bits do not depend on those either. Rows
// that are too long are read twice, the first time with a running maximum.
#pragma once

namespace pf {

#ifdef PF_ON_DEVICE

// kGroup adjacent elements from i on, kAccess at a time (1: any stride). Elements from n on are `rest`; n is a multiple
// of kAccess.
template <int kGroup, int kAccess, class S>
PF_DEVICE void load_group(const S* from, int i, int n, i64 stride, C<S> rest, C<S> (&to)[kGroup]) {
#pragma unroll
  for (int j = 0; j < kGroup; j += kAccess) {
    const bool there = i + j < n;
    // Initialized, so that each load has its own registers and does not wait for another one.
    Vec<S, kAccess> part = {};
    if constexpr (kAccess == 1) {
      if (there) part[0] = from[(i + j) * stride];
    } else {
      if (there) part = load_vec<kAccess>(from + i + j);
    }
#pragma unroll
    for (int k = 0; k < kAccess; ++k) to[j + k] = there ? load(&part[k]) : rest;
  }
}
template <int kGroup, int kAccess, class S>
PF_DEVICE void store_group(S* to, int i, int n, i64 stride, const C<S> (&from)[kGroup]) {
#pragma unroll
  for (int j = 0; j < kGroup; j += kAccess) {
    if (i + j >= n) break;
    Vec<S, kAccess> part;
#pragma unroll
    for (int k = 0; k < kAccess; ++k) store(&part[k], from[j + k]);
    if constexpr (kAccess == 1) to[(i + j) * stride] = part[0];
    else store_vec(to + i + j, part);
  }
}

// A NaN need not win: it reaches the result through the sum.
struct Higher {
  static PF_DEVICE float of(float a, float b) { return fmaxf(a, b); }
  static PF_DEVICE double of(double a, double b) { return ::fmax(a, b); }
};

template <class Op, int kThreads, int kLanes, class T>
PF_DEVICE T over_row(T x, T* shared) {
  if constexpr (kLanes == kThreads) return over_group<Op, kThreads>(x, shared);
  else if constexpr (kLanes > 1) return over_lanes<Op, kLanes>(x);
  else return x;
}

// n <= kLanes * kChunks * kGroup. Positions beyond the row hold -inf, which adds 0 to the sum.
template <class S, bool kLog, int kThreads, int kLanes, int kChunks, int kGroup, int kAccess>
PF_DEVICE void softmax(const S* x, S* y, const SoftmaxShape& p) {
  using T = C<S>;
  PF_SHARED T shared[kLanes == kThreads ? kThreads : 1];
  constexpr int kTogether = kThreads / kLanes;
  const int begin = (int)thread() % kLanes * kGroup;
  const T none = -1 / T(0);
  const i64 row = (group().x + (i64)group().y * groups().x) * kTogether + (int)thread() / kLanes;
  const bool there = row < p.rows;
  if (kTogether == 1 && !there) return;
  const int n = there ? (int)p.n : 0;
  const S* from = x + (there ? p.x_rows.at(row) : 0);
  T part[kChunks][kGroup];
#pragma unroll
  for (int c = 0; c < kChunks; ++c)
    load_group<kGroup, kAccess>(from, begin + c * kLanes * kGroup, n, p.x_stride, none, part[c]);
  T top = none;
#pragma unroll
  for (int c = 0; c < kChunks; ++c)
#pragma unroll
    for (int j = 0; j < kGroup; ++j) top = Higher::of(top, part[c][j]);
  top = over_row<Higher, kThreads, kLanes>(top, shared);
  T sum = 0;
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
#pragma unroll
    for (int j = 0; j < kGroup; ++j) {
      const T less = part[c][j] - top, e = m_exp(less);
      sum += e;
      part[c][j] = kLog ? less : e;
    }
    // Each exponential holds two lane masks in scalar registers, so not all of them should be computed at once.
    schedule_barrier();
  }
  sum = over_row<Sum, kThreads, kLanes>(sum, shared);
  const T last = kLog ? m_log(sum) : 1 / sum;
  S* to = y + (there ? p.y_rows.at(row) : 0);
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
#pragma unroll
    for (int j = 0; j < kGroup; ++j) part[c][j] = kLog ? part[c][j] - last : part[c][j] * last;
    store_group<kGroup, kAccess>(to, begin + c * kLanes * kGroup, n, p.y_stride, part[c]);
  }
}

// Any length: a workgroup per row. Each thread has its own running maximum until the end of the first pass.
template <class S, bool kLog, int kThreads, int kGroup, int kAccess>
PF_DEVICE void softmax_long(const S* x, S* y, const SoftmaxShape& p) {
  using T = C<S>;
  constexpr int kUnroll = kGroup == 1 ? 8 : 4, kRound = kThreads * kGroup * kUnroll;
  PF_SHARED T shared[kThreads];
  const int begin = (int)thread() * kGroup;
  const T none = -1 / T(0);
  const i64 row = group().x + (i64)group().y * groups().x;
  if (row >= p.rows) return;
  const S* from = x + p.x_rows.at(row);
  S* to = y + p.y_rows.at(row);
  T top = none, sum = 0;
  for (i64 round = 0; round < p.n; round += kRound) {
    const int n = (int)(p.n - round < kRound ? p.n - round : kRound);
    T part[kUnroll][kGroup];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u)
      load_group<kGroup, kAccess>(from + round * p.x_stride, begin + u * kThreads * kGroup, n, p.x_stride, none,
                                  part[u]);
    T higher = top;
#pragma unroll
    for (int u = 0; u < kUnroll; ++u)
#pragma unroll
      for (int j = 0; j < kGroup; ++j) higher = Higher::of(higher, part[u][j]);
    sum = top == higher ? sum : sum * m_exp(top - higher);
    top = higher;
    const T shift = top == none ? (T)0 : top;  // if all values so far are -inf, nothing is added
#pragma unroll
    for (int u = 0; u < kUnroll; ++u)
#pragma unroll
      for (int j = 0; j < kGroup; ++j) sum += m_exp(part[u][j] - shift);
  }
  const T highest = over_group<Higher, kThreads>(top, shared);
  sum = over_group<Sum, kThreads>(top == highest ? sum : sum * m_exp(top - highest), shared);
  const T last = kLog ? m_log(sum) : 1 / sum;
  for (i64 round = 0; round < p.n; round += kRound) {
    const int n = (int)(p.n - round < kRound ? p.n - round : kRound);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      T part[kGroup];
      load_group<kGroup, kAccess>(from + round * p.x_stride, begin + u * kThreads * kGroup, n, p.x_stride, none, part);
#pragma unroll
      for (int j = 0; j < kGroup; ++j) part[j] = kLog ? (part[j] - highest) - last : m_exp(part[j] - highest) * last;
      store_group<kGroup, kAccess>(to + round * p.y_stride, begin + u * kThreads * kGroup, n, p.y_stride, part);
    }
  }
}
#endif

}  // namespace pf
