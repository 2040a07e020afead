// Selects the first k items, in sorting order, of every tile of a row and stores them in the order of their positions.
// The next level, and finally a sorted tile, selects from these. The key of the last selected item is found digit by
// digit; of the items equal to it, the first ones are selected. If k is small, the best items of the threads already
// tell which items cannot be selected.
#pragma once

namespace pf {

#ifdef PF_ON_DEVICE

constexpr u32 kNotKept = 0xffffffffu;

// A number that the workgroup shares. It is read from memory at each use, so that the compiler does not keep the result
// of a comparison for each item in registers.
template <class T>
struct Anew {
  T value;
  PF_DEVICE void set(T x) {
    if (thread() == 0) value = x;
    barrier();
  }
};

// The `left`-th key, in sorting order, among the workgroup's first `count` items that are not greater than `bound`. It
// is found from its highest digit on. `left` becomes the number of items equal to it that are selected.
template <int kThreads, class K>
struct Nth {
  u32 seen[kDigits];
  u32 sums[kThreads + 1];
  u32 found[2];
  Anew<int> count;
  Anew<K> bound;

  template <int kItems>
  PF_DEVICE K of(const K (&key)[kItems], u32& left, int bits) {
    K last = 0;
    for (int shift = bits - 8; shift >= 0; shift -= 8) {
      for (int i = thread(); i < kDigits; i += kThreads) seen[i] = 0;
      barrier();
      const int among = count.value;
      const K at_most = bound.value;
#pragma unroll
      for (int k = 0; k < kItems; ++k) {
        const bool active = tile_at<kItems>(k) < among && key[k] <= at_most && ((key[k] ^ last) >> shift) < kDigits;
        if (lanes_with(active) == 0) continue;
        const u32 digit = (u32)(key[k] >> shift) & (kDigits - 1);
        const Lanes same = peers(digit, active);
        if (active && (same & lower_lanes()) == 0) atomic_add(&seen[digit], (u32)count_bits(same));
      }
      barrier();
      const int digit = (int)thread();
      const u32 mine = digit < kDigits ? seen[digit] : 0u;
      u32 total = 0;
      const u32 before = sum_before<kThreads>(mine, sums, total);
      if (before < left && left <= before + mine) found[0] = (u32)digit, found[1] = before;
      barrier();
      last |= (K)found[0] << shift;
      left -= found[1];
      barrier();
    }
    return last;
  }
};

// source: rows of n items; kept: min(k, items) of each tile, contiguous.
template <int kThreads, int kItems, class K, class Source>
PF_DEVICE void keep_first(const Source& source, const Pairs<K>& kept, i64 rows, i64 n, i64 tiles, u32 k_first,
                          int bits) {
  static_assert(kThreads >= kDigits && kItems <= 32);
  constexpr int kTile = kThreads * kItems;
  PF_SHARED Nth<kThreads, K> nth;
  const i64 g = group_number(), row = g / tiles, tile = g - row * tiles, begin = tile * kTile;
  if (row >= rows) return;
  const int count = (int)(n - begin < kTile ? n - begin : kTile);
  K key[kItems];
  u32 id[kItems];
  get_tile(source.line(row), begin, count, key, id);
  u32 left = k_first < (u32)count ? k_first : (u32)count;
  nth.bound.set(~(K)0);
  if (left <= kThreads) {  // then this many threads have an item that is at least as good as the bound
    K best[1] = {~(K)0};
#pragma unroll
    for (int k = 0; k < kItems; ++k) best[0] = key[k] < best[0] ? key[k] : best[0];
    u32 threads_left = left;
    nth.count.set(kThreads);
    const K bound = nth.of(best, threads_left, bits);
    nth.bound.set(bound);
  }
  nth.count.set(count);
  nth.bound.set(nth.of(key, left, bits));
  // Positions: first among the items equal to the last selected one, then among all selected ones.
  u32 equals = 0, mine = 0, total = 0;
#pragma unroll
  for (int k = 0; k < kItems; ++k)
    equals += (u32)count_bits(lanes_with(tile_at<kItems>(k) < nth.count.value && key[k] == nth.bound.value));
  u32 equal_at = from_lane(sum_before<kThreads>(lane() == 0 ? equals : 0u, nth.sums, total), 0);
  const K last = nth.bound.value;
  u32 place[kItems];  // the position of a selected item among those of its wave
#pragma unroll
  for (int k = 0; k < kItems; ++k) {
    const bool there = tile_at<kItems>(k) < nth.count.value;
    const Lanes equal = lanes_with(there && key[k] == last);
    const bool keep =
        there && (key[k] < last || (key[k] == last && equal_at + (u32)count_bits(equal & lower_lanes()) < left));
    const Lanes all = lanes_with(keep);
    place[k] = keep ? mine + (u32)count_bits(all & lower_lanes()) : kNotKept;
    equal_at += (u32)count_bits(equal);
    mine += (u32)count_bits(all);
  }
  const u32 at = from_lane(sum_before<kThreads>(lane() == 0 ? mine : 0u, nth.sums, total), 0);
  const auto line = kept.line(row);
#pragma unroll
  for (int k = 0; k < kItems; ++k)
    if (place[k] != kNotKept) line.put(tile * k_first + at + place[k], key[k], id[k]);
}

#endif

}  // namespace pf
