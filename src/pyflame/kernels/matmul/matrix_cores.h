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

// kHigh x kLong: the blocks of 16 x 16 that a wave computes together. kStages: how many steps shared memory holds. With
// two, a step is stored while waves still multiply the one before, so there is one barrier a step instead of two.
template <class S, int kRows, int kCols, int kGivenDepth, int kHigh, int kLong, int kSlices, int kStages, int kThreads,
          bool kAlongA, bool kAlongB, int kVecA, int kVecB>
struct UnitsTile {
  using M = Mma<S>;
  static constexpr int kTileRows = kRows, kTileCols = kCols;
  // The order of a sum depends on the depth of a step only if there are slices.
  static constexpr bool kDeeper = kSlices == 1 && kStages == 1 && kRows + kCols <= 256 && kGivenDepth < least_step();
  static constexpr int kDepth = kDeeper ? least_step() : kGivenDepth;
  using StageA = Stage<S, kRows, kDepth, kThreads, kAlongA, kVecA>;
  using StageB = Stage<S, kCols, kDepth, kThreads, kAlongB, kVecB>;
  static constexpr int kAcross = kCols / (16 * kLong), kParts = kRows / (16 * kHigh) * kAcross,
                       kItems = kParts * kSlices;
  static constexpr int kWaves = kThreads / kWave, kMine = (kItems + kWaves - 1) / kWaves, kWidth = 16 * kLong;
  static constexpr int kStep = StageA::kSize + StageB::kSize, kStaged = kStages * kStep * (int)sizeof(S);
  static constexpr int kSums = kSlices > 1 ? kSlices* kRows* kCols * 4 : kWaves * 16 * kWidth * 4;
  static constexpr int kShared = kStaged > kSums ? kStaged : kSums;
  static_assert(kDepth % (16 * kSlices) == 0 && kStages <= 2);
  typedef typename M::C Sums[kMine][kHigh][kLong];

  static PF_DEVICE void multiply(const S* as, const S* bs, Sums& sums) {
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
  }

