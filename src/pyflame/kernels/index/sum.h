// index_add and scatter_add, index_put and scatter, without atomics. Source rows are sorted by destination with a stable
// sort, so rows with equal destinations keep their order, and are combined in this order. The sorted sources are divided
// into pieces of kPiece. A run of equal destinations that lies within one piece is summed and written directly. A run
// that continues in the next piece leaves partial sums, which are added in order afterwards. So the order of additions
// depends on the indices alone. "Sum" stands for any way to combine; kOnto: with what is at the destination, too.
//
// Each line is sorted on its own. index_add has one line for each position in front of the dim, and all of them have
// the same order; scatter_add has one line for each position outside the dim. A line has `count` sources with `width`
// elements each.
#pragma once

namespace pf {

#ifdef PF_ON_DEVICE

// In the order of Combine in ops/attrs.h.
enum How { kReplace, kSum, kProduct, kLargest, kSmallest };

template <class S, int kHow>
struct Joined {
  static PF_DEVICE C<S> of(C<S> a, C<S> b) {
    if constexpr (kHow == kReplace) return b;
    else if constexpr (kHow == kSum) return add<C<S>>(a, b);
    else if constexpr (kHow == kProduct) return mul<C<S>>(a, b);
    else if constexpr (kHow == kLargest) return maximum<C<S>>(a, b);
    else return minimum<C<S>>(a, b);
  }
};
template <int kHow>
struct Joined<bool8, kHow> {
  static PF_DEVICE u8 of(u8 a, u8 b) {
    if constexpr (kHow == kReplace) return b;
    else if constexpr (kHow == kSum || kHow == kLargest) return a | b;
    else return a & b;
  }
};

// kVec adjacent elements of a source.
template <int kVec, class S>
PF_DEVICE Vec<S, kVec> vec_at(const S* p) {
  if constexpr (kVec > 1) return load_vec<kVec>(p);
  else return {{*p}};
}

template <class S, int kVec, int kHow, bool kOnto>
struct Sums {
  C<S> v[kVec];
  bool any;  // only a sum has a value before the first element
  PF_DEVICE void clear() {
    any = kHow == kSum;
#pragma unroll
    for (int j = 0; j < kVec; ++j) v[j] = (C<S>)0;
  }
  PF_DEVICE void take(int j, C<S> x) { v[j] = any ? Joined<S, kHow>::of(v[j], x) : x; }
  PF_DEVICE void add_stored(const Vec<S, kVec>& x) {
#pragma unroll
    for (int j = 0; j < kVec; ++j) take(j, load(&x[j]));
    any = true;
  }
  PF_DEVICE void add_partial(const Vec<C<S>, kVec>& x) {
#pragma unroll
    for (int j = 0; j < kVec; ++j) take(j, x[j]);
    any = true;
  }
  PF_DEVICE void store_partial(C<S>* to) const {
#pragma unroll
    for (int j = 0; j < kVec; ++j) to[j] = v[j];
  }
  PF_DEVICE void store_to(S* to) const {
    Vec<S, kVec> x;
    if constexpr (kOnto && kHow != kReplace) {
      const Vec<S, kVec> old = vec_at<kVec>(to);
#pragma unroll
      for (int j = 0; j < kVec; ++j) store(&x[j], Joined<S, kHow>::of(load(&old[j]), v[j]));
    } else {
#pragma unroll
      for (int j = 0; j < kVec; ++j) store(&x[j], v[j]);
    }
    if constexpr (kVec > 1) store_vec(to, x);
    else *to = x[0];
  }
};

// The piece and the kVec elements of a thread: consecutive threads take adjacent elements first, then pieces, then
// lines.
struct Task {
  i64 line, piece, column;
  bool there;
};
template <int kThreads, int kVec>
PF_DEVICE Task task_of(const SumShape& p) {
  const i64 task = (group().x + (i64)group().y * groups().x) * kThreads + thread(), wide = p.width / kVec;
  const i64 all = p.lines * p.pieces * wide;
  if (all < (i64)1 << 31) {
    const u32 rest = (u32)task / (u32)wide, line = rest / (u32)p.pieces;
    return {line, rest - line * (u32)p.pieces, (i64)((u32)task - rest * (u32)wide) * kVec, task < all};
  }
  const i64 rest = task / wide, line = rest / p.pieces;
  return {line, rest - line * p.pieces, (task - rest * wide) * kVec, task < all};
}

// Sums the runs of each piece. partial[line][piece][2][width]: the sum of the run that began in the previous piece, and
// of the run that continues in the next one.
template <class S, int kThreads, int kPiece, int kVec, int kHow, bool kOnto>
PF_DEVICE void sum_pieces(const u32* keys, const u32* ids, const S* from, S* to, C<S>* partial, const SumShape& p) {
  const Task task = task_of<kThreads, kVec>(p);
  if (!task.there) return;
  const i64 begin = task.piece * kPiece;
  const int count = (int)(p.count - begin < kPiece ? p.count - begin : kPiece);
  const u32* key = keys + (p.shared_keys ? 0 : task.line * p.count) + begin;
  const u32* id = ids + (p.shared_keys ? 0 : task.line * p.count) + begin;
  const S* source = from + p.from_lines.at(task.line) + task.column * p.from_step;
  S* target = to + p.to_lines.at(task.line) + task.column * p.to_step;
  C<S>* mine = partial + (task.line * p.pieces + task.piece) * 2 * p.width + task.column;
  const u32 before = begin > 0 ? key[-1] : kNowhere, after = begin + count < p.count ? key[count] : kNowhere;
  Sums<S, kVec, kHow, kOnto> sum;
  sum.clear();
  bool whole = key[0] != before;  // the run began in this piece
  // Several loads are issued before their sums, so that the loads do not wait for each other.
  constexpr int kTogether = 4;
#pragma unroll 1
  for (int first = 0; first < count; first += kTogether) {
    u32 where[kTogether + 1];
    Vec<S, kVec> value[kTogether];
#pragma unroll
    for (int k = 0; k < kTogether; ++k) {
      where[k] = first + k < count ? key[first + k] : kNowhere;
      if (where[k] != kNowhere) value[k] = vec_at<kVec>(source + (i64)id[first + k] * p.from_stride);
    }
    where[kTogether] = first + kTogether < count ? key[first + kTogether] : after;
#pragma unroll
    for (int k = 0; k < kTogether; ++k) {
      if (where[k] == kNowhere) continue;
      sum.add_stored(value[k]);
      const bool last = first + k + 1 == count;
      const u32 next = last ? after : where[k + 1];
      if (next != where[k]) {
        if (whole) sum.store_to(target + (i64)where[k] * p.to_stride);
        else sum.store_partial(mine);
        sum.clear();
        whole = true;
      } else if (last) {
        sum.store_partial(mine + (whole ? p.width : 0));
      }
    }
  }
}

// Adds the partial sums of runs over several pieces. The thread of the piece in which a run began does it.
template <class S, int kThreads, int kPiece, int kVec, int kHow, bool kOnto>
PF_DEVICE void join_pieces(const u32* keys, S* to, const C<S>* partial, const SumShape& p) {
  const Task task = task_of<kThreads, kVec>(p);
  if (!task.there) return;
  const i64 begin = task.piece * kPiece, end = begin + kPiece;
  const u32* key = keys + (p.shared_keys ? 0 : task.line * p.count);
  if (end >= p.count) return;
  const u32 run = key[end];
  if (run == kNowhere || key[end - 1] != run) return;
  if (begin > 0 && key[begin - 1] == run) return;  // it began in an earlier piece
  const C<S>* mine = partial + (task.line * p.pieces + task.piece) * 2 * p.width + task.column;
  const auto read = [](const C<S>* at) {
    Vec<C<S>, kVec> x;
#pragma unroll
    for (int j = 0; j < kVec; ++j) x[j] = at[j];
    return x;
  };
  Sums<S, kVec, kHow, kOnto> sum;
  sum.clear();
  sum.add_partial(read(mine + p.width));
  i64 next = end;
  // Keys are sorted: if the last of several pieces belongs to the run, all of them do, so their loads need not wait for
  // each other.
  constexpr int kTogether = 8;
  for (; next + (kTogether - 1) * kPiece < p.count && key[next + (kTogether - 1) * kPiece] == run;
       next += kTogether * kPiece, mine += kTogether * 2 * p.width) {
    Vec<C<S>, kVec> some[kTogether];
#pragma unroll
    for (int k = 0; k < kTogether; ++k) some[k] = read(mine + (k + 1) * 2 * p.width);
#pragma unroll
    for (int k = 0; k < kTogether; ++k) sum.add_partial(some[k]);
  }
  for (; next < p.count && key[next] == run; next += kPiece) {
    mine += 2 * p.width;
    sum.add_partial(read(mine));
  }
  sum.store_to(to + p.to_lines.at(task.line) + task.column * p.to_step + (i64)run * p.to_stride);
}

#endif

}  // namespace pf
