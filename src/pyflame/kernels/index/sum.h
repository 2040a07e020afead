// index_add and scatter_add without atomics: source rows are sorted by where they go (a stable sort, so equal ones keep their order), and
// sums follow that order. The sorted sources are cut into pieces of kPiece; a run of equal destinations within a piece is summed and
// written at once, a run that goes on in the next piece leaves partial sums, which are put together in their order. So the order of
// additions is that of the indices, and nothing else decides it.
//
// Lines are sorted each for itself: index_add has one line for each position before the dim (they share their order), scatter_add one for
// each position beside the dim. A line has `count` sources, each of `width` elements.
#pragma once

namespace pf {

constexpr u32 kNowhere = 0xffffffffu;  // the key of an index that is out of range: sorted last, never added

// Keys of a line: the indices themselves.
struct IndexKeys {
  const i64* index;
  View lines;
  i64 stride, size;
  Fault* fault;
  int site;
  struct Line {
    const i64* index;
    i64 stride, size;
    Fault* fault;
    int site;
    PF_DEVICE void get(i64 i, u32& key, u32& id) const {
      const i64 at = index[i * stride];
      key = kNowhere, id = (u32)i;
      if (at >= 0 && at < size) key = (u32)at;
#ifdef PF_ON_DEVICE
      else if (fault) raise(fault, site, kIndexOutOfRange, at, size);
#endif
    }
  };
  PF_DEVICE Line line(i64 l) const { return {index + lines.at(l), stride, size, fault, site}; }
};

struct SumShape {
  i64 lines, count, width;
  i64 shared_keys;             // 1: all lines have the keys of line 0
  i64 pieces;                  // of a line
  View from_lines, to_lines;   // of lines in source and output
  i64 from_stride, from_step;  // of a source in its line, of an element in a source
  i64 to_stride, to_step;
};

#ifdef PF_ON_DEVICE

template <class S>
struct Plus {
  static PF_DEVICE C<S> of(C<S> a, C<S> b) { return add<C<S>>(a, b); }
};
template <>
struct Plus<bool8> {
  static PF_DEVICE u8 of(u8 a, u8 b) { return a | b; }
};

// A thread has one piece and one element (consecutive threads have neighbouring elements, then pieces).
// partial[line][piece][2][width]: of the run that came in from the piece before, and of the run that goes on in the next one.
template <class S, int kThreads, int kPiece>
PF_DEVICE void sum_pieces(const u32* keys, const u32* ids, const S* from, S* to, C<S>* partial, const SumShape& p) {
  using T = C<S>;
  const i64 tasks = p.lines * p.pieces * p.width;
  for (i64 task = (i64)group().x * kThreads + thread(); task < tasks; task += (i64)groups().x * kThreads) {
    const i64 column = task % p.width, rest = task / p.width, piece = rest % p.pieces, line = rest / p.pieces;
    const i64 begin = piece * kPiece, end = begin + kPiece < p.count ? begin + kPiece : p.count;
    const u32* key = keys + (p.shared_keys ? 0 : line * p.count);
    const u32* id = ids + (p.shared_keys ? 0 : line * p.count);
    const S* source = from + p.from_lines.at(line) + column * p.from_step;
    S* target = to + p.to_lines.at(line) + column * p.to_step;
    T* mine = partial + (line * p.pieces + piece) * 2 * p.width + column;
    const u32 before = begin > 0 ? key[begin - 1] : kNowhere, after = end < p.count ? key[end] : kNowhere;
    // All loads first: sums wait for nothing but each other.
    u32 where[kPiece];
    T value[kPiece];
#pragma unroll
    for (int k = 0; k < kPiece; ++k) {
      const bool there = begin + k < end;
      where[k] = there ? key[begin + k] : kNowhere;
      value[k] = (T)0;
      if (where[k] != kNowhere) value[k] = load(source + (i64)id[begin + k] * p.from_stride);
    }
    T sum = (T)0;
    bool whole = where[0] != before;  // the run began here
#pragma unroll
    for (int k = 0; k < kPiece; ++k) {
      sum = Plus<S>::of(sum, value[k]);
      const bool last = k + 1 == kPiece || begin + k + 1 >= end;
      const u32 next = last ? after : where[k + 1 < kPiece ? k + 1 : k];
      if (begin + k >= end || where[k] == kNowhere) continue;
      if (next != where[k]) {
        if (whole) store(target + (i64)where[k] * p.to_stride, sum);
        else mine[0] = sum;
        sum = (T)0;
        whole = true;
      } else if (last) {
        mine[whole ? p.width : 0] = sum;
      }
    }
  }
}

// The runs over several pieces: the thread of the piece where a run began puts it together.
template <class S, int kThreads, int kPiece>
PF_DEVICE void join_pieces(const u32* keys, S* to, const C<S>* partial, const SumShape& p) {
  const i64 tasks = p.lines * p.pieces * p.width;
  for (i64 task = (i64)group().x * kThreads + thread(); task < tasks; task += (i64)groups().x * kThreads) {
    const i64 column = task % p.width, rest = task / p.width, piece = rest % p.pieces, line = rest / p.pieces;
    const i64 begin = piece * kPiece, end = begin + kPiece;
    const u32* key = keys + (p.shared_keys ? 0 : line * p.count);
    if (end >= p.count) continue;
    const u32 run = key[end];
    if (run == kNowhere || key[end - 1] != run) continue;
    if (begin > 0 && key[begin - 1] == run) continue;  // it began earlier
    const C<S>* mine = partial + (line * p.pieces + piece) * 2 * p.width + column;
    C<S> sum = mine[p.width];
    i64 next = end;
    // Keys are sorted: where the last piece of several belongs to the run, they all do, and their loads need not wait for each other.
    constexpr int kTogether = 8;
    for (; next + (kTogether - 1) * kPiece < p.count && key[next + (kTogether - 1) * kPiece] == run;
         next += kTogether * kPiece, mine += kTogether * 2 * p.width) {
      C<S> some[kTogether];
#pragma unroll
      for (int k = 0; k < kTogether; ++k) some[k] = mine[(k + 1) * 2 * p.width];
#pragma unroll
      for (int k = 0; k < kTogether; ++k) sum = Plus<S>::of(sum, some[k]);
    }
    for (; next < p.count && key[next] == run; next += kPiece) {
      mine += 2 * p.width;
      sum = Plus<S>::of(sum, *mine);
    }
    store(to + p.to_lines.at(line) + column * p.to_step + (i64)run * p.to_stride, sum);
  }
}

#endif

}  // namespace pf
