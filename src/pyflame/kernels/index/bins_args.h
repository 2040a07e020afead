// The argument of the kernels in kernels/index/bins.h, which the host fills in.
#pragma once

#ifndef PF_ON_DEVICE  // a kernel is compiled as one text
#include "pyflame/kernels/device/launch.h"

#include "pyflame/kernels/device/scalar.h"
#endif

namespace pf {

struct BinShape {
  i64 count = 0, value_step = 1, weight_step = 1;
  i64 start = 0, bins = 0;  // the window: bin `start` is the first
  i64 part = 0;             // of add_in_order: elements of a workgroup
  double scale = 1;
};
static_assert(sizeof(BinShape) == 56);

// What is known of the elements that were looked at.
struct BinStats {
  i64 lowest, highest, most, unusable;
};
static_assert(sizeof(BinStats) == 32);

}  // namespace pf
