// The argument of the kernels in kernels/quantized/blocks.h, which the host fills in.
#pragma once

#ifndef PF_ON_DEVICE  // a kernel is compiled as one text
#include "pyflame/kernels/device/view.h"
#endif

namespace pf {

// Where the parts of a block are: part i of block b begins at byte at[i] + b * step[i] of a row. The parts are numbers, upper bits, scales of
// a few bits, and scales in float16 (tensor/weight_planes.h).
struct BlockParts {
  i64 at[4] = {}, step[4] = {};
};

struct Quantized {
  i64 outputs = 0, columns = 0, rows = 0;  // of W, of both, and of x
  i64 row_bytes = 0;                       // of W
  i64 x_row = 0, x_column = 0;             // strides of x
  BlockParts parts;
};
static_assert(sizeof(Quantized) == 112);

}  // namespace pf
