// The argument of the kernels in kernels/loss/cross_entropy.h, which the host fills in.
#pragma once

#ifndef PF_ON_DEVICE  // a kernel is compiled as one text
#include "pyflame/kernels/device/fault.h"
#include "pyflame/kernels/device/view.h"
#endif

namespace pf {

struct CrossEntropyShape {
  i64 rows = 0, classes = 0;
  i64 ignore = 0;
  View x_rows;
  i64 x_step = 1, target_step = 1, grad_step = 1;
  double smoothing = 0;
  Fault* fault = nullptr;
  int site = 0;
};
static_assert(sizeof(CrossEntropyShape) == 208);

}  // namespace pf
