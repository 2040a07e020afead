// gather and index_select: each element of the output is that of x at an index. Elements are words of any size: a row of them is
// moved 16 bytes at a time where it can be.
#pragma once

namespace pf {

#ifdef PF_ON_DEVICE

// Operands of the walk: index, x without the indexed dim, output. Each thread moves kEach words, kThreads apart.
template <class W, bool kWide, int kThreads, int kEach>
PF_DEVICE void take(const i64* index, const W* x, W* y, const Walk<3, kWide>& walk, i64 stride, i64 size, Fault* fault,
                    int site) {
  for (i64 first = (i64)group().x * kThreads * kEach; first < walk.count; first += (i64)groups().x * kThreads * kEach) {
    W words[kEach];
    i64 to[kEach];
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      const i64 i = first + e * kThreads + (int)thread();
      words[e] = {};
      to[e] = -1;
      if (i >= walk.count) continue;
      i64 offset[3] = {0, 0, 0};
      walk.at(i, offset);
      const i64 at = index[offset[0]];
      to[e] = offset[2];
      if (at >= 0 && at < size) words[e] = x[offset[1] + at * stride];
      else if (fault) raise(fault, site, kIndexOutOfRange, at, size);
    }
#pragma unroll
    for (int e = 0; e < kEach; ++e)
      if (to[e] >= 0) y[to[e]] = words[e];
  }
}

#endif

}  // namespace pf
