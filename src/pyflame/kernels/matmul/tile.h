// Matrix product by multiply-adds, for every dtype and any strides. Each workgroup computes a tile of outputs through
// shared memory, and each thread a small block of it in registers. If there are few tiles, the threads of a workgroup
// also divide the depth (slices), and so may several workgroups (splits). The parts are added in an order that depends
// on the shape alone. `out` receives each output; it applies fused elementwise ops and stores the result.
#pragma once

namespace pf {

#ifdef PF_ON_DEVICE
PF_DEVICE float multiply_add(float a, float b, float c) { return fmaf(a, b, c); }
PF_DEVICE double multiply_add(double a, double b, double c) { return ::fma(a, b, c); }
template <class T>
PF_DEVICE T multiply_add(T a, T b, T c) {
  return add<T>(c, mul<T>(a, b));
}

// Moves a rectangle of lines x depth elements from memory through registers to shared memory, so that the next
// rectangle is loaded while the current one is multiplied. kAlong: memory is contiguous along the depth; otherwise,
// across the lines. kVec: elements per access. If it is more than 1, the contiguous dim is a multiple of it, and every
// access is aligned. kSide: how many adjacent vectors along the depth consecutive threads take before they go to the
// next line.
template <class S, int kLines, int kDepth, int kThreads, bool kAlong, int kVec, int kSide>
struct Fetch {
  static constexpr int kVecs = kLines * kDepth / kVec, kEach = (kVecs + kThreads - 1) / kThreads;
  static constexpr bool kWhole = kVecs % kThreads == 0;
  static constexpr bool kHeld =
      // Single elements would take too many registers, so they are loaded when they are stored to shared memory.
      kVec > 1;
  InFlight<S, kHeld ? kVec : 8> held[kHeld ? kEach : 1];
  const S* at = nullptr;
  i64 line_stride = 0, depth_stride = 0;
  int lines = 0, depths = 0;  // the size of the rectangle that exists
  static PF_DEVICE int line(int e) { return kAlong ? e / kSide % kLines : e % (kLines / kVec) * kVec; }
  static PF_DEVICE int depth(int e) {
    return kAlong ? (e / (kSide * kLines) * kSide + e % kSide) * kVec : e / (kLines / kVec);
  }
  // `p` is element (0, 0). Lines from `have` on do not exist and are zero.
  PF_DEVICE void start(const S* p, i64 a_line_stride, i64 a_depth_stride, i64 have) {
    line_stride = a_line_stride, depth_stride = a_depth_stride;
    lines = have < kLines ? (int)have : kLines;
    at = p + line((int)thread()) * along_lines() + depth((int)thread()) * along_depth();
  }
  // The stride of a contiguous dim takes no register.
  PF_DEVICE i64 along_lines() const { return kVec > 1 && !kAlong ? 1 : line_stride; }
  PF_DEVICE i64 along_depth() const { return kVec > 1 && kAlong ? 1 : depth_stride; }
  // The i-th vector of this thread: whether it exists, and where.
  PF_DEVICE bool exists(int i) const {
    const int e = (int)thread() + i * kThreads;
    return (kWhole || e < kVecs) && line(e) < lines && depth(e) < depths;
  }
  PF_DEVICE const S* place(int i) const {
    const int e = (int)thread() + i * kThreads;
    return at + (line(e) - line((int)thread())) * along_lines() + (depth(e) - depth((int)thread())) * along_depth();
  }
  // Loads the rectangle at `at`. Depths from `have` on do not exist and are zero.
  PF_DEVICE void fetch(i64 have) {
    depths = have < kDepth ? (int)have : kDepth;
    if constexpr (kHeld) {
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        held[i] = {};
        if (exists(i)) held[i].load(place(i));
      }
    }
  }
  // Calls use(line, depth, elements) for all elements of this thread.
  template <class Use>
  PF_DEVICE void each(const Use& use) {
    if constexpr (kHeld) {
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const int e = (int)thread() + i * kThreads;
        if (kWhole || e < kVecs) use(line(e), depth(e), held[i]);
      }
    } else {
#pragma unroll 4
      for (int i = 0; i < kEach; ++i) {
        const int e = (int)thread() + i * kThreads;
        Vec<S, kVec> x{};
        if (exists(i)) x = load_vec<kVec>(place(i));
        if (kWhole || e < kVecs) use(line(e), depth(e), x);
      }
    }
    at += kDepth * along_depth();
  }
  // Stores as [depth][line], in the type of the computation.
  template <class T>
  PF_DEVICE void put(T* to, int pitch) {
    each([&](int l, int d, const auto& x) {
#pragma unroll
      for (int j = 0; j < kVec; ++j) to[(kAlong ? d + j : d) * pitch + (kAlong ? l : l + j)] = load(&x[j]);
    });
  }
};

