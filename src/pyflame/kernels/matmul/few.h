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

// out: as in gemv_along. Lines and vectors are contiguous, aligned to 16 bytes, and have a multiple of 8 elements.
template <class S, int kVectors, int kBlocks, int kAhead, int kSlices, int kThreads, class Out>
PF_DEVICE void matmul_few(const S* w, const S* x, const GemvShape& p, const Out& out) {
  using Tile = FewTile<S, kBlocks, kAhead, kSlices>;
  using D = DirectMma<S>;
  constexpr int kLines = Tile::kLines, kStep = Tile::kStep, kWaves = kThreads / kWave;
  static_assert(kVectors <= 16 && kSlices % kWaves == 0);
  PF_SHARED float parts[kSlices * kVectors * kLines];
  const u32 blocks = (u32)((p.n + kLines - 1) / kLines);
  const i64 split = group().x / blocks, line0 = (i64)(group().x % blocks) * kLines;
  const i64 begin = split * p.depth, end = begin + p.depth < p.k ? begin + p.depth : p.k;
  const i64 most = kSlices * kStep, count = end - begin < most ? end - begin : most;
  if ((int)thread() < kLines && line0 + thread() < p.n && count > 0)
    bring_near(w + p.w_batch.at(group().y) + (line0 + thread()) * p.w_line + begin, (unsigned)(count * sizeof(S)));
  await_earlier_kernels();
  for (i64 z = group().y; z < p.batches; z += groups().y) {
    const S* const from_w = w + p.w_batch.at(z);
    const S* const from_x = x + p.x_batch.at(z);
    for (int slice = wave(); slice < kSlices; slice += kWaves) {
      typename Mma<S>::C sums[kBlocks];
#pragma unroll
      for (int b = 0; b < kBlocks; ++b)
#pragma unroll
        for (int e = 0; e < Mma<S>::kC; ++e) sums[b].v[e] = 0;
      const S* lines[kBlocks][D::kA];
      const S* rows[D::kB];
#pragma unroll
      for (int b = 0; b < kBlocks; ++b)
#pragma unroll
        for (int i = 0; i < D::kA; ++i) {  // lines beyond the last one read it, and nobody stores them
          const i64 line = line0 + 16 * b + D::line(i);
          lines[b][i] = from_w + (line < p.n ? line : p.n - 1) * p.w_line + D::first();
        }
#pragma unroll
      for (int i = 0; i < D::kB; ++i)
        rows[i] = from_x + (D::line(i) < kVectors ? D::line(i) : kVectors - 1) * p.x_line + D::first();
      // kSteps steps from k on. whole: the end does not cut them.
      const auto steps = [&](i64 k, auto count, auto whole) {
        constexpr int kSteps = decltype(count)::kValue;
        typename D::A matrix[kSteps][kBlocks];
        typename D::B vectors[kSteps];
        const auto inside = [&](int h, int j) { return whole || k + h * D::kDepth + D::first() + 8 * j < end; };
#pragma unroll
        for (int h = 0; h < kSteps; ++h)
#pragma unroll
          for (int b = 0; b < kBlocks; ++b)
#pragma unroll
            for (int i = 0; i < D::kA; ++i)
#pragma unroll
              for (int j = 0; j < D::kEach; ++j)
                if (inside(h, j)) matrix[h][b].v[i][j].once(lines[b][i] + k + h * D::kDepth + 8 * j);
#pragma unroll
        for (int h = 0; h < kSteps; ++h)
#pragma unroll
          for (int i = 0; i < (kVectors > 8 ? D::kB : 1); ++i)
#pragma unroll
            for (int j = 0; j < D::kEach; ++j)
              if (inside(h, j)) vectors[h].v[i][j].load(rows[i] + k + h * D::kDepth + 8 * j);
#pragma unroll
        for (int h = 0; h < kSteps; ++h)
#pragma unroll
          for (int b = 0; b < kBlocks; ++b) D::template fma<kVectors>(sums[b], matrix[h][b], vectors[h]);
      };
      for (i64 k = begin + slice * kStep; k < end; k += kSlices * kStep) {
        if (k + kStep <= end) {
          steps(k, Count<kAhead>(), Always());
        } else {
#pragma unroll 1
          for (i64 at = k; at < end; at += D::kDepth) steps(at, Count<1>(), Sometimes());
        }
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
