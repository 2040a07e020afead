// cross_entropy on class indices, and its gradient; each reads the logits once. Threads read aligned vectors of 16
// bytes wherever a row begins. Elements in front of the first aligned address and behind the last one are read one by
// one. Ignored rows give 0 and are not read.
#pragma once

namespace pf {

#ifdef PF_ON_DEVICE

// A row of n elements as `head` single elements, `whole` vectors, and single elements at the end.
template <int kVec>
struct RowParts {
  i64 head, whole, singles;
  template <class S>
  PF_DEVICE RowParts(const S* row, i64 n) {
    const i64 past = (i64)((u64)row / sizeof(S) % kVec);
    head = past == 0 ? 0 : kVec - past;
    if (head > n) head = n;
    whole = (n - head) / kVec;
    singles = n - whole * kVec;
  }
  PF_DEVICE i64 single(i64 i) const { return i < head ? i : whole * kVec + i; }
  PF_DEVICE i64 vector(i64 i) const { return head + i * kVec; }
};

// A running sum of exp(x - top), where top is the largest x so far.
template <class T>
struct ExpSum {
  T top = -1 / T(0), sum = 0;
  template <class S, int kVec>
  PF_DEVICE void add(const Vec<S, kVec>& raw) {
    T x[kVec], higher = top;
#pragma unroll
    for (int k = 0; k < kVec; ++k) x[k] = load(&raw[k]), higher = Higher::of(higher, x[k]);
    if (higher != top) sum *= m_exp(top - higher);
    top = higher;
    const T shift = top == -1 / T(0) ? (T)0 : top;  // if all values so far are -inf, nothing is added
#pragma unroll
    for (int k = 0; k < kVec; ++k) sum += m_exp(x[k] - shift);
  }
};

// kLanes threads per row. kVec 1: the elements of a row may have any stride.
template <class S, int kThreads, int kLanes, int kVec>
PF_DEVICE void cross_entropy(const S* x, const i64* target, C<S>* loss, C<S>* tops, C<S>* log_sums,
                             const CrossEntropyShape& p) {
  using T = C<S>;
  PF_SHARED T shared[kLanes == kThreads ? kThreads : 1];
  constexpr int kTogether = kThreads / kLanes, kUnroll = sizeof(S) == 8 ? 1 : kVec == 1 ? 8 : 4;
  const i64 step = kVec == 1 ? p.x_step : 1;
  const int lane_of_row = (int)thread() % kLanes;
  const T s = (T)p.smoothing;
  for (i64 first = (i64)group().x * kTogether; first < p.rows; first += (i64)groups().x * kTogether) {
    const i64 row = first + (int)thread() / kLanes;
    const bool there = row < p.rows;
    const i64 t = there ? class_of(target[row * p.target_step], p, lane_of_row == 0) : -1;
    const S* from = x + (t < 0 ? 0 : p.x_rows.at(row));
    const RowParts<kVec> parts(from, t < 0 ? 0 : p.classes);
    ExpSum<T> own;
    for (i64 i = lane_of_row; i < parts.singles; i += kLanes) own.add(load_vec<1>(from + parts.single(i) * step));
    i64 i = lane_of_row;
    for (; kUnroll > 1 && i + (kUnroll - 1) * kLanes < parts.whole; i += kUnroll * kLanes) {
      Vec<S, kVec> raw[kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) raw[u] = load_vec<kVec>(from + parts.vector(i + u * kLanes) * step);
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) own.add(raw[u]);
    }
    for (; i < parts.whole; i += kLanes) own.add(load_vec<kVec>(from + parts.vector(i) * step));
    const T top = over_row<Higher, kThreads, kLanes>(own.top, shared);
    const T sum = over_row<Sum, kThreads, kLanes>(own.top == top ? own.sum : own.sum * m_exp(own.top - top), shared);
    T less = 0;
    if (s != 0) {  // the same for all threads
      for (i64 c = lane_of_row; t >= 0 && c < p.classes; c += kLanes) less += load(from + c * step) - top;
      less = over_row<Sum, kThreads, kLanes>(less, shared);
    }
    const int me =
        // Computed again, because keeping the lane masks since the start of the row would use up the scalar registers.
        opaque((int)thread());
    if (me % kLanes != 0 || first + me / kLanes >= p.rows) continue;
    T value = 0, log_sum = 0;
    if (t >= 0) {
      log_sum = m_log(sum);
      value = (1 - s) * (log_sum - (load(from + t * step) - top));
      if (s != 0) value += s * (log_sum - less / (T)p.classes);
    }
    loss[row] = value;
    tops[row] = t < 0 ? (T)0 : top;
    log_sums[row] = log_sum;
  }
}

// Computes the gradient of a row from its logits.
template <class T>
struct LogitsGrad {
  T g, top, log_sum, share, of_target;
  i64 t;  // -1: the row is ignored
  template <class S, int kVec>
  PF_DEVICE void write(Vec<S, kVec> v, S* row, i64 begin) const {
#pragma unroll
    for (int k = 0; k < kVec; ++k) {
      const T p = m_exp((load(&v[k]) - top) - log_sum);
      store(&v[k], t < 0 ? (T)0 : g * (p - (begin + k == t ? of_target : share)));
    }
    store_vec(row + begin, v);
  }
};

// The rows of dx are contiguous, and dx may be x itself. kVec > 1: each row of x has the same alignment as that of dx.
template <class S, int kThreads, int kLanes, int kVec>
PF_DEVICE void cross_entropy_grad(const C<S>* grad, const S* x, const i64* target, const C<S>* tops,
                                  const C<S>* log_sums, S* dx, const CrossEntropyShape& p) {
  using T = C<S>;
  constexpr int kTogether = kThreads / kLanes, kUnroll = sizeof(S) == 8 ? 1 : kVec == 1 ? 8 : 2;
  const i64 step = kVec == 1 ? p.x_step : 1;
  const int lane_of_row = (int)thread() % kLanes;
  const T s = (T)p.smoothing, share = s / (T)p.classes;
  for (i64 row = (i64)group().x * kTogether + (int)thread() / kLanes; row < p.rows;
       row += (i64)groups().x * kTogether) {
    const i64 t = class_of(target[row * p.target_step], p, lane_of_row == 0);
    const S* from = x + p.x_rows.at(row);
    S* to = dx + row * p.classes;
    const RowParts<kVec> parts(from, p.classes);
    const LogitsGrad<T> of{t < 0 ? (T)0 : grad[row * p.grad_step], tops[row], log_sums[row], share, share + (1 - s), t};
    for (i64 i = lane_of_row; i < parts.singles; i += kLanes)
      of.write(load_vec<1>(from + parts.single(i) * step), to, parts.single(i));
    i64 i = lane_of_row;
    for (; kUnroll > 1 && i + (kUnroll - 1) * kLanes < parts.whole; i += kUnroll * kLanes) {
      Vec<S, kVec> raw[kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) raw[u] = load_vec<kVec>(from + parts.vector(i + u * kLanes) * step);
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) of.write(raw[u], to, parts.vector(i + u * kLanes));
    }
    for (; i < parts.whole; i += kLanes) of.write(load_vec<kVec>(from + parts.vector(i) * step), to, parts.vector(i));
  }
}

#endif

}  // namespace pf
