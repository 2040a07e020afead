// The argument of the kernels in kernels/norm/norm.h, which the host fills in.
#pragma once

#ifndef PF_ON_DEVICE  // a kernel is compiled as one text
#include "pyflame/kernels/device/view.h"
#endif

namespace pf {

struct NormRows {
  i64 rows = 0, n = 0, x_row = 0, x_step = 0, g_row = 0, g_step = 0, w_step = 0, b_step = 0;
};
static_assert(sizeof(NormRows) == 64);

}  // namespace pf
