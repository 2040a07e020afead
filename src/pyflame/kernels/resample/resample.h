// Weighted sums of adjacent elements along a dim; each element of the result has a thread. A weight of 0 ignores its element, which may be
// infinite: shorter sums are filled up with such taps.
#pragma once

namespace pf {

#ifdef PF_ON_DEVICE

template <class S, class W>
PF_DEVICE void resample(const S* x, const i64* begin, const W* weight, S* y, const ResampleShape& p) {
  const i64 count = p.lines * p.n;
  const bool narrow = count < (i64)1 << 31;
  for (i64 e = (i64)group().x * threads() + thread(); e < count; e += (i64)groups().x * threads()) {
    const Division at = divided(e, p.along ? p.n : p.lines, narrow);
    const i64 line = p.along ? at.quotient : at.rest, i = p.along ? at.rest : at.quotient;
    const S* from = x + p.x_lines.at(line, narrow) + begin[i * p.begin_step] * p.x_step;
    const W* w = weight + i * p.taps;
    C<S> sum = 0;
    for (i64 t = 0; t < p.taps; ++t)
      if (w[t] != 0) sum += (C<S>)w[t] * load(from + t * p.x_step);
    store(y + p.y_lines.at(line, narrow) + i * p.y_step, sum);
  }
}

#endif

}  // namespace pf