  // A piece of the product: the rows, terms and matrices of `here`, and the columns from col0 on. out: as in
  // matmul_tile, and for kMany adjacent elements; its first argument is `at`.
  template <class Out>
  static PF_DEVICE void compute(const S* a, const S* b, const MatmulShape& p, const Out& out, const Part& here,
                                i64 col0, i64 at) {
    PF_SHARED __attribute__((aligned(16))) char shared[kShared];
    const i64 row0 = here.row, begin = here.depth, end = here.depth_end;
    StageA next_a;
    StageB next_b;
    next_a.in.start(a + p.a_batch.at(here.item) + row0 * p.a_row + begin * p.a_col, p.a_row, p.a_col,
                    here.rows_end - row0);
    next_b.in.start(b + p.b_batch.at(here.item) + col0 * p.b_col + begin * p.b_row, p.b_col, p.b_row, p.n - col0);
    Sums sums;
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
    S* now = (S*)shared;
    if constexpr (kStages == 1) {
      for (i64 k = begin; k < end; k += kDepth) {
        next_a.put(now);
        next_b.put(now + StageA::kSize);
        barrier();
        if (k + kDepth < end) {
          next_a.in.fetch(end - k - kDepth);
          next_b.in.fetch(end - k - kDepth);
        }
        multiply(now, now + StageA::kSize, sums);
        barrier();
      }
    } else {
      S* other = now + kStep;
      next_a.put(now);
      next_b.put(now + StageA::kSize);
      for (i64 k = begin; k < end; k += kDepth) {
        const bool more = k + kDepth < end;
        if (more) {
          next_a.in.fetch(end - k - kDepth);
          next_b.in.fetch(end - k - kDepth);
        }
        barrier();
        multiply(now, now + StageA::kSize, sums);
        if (more) {
          next_a.put(other);
          next_b.put(other + StageA::kSize);
        }
        S* const done = now;
        now = other;
        other = done;
      }
      barrier();
    }
    // The size of the tile that exists.
    const int rows = here.rows_end - row0 < kRows ? (int)(here.rows_end - row0) : kRows,
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
      static_assert(kItems % kWaves == 0);
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
};

// out: as in matmul_tile, and for kMany adjacent elements. kDies: the parts of the GPU that have a second-level cache
// each.
template <class S, int kRows, int kCols, int kDepth, int kHigh, int kLong, int kSlices, int kStages, int kDies,
          int kThreads, bool kAlongA, bool kAlongB, int kVecA, int kVecB, class Out, class Parts = WholeProduct>
PF_DEVICE void matmul_units(const S* a, const S* b, const MatmulShape& p, const Out& out, const Parts& of = {}) {
  using Tile =
      UnitsTile<S, kRows, kCols, kDepth, kHigh, kLong, kSlices, kStages, kThreads, kAlongA, kAlongB, kVecA, kVecB>;
  const u32 wide = (u32)((p.n + kCols - 1) / kCols), high = of.template slots<kRows>(p);
  const u32 place = place_of_group<kDies>();
  const i64 split = place / (wide * high);
  const TilePlace tile = banded(place % (wide * high), wide, high);
  for (i64 z = group().y; z < p.batches;
       z += Parts::kGroups ? p.batches : groups().y) {  // groups: one for each workgroup
    Part here = of.template at<kRows>(p, z, tile.high);
    if (Parts::kGroups && here.row >= here.rows_end) continue;
    here.depth += split * p.depth;
    if (here.depth + p.depth < here.depth_end) here.depth_end = here.depth + p.depth;
    Tile::compute(a, b, p, out, here, (i64)tile.wide * kCols, split * p.batches + here.item);
  }
}

// --- stream-K: the steps of all tiles from number `first` on are divided evenly among the workgroups, so that none of
// them is idle in the last round. A workgroup's share is at most one tile's, so it has pieces of one or two tiles. They
// are added by a second kernel, in the order of the depth. There is one product, not a batch.
template <class Tile>
struct Streams {
  u32 wide, high, first;
  i64 steps, all, groups;  // steps of a tile; of all tiles from `first` on; how many workgroups share them
  PF_DEVICE Streams(const MatmulShape& p, i64 first_tile, i64 count)
      : wide((u32)((p.n + Tile::kTileCols - 1) / Tile::kTileCols)),
        high((u32)((p.m + Tile::kTileRows - 1) / Tile::kTileRows)),
        first((u32)first_tile),
        steps((p.k + Tile::kDepth - 1) / Tile::kDepth),
        all(((i64)wide * high - first_tile) * steps),
        groups(count) {}
  PF_DEVICE i64 begin(i64 group) const { return group * all / groups; }
  PF_DEVICE i64 group_of(i64 step) const { return ((step + 1) * groups - 1) / all; }
};

// The pieces' sums: [workgroup][piece][row][col].
template <class Tile>
struct PieceSums {
  enum { kMany = 1 };
  float* parts;
  PF_DEVICE void operator()(i64 at, i64 row, i64 col, float x) const {
    parts[(at * Tile::kTileRows + row % Tile::kTileRows) * Tile::kTileCols + col % Tile::kTileCols] = x;
  }
};

template <class Tile, class S>
PF_DEVICE void matmul_pieces(const S* a, const S* b, const MatmulShape& p, float* parts, i64 first) {
  const Streams<Tile> all(p, first, groups().x);
  const PieceSums<Tile> out = {parts};
  const i64 end = all.begin((i64)group().x + 1);
  i64 piece = (i64)group().x * 2;
  for (i64 at = all.begin(group().x); at < end; ++piece) {
    const TilePlace tile = banded(all.first + (u32)(at / all.steps), all.wide, all.high);
    const i64 from = at % all.steps, left = end - at, to = from + left < all.steps ? from + left : all.steps;
    const i64 depth_end = to * Tile::kDepth < p.k ? to * Tile::kDepth : p.k;
    Tile::compute(a, b, p, out, Part{(i64)tile.high * Tile::kTileRows, p.m, from * Tile::kDepth, depth_end, 0},
                  (i64)tile.wide * Tile::kTileCols, piece);
    at += to - from;
  }
}

// Each workgroup adds the pieces of some elements of a tile, one for each thread. count: the workgroups of matmul_pieces.
template <class Tile, class Out>
PF_DEVICE void add_pieces(const float* parts, const MatmulShape& p, i64 first, i64 count, const Out& out) {
  constexpr u32 kElements = Tile::kTileRows * Tile::kTileCols;
  const Streams<Tile> all(p, first, count);
  const u32 each = kElements / threads(), t = group().x / each, e = group().x % each * threads() + thread();
  const TilePlace tile = banded(all.first + t, all.wide, all.high);
  const i64 row = (i64)tile.high * Tile::kTileRows + e / Tile::kTileCols,
            col = (i64)tile.wide * Tile::kTileCols + e % Tile::kTileCols;
  if (row >= p.m || col >= p.n) return;
  const i64 begin = t * all.steps, end = begin + all.steps;
  float sum = 0;
  for (i64 g = all.group_of(begin); g < all.groups && all.begin(g) < end; ++g) {
    const i64 piece = all.begin(g) < begin ? 1 : 0;  // its first piece is of the tile before
    sum += parts[(g * 2 + piece) * kElements + e];
  }
  out(0, row, col, sum);
}
#endif

}  // namespace pf