// Tiles are visited in bands of 8 rows, so that workgroups that run at the same time share their inputs in the cache.
struct TilePlace {
  u32 high, wide;
};
PF_DEVICE TilePlace banded(u32 tile, u32 wide, u32 high) {
  constexpr u32 kBand = 8;
  const u32 band = tile / (kBand * wide), in_band = tile % (kBand * wide);
  const u32 rows = high - band * kBand < kBand ? high - band * kBand : kBand;
  return {band * kBand + in_band % rows, in_band / rows};
}

// The hardware gives workgroups to the dies of a GPU in turn. This numbers them so that those of one die are adjacent,
// and share their inputs in that die's cache.
template <int kDies>
PF_DEVICE u32 place_of_group() {
  const u32 number = group().x;
  if constexpr (kDies == 1) return number;
  const u32 die = number % kDies, each = groups().x / kDies, more = groups().x % kDies;
  return die * each + (die < more ? die : more) + number / kDies;
}

// What one workgroup computes: rows from `row` to before `rows_end`, at most a tile's, and the terms of the sums from `depth` to before `depth_end`, with
// the matrices of batch entry `item`.
struct Part {
  i64 row, rows_end, depth, depth_end, item;
};
// slots: how many tiles there are along the rows. at: that of batch entry z and a slot.
struct WholeProduct {
  static constexpr bool kGroups = false;
  template <int kRows>
  PF_DEVICE u32 slots(const MatmulShape& p) const {
    return (u32)((p.m + kRows - 1) / kRows);
  }
  template <int kRows>
  PF_DEVICE Part at(const MatmulShape& p, i64 z, u32 slot) const {
    return {(i64)slot * kRows, p.m, 0, p.k, z};
  }
};

// kEachRow, kEachCol: outputs of a thread, multiples of 4. out(batch, row, col, sum) is called once for each output
// (and each split; `batch` is then split * batches + batch).
template <class S, int kRows, int kCols, int kDepth, int kEachRow, int kEachCol, int kThreads, bool kAlongA,
          bool kAlongB, int kVecA, int kVecB, class Out, class Parts = WholeProduct>
