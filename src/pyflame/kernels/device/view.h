// A strided operand as a kernel argument.
#pragma once

#ifndef PF_ON_DEVICE
#include "pyflame/kernels/device/launch.h"

#include "pyflame/kernels/device/scalar.h"
#endif

namespace pf {

constexpr int kMaxRank = 8;

// e / d and the rest. `narrow`: both are below 2^31, where a division costs a fraction of the instructions.
struct Division {
  i64 quotient, rest;
};
PF_DEVICE Division divided(i64 e, i64 d, bool narrow) {
  if (narrow) {
    const u32 q = (u32)e / (u32)d;
    return {q, (u32)e - q * (u32)d};
  }
  const i64 q = e / d;
  return {q, e - q * d};
}

struct View {
  i64 shape[kMaxRank] = {}, strides[kMaxRank] = {};
  int rank = 0;
  // Offset of element `i` in row-major order. `narrow`: there are less than 2^31.
  PF_DEVICE i64 at(i64 i, bool narrow = false) const {
    i64 offset = 0;
    for (int d = rank - 1; d > 0; --d) {
      const Division part = divided(i, shape[d], narrow);
      offset += part.rest * strides[d];
      i = part.quotient;
    }
    return rank > 0 ? offset + i * strides[0] : 0;
  }
};
static_assert(sizeof(View) == 136);

}  // namespace pf
