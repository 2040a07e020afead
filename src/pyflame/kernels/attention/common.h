// What the attention kernels share: the problem as a kernel argument, tiles of rows in shared memory, and scores of a tile.
//
// Scores are kept as powers of two: exp(x - y) = 2^(x log2 e - y log2 e), and 2^x is one instruction.
#pragma once

namespace pf {

struct Base2 {
  static constexpr float kLog2E = 1.44269504088896340736f, kLn2 = 0.69314718055994530942f;
};

// [B, H, T, D] operands by their strides in elements.
struct Strides4 {
  i64 b, h, t, d;
};

struct Attention {
  i64 batch, heads, kv_heads, queries, keys, kv_length;
  i64 dim;
  double scale;
  Strides4 q, k, v, out, mask;  // mask: [B, H, T, S]
  Strides4 grad, dq, dk, dv;    // of the gradient alone
  // How many keys query t sees: the first so many.
  PF_DEVICE i64 seen(i64 t, bool causal) const {
    const i64 n = causal ? t + (kv_length - queries) + 1 : kv_length;
    return n < 0 ? 0 : n > kv_length ? kv_length : n;
  }
};

enum MaskKind { kNoMask, kBoolMask, kAddedMask };

#ifdef PF_ON_DEVICE

struct Top {  // NaN does not matter here: it comes through the sum
  static PF_DEVICE float of(float a, float b) { return fmaxf(a, b); }
};

template <class T, MaskKind kMask>
PF_DEVICE float masked(float score, const void* mask, i64 at) {
  if constexpr (kMask == kBoolMask) return load((const bool8*)mask + at) ? score : -1 / 0.0f;
  else if constexpr (kMask == kAddedMask) return fmaf((float)load((const T*)mask + at), Base2::kLog2E, score);
  else return score;
}

// kRows rows of kWidth elements into shared memory, whose rows are kPitch elements apart: zeros beyond `rows` and `width`. kWide: every row
// begins at 16 bytes and is made of whole 16 bytes; otherwise any strides will do.
template <int kRows, int kWidth, int kPitch, int kThreads, bool kWide, class T>
PF_DEVICE void load_rows(T* to, const T* from, i64 row_stride, i64 stride, i64 rows, i64 width) {
  if constexpr (kWide) {
    constexpr int kEach = 16 / sizeof(T), kAcross = kWidth / kEach, kAll = kRows * kAcross;
    if constexpr (kThreads % kAcross == 0 && kAll % kThreads == 0) {
      // A thread stays in its column and goes down by equal steps.
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

// The way back.
template <int kRows, int kWidth, int kPitch, int kThreads, bool kWide, class T>
PF_DEVICE void store_rows(T* to, const T* from, i64 row_stride, i64 stride, i64 rows, i64 width) {
  constexpr int kEach = kWide ? 16 / sizeof(T) : 1, kAcross = kWidth / kEach;
  for (int at = (int)thread(); at < kRows * kAcross; at += kThreads) {
    const int row = at / kAcross, col = at % kAcross * kEach;
    if (row < rows && col < width) {
      if constexpr (kWide) store_vec(to + row * row_stride + col, load_vec<kEach>(from + row * kPitch + col));
      else to[row * row_stride + col * stride] = from[row * kPitch + col];
    }
  }
}

#endif

}  // namespace pf
