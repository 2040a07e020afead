// The k first of every tile of a row, in the order of their positions: what the next level, and in the end a sorted tile, chooses from.
// The key of the last one that is kept is found digit by digit; of those equal to it, the first ones are kept. For a small k the best
// items of the threads already say which items cannot be among them.
#pragma once

namespace pf {

#ifdef PF_ON_DEVICE

// The key of the `left`-th active item of the workgroup in order, found from its highest digit on; `left` becomes how many of those equal to
// it belong to the first ones.
template <int kThreads>
struct Nth {
  u32 seen[kDigits];
  u32 sums[kThreads + 1];
  u32 found[2];

  template <int kItems, class K>
  PF_DEVICE K of(const K (&key)[kItems], u32 active, u32& left, int bits) {
    K last = 0;
    for (int shift = bits - 8; shift >= 0; shift -= 8) {
      for (int i = thread(); i < kDigits; i += kThreads) seen[i] = 0;
      barrier();
#pragma unroll
      for (int k = 0; k < kItems; ++k) {
        const bool same_above = (active >> k & 1) && ((key[k] ^ last) >> shift) < kDigits;
        if (ballot(same_above) == 0) continue;
        const u32 digit = (u32)(key[k] >> shift) & (kDigits - 1);
        const u64 same = peers(digit, same_above);
        if (same_above && (same & lower_lanes()) == 0) atomic_add(&seen[digit], (u32)count_bits(same));
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

// source: rows of n items; kept: min(k, items) of each tile, one tile after the other.
template <int kThreads, int kItems, class K, class Source>
PF_DEVICE void keep_first(const Source& source, const Pairs<K>& kept, i64 rows, i64 n, i64 tiles, u32 k_first,
                          int bits) {
  static_assert(kThreads >= kDigits && kItems <= 32);
  constexpr int kTile = kThreads * kItems;
  PF_SHARED Nth<kThreads> nth;
  for (i64 g = group().x; g < rows * tiles; g += groups().x) {
    const i64 row = g / tiles, tile = g - row * tiles, begin = tile * kTile;
    const int count = (int)(n - begin < kTile ? n - begin : kTile);
    K key[kItems];
    u32 id[kItems];
    get_tile(source.line(row), begin, n, key, id);
    u32 there = 0, left = k_first < (u32)count ? k_first : (u32)count;
    K best[1] = {~(K)0};
#pragma unroll
    for (int k = 0; k < kItems; ++k) {
      there |= (u32)(tile_at<kItems>(k) < count) << k;
      best[0] = key[k] < best[0] ? key[k] : best[0];
    }
    u32 active = there;
    if (left <= kThreads) {  // that many threads have one at least as good as the bound
      u32 threads_left = left;
      const K bound = nth.of(best, 1u, threads_left, bits);
      active = 0;
#pragma unroll
      for (int k = 0; k < kItems; ++k) active |= (u32)(key[k] <= bound) << k;
      active &= there;
    }
    const K last = nth.of(key, active, left, bits);
    // Places: first among those equal to the last one, then among all that are kept.
    u32 equals = 0, total = 0;
#pragma unroll
    for (int k = 0; k < kItems; ++k) equals += (u32)count_bits(ballot((there >> k & 1) && key[k] == last));
    u32 equal_at = from_lane(sum_before<kThreads>(lane() == 0 ? equals : 0u, nth.sums, total), 0);
    u32 mine = 0, keep = 0;
#pragma unroll
    for (int k = 0; k < kItems; ++k) {
      const u64 equal = ballot((there >> k & 1) && key[k] == last);
      const bool kept_here =
          (there >> k & 1) &&
          (key[k] < last || (key[k] == last && equal_at + (u32)count_bits(equal & lower_lanes()) < left));
      keep |= (u32)kept_here << k;
      equal_at += (u32)count_bits(equal);
      mine += (u32)count_bits(ballot(kept_here));
    }
    u32 at = from_lane(sum_before<kThreads>(lane() == 0 ? mine : 0u, nth.sums, total), 0);
    const auto line = kept.line(row);
#pragma unroll
    for (int k = 0; k < kItems; ++k) {
      const u64 kept_lanes = ballot(keep >> k & 1);
      if (keep >> k & 1) line.put(tile * k_first + at + (u32)count_bits(kept_lanes & lower_lanes()), key[k], id[k]);
      at += (u32)count_bits(kept_lanes);
    }
  }
}

#endif

}  // namespace pf
