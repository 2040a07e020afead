// A matrix times up to 16 vectors of 16-bit floats, on matrix cores. As in gemv.h, the time goes into reading the matrix:
// a wave reads 16 lines of it straight into the operands of its instructions, without shared memory and without
// barriers, several steps ahead. The vectors come from the caches. The steps of the depth are dealt out to kSlices slices, which are added
// in their order, so the number of waves does not decide the order of a sum.
#pragma once

namespace pf {

#if defined(PF_ON_DEVICE) && (defined(PF_MATRIX_LINES) || defined(PF_MATRIX_SYNC))
// kBlocks: the blocks of 16 lines that a workgroup has. kAhead: the steps whose loads are issued together.
template <class S, int kBlocks, int kAhead, int kSlices>
struct FewTile {
  static constexpr int kLines = 16 * kBlocks, kStep = DirectMma<S>::kDepth * kAhead;
};

// What matmul_few can do before the kernels in front have ended: it has the first elements of its lines brought near.
template <class S, int kBlocks, int kAhead, int kSlices>
PF_DEVICE void matmul_few_early(const S* w, const GemvShape& p) {
  using Tile = FewTile<S, kBlocks, kAhead, kSlices>;
  const i64 blocks = (p.n + Tile::kLines - 1) / Tile::kLines, line = group().x % blocks * Tile::kLines + thread();
  const i64 begin = group().x / blocks * p.depth, end = begin + p.depth < p.k ? begin + p.depth : p.k;
  const i64 most = kSlices * Tile::kStep, count = end - begin < most ? end - begin : most;
  if ((int)thread() < Tile::kLines && line < p.n && count > 0)
    bring_near(w + p.w_batch.at(group().y) + line * p.w_line + begin, (unsigned)(count * sizeof(S)));
}

// out: as in gemv_along. Lines and vectors are contiguous, aligned to 16 bytes, and have a multiple of 8 elements.
template <class S, int kVectors, int kBlocks, int kAhead, int kSlices, int kThreads, class Out>
PF_DEVICE void matmul_few(const S* w, const S* x, const GemvShape& p, const Out& out) {
  using Tile = FewTile<S, kBlocks, kAhead, kSlices>;
  using D = DirectMma<S>;
  constexpr int kLines = Tile::kLines, kStep = Tile::kStep, kWaves = kThreads / kWave;
  static_assert(kVectors <= 16 && kSlices % kWaves == 0);
  PF_SHARED float parts[kSlices * kVectors * kLines];
  const i64 blocks = (p.n + kLines - 1) / kLines, split = group().x / blocks, line0 = group().x % blocks * kLines;
  const i64 begin = split * p.depth, end = begin + p.depth < p.k ? begin + p.depth : p.k;
  for (i64 z = group().y; z < p.batches; z += groups().y) {
    const S* const from_w = w + p.w_batch.at(z);
    const S* const from_x = x + p.x_batch.at(z);
    for (int slice = wave(); slice < kSlices; slice += kWaves) {
      typename Mma<S>::C sums[kBlocks];
#pragma unroll
      for (int b = 0; b < kBlocks; ++b)
#pragma unroll
        for (int e = 0; e < Mma<S>::kC; ++e) sums[b].v[e] = 0;
      for (i64 k = begin + slice * kStep; k < end; k += kSlices * kStep) {
        typename D::A matrix[kAhead][kBlocks];
        typename D::B vectors[kAhead];
#pragma unroll
        for (int h = 0; h < kAhead; ++h) {
          const i64 at = k + h * D::kDepth + D::first();
#pragma unroll
          for (int b = 0; b < kBlocks; ++b)
#pragma unroll
            for (int i = 0; i < D::kA; ++i) {
              const i64 line = line0 + 16 * b + D::line(i);
#pragma unroll
              for (int j = 0; j < D::kEach; ++j)
                if (line < p.n && at + 8 * j < end) matrix[h][b].v[i][j].once(from_w + line * p.w_line + at + 8 * j);
            }
        }
#pragma unroll
        for (int h = 0; h < kAhead; ++h) {
          const i64 at = k + h * D::kDepth + D::first();
#pragma unroll
          for (int i = 0; i < D::kB; ++i)
#pragma unroll
            for (int j = 0; j < D::kEach; ++j)
              if (D::line(i) < kVectors && at + 8 * j < end)
                vectors[h].v[i][j].load(from_x + D::line(i) * p.x_line + at + 8 * j);
        }
#pragma unroll
        for (int h = 0; h < kAhead; ++h)
#pragma unroll
          for (int b = 0; b < kBlocks; ++b) D::template fma<kVectors>(sums[b], matrix[h][b], vectors[h]);
      }
#pragma unroll
      for (int b = 0; b < kBlocks; ++b)
#pragma unroll
        for (int e = 0; e < Mma<S>::kC; ++e) {
          const int line = 16 * b + Mma<S>::row(e), vector = Mma<S>::col(e);
          if (vector < kVectors) parts[(slice * kVectors + vector) * kLines + line] = sums[b].v[e];
        }
    }
    barrier();
#pragma unroll 1
    for (int e = (int)thread(); e < kVectors * kLines; e += kThreads) {
      float sum = parts[e];
      for (int s = 1; s < kSlices; ++s) sum += parts[s * kVectors * kLines + e];
      if (line0 + e % kLines < p.n) out(split * p.batches + z, line0 + e % kLines, e / kLines, sum);
    }
    barrier();
  }
}
#endif

}  // namespace pf
