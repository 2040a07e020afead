// Products of 8-bit floats without matrix cores. A workgroup computes kTile x kTile outputs, and each thread kSide x kSide of them; codes become
// float32 on their way to shared memory.
#pragma once

namespace pf {

#ifdef PF_ON_DEVICE

template <class FormatA, class FormatB, class T, int kThreads>
PF_DEVICE void scaled_mm(const u8* a, const u8* b, const float* scale_a, const float* scale_b, T* to,
                         const ScaledShape& p) {
  constexpr int kTile = 64, kDepth = 16, kSide = 4, kAcross = kTile / kSide;
  static_assert(kThreads == kAcross * kAcross);
  PF_SHARED float left[kDepth][kTile + 1], right[kDepth][kTile + 1];
  const int row = (int)thread() / kAcross, col = (int)thread() % kAcross;
  const i64 across = (p.n + kTile - 1) / kTile, tiles = (p.m + kTile - 1) / kTile * across;
  const float scale = *scale_a * *scale_b;
  for (i64 t = group().x; t < tiles; t += groups().x) {
    const i64 i0 = t / across * kTile, j0 = t % across * kTile;
    float sum[kSide][kSide] = {};
    for (i64 k0 = 0; k0 < p.k; k0 += kDepth) {
      barrier();
      for (int e = (int)thread(); e < kTile * kDepth; e += kThreads) {
        const int r = e / kDepth, c = e % kDepth;
        const i64 k = k0 + c;
        left[c][r] = k < p.k && i0 + r < p.m ? FormatA::value(a[(i0 + r) * p.a_row + k * p.a_col]) : 0.0f;
        right[c][r] = k < p.k && j0 + r < p.n ? FormatB::value(b[k * p.b_row + (j0 + r) * p.b_col]) : 0.0f;
      }
      barrier();
#pragma unroll 4
      for (int c = 0; c < kDepth; ++c) {
        float x[kSide], y[kSide];
#pragma unroll
        for (int i = 0; i < kSide; ++i) x[i] = left[c][row + i * kAcross], y[i] = right[c][col + i * kAcross];
#pragma unroll
        for (int i = 0; i < kSide; ++i)
#pragma unroll
          for (int j = 0; j < kSide; ++j) sum[i][j] += x[i] * y[j];
      }
    }
#pragma unroll
    for (int i = 0; i < kSide; ++i)
#pragma unroll
      for (int j = 0; j < kSide; ++j) {
        const i64 r = i0 + row + i * kAcross, c = j0 + col + j * kAcross;
        if (r < p.m && c < p.n) store(to + r * p.c_row + c, sum[i][j] * scale);
      }
  }
}

#endif

}  // namespace pf
