// The implicit GEMM of conv.h on matrix cores, for 16-bit types: the same indexing, tiles in LDS, sums in float32. The
// operand is channels-last, and the channels of a group are a multiple of eight. It is copied in pieces of eight
// adjacent elements, along k or along the lines, with one access per piece. The next tiles are loaded while the current
// ones are multiplied.
#pragma once

namespace pf {

#ifdef PF_ON_DEVICE

// One operand's tile in LDS. kAlong: adjacent elements are along k, and lines follow each other; otherwise the tile is
// transposed.
template <class S, int kLines, int kDepth, bool kAlong>
struct ConvTile {
  static constexpr int kPiece = 8, kStride = (kAlong ? kDepth : kLines) + 8;
  static constexpr int kElements = (kAlong ? kLines : kDepth) * kStride;
  static constexpr int kPieces = kLines * kDepth / kPiece;
  // The line and the depth k of a piece's first element.
  static PF_DEVICE int line(int piece) {
    return kAlong ? piece / (kDepth / kPiece) : piece % (kLines / kPiece) * kPiece;
  }
  static PF_DEVICE int depth(int piece) {
    return kAlong ? piece % (kDepth / kPiece) * kPiece : piece / (kLines / kPiece);
  }
  static PF_DEVICE S* at(S* tile, int line, int k) { return tile + (kAlong ? line * kStride + k : k * kStride + line); }
};

// a, b, slices, out: as in conv() of conv.h. kA, kB: the pieces of a, of b are along k.
#if defined(PF_MATRIX_LINES) || defined(PF_MATRIX_SYNC)
template <class S, bool kWeight, int kRows, int kColumns, bool kA, bool kB, class Out>
PF_DEVICE void conv_units(const S* a, const S* b, float* slices, const Conv& p, const Out& out) {
  constexpr int kDepth = 32, kThreads = 256;
  constexpr int kWaves = kThreads / kWave, kDown = 2, kAcross = kWaves / kDown;
  constexpr int kTilesDown = kRows / kDown / 16, kTilesAcross = kColumns / kAcross / 16;
  using M = Mma<S>;
  using A = ConvTile<S, kRows, kDepth, kA>;
  using B = ConvTile<S, kColumns, kDepth, kB>;
  using Piece = Vec<S, 8>;
  constexpr int kAEach = A::kPieces / kThreads, kBEach = B::kPieces / kThreads;
  PF_SHARED Piece a_pieces[A::kElements / 8], b_pieces[B::kElements / 8];
  PF_SHARED ConvPoint mids[2][kDepth], cols[kColumns];
  S *as = (S*)a_pieces, *bs = (S*)b_pieces;
  const ConvGeometry g = conv_geometry<kWeight>(p, (int)group().z);
  const i64 row0 = (i64)group().y * kRows, col0 = (i64)group().x * kColumns;
  if (col0 >= g.columns) return;
  for (int j = thread(); j < kColumns; j += kThreads)
    if (col0 + j < g.columns) cols[j] = kWeight ? conv_tap(p, g, col0 + j) : conv_pixel(p, g, col0 + j);
  const auto find_mids = [&](i64 k0, ConvPoint* to) {
    const i64 k = k0 + thread();
    if ((int)thread() < kDepth && k < g.depth_end) to[thread()] = kWeight ? conv_pixel(p, g, k) : conv_tap(p, g, k);
  };
  const i64 first = (i64)g.group * g.rows;
  const i64 a_row = kWeight ? p.made.c : p.weight.n;
  a += kWeight ? first * p.made.c : g.group * p.weight_group;
  b += (i64)g.group * p.read_channels * p.read.c;

  InFlight<S, 8> a_next[kAEach], b_next[kBEach];
  const auto fetch = [&](i64 k0, const ConvPoint* mid) {
    const int depth = g.depth_end - k0 < kDepth ? (int)(g.depth_end - k0) : kDepth;
#pragma unroll
    for (int e = 0; e < kAEach; ++e) {
      const int piece = (int)thread() + e * kThreads, i = A::line(piece), k = A::depth(piece);
      a_next[e] = {};
      if (row0 + i < g.rows && k < depth) a_next[e].load(a + (row0 + i) * a_row + mid[k].other);
    }
#pragma unroll
    for (int e = 0; e < kBEach; ++e) {
      const int piece = (int)thread() + e * kThreads, j = B::line(piece), k = B::depth(piece);
      b_next[e] = {};
      if (col0 + j < g.columns && k < depth && conv_inside(p, mid[k], cols[j]))
        b_next[e].load(b + mid[k].read + cols[j].read);
    }
  };

  typename M::C sums[kTilesDown][kTilesAcross];
#pragma unroll
  for (int i = 0; i < kTilesDown; ++i)
#pragma unroll
    for (int j = 0; j < kTilesAcross; ++j)
#pragma unroll
      for (int n = 0; n < M::kC; ++n) sums[i][j].v[n] = 0;
  const int down = wave() % kDown * kTilesDown * 16, across = wave() / kDown * kTilesAcross * 16;
  int current = 0;
  find_mids(g.depth_begin, mids[0]);
  find_mids(g.depth_begin + kDepth, mids[1]);
  barrier();
  if (g.depth_begin < g.depth_end) fetch(g.depth_begin, mids[0]);
  for (i64 k0 = g.depth_begin; k0 < g.depth_end; k0 += kDepth, current ^= 1) {
    barrier();
#pragma unroll
    for (int e = 0; e < kAEach; ++e) {
      const int piece = (int)thread() + e * kThreads;
      store_vec(A::at(as, A::line(piece), A::depth(piece)), a_next[e]);
    }
#pragma unroll
    for (int e = 0; e < kBEach; ++e) {
      const int piece = (int)thread() + e * kThreads;
      store_vec(B::at(bs, B::line(piece), B::depth(piece)), b_next[e]);
    }
    barrier();
    if (k0 + kDepth < g.depth_end) fetch(k0 + kDepth, mids[current ^ 1]);
    find_mids(k0 + 2 * kDepth, mids[current]);
#pragma unroll
    for (int k = 0; k < kDepth; k += 16) {
      typename M::A x[kTilesDown];
#pragma unroll
      for (int i = 0; i < kTilesDown; ++i) {
        const S* at = A::at(as, down + i * 16, k);
        x[i] = kA ? M::load_a(at, A::kStride) : M::load_a_t(at, A::kStride);
      }
#pragma unroll
      for (int j = 0; j < kTilesAcross; ++j) {
        const S* at = B::at(bs, across + j * 16, k);
        const typename M::B y = kB ? M::load_b_t(at, B::kStride) : M::load_b(at, B::kStride);
#pragma unroll
        for (int i = 0; i < kTilesDown; ++i) M::fma(sums[i][j], x[i], y);
      }
    }
  }

  const i64 c_row = kWeight ? p.weight.n : p.made.c;
  const i64 base = kWeight ? g.group * p.weight_group : first * p.made.c;
#pragma unroll
  for (int i = 0; i < kTilesDown; ++i)
#pragma unroll
    for (int j = 0; j < kTilesAcross; ++j)
#pragma unroll
      for (int n = 0; n < M::kC; ++n) {
        const int column = across + j * 16 + M::col(n);
        const i64 row = row0 + down + i * 16 + M::row(n), col = col0 + column;
        if (row >= g.rows || col >= g.columns) continue;
        if (kWeight && p.splits > 1)
          slices[(((i64)g.split * p.groups + g.group) * g.rows + row) * g.columns + col] = sums[i][j].v[n];
        else out(base + row * c_row + cols[column].other, first + row, sums[i][j].v[n]);
      }
}
#else
// Without matrix cores, conv() is faster, and the host never launches this kernel.
template <class S, bool kWeight, int kRows, int kColumns, bool kA, bool kB, class Out>
PF_DEVICE void conv_units(const S*, const S*, float*, const Conv&, const Out&) {}
#endif
#endif

}  // namespace pf
