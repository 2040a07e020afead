// The argument of the kernels in kernels/fft/fft.h, which the host fills in.
#pragma once

#ifndef PF_ON_DEVICE  // a kernel is compiled as one text
#include "pyflame/kernels/device/view.h"
#endif

namespace pf {

struct FftShape {
  i64 lines = 0;              // of the whole transform
  i64 n = 0;                  // elements of a line of the whole transform,
  i64 columns = 1, rows = 1;  // as a matrix, where it takes two kernels: n = rows * columns
  i64 step = 0, part = 0;     // of x: from an element to the next, and from a real part to the imaginary one
  i64 padded = 0;             // Bluestein's algorithm: elements of a line of the convolution
  double scale = 1;
  View x_lines;  // where lines of x begin
};
static_assert(sizeof(FftShape) == 200);

}  // namespace pf
