// The argument of the kernel in kernels/distance/pairs.h, which the host fills in.
#pragma once

#ifndef PF_ON_DEVICE  // a kernel is compiled as one text
#include "pyflame/kernels/device/view.h"
#endif

namespace pf {

struct PairShape {
  i64 rows = 0, width = 0, row = 0, column = 1;  // row, column: the steps of the input
  i64 step = 1;                                  // of the result
};

}  // namespace pf
