// Sums of weights by bin, in one pass. Bin k has the values whose product with (or quotient by) the scale rounds to k, halves to the even
// number. Elements outside of the window are not added; the statistics say so.
//
// Integers are added by atomics, whose order is of no importance: into sums of the workgroup, in shared memory, where the window fits into it,
// otherwise into the result. Neighbours in the same bin are added up first, within a lane and then among the lanes of a wave: values that follow
// each other are often close, and atomics on one address wait for each other. Floats are added in the order of the elements of a part, then in the
// order of the parts.
#pragma once

namespace pf {

#ifdef PF_ON_DEVICE

PF_DEVICE i64 bits_of_double(double x) {
  union {
    double x;
    i64 bits;
  } u{x};
  return u.bits;
}

// Whether an element can be used, and its bin. NaN is not below anything.
template <class V, bool kDivide>
PF_DEVICE bool bin_of(double value, V weight, const BinShape& p, i64& bin) {
  const double at = kDivide ? value / p.scale : value * p.scale;
  if (!(at > -1125899906842624.0 && at < 1125899906842624.0)) return false;  // 2^50
  // The last digit of 1.5 * 2^52 is worth 1, so the sum is rounded to an integer, and its bits count up from those of this number. GPUs convert
  // between double and integers of 64 bits at a small part of the rate at which they add.
  bin = bits_of_double(at + 6755399441055744.0) - 0x4338000000000000;
  if constexpr (is_floating<V>::value) return weight >= (V)0 && weight - weight == (V)0;
  else return weight >= (V)0;
}

struct BinRange {
  i64 lowest = 0x7fffffffffffffff, highest = -0x7fffffffffffffff - 1, most = 0, unusable = 0;
  PF_DEVICE void add(i64 bin, i64 weight) {
    lowest = minimum<i64>(lowest, bin), highest = maximum<i64>(highest, bin), most = maximum<i64>(most, weight);
  }
  // Of the whole workgroup.
  template <int kThreads>
  PF_DEVICE void store(BinStats* to) {
    PF_SHARED i64 shared[kThreads];
    // ~x is larger for smaller x.
    const i64 low = ~over_group<Largest, kThreads>(~lowest, shared);
    const i64 high = over_group<Largest, kThreads>(highest, shared);
    const i64 most_of_all = over_group<Largest, kThreads>(most, shared);
    const i64 bad = over_group<Sum, kThreads>(unusable, shared);
    if (thread() == 0) *to = BinStats{low, high, most_of_all, bad};
  }
};

// Sums of 64 bits in shared memory as two words: adding 64 bits at once is slow there on some GPUs.
struct SharedSums {
  u32 *low, *high;
  PF_DEVICE SharedSums(i64 bins) : low(dynamic_shared<u32>()), high(low + bins) {}
  PF_DEVICE void add(i64 at, u64 x) const {
    const u32 part = (u32)x, before = atomic_add(low + at, part);
    const u32 rest = (u32)(x >> 32) + ((u32)(before + part) < before ? 1u : 0u);
    if (rest != 0) atomic_add(high + at, rest);
  }
};
struct GlobalSums {
  u64* sums;
  PF_DEVICE void add(i64 at, u64 x) const { atomic_add(sums + at, x); }
};

// The sum over the lanes from this one to the one before `end`. T holds the sum of all lanes. All lanes of the wave must call this.
template <class T>
PF_DEVICE T over_run(T x, int end) {
  for (int step = 1; step < kWave && ballot(lane() + step < end) != 0; step *= 2) {
    const int from = lane() + step;
    const T other = from_lane(x, from < kWave ? from : kWave - 1);
    if (from < end) x += other;
  }
  return x;
}

// Adds the sum of each lane to its bin; -1: to none. Of adjacent lanes with the same bin the first one adds for all. All lanes of the wave must call this.
template <class Sums>
PF_DEVICE void add_of_lanes(const Sums& sums, int bin, u64 sum) {
  const int before = from_lane(bin, lane() > 0 ? lane() - 1 : 0);
  const bool leads = lane() == 0 || bin != before;
  const u64 leaders = ballot(leads);
  if (leaders != ~(u64)0 >> (64 - kWave)) {
    const u64 later = leaders >> lane() >> 1;
    const int end = later == 0 ? kWave : lane() + 1 + count_bits((later & (0 - later)) - 1);
    // A wave has at most 64 lanes.
    if (ballot(sum >> 26 != 0) == 0) sum = over_run((u32)sum, end);
    else sum = over_run(sum, end);
  }
  if (leads && bin >= 0) sums.add(bin, sum);
}

// kWide: the operands are contiguous and aligned to 16 bytes. A thread takes pairs of neighbours, and adjacent threads take adjacent pairs. A workgroup
// takes tiles that follow each other, which have fewer bins than tiles from everywhere.
template <class S, class W, bool kDivide, bool kWide, int kThreads, class Sums>
PF_DEVICE void add_all(const S* values, const W* weights, const Sums& sums, BinStats* stats, const BinShape& p) {
  constexpr int kPairs = 2, kTile = 2 * kPairs * kThreads;
  BinRange range;
  const i64 tiles = (p.count + kTile - 1) / kTile, each = (tiles + groups().x - 1) / groups().x * kTile;
  const i64 begin = (i64)group().x * each, stop = minimum<i64>(p.count, begin + each);
  for (i64 tile = begin; tile < stop; tile += kTile) {
    const i64 first = tile + 2 * (i64)thread();
    Vec<S, 2> value[kPairs];
    Vec<W, 2> weight[kPairs];
    const bool whole = tile + kTile <= p.count;
    if (kWide && whole) {
#pragma unroll
      for (int k = 0; k < kPairs; ++k) {
        value[k] = load_once<2>(values + first + 2 * k * kThreads);
        weight[k] = load_once<2>(weights + first + 2 * k * kThreads);
      }
    } else {
#pragma unroll
      for (int k = 0; k < 2 * kPairs; ++k) {
        const i64 i = first + k / 2 * 2 * kThreads + k % 2, e = i < p.count ? i : tile;
        value[k / 2][k % 2] = values[e * p.value_step], weight[k / 2][k % 2] = weights[e * p.weight_step];
      }
    }
#pragma unroll
    for (int k = 0; k < kPairs; ++k) {
      int at[2];
      u64 sum[2];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        at[j] = -1, sum[j] = 0;
        if (!whole && first + 2 * k * kThreads + j >= p.count) continue;
        i64 bin;
        if (bin_of<W, kDivide>((double)value[k][j], weight[k][j], p, bin)) {
          range.add(bin, (i64)weight[k][j]);
          if (bin >= p.start && bin - p.start < p.bins) at[j] = (int)(bin - p.start), sum[j] = (u64)weight[k][j];
        } else {
          ++range.unusable;
        }
      }
      if (at[0] == at[1]) sum[1] += sum[0];
      else if (at[0] >= 0) sums.add(at[0], sum[0]);
      add_of_lanes(sums, at[1], sum[1]);
    }
  }
  range.store<kThreads>(stats + group().x);
}

