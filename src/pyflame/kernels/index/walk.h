// Iterates over the positions of a shape in row-major order, with the offsets of several operands. Divisions by sizes
// below 2^31 are multiplications. The host has merged dims that are contiguous in all operands.
#pragma once

#ifndef PF_ON_DEVICE  // a kernel is compiled as one text
#include "pyflame/kernels/device/view.h"
#endif

namespace pf {

// A word of 16 bytes that is moved as a whole.
struct alignas(16) Word16 {
  u32 w[4];
};

// n / d for n < 2^31; the host computes `factor` and `shift`.
struct Divider {
  u32 d = 1, factor = 1, shift = 0;
};
PF_DEVICE u32 divide(u32 n, const Divider& by) { return ((u32)(((u64)n * by.factor) >> 32) + n) >> by.shift; }

// kWide: there are sizes of 2^31 and more.
template <int kOperands, bool kWide>
struct Walk {
  i64 count = 0;  // number of positions
  int rank = 0;
  Divider sizes[kMaxRank];
  i64 shape[kMaxRank] = {};
  i64 strides[kOperands][kMaxRank] = {};

  // Adds the offsets of position i.
  PF_DEVICE void at(i64 i, i64 (&offset)[kOperands]) const {
    if constexpr (kWide) {
      for (int d = rank - 1; d > 0; --d) {
        const i64 next = i / shape[d], rest = i - next * shape[d];
        for (int k = 0; k < kOperands; ++k) offset[k] += rest * strides[k][d];
        i = next;
      }
      for (int k = 0; k < kOperands; ++k) offset[k] += i * strides[k][0];
    } else {
      u32 n = (u32)i;
      for (int d = rank - 1; d > 0; --d) {
        const u32 next = divide(n, sizes[d]), rest = n - next * sizes[d].d;
        for (int k = 0; k < kOperands; ++k) offset[k] += (i64)rest * strides[k][d];
        n = next;
      }
      for (int k = 0; k < kOperands; ++k) offset[k] += (i64)n * strides[k][0];
    }
  }
};
static_assert(sizeof(Walk<3, false>) == 16 + 96 + 64 + 3 * 64 && sizeof(Walk<3, true>) == sizeof(Walk<3, false>));

}  // namespace pf
