// Weighted sums of adjacent elements along a dim; A weight of 0 ignores its element, which may be
// infinite: shorter sums are filled up with such taps.
#pragma once

namespace pf {

#ifdef PF_ON_DEVICE

// Consecutive threads of a workgroup compute neighbours in memory: with kAlong results of a line, otherwise the same result of neighbouring
// lines. A workgroup has rows of 2^row_bits such threads. Each thread computes kEach results which differ in the other number: with kAlong in the
// line, so that they have the same weights; otherwise in the place, so that they have the same line. kTaps: how many weights there are; 0: p.taps.
template <class S, class W, int kThreads, int kEach, int kTaps, bool kAlong>
PF_DEVICE void resample(const S* x, const i64* begin, const W* weight, S* y, const ResampleShape& p) {
  const i64 fast_count = kAlong ? p.n : p.lines, slow_count = kAlong ? p.lines : p.n, taps = kTaps ? kTaps : p.taps;
  const int row = (int)(thread() >> p.row_bits), rows = kThreads >> p.row_bits;
  const i64 fast = ((i64)group().x << p.row_bits) + (int)(thread() & ((1u << p.row_bits) - 1));
  if (fast >= fast_count) return;
  for (i64 first = ((i64)group().y * rows + row) * kEach; first < slow_count; first += (i64)groups().y * rows * kEach) {
    const S* from[kEach];
    const W* w[kEach];
    i64 to[kEach];
    C<S> sum[kEach];
    const i64 fast_x = kAlong ? begin[fast * p.begin_step] * p.x_step : p.x_lines.at(fast, p.narrow);
    const i64 fast_y = kAlong ? fast * p.y_step : p.y_lines.at(fast, p.narrow);
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      const i64 slow = first + k < slow_count ? first + k : first;
      from[k] = x + fast_x + (kAlong ? p.x_lines.at(slow, p.narrow) : begin[slow * p.begin_step] * p.x_step);
      to[k] = fast_y + (kAlong ? p.y_lines.at(slow, p.narrow) : slow * p.y_step);
      w[k] = weight + (kAlong ? fast : slow) * taps;
      sum[k] = 0;
    }
#pragma unroll
    for (i64 t = 0; t < taps; ++t)
#pragma unroll
      for (int k = 0; k < kEach; ++k) {
        const W factor = w[k][t];
        const C<S> value = load(from[k] + t * p.x_step);
        if (factor != 0) sum[k] += (C<S>)factor * value;
      }
#pragma unroll
    for (int k = 0; k < kEach; ++k)
      if (first + k < slow_count) store(y + to[k], sum[k]);
  }
}

#endif

}  // namespace pf