// The result must be 0 before.
template <class S, class W, bool kDivide, bool kWide, int kThreads>
PF_DEVICE void add_to_bins(const S* values, const W* weights, u64* to, BinStats* stats, const BinShape& p) {
  add_all<S, W, kDivide, kWide, kThreads>(values, weights, GlobalSums{to}, stats, p);
}
template <class S, class W, bool kDivide, bool kWide, int kThreads>
PF_DEVICE void add_to_shared_bins(const S* values, const W* weights, u64* to, BinStats* stats, const BinShape& p) {
  const SharedSums sums(p.bins);
  for (i64 i = thread(); i < 2 * p.bins; i += kThreads) sums.low[i] = 0;
  barrier();
  add_all<S, W, kDivide, kWide, kThreads>(values, weights, sums, stats, p);
  barrier();
  for (i64 i = thread(); i < p.bins; i += kThreads) {
    const u64 x = (u64)sums.high[i] << 32 | sums.low[i];
    if (x != 0) atomic_add(to + i, x);
  }
}

// Each workgroup has a part of the elements and sums of its own. Of the elements of a tile in the same bin, the first one's thread adds all.
template <class S, class W, bool kDivide, int kThreads>
PF_DEVICE void add_in_order(const S* values, const W* weights, double* parts, BinStats* stats, const BinShape& p) {
  PF_SHARED int bins[kThreads];
  PF_SHARED double addends[kThreads];
  double* const sums = parts + (i64)group().x * p.bins;
  for (i64 i = thread(); i < p.bins; i += kThreads) sums[i] = 0;
  BinRange range;
  const int me = (int)thread();
  const i64 begin = (i64)group().x * p.part, end = minimum<i64>(p.count, begin + p.part);
  for (i64 first = begin; first < end; first += kThreads) {
    const i64 e = first + me;
    int here = -1;
    double mine = 0;
    if (e < end) {
      const W weight = weights[e * p.weight_step];
      i64 bin;
      if (bin_of<W, kDivide>((double)values[e * p.value_step], weight, p, bin)) {
        range.add(bin, 0);
        const i64 at = bin - p.start;
        if (at >= 0 && at < p.bins) here = (int)at, mine = (double)weight;
      } else {
        ++range.unusable;
      }
    }
    bins[me] = here, addends[me] = mine;
    barrier();
    bool leads = here >= 0;
    for (int k = me - 1; leads && k >= 0; --k) leads = bins[k] != here;
    if (leads) {
      double sum = sums[here] + mine;
      for (int k = me + 1; k < kThreads; ++k)
        if (bins[k] == here) sum += addends[k];
      sums[here] = sum;
    }
    barrier();
  }
  range.store<kThreads>(stats + group().x);
}

template <int kThreads>
PF_DEVICE void sum_parts_of_bins(const double* parts, double* to, i64 bins, i64 count) {
  for (i64 i = (i64)group().x * kThreads + thread(); i < bins; i += (i64)groups().x * kThreads) {
    double sum = 0;
    for (i64 part = 0; part < count; ++part) sum += parts[part * bins + i];
    to[i] = sum;
  }
}

// The statistics of `count` workgroups; one workgroup does it.
template <int kThreads>
PF_DEVICE void join_bin_stats(const BinStats* stats, i64 count, BinStats* to) {
  BinRange range;
  for (i64 i = thread(); i < count; i += kThreads) {
    range.lowest = minimum<i64>(range.lowest, stats[i].lowest);
    range.highest = maximum<i64>(range.highest, stats[i].highest);
    range.most = maximum<i64>(range.most, stats[i].most);
    range.unusable += stats[i].unusable;
  }
  range.store<kThreads>(to);
}

#endif

}  // namespace pf
