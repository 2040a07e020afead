// The argument of the attention kernels, which the host fills in.
#pragma once

#ifndef PF_ON_DEVICE  // a kernel is compiled as one text
#include "pyflame/kernels/device/fault.h"
#endif

namespace pf {

// Strides, in elements, of an operand with the dims [B, H, T, D].
struct Strides4 {
  i64 b = 0, h = 0, t = 0, d = 0;
  // Where the row of a batch entry, a head and a position begins.
  PF_DEVICE i64 row(i64 of_b, i64 of_h, i64 of_t) const { return of_b * b + of_h * h + of_t * t; }
};

// Packed sequences: sequences of different lengths are concatenated to [T, H, D]. Sequence i has the rows from[i] to
// from[i + 1] - 1.
struct Packed {
  const int *from_q = nullptr, *from_k = nullptr;
  i64 sequences = 0, max_q = 0, max_k = 0;
  Fault* fault = nullptr;
  int site = 0;
};

struct Attention {
  // packed: queries and keys of all sequences together; batch is 1
  i64 batch = 0, heads = 0, kv_heads = 0, queries = 0, keys = 0, kv_length = 0;
  i64 dim = 0;
  double scale = 0;
  i64 padding = 0;              // 1: queries that are hidden as keys may be left out; their results are 0
  Strides4 q, k, v, out, mask;  // mask: [B, H, T, S]
  Strides4 grad, dq, dk, dv;    // of the gradient kernels only
  Packed packed;
  // The number of keys that query t sees: keys 0 to seen - 1.
  PF_DEVICE i64 seen(i64 t, bool causal) const {
    const i64 n = causal ? t + (kv_length - queries) + 1 : kv_length;
    return n < 0 ? 0 : n > kv_length ? kv_length : n;
  }
};
static_assert(sizeof(Strides4) == 32);
static_assert(sizeof(Packed) == 56);
static_assert(sizeof(Attention) == 416);

}  // namespace pf
