// The positions of the true elements of a mask, in order: every tile counts its own, the counts are summed over tiles
// (order/radix.h), and every tile writes its positions.
#pragma once

namespace pf {

#ifdef PF_ON_DEVICE

template <int kThreads, int kItems>
PF_DEVICE void count_true(const u8* mask, u32* counts, i64 n, i64 step) {
  PF_SHARED u32 shared[kThreads + 1];
  const i64 tile = group_number(), begin = tile * kThreads * kItems;
  if (begin >= n && tile > 0) return;
  u32 mine = 0, total = 0;
#pragma unroll
  for (int k = 0; k < kItems; ++k) {
    const i64 i = begin + k * kThreads + (int)thread();
    if (i < n && mask[i * step]) ++mine;
  }
  sum_before<kThreads>(mine, shared, total);
  if (thread() == 0) counts[tile] = total;
}

// counts: how many true elements are before each tile. What follows the positions of all of them is `fill`.
template <int kThreads, int kItems>
PF_DEVICE void put_true(const u8* mask, const u32* counts, const u32* total, i64* to, i64 n, i64 step, i64 size,
                        i64 fill) {
  PF_SHARED u32 shared[kThreads + 1];
  const i64 tile = group_number(), begin = tile * kThreads * kItems;
  for (i64 i = (i64)*total + tile * kThreads + (int)thread(); i < size; i += (i64)groups().x * groups().y * kThreads)
    to[i] = fill;
  if (begin >= n) return;
  i64 at = counts[tile];
#pragma unroll 1
  for (int k = 0; k < kItems; ++k) {
    const i64 i = begin + k * kThreads + (int)thread();
    const bool set = i < n && mask[i * step];
    u32 some = 0;
    const i64 place = at + sum_before<kThreads>(set ? 1u : 0u, shared, some);
    if (set && place < size) to[place] = i;
    at += some;
  }
}

#endif

}  // namespace pf
