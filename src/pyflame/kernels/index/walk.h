// Iterates over the positions of a shape in row-major order, with the offsets of several operands. Divisions by sizes
// below 2^31 are multiplications. The host has merged dims that are contiguous in all operands.
#pragma once

#ifndef PF_ON_DEVICE  // a kernel is compiled as one text
#include "pyflame/kernels/device/divider.h"
#include "pyflame/kernels/device/view.h"
#endif

namespace pf {

// A word of 16 bytes that is moved as a whole.
struct alignas(16) Word16 {
  u32 w[4];
};

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
        const u32 next = sizes[d].div(n), rest = n - next * sizes[d].d;
        for (int k = 0; k < kOperands; ++k) offset[k] += (i64)rest * strides[k][d];
        n = next;
      }
      for (int k = 0; k < kOperands; ++k) offset[k] += (i64)n * strides[k][0];
    }
  }
};
static_assert(sizeof(Walk<3, false>) == 16 + 96 + 64 + 3 * 64 && sizeof(Walk<3, true>) == sizeof(Walk<3, false>));

}  // namespace pf
