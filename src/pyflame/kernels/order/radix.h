// Stable sorting by digits of eight bits. A tile is the items in the registers of one workgroup. It ranks its items by
// one digit: within a wave by ballots, among waves by counts in shared memory. Short rows are sorted in one tile. Long
// rows pass through memory once for each digit: every tile counts its digits, the counts are summed in order, and every
// tile moves its items. The result of a stable sort is unique, so it does not depend on tiles or waves.
//
// Items come from a Source, line(row).get(i, key, id), and go to a Sink, line(row).put(i, key, id).
#pragma once

namespace pf {

#ifdef PF_ON_DEVICE

constexpr int kDigits = 256;

// The index among all workgroups. Each workgroup has one task; a loop over the grid would keep too many values in
// registers.
PF_DEVICE i64 group_number() { return group().x + (i64)group().y * groups().x; }

// One bit for each lane of a wave.
template <bool kFits>
struct BitSet {
  using type = u64;
};
template <>
struct BitSet<true> {
  using type = u32;
};
using Lanes = typename BitSet<(kWave <= 8 * sizeof(u32))>::type;
PF_DEVICE Lanes lanes_with(bool x) { return (Lanes)ballot(x); }
PF_DEVICE Lanes lower_lanes() { return (Lanes)(((Lanes)1 << lane()) - 1); }
PF_DEVICE int lowest_lane(Lanes lanes) { return count_bits((Lanes)((lanes & (0 - lanes)) - 1)); }

// The active lanes of this wave that have the same digit as this lane.
PF_DEVICE Lanes peers(u32 digit, bool active) {
  Lanes same = lanes_with(active);
#pragma unroll
  for (int b = 0; b < 8; ++b) {
    const bool bit = digit >> b & 1;
    const Lanes set = lanes_with(bit);
    same &= bit ? set : (Lanes)~set;
  }
  return same;
}

// The sum of x over the threads before this one; `total` is the sum over all. `shared` has one element per wave, and
// one more.
template <int kThreads>
PF_DEVICE u32 sum_before(u32 x, u32* shared, u32& total) {
  u32 up_to = x;
  for (int step = 1; step < kWave; step *= 2) {
    const u32 other = from_lane(up_to, lane() >= step ? lane() - step : lane());
    if (lane() >= step) up_to += other;
  }
  if constexpr (kThreads <= kWave) {
    total = from_lane(up_to, kThreads - 1);
    return up_to - x;
  } else {
    if (lane() == kWave - 1) shared[wave()] = up_to;
    barrier();
    u32 before = 0;
    total = 0;
    for (int w = 0; w < kThreads / kWave; ++w) {
      const u32 sum = shared[w];
      if (w < wave()) before += sum;
      total += sum;
    }
    barrier();
    return before + up_to - x;
  }
}

// The position of item k of this thread in its tile: consecutive lanes first, then items, then waves.
template <int kItems>
PF_DEVICE int tile_at(int k) {
  return wave() * kWave * kItems + k * kWave + lane();
}

template <int kThreads>
struct RankSpace {
  static constexpr int kWaves = (kThreads + kWave - 1) / kWave;
  u32 counts[kWaves][kDigits];  // afterwards: where a wave's items of a digit begin in the tile
  u32 begins[kDigits];          // where a digit begins in the tile
  u32 sums[kWaves + 1];
};

// The position of each of this thread's items when the tile is ordered by a digit.
template <int kThreads, int kItems, class K>
PF_DEVICE void rank(const K (&key)[kItems], int shift, int (&place)[kItems], RankSpace<kThreads>& s) {
  for (int i = thread(); i < s.kWaves * kDigits; i += kThreads) (&s.counts[0][0])[i] = 0;
  barrier();
#pragma unroll
  for (int k = 0; k < kItems; ++k) {
    const u32 digit = (u32)(key[k] >> shift) & (kDigits - 1);
    const Lanes same = peers(digit, true), lower = same & lower_lanes();
    u32 before = 0;
    if (lower == 0) before = atomic_add(&s.counts[wave()][digit], (u32)count_bits(same));
    place[k] = (int)from_lane(before, lowest_lane(same)) + count_bits(lower);
  }
  barrier();
  // Sums the counts of a digit over waves, and then over digits. Each thread has several adjacent digits.
  constexpr int kEach = kDigits > kThreads ? kDigits / kThreads : 1;
  u32 mine = 0, total = 0;
  const int first = (int)thread() * kEach;
  if (first < kDigits)
    for (int d = first; d < first + kEach; ++d)
      for (int w = 0; w < s.kWaves; ++w) mine += s.counts[w][d];
  u32 before = sum_before<kThreads>(mine, s.sums, total);
  if (first < kDigits)
    for (int d = first; d < first + kEach; ++d) {
      s.begins[d] = before;
      for (int w = 0; w < s.kWaves; ++w) {
        const u32 count = s.counts[w][d];
        s.counts[w][d] = before;
        before += count;
      }
    }
  barrier();
#pragma unroll
  for (int k = 0; k < kItems; ++k) place[k] += (int)s.counts[wave()][(u32)(key[k] >> shift) & (kDigits - 1)];
}

// Ranks first, then items, because they need not exist at the same time.
template <int kThreads, int kItems, class K>
union TileSpace {
  RankSpace<kThreads> ranks;
  K keys[kThreads * kItems];
  u32 ids[kThreads * kItems];
};

// Exchanges the items of the threads into the order of `place`. `shared` holds one value for each item of the tile.
template <int kItems, class T>
PF_DEVICE void exchange(T (&value)[kItems], const int (&place)[kItems], T* shared) {
#pragma unroll
  for (int k = 0; k < kItems; ++k) shared[place[k]] = value[k];
  barrier();
#pragma unroll
  for (int k = 0; k < kItems; ++k) value[k] = shared[tile_at<kItems>(k)];
  barrier();
}

template <int kItems, class K, class Line>
PF_DEVICE void get_tile(const Line& line, i64 begin, int count, K (&key)[kItems], u32 (&id)[kItems]) {
#pragma unroll
  for (int k = 0; k < kItems; ++k) {
    key[k] = ~(K)0, id[k] = 0;  // larger than any other, so it is sorted last
    if (tile_at<kItems>(k) < count) line.get(begin + tile_at<kItems>(k), key[k], id[k]);
  }
}

// --- rows that fit into one tile
template <int kThreads, int kItems, class K, class Source, class Sink>
PF_DEVICE void sort_tile(const Source& source, const Sink& sink, const SortShape& p) {
  PF_SHARED TileSpace<kThreads, kItems, K> space;
  const i64 row = group_number();
  if (row >= p.rows) return;
  K key[kItems];
  u32 id[kItems];
  get_tile(source.line(row), 0, (int)p.n, key, id);
  for (int shift = p.begin; shift < p.end; shift += 8) {
    int place[kItems];
    rank<kThreads, kItems>(key, shift, place, space.ranks);
    barrier();
    exchange(key, place, space.keys);
    exchange(id, place, space.ids);
  }
  const auto line = sink.line(row);
#pragma unroll
  for (int k = 0; k < kItems; ++k)
    if (tile_at<kItems>(k) < (int)p.keep) line.put(tile_at<kItems>(k), key[k], id[k]);
}

// --- rows of several tiles: counts[row][digit][tile]
template <int kThreads, int kItems, class K, class Source>
PF_DEVICE void count_digits(const Source& source, u32* counts, const SortShape& p) {
  PF_SHARED u32 seen[kDigits];
  const i64 g = group_number(), row = g / p.tiles, tile = g - row * p.tiles, begin = tile * kThreads * kItems;
  if (row >= p.rows) return;
  for (int i = thread(); i < kDigits; i += kThreads) seen[i] = 0;
  K key[kItems];
  u32 id[kItems];
  const int count = (int)(p.n - begin < kThreads * kItems ? p.n - begin : kThreads * kItems);
  get_tile(source.line(row), begin, count, key, id);
  barrier();
#pragma unroll
  for (int k = 0; k < kItems; ++k) {
    const bool there = tile_at<kItems>(k) < count;
    const u32 digit = (u32)(key[k] >> p.begin) & (kDigits - 1);
    const Lanes same = peers(digit, there);
    if (there && (same & lower_lanes()) == 0) atomic_add(&seen[digit], (u32)count_bits(same));
  }
  barrier();
  for (int i = thread(); i < kDigits; i += kThreads) counts[(row * kDigits + i) * p.tiles + tile] = seen[i];
}

// Replaces counts by the sums over the previous tiles; totals[row][digit] are the totals.
template <int kThreads>
PF_DEVICE void sum_counts(u32* counts, u32* totals, i64 lines, i64 tiles) {
  PF_SHARED u32 shared[kThreads + 1];
  for (i64 line = group().x; line < lines; line += groups().x) {
    u32 before = 0;
    for (i64 begin = 0; begin < tiles; begin += kThreads) {
      const i64 at = begin + thread();
      const u32 mine = at < tiles ? counts[line * tiles + at] : 0u;
      u32 total = 0;
      const u32 sum = sum_before<kThreads>(mine, shared, total);
      if (at < tiles) counts[line * tiles + at] = before + sum;
      before += total;
    }
    if (thread() == 0) totals[line] = before;
  }
}

template <int kThreads, int kItems, class K, class Source, class Sink>
PF_DEVICE void move_items(const Source& source, const Sink& sink, const u32* counts, const u32* totals,
                          const SortShape& p) {
  static_assert(kThreads >= kDigits);
  constexpr int kTile = kThreads * kItems;
  PF_SHARED TileSpace<kThreads, kItems, K> space;
  PF_SHARED u32 to[kDigits];  // the destination of a digit's items, minus their position in the tile
  const i64 g = group_number(), row = g / p.tiles, tile = g - row * p.tiles, begin = tile * kTile;
  if (row >= p.rows) return;
  K key[kItems];
  u32 id[kItems];
  int place[kItems];
  const int count = (int)(p.n - begin < kTile ? p.n - begin : kTile), digit = (int)thread();
  get_tile(source.line(row), begin, count, key, id);
  u32 all = 0;
  const u32 earlier = sum_before<kThreads>(digit < kDigits ? totals[row * kDigits + digit] : 0u, space.ranks.sums, all);
  rank<kThreads, kItems>(key, p.begin, place, space.ranks);
  if (digit < kDigits)
    to[digit] = earlier + counts[(row * kDigits + digit) * p.tiles + tile] - space.ranks.begins[digit];
  barrier();
  // In the order of the tile, so that adjacent items are written together.
  exchange(key, place, space.keys);
  exchange(id, place, space.ids);
  const auto line = sink.line(row);
#pragma unroll
  for (int k = 0; k < kItems; ++k) {
    const int i = tile_at<kItems>(k);
    const u32 at = to[(u32)(key[k] >> p.begin) & (kDigits - 1)] + (u32)i;
    if (i < count && at < p.keep) line.put(at, key[k], id[k]);
  }
}

#endif

}  // namespace pf
