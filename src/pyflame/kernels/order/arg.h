// argmax and argmin: the best key of a line and its first position. Lanes share a line, and a long line may be split into parts that are
// put together afterwards; the best is the best in any order.
#pragma once

namespace pf {

template <class K>
struct Best {
  K key;
  i64 at;  // below 0: none
};

struct Better {
  template <class K>
  static PF_DEVICE Best<K> of(const Best<K>& a, const Best<K>& b) {
    if (b.at < 0) return a;
    if (a.at < 0) return b;
    return a.key > b.key || (a.key == b.key && a.at < b.at) ? a : b;
  }
};

// Keys whose largest is wanted. The smallest: NaN is above the others there as well.
template <class S, bool kSmallest>
PF_DEVICE typename Key<S>::type arg_key(S x) {
  using U = typename Key<S>::type;
  const U key = Key<S>::of(x), top = directed<S, true>(0);
  if (!kSmallest) return key;
  return !Key<S>::exact(key) && key == top ? top : (U)(top - key);
}

struct ArgShape {
  i64 lines, n;     // of elements
  i64 parts, part;  // of a line, and the elements of each
};

template <class S, bool kSmallest>
struct ArgValues {
  using K = typename Key<S>::type;
  const S* x;
  View lines, inner;
  PF_DEVICE Best<K> get(i64 line, i64 i) const { return {arg_key<S, kSmallest>(x[lines.at(line) + inner.at(i)]), i}; }
};
// The parts of a line are one after the other.
template <class K>
struct ArgParts {
  const Best<K>* parts;
  i64 count;
  PF_DEVICE Best<K> get(i64 line, i64 i) const { return parts[line * count + i]; }
};

struct ArgIndex {
  i64* to;
  View lines;
  template <class K>
  PF_DEVICE void put(i64 line, i64, const Best<K>& b) const {
    to[lines.at(line)] = b.at;
  }
};
template <class K>
struct ArgPart {
  Best<K>* to;
  i64 parts;
  PF_DEVICE void put(i64 line, i64 part, const Best<K>& b) const { to[line * parts + part] = b; }
};

#ifdef PF_ON_DEVICE

// kLanes threads for each part: 1 where neighbouring lines are neighbours in memory, a wave's half or the workgroup otherwise.
template <class K, int kThreads, int kLanes, class Source, class Sink>
PF_DEVICE void arg_best(const Source& source, const Sink& sink, const ArgShape& p) {
  PF_SHARED Best<K> shared[kLanes == kThreads ? kThreads : 1];
  constexpr int kTogether = kThreads / kLanes;
  constexpr int kUnroll = 8;
  const int lane_of_part = (int)thread() % kLanes;
  const i64 all = p.lines * p.parts;
  // Every thread of a workgroup goes round equally often.
  for (i64 first = (i64)group().x * kTogether; first < all; first += (i64)groups().x * kTogether) {
    const i64 g = first + (int)thread() / kLanes;
    const i64 part = g / p.lines, line = g % p.lines;  // lines first: they are neighbours
    Best<K> best{0, -1};
    if (g < all) {
      const i64 begin = part * p.part, end = begin + p.part < p.n ? begin + p.part : p.n;
      i64 i = begin + lane_of_part;
      for (; i + (kUnroll - 1) * kLanes < end; i += kUnroll * kLanes) {
        Best<K> some[kUnroll];
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) some[u] = source.get(line, i + u * kLanes);
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) best = Better::of(best, some[u]);
      }
      for (; i < end; i += kLanes) best = Better::of(best, source.get(line, i));
    }
    if constexpr (kLanes == kThreads) best = over_group<Better, kThreads>(best, shared);
    else if constexpr (kLanes > 1) best = over_lanes<Better, kLanes>(best);
    if (g < all && lane_of_part == 0) sink.put(line, part, best);
  }
}

#endif

}  // namespace pf
