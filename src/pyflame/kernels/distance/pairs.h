// Euclidean distances of all pairs of rows i < j. A workgroup computes those of kSide rows with kSide others, which it reads once.
#pragma once

namespace pf {

#ifdef PF_ON_DEVICE

template <class S, int kThreads>
PF_DEVICE void pair_distances(const S* x, S* to, const PairShape& p) {
  constexpr int kSide = 16, kDepth = 32;
  static_assert(kThreads == kSide * kSide);
  PF_SHARED C<S> first[kSide][kDepth + 1], second[kSide][kDepth + 1];
  const i64 across = (p.rows + kSide - 1) / kSide;
  const int u = (int)thread() / kSide, v = (int)thread() % kSide;
  for (i64 t = group().x; t < across * across; t += groups().x) {
    const i64 i0 = t / across * kSide, j0 = t % across * kSide;
    if (j0 < i0) continue;
    C<S> sum = 0;
    for (i64 k0 = 0; k0 < p.width; k0 += kDepth) {
      barrier();
      for (int e = (int)thread(); e < kSide * kDepth; e += kThreads) {
        const int r = e / kDepth, c = e % kDepth;
        const S* at = x + (k0 + c) * p.column;
        const bool inside = k0 + c < p.width;
        first[r][c] = inside && i0 + r < p.rows ? load(at + (i0 + r) * p.row) : C<S>(0);
        second[r][c] = inside && j0 + r < p.rows ? load(at + (j0 + r) * p.row) : C<S>(0);
      }
      barrier();
      C<S> part = 0;
#pragma unroll 8
      for (int c = 0; c < kDepth; ++c) {
        const C<S> d = first[u][c] - second[v][c];
        part += d * d;
      }
      sum += part;
    }
    const i64 i = i0 + u, j = j0 + v;
    if (i < j && j < p.rows) store(to + (i * (2 * p.rows - i - 1) / 2 + j - i - 1) * p.step, m_sqrt(sum));
  }
}

#endif

}  // namespace pf
