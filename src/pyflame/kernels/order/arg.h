// argmax and argmin: the best key of a line and its first position. Several lanes share a line, and a long line may be
// split into parts that are combined afterwards. The result does not depend on the order in which they are combined.
#pragma once

namespace pf {

template <class K>
struct Best {
  K key;
  i64 at;  // negative: none
};

struct Better {
  template <class K>
  static PF_DEVICE Best<K> of(const Best<K>& a, const Best<K>& b) {
    // Each member is selected separately, because selecting the whole struct would go through memory.
    const bool first = b.at < 0 || (a.at >= 0 && (a.key > b.key || (a.key == b.key && a.at < b.at)));
    return {first ? a.key : b.key, first ? a.at : b.at};
  }
};

// Keys whose largest one is wanted. For argmin, NaN is the largest key as well.
template <class S, bool kSmallest>
PF_DEVICE typename Key<S>::type arg_key(S x) {
  using U = typename Key<S>::type;
  const U key = Key<S>::of(x), top = directed<S, true>(0);
  if (!kSmallest) return key;
  return !Key<S>::exact(key) && key == top ? top : (U)(top - key);
}

// Reads elements: best(line, begin, end, first, step) returns the best of those that belong to a thread, kVec adjacent
// elements at a time (the elements of a line are then contiguous).
template <class S, bool kSmallest, int kVec>
struct ReadValues {
  using K = typename Key<S>::type;
  const ArgValues& values;
  template <int kStep>
  PF_DEVICE Best<K> best(i64 line, i64 begin, i64 end, int first) const {
    constexpr int kUnroll = kVec > 4 ? 2 : kVec > 1 ? 4 : 8;
    const View& inner = values.inner;
    const S* from = (const S*)values.x + values.lines.at(line);
    const i64 stride = inner.strides[0];
    i64 i = begin + first * kVec;
    if (i >= end) return {0, -1};
    K best = 0;
    u32 at = 0;  // relative to the thread's first element, which is the initial best
    const i64 start = i;
    const auto see = [&](S value, i64 position) {
      const K key = arg_key<S, kSmallest>(value);
      if (key > best) best = key, at = (u32)(position - start);  // positions grow, so the first of equal keys wins
    };
    if constexpr (kVec > 1) {
      for (; i + (kUnroll - 1) * kStep * kVec + kVec <= end; i += kUnroll * kStep * kVec) {
        Vec<S, kVec> some[kUnroll];
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) some[u] = load_vec<kVec>(from + i + u * kStep * kVec);
#pragma unroll
        for (int u = 0; u < kUnroll; ++u)
#pragma unroll
          for (int k = 0; k < kVec; ++k) see(some[u][k], i + u * kStep * kVec + k);
      }
      for (; i < end; i += kStep * kVec)
        for (int k = 0; k < kVec; ++k)
          if (i + k < end) see(from[i + k], i + k);
    } else if (inner.rank <= 1) {
      for (; i + (kUnroll - 1) * kStep < end; i += kUnroll * kStep) {
        S some[kUnroll];
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) some[u] = from[(i + u * kStep) * stride];
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) see(some[u], i + u * kStep);
      }
      for (; i < end; i += kStep) see(from[i * stride], i);
    } else {
      for (; i < end; i += kStep) see(from[inner.at(i)], i);
    }
    return {best, start + (i64)at};
  }
};
// The parts of a line are contiguous.
template <class K>
struct ReadParts {
  const ArgParts& from;
  template <int kStep>
  PF_DEVICE Best<K> best(i64 line, i64 begin, i64 end, int first) const {
    Best<K> b{0, -1};
    for (i64 i = begin + first; i < end; i += kStep)
      b = Better::of(b, ((const Best<K>*)from.parts)[line * from.count + i]);
    return b;
  }
};

// Writes the result of a line, or that of a part of one.
struct WriteIndex {
  const ArgIndex& index;
  template <class K>
  PF_DEVICE void put(i64 line, i64, const Best<K>& b) const {
    index.to[index.lines.at(line)] = b.at;
  }
};
template <class K>
struct WritePart {
  const ArgParts& to;
  PF_DEVICE void put(i64 line, i64 part, const Best<K>& b) const { ((Best<K>*)to.parts)[line * to.count + part] = b; }
};

#ifdef PF_ON_DEVICE

// kLanes threads per part: 1 if neighbouring lines are adjacent in memory; otherwise some lanes of a wave, or the
// workgroup.
template <class K, int kThreads, int kLanes, class Source, class Sink>
PF_DEVICE void arg_best(const Source& source, const Sink& sink, const ArgShape& p) {
  PF_SHARED Best<K> shared[kLanes == kThreads ? kThreads : 1];
  constexpr int kTogether = kThreads / kLanes;
  const int lane_of_part = (int)thread() % kLanes;
  const i64 all = p.lines * p.parts;
  const i64 g = (group().x + (i64)group().y * groups().x) * kTogether + (int)thread() / kLanes;
  const i64 part = p.parts > 1 ? g / p.lines : 0, line = g - part * p.lines;  // lines first, because they are adjacent
  Best<K> best{0, -1};
  if (g < all) {
    const i64 begin = part * p.part, end = begin + p.part < p.n ? begin + p.part : p.n;
    best = source.template best<kLanes>(line, begin, end, lane_of_part);
  }
  if constexpr (kLanes == kThreads) best = over_group<Better, kThreads>(best, shared);
  else if constexpr (kLanes > 1) best = over_lanes<Better, kLanes>(best);
  if (g < all && lane_of_part == 0) sink.put(line, part, best);
}

#endif

}  // namespace pf
