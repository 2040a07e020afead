// The argument of the kernel in kernels/matmul/scaled.h, which the host fills in.
#pragma once

#ifndef PF_ON_DEVICE  // a kernel is compiled as one text
#include "pyflame/kernels/device/view.h"
#endif

namespace pf {

struct ScaledShape {
  i64 m = 0, n = 0, k = 0;
  i64 a_row = 0, a_col = 1, b_row = 1, b_col = 0, c_row = 0;  // steps
};

}  // namespace pf
