// Weighted sums of adjacent elements along a dim; each element of the result has a thread. A weight of 0 ignores its element, which may be
// infinite: shorter sums are filled up with such taps.
#pragma once

namespace pf {

#ifdef PF_ON_DEVICE

// Each thread computes kEach elements, kThreads apart, so that their loads do not wait for each other.
template <class S, class W, int kThreads, int kEach>
PF_DEVICE void resample(const S* x, const i64* begin, const W* weight, S* y, const ResampleShape& p) {
  const i64 count = p.lines * p.n;
  const bool narrow = count < (i64)1 << 31;
  for (i64 first = (i64)group().x * kThreads * kEach; first < count; first += (i64)groups().x * kThreads * kEach) {
    const S* from[kEach];
    const W* w[kEach];
    i64 to[kEach];
    C<S> sum[kEach];
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      const i64 e = first + k * kThreads + (int)thread();
      const Division at = divided(e < count ? e : first, p.along ? p.n : p.lines, narrow);
      const i64 line = p.along ? at.quotient : at.rest, i = p.along ? at.rest : at.quotient;
      from[k] = x + p.x_lines.at(line, narrow) + begin[i * p.begin_step] * p.x_step;
      w[k] = weight + i * p.taps;
      to[k] = e < count ? p.y_lines.at(line, narrow) + i * p.y_step : -1;
      sum[k] = 0;
    }
    for (i64 t = 0; t < p.taps; ++t)
#pragma unroll
      for (int k = 0; k < kEach; ++k) {
        const W factor = w[k][t];
        const C<S> value = load(from[k] + t * p.x_step);
        if (factor != 0) sum[k] += (C<S>)factor * value;
      }
#pragma unroll
    for (int k = 0; k < kEach; ++k)
      if (to[k] >= 0) store(y + to[k], sum[k]);
  }
}

#endif

}  // namespace pf
