// The argument of the kernels in kernels/order/arg.h, which the host fills in.
#pragma once

#ifndef PF_ON_DEVICE  // a kernel is compiled as one text
#include "pyflame/kernels/device/view.h"
#endif

namespace pf {

struct ArgShape {
  i64 lines = 0, n = 0;     // n: elements per line
  i64 parts = 1, part = 0;  // parts of a line, and elements per part
};
static_assert(sizeof(ArgShape) == 32);

}  // namespace pf
