// Matrix product of 16-bit floats on matrix cores (device/mma.h), summed in float32. A workgroup computes a tile of
// outputs, and a wave computes blocks of 16 x 16 of it. If there are few tiles, the depth is divided into slices. The
// number of waves decides who computes what, but never the order of a sum.
#pragma once

namespace pf {

#ifdef PF_ON_DEVICE
// A rectangle of lines x depth elements in the layout that it has in memory: [line][depth] if it is contiguous along
// the depth, [depth][line] otherwise.
template <class S, int kLines, int kDepth, int kThreads, bool kAlong, int kVec>
struct Stage {
  using In = Fetch<S, kLines, kDepth, kThreads, kAlong, kVec, kDepth / kVec>;
  static constexpr int kPitch = (kAlong ? kDepth : kLines) + 8, kSize = kPitch * (kAlong ? kLines : kDepth);
  In in;
  PF_DEVICE void put(S* to) {
    in.each([&](int l, int d, const auto& x) { store_vec(to + (kAlong ? l * kPitch + d : d * kPitch + l), x); });
  }
};

// kHigh x kLong: the blocks of 16 x 16 that a wave computes together. out: as in matmul_tile, and for kMany adjacent
// elements.
template <class S, int kRows, int kCols, int kGivenDepth, int kHigh, int kLong, int kSlices, int kThreads, bool kAlongA,
          bool kAlongB, int kVecA, int kVecB, class Out, class Parts = WholeProduct>
PF_DEVICE void matmul_units(const S* a, const S* b, const MatmulShape& p, const Out& out, const Parts& of = {}) {
  using M = Mma<S>;
  // The order of a sum depends on the depth of a step only if there are slices.
  constexpr int kDepth = kSlices == 1 && kGivenDepth < least_step() ? least_step() : kGivenDepth;
  using StageA = Stage<S, kRows, kDepth, kThreads, kAlongA, kVecA>;
  using StageB = Stage<S, kCols, kDepth, kThreads, kAlongB, kVecB>;
  constexpr int kAcross = kCols / (16 * kLong), kParts = kRows / (16 * kHigh) * kAcross, kItems = kParts * kSlices;
  constexpr int kWaves = kThreads / kWave, kMine = (kItems + kWaves - 1) / kWaves;
  constexpr int kStaged = (StageA::kSize + StageB::kSize) * (int)sizeof(S),
                kSums = kSlices > 1 ? kSlices * kRows * kCols * 4 : 16;
  static_assert(kDepth % (16 * kSlices) == 0);
  PF_SHARED __attribute__((aligned(16))) char shared[kStaged > kSums ? kStaged : kSums];
  S* as = (S*)shared;
  S* bs = as + StageA::kSize;
  const u32 wide = (u32)((p.n + kCols - 1) / kCols), high = of.template slots<kRows>(p);
  const i64 split = group().x / (wide * high);
  // Tiles are visited in bands of 8 rows, so that workgroups that run at the same time share their inputs in the cache.
  constexpr u32 kBand = 8;
  const u32 tile = group().x % (wide * high), band = tile / (kBand * wide), in_band = tile % (kBand * wide);
  const u32 band_rows = high - band * kBand < kBand ? high - band * kBand : kBand;
  const i64 col0 = (i64)(in_band / band_rows) * kCols;
  for (i64 z = group().y; z < p.batches;
       z += Parts::kGroups ? p.batches : groups().y) {  // groups: one for each workgroup
    const Part here = of.template at<kRows>(p, z, band * kBand + in_band % band_rows);
    if (Parts::kGroups && here.row >= here.rows_end) continue;
    const i64 row0 = here.row, rows_end = here.rows_end, begin = here.depth + split * p.depth;
    const i64 end = begin + p.depth < here.depth_end ? begin + p.depth : here.depth_end;
    StageA next_a;
    StageB next_b;
    next_a.in.start(a + p.a_batch.at(here.item) + row0 * p.a_row + begin * p.a_col, p.a_row, p.a_col, rows_end - row0);
    next_b.in.start(b + p.b_batch.at(here.item) + col0 * p.b_col + begin * p.b_row, p.b_col, p.b_row, p.n - col0);
    typename M::C sums[kMine][kHigh][kLong];
#pragma unroll
    for (int w = 0; w < kMine; ++w)
#pragma unroll
      for (int i = 0; i < kHigh; ++i)
#pragma unroll
        for (int j = 0; j < kLong; ++j)
#pragma unroll
          for (int e = 0; e < M::kC; ++e) sums[w][i][j].v[e] = 0;
    next_a.in.fetch(end - begin);
    next_b.in.fetch(end - begin);
    for (i64 k = begin; k < end; k += kDepth) {
      next_a.put(as);
      next_b.put(bs);
      barrier();
      if (k + kDepth < end) {
        next_a.in.fetch(end - k - kDepth);
        next_b.in.fetch(end - k - kDepth);
      }
#pragma unroll
      for (int w = 0; w < kMine; ++w) {
        const int item = wave() + w * kWaves, part = item % kParts, slice = kSlices > 1 ? item / kParts : 0;
        if (kItems % kWaves == 0 || item < kItems) {
          const int r = part / kAcross * 16 * kHigh, c = part % kAcross * 16 * kLong;
#pragma unroll
          for (int s = 0; s < kDepth / (16 * kSlices); ++s) {
            const int d = (s * kSlices + slice) * 16;
            typename M::A x[kHigh];
            typename M::B y[kLong];
#pragma unroll
            for (int i = 0; i < kHigh; ++i)
              x[i] = kAlongA ? M::load_a(as + (r + 16 * i) * StageA::kPitch + d, StageA::kPitch)
                             : M::load_a_t(as + d * StageA::kPitch + r + 16 * i, StageA::kPitch);
#pragma unroll
            for (int j = 0; j < kLong; ++j)
              y[j] = kAlongB ? M::load_b_t(bs + (c + 16 * j) * StageB::kPitch + d, StageB::kPitch)
                             : M::load_b(bs + d * StageB::kPitch + c + 16 * j, StageB::kPitch);
#pragma unroll
            for (int i = 0; i < kHigh; ++i) {
#pragma unroll
              for (int j = 0; j < kLong; ++j) M::fma(sums[w][i][j], x[i], y[j]);
              schedule_barrier_if_narrow();
            }
          }
        }
      }
      barrier();
    }
    const i64 at = split * p.batches + here.item;
    // The size of the tile that exists.
    const int rows = rows_end - row0 < kRows ? (int)(rows_end - row0) : kRows,
              cols = p.n - col0 < kCols ? (int)(p.n - col0) : kCols;
    float* parts = (float*)shared;
    if constexpr (kSlices > 1) {
#pragma unroll
      for (int w = 0; w < kMine; ++w) {
        const int item = wave() + w * kWaves, part = item % kParts, slice = kSlices > 1 ? item / kParts : 0;
        if (kItems % kWaves == 0 || item < kItems) {
#pragma unroll
          for (int i = 0; i < kHigh; ++i)
#pragma unroll
            for (int j = 0; j < kLong; ++j)
#pragma unroll
              for (int e = 0; e < M::kC; ++e) {
                const int r = (part / kAcross * kHigh + i) * 16 + M::row(e),
                          c = (part % kAcross * kLong + j) * 16 + M::col(e);
                parts[(slice * kRows + r) * kCols + c] = sums[w][i][j].v[e];
              }
        }
      }
    } else {
      // Results are exchanged through shared memory, 16 rows of a wave at a time, so that adjacent elements are stored
      // together, and so that the code of `out` appears once, not once per element.
      constexpr int kWidth = 16 * kLong;
      static_assert(kItems % kWaves == 0 && kWaves * 16 * kWidth * 4 <= (int)sizeof shared);
      float* mine = parts + wave() * 16 * kWidth;
#pragma unroll
      for (int w = 0; w < kMine; ++w) {
        const int part = opaque(wave() + w * kWaves), c0 = part % kAcross * kWidth;
        bool together = false;
        if constexpr (Out::kMany > 1) together = c0 + kWidth <= cols && out.whole();
#pragma unroll
        for (int i = 0; i < kHigh; ++i) {
          const int r0 = (part / kAcross * kHigh + i) * 16, sums_here = (rows - r0 < 16 ? rows - r0 : 16) * kWidth;
#pragma unroll
          for (int j = 0; j < kLong; ++j)
#pragma unroll
            for (int e = 0; e < M::kC; ++e) mine[M::row(e) * kWidth + j * 16 + M::col(e)] = sums[w][i][j].v[e];
          barrier();
          if constexpr (Out::kMany > 1) {
            if (together)
#pragma unroll 1
              for (int e = opaque(lane()) * Out::kMany; e < sums_here; e += kWave * Out::kMany)
                out.many(at, row0 + r0 + e / kWidth, col0 + c0 + e % kWidth, load_vec<Out::kMany>(mine + e));
          }
          if (!together)
#pragma unroll 1
            for (int e = opaque(lane()); e < sums_here; e += kWave)
              if (c0 + e % kWidth < cols) out(at, row0 + r0 + e / kWidth, col0 + c0 + e % kWidth, mine[e]);
          barrier();
        }
      }
    }
    if constexpr (kSlices > 1) {
      barrier();
      for (int e = (int)thread(); e < kRows * kCols; e += kThreads) {
        float sum = parts[e];
        for (int s = 1; s < kSlices; ++s) sum += parts[s * kRows * kCols + e];
        if (e / kCols < rows && e % kCols < cols) out(at, row0 + e / kCols, col0 + e % kCols, sum);
      }
      barrier();
    }
  }
}
#endif

}  // namespace pf
