// The arguments of the kernels in kernels/order/arg.h, which the host fills in. They do not depend on the dtype: the kernel knows the types
// of what the pointers point to.
#pragma once

#ifndef PF_ON_DEVICE  // a kernel is compiled as one text
#include "pyflame/kernels/device/view.h"
#endif

namespace pf {

struct ArgShape {
  i64 lines = 0, n = 0;     // n: elements per line
  i64 parts = 1, part = 0;  // parts of a line, and elements per part
};
// The elements that are searched: where lines begin, and the elements of a line.
struct ArgValues {
  const void* x = nullptr;
  View lines, inner;
};
// The best element of each part of each line, as a Best.
struct ArgParts {
  void* parts = nullptr;
  i64 count = 0;  // parts of a line
};
// The result: the position of the best element of each line.
struct ArgIndex {
  i64* to = nullptr;
  View lines;
};
static_assert(sizeof(ArgShape) == 32);
static_assert(sizeof(ArgValues) == 280);
static_assert(sizeof(ArgParts) == 16);
static_assert(sizeof(ArgIndex) == 144);

}  // namespace pf
