// gather and index_select: each element of the output is the element of x at an index. Elements are words of any size;
// rows of them are moved 16 bytes at a time where possible.
#pragma once

namespace pf {

#ifdef PF_ON_DEVICE

// *p, or zeros if `there` is false; then p is not read.
template <class W>
PF_DEVICE W word_at(const W* p, bool there) {
  return there ? *p : (W)0;
}
PF_DEVICE Word16 word_at(const Word16* p, bool there) {
  Word16 w;
  w.w[0] = w.w[1] = w.w[2] = w.w[3] = 0;
  if (there) {
    const Word16 all = *p;
    w.w[0] = all.w[0], w.w[1] = all.w[1], w.w[2] = all.w[2], w.w[3] = all.w[3];
  }
  return w;
}

// Operands of the walk: the index, x without the indexed dim, the output. Each thread moves kEach words, kThreads
// apart.
template <class W, bool kWide, int kThreads, int kEach>
PF_DEVICE void take(const i64* index, const W* x, W* y, const Walk<3, kWide>& walk, i64 stride, i64 size, Fault* fault,
                    int site) {
  for (i64 first = (i64)group().x * kThreads * kEach; first < walk.count; first += (i64)groups().x * kThreads * kEach) {
    W words[kEach];
    i64 to[kEach];
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      const i64 i = first + e * kThreads + (int)thread();
      i64 offset[3] = {0, 0, 0};
      if (i < walk.count) walk.at(i, offset);
      const i64 at = i < walk.count ? index[offset[0]] : -1;
      to[e] = i < walk.count ? offset[2] : -1;
      const bool good = at >= 0 && at < size;
      words[e] = word_at(x + offset[1] + at * stride, good);
      if (!good && to[e] >= 0 && fault) raise(fault, site, kIndexOutOfRange, at, size);
    }
#pragma unroll
    for (int e = 0; e < kEach; ++e)
      if (to[e] >= 0) y[to[e]] = words[e];
  }
}

#endif

}  // namespace pf
