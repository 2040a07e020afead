// Running sums, products, extremes and logarithms of sums of exponentials along a dim. Op says how two parts of a line are combined: its type
// A is what is known of a part. The order of combinations depends on the shape alone. Either a thread takes a whole line (scan_lines), or a
// row is divided into tiles of kLanes * kEach elements (scan_rows): each thread combines adjacent elements, the totals of the threads are
// combined by the distances 1, 2, 4, ..., and tiles follow each other. A long row is divided into segments, whose totals are scanned in a
// kernel between.
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

// --- operations: A as it is stored in S, with the position of the first element, and where results go
template <class S, class O, class T>
struct ScanOne {
  using A = T;
  static PF_DEVICE A read(const S* p, i64) { return (A)load(p); }
  static PF_DEVICE void write(O* y, i64*, A a) { store(y, (C<O>)a); }
};
template <class S, class O, class T>
struct ScanSums : ScanOne<S, O, T> {
  static PF_DEVICE T start() { return (T)0; }
  static PF_DEVICE T of(T a, T b) { return add<T>(a, b); }
};
template <class S, class O, class T>
struct ScanProducts : ScanOne<S, O, T> {
  static PF_DEVICE T start() { return (T)1; }
  static PF_DEVICE T of(T a, T b) { return mul<T>(a, b); }
};
// The logarithm of the sum of exponentials.
template <class S, class O, class T>
struct ScanLogSums : ScanOne<S, O, T> {
  static PF_DEVICE T start() { return -(T)float_of_bits(0x7f800000u); }
  static PF_DEVICE T of(T a, T b) {
    const T most = maximum<T>(a, b), least = minimum<T>(a, b);
    return most == least ? most + (T)0.69314718055994530942 : most + m_log1p(m_exp(least - most));
  }
};
// The largest or smallest element and its position: the last of equals; NaN wins. Before the first element, it is none (-1).
template <class T>
struct Best {
  T value;
  i64 at;
};
template <class S, class O, class T, bool kLargest>
struct ScanExtremes {
  using A = Best<T>;
  static PF_DEVICE A start() { return {(T)0, -1}; }
  static PF_DEVICE A of(A a, A b) {
    if (b.at < 0) return a;
    const bool wins = a.at < 0 || m_nan(b.value) || (kLargest ? b.value >= a.value : b.value <= a.value);
    return wins ? b : a;
  }
  static PF_DEVICE A read(const S* p, i64 i) { return {(T)load(p), i}; }
  static PF_DEVICE void write(O* y, i64* at, A a) {
    store(y, (C<O>)a.value);
    *at = a.at;
  }
};
// The totals of segments, in place.
template <class Op>
struct ScanTotals {
  using A = typename Op::A;
  static PF_DEVICE A start() { return Op::start(); }
  static PF_DEVICE A of(A a, A b) { return Op::of(a, b); }
  static PF_DEVICE A read(const A* p, i64) { return *p; }
  static PF_DEVICE void write(A* y, i64*, A a) { *y = a; }
};

#ifdef PF_ON_DEVICE

template <class Op, class S, class O, bool kReverse, int kThreads>
PF_DEVICE void scan_lines(const S* x, O* y, i64* index, const ScanShape& p) {
  using A = typename Op::A;
  constexpr int kUnroll = 8;  // loads in flight at the same time
  const i64 line = (group().x + (i64)group().y * groups().x) * kThreads + thread();
  const i64 n = p.n;
  if (line >= p.lines) return;
  const Line<const S, kReverse> from(x, p.x_lines, line, n, p.x_step);
  const Line<O, kReverse> to(y, p.y_lines, line, n, p.y_step);
  const Line<i64, kReverse> where(index, p.y_lines, line, n, p.y_step);
  A sum = Op::start();
  for (i64 begin = 0; begin < n; begin += kUnroll) {
    A part[kUnroll];
#pragma unroll
    for (int j = 0; j < kUnroll; ++j) part[j] = begin + j < n ? Op::read(from.at(begin + j), begin + j) : Op::start();
#pragma unroll
    for (int j = 0; j < kUnroll; ++j) {
      sum = Op::of(sum, part[j]);
      if (begin + j < n) Op::write(to.at(begin + j), where.at(begin + j), sum);
    }
  }
}

// `parts` has one number for each segment of each row. Totals: only the segments' totals are computed, and written
// there. Otherwise, if there are several segments, `parts` has the sums up to each segment's end.
template <class Op, class S, class O, bool kReverse, bool kTotals, int kThreads, int kLanes, int kEach>
PF_DEVICE void scan_rows(const S* x, O* y, i64* index, typename Op::A* parts, const ScanShape& p) {
  using A = typename Op::A;
  PF_SHARED A shared[kThreads];
  const int t = (int)thread(), lane_of_row = t % kLanes;
  const i64 g = (group().x + (i64)group().y * groups().x) * (kThreads / kLanes) + t / kLanes;
  const i64 n = p.n, segments = p.segments, segment = p.segment;
  const bool there = g < p.lines * segments;
  const i64 line = there ? g / segments : 0, at = there ? g - line * segments : 0;
  const Line<const S, kReverse> from(x, p.x_lines, line, n, p.x_step);
  const Line<O, kReverse> to(y, p.y_lines, line, n, p.y_step);
  const Line<i64, kReverse> where(index, p.y_lines, line, n, p.y_step);
  const i64 start = at * segment, end = there ? (start + segment < n ? start + segment : n) : start;
  A before = !kTotals && at > 0 ? parts[g - 1] : Op::start();
  // Every thread runs the same number of tiles, because all must reach the barriers.
  for (i64 tile = 0; tile < segment; tile += kLanes * kEach) {
    const i64 begin = start + tile + lane_of_row * kEach;
    A part[kEach];
#pragma unroll
    for (int j = 0; j < kEach; ++j) part[j] = begin + j < end ? Op::read(from.at(begin + j), begin + j) : Op::start();
#pragma unroll
    for (int j = 1; j < kEach; ++j) part[j] = Op::of(part[j - 1], part[j]);
    A total = part[kEach - 1];
    shared[t] = total;
    barrier();
    for (int step = 1; step < kLanes; step *= 2) {
      const A other = lane_of_row >= step ? shared[t - step] : Op::start();
      barrier();
      total = Op::of(other, total);
      shared[t] = total;
      barrier();
    }
    const A threads_before = Op::of(before, lane_of_row > 0 ? shared[t - 1] : Op::start());
    before = Op::of(before, shared[t - lane_of_row + kLanes - 1]);
    barrier();
    if constexpr (!kTotals)
#pragma unroll
      for (int j = 0; j < kEach; ++j)
        if (begin + j < end) Op::write(to.at(begin + j), where.at(begin + j), Op::of(threads_before, part[j]));
  }
  if (kTotals && there && lane_of_row == 0) parts[g] = before;
}
#endif

}  // namespace pf
