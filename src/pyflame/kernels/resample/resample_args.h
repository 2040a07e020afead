// The argument of the kernel in kernels/resample/resample.h, which the host fills in.
#pragma once

#ifndef PF_ON_DEVICE  // a kernel is compiled as one text
#include "pyflame/kernels/device/view.h"
#endif

namespace pf {

struct ResampleShape {
  i64 lines = 0, n = 0, taps = 1;  // n: results per line
  i64 x_step = 1, y_step = 1;      // from one element of a line to the next
  i64 begin_step = 1;              // from one entry of the table to the next
  i64 narrow = 0,
      row_bits = 0;       // narrow: there are less than 2^31 lines and results per line; see resample() for row_bits
  View x_lines, y_lines;  // where lines begin
};

}  // namespace pf
