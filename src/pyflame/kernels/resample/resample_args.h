// The argument of the kernel in kernels/resample/resample.h, which the host fills in.
#pragma once

#ifndef PF_ON_DEVICE  // a kernel is compiled as one text
#include "pyflame/kernels/index/walk.h"
#endif

namespace pf {

// kWide: there are 2^31 and more lines.
template <bool kWide>
struct ResampleShape {
  i64 lines = 0, n = 0, taps = 1;  // n: results per line
  i64 x_step = 1, y_step = 1;      // from one element of a line to the next
  i64 begin_step = 1;              // from one entry of the table to the next
  i64 row_bits = 0;                // see resample()
  Walk<2, kWide> starts;           // where lines begin in x and y
};

}  // namespace pf
