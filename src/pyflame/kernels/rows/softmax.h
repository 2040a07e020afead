// softmax and log_softmax over the last dim. A row stays in the registers of kLanes threads: part of a wave for short rows, a workgroup for
// longer ones, so memory is read once. Which thread has which element depends on the row's length and dtype alone, not on how wide the
// accesses can be or on the wave, so the bits do not either. Rows too long for that are read twice, the first time with a running maximum.
#pragma once

namespace pf {

struct SoftmaxShape {
  i64 rows, n;
  View x_rows, y_rows;
  i64 x_stride, y_stride;
};

#ifdef PF_ON_DEVICE

// kGroup neighbouring elements from i, of those below n, kAccess at a time (1: any stride).
template <int kGroup, int kAccess, class S>
PF_DEVICE void load_group(const S* from, i64 i, i64 n, i64 stride, Vec<S, kGroup>& to) {
  if constexpr (kAccess == 1) {
#pragma unroll
    for (int j = 0; j < kGroup; ++j)
      if (i + j < n) to[j] = from[(i + j) * stride];
  } else {
#pragma unroll
    for (int j = 0; j < kGroup; j += kAccess) {
      if (i + j >= n) break;
      const Vec<S, kAccess> part = load_vec<kAccess>(from + i + j);
#pragma unroll
      for (int k = 0; k < kAccess; ++k) to[j + k] = part[k];
    }
  }
}
template <int kGroup, int kAccess, class S>
PF_DEVICE void store_group(S* to, i64 i, i64 n, i64 stride, const Vec<S, kGroup>& from) {
  if constexpr (kAccess == 1) {
#pragma unroll
    for (int j = 0; j < kGroup; ++j)
      if (i + j < n) to[(i + j) * stride] = from[j];
  } else {
#pragma unroll
    for (int j = 0; j < kGroup; j += kAccess) {
      if (i + j >= n) break;
      Vec<S, kAccess> part;
#pragma unroll
      for (int k = 0; k < kAccess; ++k) part[k] = from[j + k];
      store_vec(to + i + j, part);
    }
  }
}

template <class Op, int kThreads, int kLanes, class T>
PF_DEVICE T over_row(T x, T* shared) {
  if constexpr (kLanes == kThreads) return over_group<Op, kThreads>(x, shared);
  else if constexpr (kLanes > 1) return over_lanes<Op, kLanes>(x);
  else return x;
}

template <bool kLog, class T>
PF_DEVICE T softmax_of(T x, T top, T scale_or_log) {
  return kLog ? (x - top) - scale_or_log : m_exp(x - top) * scale_or_log;
}

// n <= kLanes * kChunks * kGroup.
template <class S, bool kLog, int kThreads, int kLanes, int kChunks, int kGroup, int kAccess>
PF_DEVICE void softmax(const S* x, S* y, const SoftmaxShape& p) {
  using T = C<S>;
  PF_SHARED T shared[kLanes == kThreads ? kThreads : 1];
  constexpr int kTogether = kThreads / kLanes;
  const int lane_of_row = (int)thread() % kLanes;
  for (i64 first = (i64)group().x * kTogether; first < p.rows; first += (i64)groups().x * kTogether) {
    const i64 row = first + (int)thread() / kLanes;
    const i64 n = row < p.rows ? p.n : 0;
    const S* from = x + (row < p.rows ? p.x_rows.at(row) : 0);
    Vec<S, kGroup> part[kChunks];
#pragma unroll
    for (int c = 0; c < kChunks; ++c)
      load_group<kGroup, kAccess>(from, (i64)(c * kLanes + lane_of_row) * kGroup, n, p.x_stride, part[c]);
    T top = -1 / T(0);
#pragma unroll
    for (int c = 0; c < kChunks; ++c)
#pragma unroll
      for (int j = 0; j < kGroup; ++j)
        if ((c * kLanes + lane_of_row) * kGroup + j < n) top = maximum<T>(top, load(&part[c][j]));
    top = over_row<Largest, kThreads, kLanes>(top, shared);
    T sum = 0;
#pragma unroll
    for (int c = 0; c < kChunks; ++c)
#pragma unroll
      for (int j = 0; j < kGroup; ++j)
        if ((c * kLanes + lane_of_row) * kGroup + j < n) sum += m_exp(load(&part[c][j]) - top);
    sum = over_row<Sum, kThreads, kLanes>(sum, shared);
    const T last = kLog ? m_log(sum) : 1 / sum;
    S* to = y + (row < p.rows ? p.y_rows.at(row) : 0);
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const int i = (c * kLanes + lane_of_row) * kGroup;
#pragma unroll
      for (int j = 0; j < kGroup; ++j)
        if (i + j < n) store(&part[c][j], softmax_of<kLog, T>(load(&part[c][j]), top, last));
      store_group<kGroup, kAccess>(to, i, n, p.y_stride, part[c]);
    }
  }
}

// Any length: a workgroup for each row.
template <class S, bool kLog, int kThreads, int kGroup, int kAccess>
PF_DEVICE void softmax_long(const S* x, S* y, const SoftmaxShape& p) {
  using T = C<S>;
  constexpr int kUnroll = 4;
  PF_SHARED T shared[kThreads];
  for (i64 row = group().x; row < p.rows; row += groups().x) {
    const S* from = x + p.x_rows.at(row);
    S* to = y + p.y_rows.at(row);
    const T none = -1 / T(0);
    T top = none, sum = 0;
    for (i64 begin = (i64)thread() * kGroup; begin < p.n; begin += kThreads * kGroup * kUnroll) {
      Vec<S, kGroup> part[kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u)
        load_group<kGroup, kAccess>(from, begin + u * kThreads * kGroup, p.n, p.x_stride, part[u]);
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        const i64 i = begin + u * kThreads * kGroup;
        T higher = top;
#pragma unroll
        for (int j = 0; j < kGroup; ++j)
          if (i + j < p.n) higher = maximum<T>(higher, load(&part[u][j]));
        if (higher == none) continue;
        sum = top == none ? (T)0 : sum * m_exp(top - higher);
        top = higher;
#pragma unroll
        for (int j = 0; j < kGroup; ++j)
          if (i + j < p.n) sum += m_exp(load(&part[u][j]) - top);
      }
    }
    const T highest = over_group<Largest, kThreads>(top, shared);
    sum = over_group<Sum, kThreads>(top == none ? (T)0 : sum * m_exp(top - highest), shared);
    const T last = kLog ? m_log(sum) : 1 / sum;
    for (i64 begin = (i64)thread() * kGroup; begin < p.n; begin += kThreads * kGroup * kUnroll) {
      Vec<S, kGroup> part[kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u)
        load_group<kGroup, kAccess>(from, begin + u * kThreads * kGroup, p.n, p.x_stride, part[u]);
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        const i64 i = begin + u * kThreads * kGroup;
#pragma unroll
        for (int j = 0; j < kGroup; ++j)
          if (i + j < p.n) store(&part[u][j], softmax_of<kLog, T>(load(&part[u][j]), highest, last));
        store_group<kGroup, kAccess>(to, i, p.n, p.y_stride, part[u]);
      }
    }
  }
}
#endif

}  // namespace pf
