// The argument of the kernels in kernels/loss/nll.h, which the host fills in.
#pragma once

#ifndef PF_ON_DEVICE  // a kernel is compiled as one text
#include "pyflame/kernels/device/fault.h"
#endif

namespace pf {

struct NllShape {
  i64 rows = 0, classes = 0;
  i64 ignore = 0;
  i64 lp_row = 0, lp_step = 0;  // strides
  i64 target_step = 0, loss_step = 0, grad_step = 0;
  double smoothing = 0;
  Fault* fault = nullptr;
  int site = 0;
};
static_assert(sizeof(NllShape) == 88);

}  // namespace pf
