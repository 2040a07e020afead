// The argument of the kernels in kernels/matmul/tile.h, which the host fills in. matmul/units.h takes the same one.
#pragma once

#ifndef PF_ON_DEVICE  // a kernel is compiled as one text
#include "pyflame/kernels/device/view.h"
#endif

namespace pf {

struct MatmulShape {
  i64 m = 0, n = 0, k = 0, batches = 0;
  i64 a_row = 0, a_col = 0, b_row = 0, b_col = 0;  // strides
  i64 depth = 0;                                   // the depth of one split, a multiple of the tile's depth
  i64 splits = 0;
  View a_batch, b_batch;  // over the batch dims, which have the output's sizes
};
static_assert(sizeof(MatmulShape) == 352);

}  // namespace pf
