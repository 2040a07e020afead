// Matrix product for any strides and dtype: a tile of kTile x kTile outputs for each workgroup, through LDS, in float32 (float64 and integers
// in their own type). The entry that works on every architecture; libraries and matrix units come before it.
#pragma once

namespace pf {

struct MatmulShape {
  i64 m, n, k;
  i64 a_row, a_col, b_row, b_col, c_row, c_col;  // strides
  View a_batch, b_batch, c_batch;                // over the batch dims, which have the output's sizes
};

#ifdef PF_ON_DEVICE
template <class S, int kTile, int kDepth, int kEach>
PF_DEVICE void matmul(const S* a, const S* b, S* c, const MatmulShape& p) {
  using T = C<S>;
  constexpr int kSide = kTile / kEach, kThreads = kSide * kSide;
  PF_SHARED T as[kDepth][kTile + 1], bs[kDepth][kTile + 1];
  const i64 row0 = (i64)group().y * kTile, col0 = (i64)group().x * kTile;
  a += p.a_batch.at(group().z);
  b += p.b_batch.at(group().z);
  c += p.c_batch.at(group().z);
  const int tx = thread() % kSide, ty = thread() / kSide;
  T sums[kEach][kEach] = {};
  for (i64 k0 = 0; k0 < p.k; k0 += kDepth) {
    for (int e = thread(); e < kTile * kDepth; e += kThreads) {
      // Neighbouring threads take neighbouring addresses, whichever way the matrix lies.
      const int i = p.a_col == 1 ? e / kDepth : e % kTile, d = p.a_col == 1 ? e % kDepth : e / kTile;
      const i64 row = row0 + i, at = k0 + d;
      as[d][i] = row < p.m && at < p.k ? load(a + row * p.a_row + at * p.a_col) : T(0);
      const int j = p.b_row == 1 ? e / kDepth : e % kTile, f = p.b_row == 1 ? e % kDepth : e / kTile;
      const i64 col = col0 + j, at2 = k0 + f;
      bs[f][j] = col < p.n && at2 < p.k ? load(b + at2 * p.b_row + col * p.b_col) : T(0);
    }
    barrier();
    for (int d = 0; d < kDepth; ++d) {
      T x[kEach], y[kEach];
      for (int i = 0; i < kEach; ++i) x[i] = as[d][ty + i * kSide], y[i] = bs[d][tx + i * kSide];
      for (int i = 0; i < kEach; ++i)
        for (int j = 0; j < kEach; ++j) sums[i][j] = add<T>(sums[i][j], mul<T>(x[i], y[j]));
    }
    barrier();
  }
  for (int i = 0; i < kEach; ++i)
    for (int j = 0; j < kEach; ++j) {
      const i64 row = row0 + ty + i * kSide, col = col0 + tx + j * kSide;
      if (row < p.m && col < p.n) store(c + row * p.c_row + col * p.c_col, sums[i][j]);
    }
}
#endif

}  // namespace pf
