// The argument of the kernels in kernels/rows/softmax.h, which the host fills in.
#pragma once

#ifndef PF_ON_DEVICE  // a kernel is compiled as one text
#include "pyflame/kernels/device/view.h"
#endif

namespace pf {

struct SoftmaxShape {
  i64 rows = 0, n = 0;
  View x_rows, y_rows;
  i64 x_stride = 1, y_stride = 1;
};
static_assert(sizeof(SoftmaxShape) == 304);

}  // namespace pf
