// A strided operand as a kernel argument.
#pragma once

#ifndef PF_ON_DEVICE
#include "pyflame/kernels/device/launch.h"

#include "pyflame/kernels/device/scalar.h"
#endif

namespace pf {

constexpr int kMaxRank = 8;

struct View {
  i64 shape[kMaxRank] = {}, strides[kMaxRank] = {};
  int rank = 0;
  // Offset of element `i` in row-major order.
  PF_DEVICE i64 at(i64 i) const {
    i64 offset = 0;
    for (int d = rank - 1; d > 0; --d) {
      offset += i % shape[d] * strides[d];
      i /= shape[d];
    }
    return rank > 0 ? offset + i * strides[0] : 0;
  }
};
static_assert(sizeof(View) == 136);

}  // namespace pf
