// What the kernels in kernels/quantized/floats.h and float_units.h share with the host.
#pragma once

#ifndef PF_ON_DEVICE  // a kernel is compiled as one text
#include "pyflame/kernels/device/view.h"
#endif

namespace pf {

constexpr int kCodes = 16;  // that are read at once
enum { kFloatStep = 64 };   // on matrix cores, a scale covers the row or a multiple of so many columns

struct FloatRows {
  i64 outputs = 0, columns = 0, rows = 0;  // of W, of both, and of x
  i64 row_bytes = 0, group = 0;            // of W; elements that a scale covers
  i64 x_row = 0, x_column = 0;             // strides of x
};
static_assert(sizeof(FloatRows) == 56);

}  // namespace pf
