// softmax and log_softmax over the last dim: a workgroup for each row, three passes that the caches serve.
#pragma once

namespace pf {

#ifdef PF_ON_DEVICE
template <class S, bool kLog, int kThreads>
PF_DEVICE void softmax(const S* x, S* y, i64 rows, i64 n, const View& x_rows, i64 x_stride, const View& y_rows,
                       i64 y_stride) {
  using T = C<S>;
  PF_SHARED T shared[kThreads];
  for (i64 r = group().x; r < rows; r += groups().x) {
    const S* from = x + x_rows.at(r);
    S* to = y + y_rows.at(r);
    T top = -1 / T(0);
    for (i64 i = thread(); i < n; i += kThreads) top = maximum<T>(top, load(from + i * x_stride));
    top = over_group<Largest, kThreads>(top, shared);
    T sum = 0;
    for (i64 i = thread(); i < n; i += kThreads) sum += m_exp(load(from + i * x_stride) - top);
    sum = over_group<Sum, kThreads>(sum, shared);
    const T scale = 1 / sum, shift = top + m_log(sum);
    for (i64 i = thread(); i < n; i += kThreads) {
      const T v = load(from + i * x_stride);
      store(to + i * y_stride, kLog ? v - shift : m_exp(v - top) * scale);
    }
  }
}
#endif

}  // namespace pf
