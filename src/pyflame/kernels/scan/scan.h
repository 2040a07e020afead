// Running sums along a dim. The order of additions depends on the shape alone. Either a thread adds a whole line
// (scan_lines), or a row is divided into tiles of kLanes * kEach elements (scan_rows): each thread adds adjacent
// elements, the totals of the threads are added by the distances 1, 2, 4, ..., and tiles follow each other. A long row
// is divided into segments, whose totals are scanned in a kernel between.
#pragma once

namespace pf {

// The elements of a line, forwards or backwards.
template <class S, bool kReverse>
struct Line {
  S* first;
  i64 step;
  PF_DEVICE Line(S* x, const View& lines, i64 line, i64 n, i64 stride)
      : first(x + lines.at(line) + (kReverse ? (n - 1) * stride : 0)), step(kReverse ? -stride : stride) {}
  PF_DEVICE S* at(i64 i) const { return first + i * step; }
};

#ifdef PF_ON_DEVICE

template <class S, class O, class A, bool kReverse, int kThreads>
PF_DEVICE void scan_lines(const S* x, O* y, const ScanShape& p) {
  constexpr int kUnroll = 8;  // loads in flight at the same time
  const i64 line = (group().x + (i64)group().y * groups().x) * kThreads + thread();
  const i64 n = p.n;
  if (line >= p.lines) return;
  const Line<const S, kReverse> from(x, p.x_lines, line, n, p.x_step);
  const Line<O, kReverse> to(y, p.y_lines, line, n, p.y_step);
  A sum = 0;
  for (i64 begin = 0; begin < n; begin += kUnroll) {
    A part[kUnroll];
#pragma unroll
    for (int j = 0; j < kUnroll; ++j) part[j] = begin + j < n ? (A)load(from.at(begin + j)) : (A)0;
#pragma unroll
    for (int j = 0; j < kUnroll; ++j) {
      sum = add<A>(sum, part[j]);
      if (begin + j < n) store(to.at(begin + j), (C<O>)sum);
    }
  }
}

// `parts` has one number for each segment of each row. Totals: only the segments' totals are computed, and written
// there. Otherwise, if there are several segments, `parts` has the sums up to each segment's end.
template <class S, class O, class A, bool kReverse, bool kTotals, int kThreads, int kLanes, int kEach>
PF_DEVICE void scan_rows(const S* x, O* y, A* parts, const ScanShape& p) {
  PF_SHARED A shared[kThreads];
  const int t = (int)thread(), lane_of_row = t % kLanes;
  const i64 g = (group().x + (i64)group().y * groups().x) * (kThreads / kLanes) + t / kLanes;
  const i64 n = p.n, segments = p.segments, segment = p.segment;
  const bool there = g < p.lines * segments;
  const i64 line = there ? g / segments : 0, at = there ? g - line * segments : 0;
  const Line<const S, kReverse> from(x, p.x_lines, line, n, p.x_step);
  const Line<O, kReverse> to(y, p.y_lines, line, n, p.y_step);
  const i64 start = at * segment, end = there ? (start + segment < n ? start + segment : n) : start;
  A before = !kTotals && at > 0 ? parts[g - 1] : (A)0;
  // Every thread runs the same number of tiles, because all must reach the barriers.
  for (i64 tile = 0; tile < segment; tile += kLanes * kEach) {
    const i64 begin = start + tile + lane_of_row * kEach;
    A part[kEach];
#pragma unroll
    for (int j = 0; j < kEach; ++j) part[j] = begin + j < end ? (A)load(from.at(begin + j)) : (A)0;
#pragma unroll
    for (int j = 1; j < kEach; ++j) part[j] = add<A>(part[j - 1], part[j]);
    A total = part[kEach - 1];
    shared[t] = total;
    barrier();
    for (int step = 1; step < kLanes; step *= 2) {
      const A other = lane_of_row >= step ? shared[t - step] : (A)0;
      barrier();
      total = add<A>(other, total);
      shared[t] = total;
      barrier();
    }
    const A threads_before = add<A>(before, lane_of_row > 0 ? shared[t - 1] : (A)0);
    before = add<A>(before, shared[t - lane_of_row + kLanes - 1]);
    barrier();
    if constexpr (!kTotals)
#pragma unroll
      for (int j = 0; j < kEach; ++j)
        if (begin + j < end) store(to.at(begin + j), (C<O>)add<A>(threads_before, part[j]));
  }
  if (kTotals && there && lane_of_row == 0) parts[g] = before;
}
#endif

}  // namespace pf
