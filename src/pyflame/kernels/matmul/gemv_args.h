// The argument of the kernels in kernels/matmul/gemv.h, which the host fills in.
#pragma once

#ifndef PF_ON_DEVICE  // a kernel is compiled as one text
#include "pyflame/kernels/device/view.h"
#endif

namespace pf {

struct GemvShape {
  i64 n = 0, k = 0, batches = 0;
  i64 w_line = 0, w_depth = 0, x_line = 0, x_depth = 0;  // strides of the matrix and of the vectors
  i64 depth = 0, splits = 0;                             // as in MatmulShape
  View w_batch, x_batch;
};
static_assert(sizeof(GemvShape) == 344);

}  // namespace pf
