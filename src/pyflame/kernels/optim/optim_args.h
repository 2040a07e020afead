// The arguments of the kernels in kernels/optim/optim.h, which the host fills in.
#pragma once

#ifndef PF_ON_DEVICE  // a kernel is compiled as one text
#include "pyflame/kernels/device/view.h"
#endif

namespace pf {

constexpr int kMostTensors = 64;

// The tensors of one launch: chunk c belongs to the last tensor t with first[t] <= c.
template <int kRoles>
struct TensorList {
  void* data[kRoles][kMostTensors] = {};
  i64 size[kMostTensors] = {};
  int first[kMostTensors] = {};
  int count = 0;
  int chunk = 0;  // in elements; a multiple of the vector's length
};

// A tensor with any strides; its shape is the same in all roles.
template <int kRoles>
struct Strided {
  void* data[kRoles] = {};
  i64 shape[kMaxRank] = {}, strides[kRoles][kMaxRank] = {};
  int rank = 0;
  i64 size = 0;
  PF_DEVICE void offsets(i64 i, i64* at) const {
    for (int r = 0; r < kRoles; ++r) at[r] = 0;
    for (int d = rank - 1; d >= 0; --d) {
      const i64 here = d > 0 ? i % shape[d] : i;
      for (int r = 0; r < kRoles; ++r) at[r] += here * strides[r][d];
      if (d > 0) i /= shape[d];
    }
  }
};

// The numbers of a step, which are the same for all its tensors.
struct AdamNumbers {
  double lr = 0, beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0, bias1 = 0, bias2 = 0;
  int decoupled = 0, maximize = 0;
};
struct SgdNumbers {
  double lr = 0, momentum = 0, dampening = 0, weight_decay = 0;
  int first = 0, nesterov = 0, maximize = 0;
};
static_assert(sizeof(TensorList<4>) == 2824 && sizeof(Strided<4>) == 368);
static_assert(sizeof(AdamNumbers) == 64 && sizeof(SgdNumbers) == 48);

}  // namespace pf
