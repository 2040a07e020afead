// The argument of the kernels in kernels/scan/scan.h, which the host fills in.
#pragma once

#ifndef PF_ON_DEVICE  // a kernel is compiled as one text
#include "pyflame/kernels/device/view.h"
#endif

namespace pf {

struct ScanShape {
  i64 lines = 0, n = 0;           // n: elements per line
  i64 x_step = 1, y_step = 1;     // from one element of a line to the next
  i64 segments = 1, segment = 0;  // of scan_rows: segments of a line, and elements per segment
  View x_lines, y_lines;          // where lines begin
};
static_assert(sizeof(ScanShape) == 320);

}  // namespace pf
