// What the attention kernels on matrix cores share: tiles of rows in shared memory, and the products of a wave.
//
// S describes the tiles of a kernel. A workgroup has S::kRows rows, of which each wave has 16 * S::kTiles. They are
// multiplied with tiles of other rows, which the workgroup visits one after the other. In shared memory, all rows are
// S::kPitch elements apart. All functions here are for all threads of the workgroup, unless they say otherwise.
#pragma once

namespace pf {

#ifdef PF_ON_DEVICE

// --- rows between global and shared memory

// Copies kRows rows of kWidth elements into shared memory, where rows are kPitch elements apart. Elements beyond `rows`
// and `width` become zero. kWide: every row begins at a multiple of 16 bytes and its length is a multiple of 16 bytes;
// otherwise, any strides are allowed.
template <int kRows, int kWidth, int kPitch, int kThreads, bool kWide, class T>
PF_DEVICE void load_rows(T* to, const T* from, i64 row_stride, i64 stride, i64 rows, i64 width) {
  if constexpr (kWide) {
    constexpr int kEach = 16 / sizeof(T), kAcross = kWidth / kEach, kAll = kRows * kAcross;
    if constexpr (kThreads % kAcross == 0 && kAll % kThreads == 0) {
      // A thread stays in its column and moves down by a fixed step.
      constexpr int kStep = kThreads / kAcross;
      const int row = (int)thread() / kAcross, col = (int)thread() % kAcross * kEach;
      const int left = col < width ? (int)(rows < kRows ? rows : kRows) - row : 0;
      const T* p = from + row * row_stride + col;
      to += row * kPitch + col;
#pragma unroll
      for (int i = 0; i < kRows / kStep; ++i) {
        async_copy(to + i * kStep * kPitch, p, i * kStep < left);
        p += kStep * row_stride;
      }
    } else {
      for (int at = (int)thread(); at < kAll; at += kThreads) {
        const int row = at / kAcross, col = at % kAcross * kEach;
        const bool there = row < rows && col < width;
        async_copy(to + row * kPitch + col, from + row * row_stride + col, there);
      }
    }
  } else {
    for (int at = (int)thread(); at < kRows * kWidth; at += kThreads) {
      const int row = at / kWidth, col = at % kWidth;
      T x = {};
      if (row < rows && col < width) x = from[row * row_stride + col * stride];
      to[row * kPitch + col] = x;
    }
  }
}
// Copies kRows rows of an operand with the strides s, of which `rows` exist.
template <class S, int kRows, bool kWide, class T>
PF_DEVICE void load_tile(T* to, const T* from, const Strides4& s, i64 rows, i64 width) {
  load_rows<kRows, S::kWidth, S::kPitch, S::kThreads, kWide>(to, from, s.t, s.d, rows, width);
}
// Copies kKeys keys from number `key` on, and behind them their values.
template <class S, int kKeys, bool kWide, class T>
PF_DEVICE void load_keys_and_values(T* to, const T* k, const T* v, const Attention& p, i64 key) {
  load_tile<S, kKeys, kWide>(to, k + key * p.k.t, p.k, p.kv_length - key, p.dim);
  load_tile<S, kKeys, kWide>(to + kKeys * S::kPitch, v + key * p.v.t, p.v, p.kv_length - key, p.dim);
}

// Copies the workgroup's rows from shared memory back to global memory, where `rows` of them exist.
template <class S, bool kWide, class T>
PF_DEVICE void store_tile(T* to, const T* from, const Strides4& s, i64 rows, i64 width) {
  constexpr int kEach = kWide ? 16 / sizeof(T) : 1, kAcross = S::kWidth / kEach;
  for (int at = (int)thread(); at < S::kRows * kAcross; at += S::kThreads) {
    const int row = at / kAcross, col = at % kAcross * kEach;
    if (row < rows && col < width) {
      if constexpr (kWide) store_vec(to + row * s.t + col, load_vec<kEach>(from + row * S::kPitch + col));
      else to[row * s.t + col * s.d] = from[row * S::kPitch + col];
    }
  }
}

// --- the order in which tiles are copied and used: begin_tiles(), await_tile() for each tile, end_tiles(). copy(i)
// begins to copy tile i. With more than one stage, tile i + 1 is copied while tile i is used.
template <class S, class Copy>
PF_DEVICE void begin_tiles(int from, int to, const Copy& copy) {
  if (S::kStages > 1 && from < to) copy(from);
  async_commit();
}
// Afterwards, tile i can be read, and no wave still reads the previous one.
template <class S, class Copy>
PF_DEVICE void await_tile(int i, int to, const Copy& copy) {
  if constexpr (S::kStages > 1) {
    async_wait<0>();
    barrier();
    if (i + 1 < to) copy(i + 1);
    async_commit();
  } else {
    barrier();
    copy(i);
    async_commit();
    async_wait<0>();
    barrier();
  }
}
// Afterwards, all shared memory may be overwritten.
PF_DEVICE void end_tiles() {
  async_wait<0>();
  barrier();
}

// --- the part of a wave

// Results of 16 * kBlocks columns for the rows of a wave, in the positions of Mma<T>.
template <class T, class S, int kBlocks>
using Results = typename Mma<T>::C[S::kTiles][kBlocks];

// The wave's first row within the workgroup.
template <class S>
PF_DEVICE int wave_row() {
  return wave() * S::kTiles * 16;
}

// The wave's rows as an operand: in shared memory, or in registers.
template <class T, class S>
struct RowsInShared {
  const T* rows;
  PF_DEVICE typename Mma<T>::A at(int t, int d) const {
    return Mma<T>::load_a(rows + (wave_row<S>() + t * 16) * S::kPitch + d * 16, S::kPitch);
  }
};
template <class T, class S>
struct RowsInRegisters {
  typename Mma<T>::A held[S::kTiles][S::kWidth / 16];
  PF_DEVICE void load(const RowsInShared<T, S>& from) {
#pragma unroll
    for (int t = 0; t < S::kTiles; ++t)
#pragma unroll
      for (int d = 0; d < S::kWidth / 16; ++d) held[t][d] = from.at(t, d);
  }
  PF_DEVICE typename Mma<T>::A at(int t, int d) const { return held[t][d]; }
};

// s += rows * others^T, where `others` are 16 * kBlocks rows in shared memory.
template <class T, class S, int kBlocks, class Rows>
PF_DEVICE void add_products(Results<T, S, kBlocks>& s, const Rows& rows, const T* others) {
  using M = Mma<T>;
#pragma unroll
  for (int d = 0; d < S::kWidth / 16; ++d) {
    typename M::A a[S::kTiles];
#pragma unroll
    for (int t = 0; t < S::kTiles; ++t) a[t] = rows.at(t, d);
#pragma unroll
    for (int n = 0; n < kBlocks; ++n) {
      schedule_barrier_if_narrow();
      const typename M::B x = M::load_b_t(others + n * 16 * S::kPitch + d * 16, S::kPitch);
#pragma unroll
      for (int t = 0; t < S::kTiles; ++t) M::fma(s[t][n], a[t], x);
    }
  }
}
// sums += weights * others, where `others` are 16 * kBlocks rows in shared memory.
template <class T, class S, int kBlocks>
PF_DEVICE void add_weighted_rows(Results<T, S, S::kWidth / 16>& sums, const Results<T, S, kBlocks>& weights,
                                 const T* others) {
  using M = Mma<T>;
#pragma unroll
  for (int n = 0; n < kBlocks; ++n) {
    typename M::A a[S::kTiles];
#pragma unroll
    for (int t = 0; t < S::kTiles; ++t) a[t] = M::as_a(weights[t][n]);
#pragma unroll
    for (int d = 0; d < S::kWidth / 16; ++d) {
      schedule_barrier_if_narrow();
      const typename M::B x = M::load_b(others + n * 16 * S::kPitch + d * 16, S::kPitch);
#pragma unroll
      for (int t = 0; t < S::kTiles; ++t) M::fma(sums[t][d], a[t], x);
    }
  }
}

// Writes the wave's rows, times `factor`, to shared memory.
template <class T, class S>
PF_DEVICE void write_rows(T* to, const Results<T, S, S::kWidth / 16>& sums, float factor) {
  using M = Mma<T>;
#pragma unroll
  for (int t = 0; t < S::kTiles; ++t)
#pragma unroll
    for (int d = 0; d < S::kWidth / 16; ++d)
#pragma unroll
      for (int i = 0; i < M::kC; ++i)
        store(to + (wave_row<S>() + t * 16 + M::row(i)) * S::kPitch + d * 16 + M::col(i), sums[t][d].v[i] * factor);
}

#endif

}  // namespace pf
