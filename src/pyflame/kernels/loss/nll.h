// Negative log likelihood of class indices with label smoothing: (1 - s) * -lp[target] + s / C * sum(-lp). Ignored rows
// give 0. The sum over the classes is read only if the smoothing s, a run-time number, is not 0.
#pragma once

namespace pf {

#ifdef PF_ON_DEVICE

// The class of a row's target; -1: the row is ignored.
template <class Shape>
PF_DEVICE i64 class_of(i64 t, const Shape& p, bool speak) {
  if (t == p.ignore) return -1;
  if (t >= 0 && t < p.classes) return t;
  if (speak && p.fault) raise(p.fault, p.site, kIndexOutOfRange, t, p.classes);
  return -1;
}

// kLanes threads per row.
template <class S, int kThreads, int kLanes>
PF_DEVICE void nll_loss(const S* lp, const i64* target, S* loss, const NllShape& p) {
  using T = C<S>;
  PF_SHARED T shared[kLanes == kThreads ? kThreads : 1];
  constexpr int kTogether = kThreads / kLanes;
  const int i = (int)thread() % kLanes;
  const T s = (T)p.smoothing;
  for (i64 first = (i64)group().x * kTogether; first < p.rows; first += (i64)groups().x * kTogether) {
    const i64 row = first + (int)thread() / kLanes;
    const i64 t = row < p.rows ? class_of(target[row * p.target_step], p, i == 0) : -1;
    const S* from = lp + row * p.lp_row;
    T sum = 0;
    if (s != 0) {  // the same for all threads
      if (t >= 0)
        for (i64 c = i; c < p.classes; c += kLanes) sum += load(from + c * p.lp_step);
      if constexpr (kLanes == kThreads) sum = over_group<Sum, kThreads>(sum, shared);
      else sum = over_lanes<Sum, kLanes>(sum);
    }
    if (i != 0 || row >= p.rows) continue;
    T value = 0;
    if (t >= 0) {
      value = -(1 - s) * load(from + t * p.lp_step);
      if (s != 0) value -= s / (T)p.classes * sum;  // avoids 0 * -inf, which would be NaN
    }
    store(loss + row * p.loss_step, value);
  }
}

// kVec adjacent elements of the output per thread; the rows of the output are contiguous.
template <class S, int kThreads, int kVec>
PF_DEVICE void nll_loss_grad(const S* grad, const i64* target, S* dx, const NllShape& p) {
  using T = C<S>;
  const T s = (T)p.smoothing, share = s / (T)p.classes;
  const i64 all = p.rows * p.classes;
  for (i64 at = ((i64)group().x * kThreads + thread()) * kVec; at < all; at += (i64)groups().x * kThreads * kVec) {
    i64 row = all < ((i64)1 << 31) ? (i64)((u32)at / (u32)p.classes) : at / p.classes;
    i64 c = at - row * p.classes, t = class_of(target[row * p.target_step], p, true);
    T g = t < 0 ? (T)0 : load(grad + row * p.grad_step);
    Vec<S, kVec> v;
#pragma unroll
    for (int k = 0; k < kVec; ++k) {
      if (at + k < all) {
        if (c == p.classes) {
          c = 0, ++row;
          t = class_of(target[row * p.target_step], p, true);
          g = t < 0 ? (T)0 : load(grad + row * p.grad_step);
        }
        T value = t < 0 ? (T)0 : -g * share;
        if (c == t) value -= g * (1 - s);
        store(&v[k], value);
        ++c;
      }
    }
    if (at + kVec <= all) store_vec(dx + at, v);
    else
#pragma unroll
      for (int k = 0; k < kVec; ++k)
        if (at + k < all) dx[at + k] = v[k];
  }
}

#endif

}  // namespace pf
