// The argument of the kernels in kernels/norm/batch_norm.h, which the host fills in.
#pragma once

#ifndef PF_ON_DEVICE  // a kernel is compiled as one text
#include "pyflame/kernels/device/view.h"
#endif

namespace pf {

struct BatchNorm {
  i64 outer = 0, channels = 0, inner = 0;
  i64 segment = 0;  // rows (channels last) or outer indices (channels first) per segment
  int segments = 0;
  int along = 0;  // channels first: the number of threads along the inner dim, a power of two
};
static_assert(sizeof(BatchNorm) == 40);

}  // namespace pf
