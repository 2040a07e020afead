// scatter_add and index_add of floats with sources of one element, without a sort. All sources of a destination are rounded to multiples of one
// power of 2, and these integers are added atomically: the sum of integers does not depend on the order. The power is 2^-(24 + spare) of the largest
// source's, where `spare` bits are as many as leave room for the sum of all sources of a line. So a source has at least the 24 bits of a
// float32 with the largest one's exponent, and the sum is rounded to a float once, at its end.
//
// First the exponent of the largest source of each destination is found, then the integers are added, and at last each destination gets the value
// of its integer. tops[] and sums[] have an entry for each destination, line after line; both are 0 before. Where a source is infinite or NaN, the
// sum's lower word says that there was inf, its upper word that there was -inf, and both stand for NaN.
#pragma once

namespace pf {

#ifdef PF_ON_DEVICE

// A float as mantissa * 2^(exponent - 150). Infinite numbers and NaN have the exponent 255.
struct FloatParts {
  i64 mantissa;
  u32 exponent;
  bool negative, nan;
};
PF_DEVICE FloatParts parts_of(float x) {
  const u32 bits = bits_of_float(x), field = bits >> 23 & 255u, low = bits & 0x7fffffu;
  const i64 size = field ? low | 0x800000u : low;
  const bool negative = bits >> 31;
  return {negative ? -size : size, field ? field : 1, negative, field == 255 && low != 0};
}

// x in units of 2^(top - 150 - spare), rounded.
PF_DEVICE u64 in_units(const FloatParts& x, u32 top, int spare) {
  const int down = (int)(top - x.exponent) - spare;
  if (down <= 0) return (u64)x.mantissa << -down;
  return down > 25 ? 0 : (u64)((x.mantissa + ((i64)1 << (down - 1))) >> down);
}
PF_DEVICE float value_of(u64 sum, u32 top, int spare) {
  if (top == 255) {
    const bool up = (u32)sum != 0, down = sum >> 32 != 0;
    return float_of_bits(up && down ? 0x7fc00000u : up ? 0x7f800000u : 0xff800000u);
  }
  const int power = (int)(top ? top : 1) - 150 - spare,
            half = power / 2;  // from -187 to 104: the halves are powers of a float32
  const double unit = (double)float_of_bits((u32)(half + 127) << 23) * float_of_bits((u32)(power - half + 127) << 23);
  return (float)((double)(i64)sum * unit);
}

// What a thread adds: the place of its destination, or kNoPlace.
constexpr i64 kNoPlace = -1;
template <class S, bool kAcross>
PF_DEVICE i64 place_of(i64 e, i64 all, const IndexKeys& keys, const S* from, const SumShape& p, float& x) {
  if (e >= all) return kNoPlace;
  const bool narrow = all < (i64)1 << 31;
  const Source s = source_of<kAcross>(e, all, p);
  u32 key, id;
  keys.line(p.shared_keys ? 0 : s.line, narrow).get(s.i, key, id);
  x = load(from + p.from_lines.at(s.line, narrow) + s.i * p.from_stride);
  return key == kNowhere ? kNoPlace : s.line * keys.size + key;
}

// kMost: how many destinations there are at most, where a workgroup combines its sources in shared memory first; 0: it does not.
template <class S, int kThreads, bool kAcross, int kMost>
PF_DEVICE void find_tops(const IndexKeys& keys, const S* from, u32* tops, const SumShape& p) {
  PF_SHARED u32 mine[kMost ? kMost : 1];
  const i64 all = p.lines * p.count, places = p.lines * keys.size;
  if constexpr (kMost > 0) {
    for (i64 i = thread(); i < places; i += kThreads) mine[i] = 0;
    barrier();
  }
  for (i64 e = (i64)group().x * kThreads + thread(); e < all; e += (i64)groups().x * kThreads) {
    float x = 0;
    const i64 at = place_of<S, kAcross>(e, all, keys, from, p, x);
    if (at == kNoPlace) continue;
    u32* const top = kMost ? mine + at : tops + at;
    // What is read may be older, but never larger than what is there.
    if (const u32 exponent = parts_of(x).exponent; *top < exponent) atomic_max(top, exponent);
  }
  if constexpr (kMost > 0) {
    barrier();
    for (i64 i = thread(); i < places; i += kThreads)
      if (mine[i] > tops[i]) atomic_max(tops + i, mine[i]);
  }
}

template <class S, int kThreads, bool kAcross, int kMost>
PF_DEVICE void add_fixed(const IndexKeys& keys, const S* from, const u32* tops, u64* sums, const SumShape& p,
                         int spare) {
  PF_SHARED u64 mine[kMost ? kMost : 1];
  const i64 all = p.lines * p.count, places = p.lines * keys.size;
  if constexpr (kMost > 0) {
    for (i64 i = thread(); i < places; i += kThreads) mine[i] = 0;
    barrier();
  }
  for (i64 first = (i64)group().x * kThreads; first < all; first += (i64)groups().x * kThreads) {
    float x = 0;
    i64 at = place_of<S, kAcross>(first + thread(), all, keys, from, p, x);
    u64 units = 0;
    if (at != kNoPlace) {
      const FloatParts parts = parts_of(x);
      const u32 top = tops[at];
      if (top != 255) {
        units = in_units(parts, top, spare);
      } else if (parts.exponent == 255) {
        u32* const words = (u32*)(sums + at);
        if (parts.nan || !parts.negative) atomic_max(words, 1u);
        if (parts.nan || parts.negative) atomic_max(words + 1, 1u);
      }
    }
    if constexpr (kMost > 0) {
      if (units) atomic_add(mine + at, units);
    } else {
      // Where all lanes have the same destination, one of them adds for all.
      if (ballot(at == from_lane(at, 0)) == ~(u64)0 >> (64 - kWave)) {
        units = over_lanes<Sum, kWave>(units);
        if (lane() != 0) units = 0;
      }
      if (units) atomic_add(sums + at, units);
    }
  }
  if constexpr (kMost > 0) {
    barrier();
    for (i64 i = thread(); i < places; i += kThreads)
      if (mine[i]) atomic_add(sums + i, mine[i]);
  }
}

template <class S, int kThreads>
PF_DEVICE void store_fixed(const u32* tops, const u64* sums, S* to, const SumShape& p, i64 size, int spare) {
  const i64 places = p.lines * size;
  const bool narrow = places < (i64)1 << 31;
  for (i64 e = (i64)group().x * kThreads + thread(); e < places; e += (i64)groups().x * kThreads) {
    const Division d = divided(e, size, narrow);
    store(to + p.to_lines.at(d.quotient, narrow) + d.rest * p.to_stride, value_of(sums[e], tops[e], spare));
  }
}

#endif

}  // namespace pf
