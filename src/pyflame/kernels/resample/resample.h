// Weighted sums of adjacent elements along a dim; A weight of 0 ignores its element, which may be
// infinite: shorter sums are filled up with such taps.
#pragma once

namespace pf {

#ifdef PF_ON_DEVICE

// Consecutive threads of a workgroup compute neighbours in memory: with kAlong results of a line, otherwise the same result of neighbouring
// lines. A workgroup has rows of 2^row_bits such threads. Each thread computes kEach results which differ in the other number: with kAlong in the
// line, so that they have the same weights; otherwise in the place, so that they have the same line. kTaps: how many weights there are; 0: p.taps.
template <class S, class W, int kThreads, int kEach, int kTaps, bool kAlong, bool kWide>
PF_DEVICE void resample(const S* x, const i64* begin, const W* weight, S* y, const ResampleShape<kWide>& p) {
  const i64 fast_count = kAlong ? p.n : p.lines, slow_count = kAlong ? p.lines : p.n, taps = kTaps ? kTaps : p.taps;
  const int row = (int)(thread() >> p.row_bits), rows = kThreads >> p.row_bits;
  const i64 fast = ((i64)group().x << p.row_bits) + (int)(thread() & ((1u << p.row_bits) - 1));
  if (fast >= fast_count) return;
  // Where a result of a place and a line reads first, and where it is.
  const auto along = [&](i64 place, i64(&at)[2]) {
    at[0] = begin[place * p.begin_step] * p.x_step, at[1] = place * p.y_step;
  };
  const auto line = [&](i64 l, i64(&at)[2]) { at[0] = at[1] = 0, p.starts.at(l, at); };
  i64 mine[2];
  if constexpr (kAlong) along(fast, mine);
  else line(fast, mine);
  for (i64 first = ((i64)group().y * rows + row) * kEach; first < slow_count; first += (i64)groups().y * rows * kEach) {
    const S* from[kEach];
    const W* w[kEach];
    i64 to[kEach];
    C<S> sum[kEach];
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      const i64 slow = first + k < slow_count ? first + k : first;
      i64 other[2];
      if constexpr (kAlong) line(slow, other);
      else along(slow, other);
      from[k] = x + mine[0] + other[0], to[k] = mine[1] + other[1];
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
