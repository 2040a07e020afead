// The argument of kernels that walk over a shape (kernels/index/walk.h).
#pragma once
#include <array>

#include "pyflame/kernels/index/walk.h"
#include "pyflame/tensor/dims.h"

namespace pyflame::gpu {

template <int kOperands>
struct Walk : pf::Walk<kOperands, false> {
  using pf::Walk<kOperands, false>::count, pf::Walk<kOperands, false>::rank, pf::Walk<kOperands, false>::sizes,
      pf::Walk<kOperands, false>::shape, pf::Walk<kOperands, false>::strides;

  bool wide() const { return count >= int64_t{1} << 31; }
  // Dims that are contiguous with each other in all operands are merged.
  Walk(const Dims& dims, const std::array<Dims, kOperands>& operands) {
    count = dims.numel();
    for (int d = 0; d < dims.size(); ++d) {
      if (dims[d] == 1) continue;
      bool merge = rank > 0;
      for (size_t k = 0; merge && k < kOperands; ++k) merge = strides[k][rank - 1] == operands[k][d] * dims[d];
      if (!merge) shape[rank++] = 1;
      shape[rank - 1] *= dims[d];
      for (size_t k = 0; k < kOperands; ++k) strides[k][rank - 1] = operands[k][d];
    }
    for (int d = 0; d < rank && count > 0 && !wide(); ++d) sizes[d] = pf::divider_of(static_cast<uint32_t>(shape[d]));
  }
};

}  // namespace pyflame::gpu