PF_DEVICE void matmul_tile(const S* a, const S* b, const MatmulShape& p, const Out& out, const Parts& parts = {}) {
  using T = C<S>;
  constexpr int kWide = kCols / kEachCol, kTeam = kRows / kEachRow * kWide, kSlices = kThreads / kTeam;
  constexpr int kPad = 4, kPitchA = kRows + kPad, kPitchB = kCols + kPad;
  constexpr int kStaged = kDepth * (kPitchA + kPitchB), kParts = kSlices > 1 ? kSlices * kRows * kCols : 1;
  constexpr int kSteps = 4;
  static_assert(kTeam * kSlices == kThreads && kDepth % kSlices == 0 && kEachRow % 4 == 0 && kEachCol % 4 == 0);
  PF_SHARED __attribute__((aligned(32))) T shared[kStaged > kParts ? kStaged : kParts];
  T* as = shared;
  T* bs = shared + kDepth * kPitchA;
  const int slice = (int)thread() / kTeam, tx = (int)thread() % kTeam % kWide, ty = (int)thread() % kTeam / kWide;
  const u32 wide = (u32)((p.n + kCols - 1) / kCols), high = parts.template slots<kRows>(p);
  const u32 tile = group().x % (wide * high);
  const i64 split = group().x / (wide * high), col0 = (i64)(tile % wide) * kCols;
  for (i64 z = group().y; z < p.batches;
       z += Parts::kGroups ? p.batches : groups().y) {  // groups: one for each workgroup
    const Part part = parts.template at<kRows>(p, z, tile / wide);
    if (Parts::kGroups && part.row >= part.rows_end) continue;
    const i64 row0 = part.row, rows_end = part.rows_end, begin = part.depth + split * p.depth;
    const i64 end = begin + p.depth < part.depth_end ? begin + p.depth : part.depth_end;
    // Two adjacent vectors are 32 bytes. Stored in columns, they cause no bank conflict.
    Fetch < S, kRows, kDepth, kThreads, kAlongA, kVecA, kDepth / kVecA<2 ? 1 : 2> next_a;
    Fetch < S, kCols, kDepth, kThreads, kAlongB, kVecB, kDepth / kVecB<2 ? 1 : 2> next_b;
    next_a.start(a + p.a_batch.at(part.item) + row0 * p.a_row + begin * p.a_col, p.a_row, p.a_col, rows_end - row0);
    next_b.start(b + p.b_batch.at(part.item) + col0 * p.b_col + begin * p.b_row, p.b_col, p.b_row, p.n - col0);
    T sums[kEachRow][kEachCol] = {};
    next_a.fetch(end - begin);
    next_b.fetch(end - begin);
    for (i64 k = begin; k < end; k += kDepth) {
      next_a.put(as, kPitchA);
      next_b.put(bs, kPitchB);
      barrier();
      if (k + kDepth < end) {
        next_a.fetch(end - k - kDepth);
        next_b.fetch(end - k - kDepth);
      }
      const int have = kSlices > 1 && end - k < kDepth ? (int)(end - k) : kDepth;
      const int steps = (have + kSlices - 1) / kSlices;
#pragma unroll kSteps
      for (int d = 0; d < steps; ++d) {
        const T* xs = as + (d * kSlices + slice) * kPitchA + ty * 4;
        const T* ys = bs + (d * kSlices + slice) * kPitchB + tx * 4;
        Vec<T, 4> x[kEachRow / 4], y[kEachCol / 4];
#pragma unroll
        for (int i = 0; i < kEachRow / 4; ++i) x[i] = load_vec<4>(xs + i * (kRows / (kEachRow / 4)));
#pragma unroll
        for (int j = 0; j < kEachCol / 4; ++j) y[j] = load_vec<4>(ys + j * (kCols / (kEachCol / 4)));
#pragma unroll
        for (int i = 0; i < kEachRow; ++i)
#pragma unroll
          for (int j = 0; j < kEachCol; ++j) sums[i][j] = multiply_add(x[i / 4][i % 4], y[j / 4][j % 4], sums[i][j]);
      }
      barrier();
    }
    const i64 at = split * p.batches + part.item;
    if constexpr (kSlices > 1) {
#pragma unroll
      for (int i = 0; i < kEachRow; ++i)
#pragma unroll
        for (int j = 0; j < kEachCol; ++j) {
          const int r = i / 4 * (kRows / (kEachRow / 4)) + ty * 4 + i % 4;
          const int c = j / 4 * (kCols / (kEachCol / 4)) + tx * 4 + j % 4;
          shared[(slice * kRows + r) * kCols + c] = sums[i][j];
        }
      barrier();
      for (int e = (int)thread(); e < kRows * kCols; e += kThreads) {
        T sum = shared[e];
        for (int s = 1; s < kSlices; ++s) sum = add<T>(sum, shared[s * kRows * kCols + e]);
        const i64 row = row0 + e / kCols, col = col0 + e % kCols;
        if (row < rows_end && col < p.n) out(at, row, col, sum);
      }
      barrier();
    } else {
      // Results are exchanged through shared memory row by row, so that adjacent elements are stored together, and so
      // that the code of `out` appears once per element of a row, not once per element of a thread's block.
      constexpr int kBand = kRows / kEachRow;
      static_assert(kBand * kCols <= kStaged);
#pragma unroll
      for (int i = 0; i < kEachRow; ++i) {
#pragma unroll
        for (int j = 0; j < kEachCol; ++j)
          shared[ty * kCols + j / 4 * (kCols / (kEachCol / 4)) + tx * 4 + j % 4] = sums[i][j];
        barrier();
#pragma unroll 1
        for (int e = (int)thread(); e < kBand * kCols; e += kThreads) {
          const i64 row = row0 + i / 4 * (kRows / (kEachRow / 4)) + e / kCols * 4 + i % 4, col = col0 + e % kCols;
          if (row < rows_end && col < p.n) out(at, row, col, shared[e]);
        }
        barrier();
      }
    }
  }
}

// Adds the partial results of all splits, [split][batch][row][col], in their order.
template <class T, class Out>
PF_DEVICE void add_splits(const T* parts, i64 splits, i64 batches, i64 m, i64 n, const Out& out) {
  const i64 total = batches * m * n;
  for (i64 i = (i64)group().x * threads() + thread(); i < total; i += (i64)groups().x * threads()) {
    T sum = parts[i];
    for (i64 s = 1; s < splits; ++s) sum = add<T>(sum, parts[s * total + i]);
    out(i / (m * n), i / n % m, i % n, sum);
  }
}
#endif

}  // namespace pf
