// The k first of every tile of a row, in the order of their positions: what the next level, and in the end a sorted tile, chooses from.
// The key of the last one that is kept is found digit by digit; of those equal to it, the first ones are kept.
#pragma once

namespace pf {

#ifdef PF_ON_DEVICE

// source: rows of n items; kept: min(k, items) of each tile, one tile after the other.
template <int kThreads, int kItems, class K, class Source>
PF_DEVICE void keep_first(const Source& source, const Pairs<K>& kept, i64 rows, i64 n, i64 tiles, u32 k_first,
                          int bits) {
  static_assert(kThreads >= kDigits);
  constexpr int kTile = kThreads * kItems;
  PF_SHARED u32 seen[kDigits];
  PF_SHARED u32 sums[kThreads + 1];
  PF_SHARED u32 found[2];
  for (i64 g = group().x; g < rows * tiles; g += groups().x) {
    const i64 row = g / tiles, tile = g % tiles, begin = tile * kTile;
    const int count = (int)(n - begin < kTile ? n - begin : kTile);
    K key[kItems];
    u32 id[kItems];
#pragma unroll
    for (int k = 0; k < kItems; ++k) {
      key[k] = ~(K)0, id[k] = 0;
      if (tile_at<kItems>(k) < count) source.get(row, begin + tile_at<kItems>(k), key[k], id[k]);
    }
    // The last key that is kept, and how many of those equal to it.
    K last = 0;
    u32 left = k_first < (u32)count ? k_first : (u32)count;
    for (int shift = bits - 8; shift >= 0; shift -= 8) {
      for (int i = thread(); i < kDigits; i += kThreads) seen[i] = 0;
      barrier();
#pragma unroll
      for (int k = 0; k < kItems; ++k) {
        // The digits above agree (a shift by the whole width would say nothing).
        const bool active = tile_at<kItems>(k) < count && ((key[k] ^ last) >> shift) < kDigits;
        if (ballot(active) == 0) continue;
        const u32 digit = (u32)(key[k] >> shift) & (kDigits - 1);
        const u64 same = peers(digit, active);
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
    // Places: first among those equal to the last one, then among all that are kept.
    u32 equals = 0, total = 0;
#pragma unroll
    for (int k = 0; k < kItems; ++k) equals += (u32)count_bits(ballot(tile_at<kItems>(k) < count && key[k] == last));
    u32 equal_at = sum_before<kThreads>(lane() == 0 ? equals : 0u, sums, total);
    equal_at = from_lane(equal_at, 0);
    u32 mine = 0;
    bool keep[kItems];
#pragma unroll
    for (int k = 0; k < kItems; ++k) {
      const bool there = tile_at<kItems>(k) < count;
      const u64 equal = ballot(there && key[k] == last);
      keep[k] =
          there && (key[k] < last || (key[k] == last && equal_at + (u32)count_bits(equal & lower_lanes()) < left));
      equal_at += (u32)count_bits(equal);
      mine += (u32)count_bits(ballot(keep[k]));
    }
    u32 at = sum_before<kThreads>(lane() == 0 ? mine : 0u, sums, total);
    at = from_lane(at, 0);
#pragma unroll
    for (int k = 0; k < kItems; ++k) {
      const u64 kept_lanes = ballot(keep[k]);
      if (keep[k]) kept.put(row, tile * k_first + at + (u32)count_bits(kept_lanes & lower_lanes()), key[k], id[k]);
      at += (u32)count_bits(kept_lanes);
    }
  }
}

#endif

}  // namespace pf
