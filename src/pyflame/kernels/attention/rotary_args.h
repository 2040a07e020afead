// The argument of the kernel in kernels/attention/rotary.h, which the host fills in.
#pragma once

#ifndef PF_ON_DEVICE  // a kernel is compiled as one text
#include "pyflame/kernels/device/fault.h"
#endif

namespace pf {

struct RotaryStore {
  i64 rows = 0, heads = 0, kv_heads = 0, dim = 0;
  i64 rotary_dim = 0, positions = 0, slots = 0;  // the tables' columns and rows; rows of the cache
  i64 row[3] = {0, 0, 0}, head[3] = {0, 0, 0};   // strides of q, k and v
  Fault* fault = nullptr;
  i64 site = 0;
};
static_assert(sizeof(RotaryStore) == 120);

}  // namespace pf
