// The argument of the kernel in kernels/index/bag.h, which the host fills in.
#pragma once

#ifndef PF_ON_DEVICE  // a kernel is compiled as one text
#include "pyflame/kernels/device/fault.h"
#include "pyflame/kernels/device/view.h"
#endif

namespace pf {

struct BagShape {
  i64 bags = 0, rows = 0, width = 0, size = 0;         // rows: of all bags; size: of the table
  i64 row = 0, column = 0, index_step = 1, begin = 1;  // steps of the table, of the index, of the offsets
  i64 to_row = 0, to_column = 1;                       // steps of the result
};

}  // namespace pf
