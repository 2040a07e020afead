// The geometry and the cost of a matrix product, for our own kernels and for the vendors' libraries.
#pragma once
#include "pyflame/backends/backend.h"

namespace pyflame::gpu {

// C[z] = A[z] B[z]: m x k times k x n, for each z of `batch`. Batch dims are merged if all three matrices allow it.
struct Product {
  explicit Product(const Node& node);
  DType dtype;
  int64_t m, n, k;
  Dims batch, a_batch, b_batch, c_batch;  // sizes, and strides of each
  int64_t a_row, a_col, b_row, b_col, c_row, c_col;
  int64_t batches() const { return batch.numel(); }
  double flops() const;
  double bytes() const;  // the least memory traffic: each matrix is read or written once
};

}  // namespace pyflame::gpu
