// Rows in groups. Group z ends before row ends[z], where the next one begins.
#pragma once

#ifndef PF_ON_DEVICE
#include "pyflame/kernels/device/fault.h"
#endif

namespace pf {

#ifdef PF_ON_DEVICE
// The group of a row: the first that ends after it. The last one, if none does.
PF_DEVICE i64 group_of_row(const int* ends, int groups, i64 row) {
  int low = 0, high = groups - 1;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (ends[middle] > row) high = middle;
    else low = middle + 1;
  }
  return low;
}

// Reports ends that decrease or that miss the last row. One workgroup of a launch calls it.
PF_DEVICE void check_group_ends(const int* ends, i64 groups, i64 rows, Fault* fault, int site) {
  for (i64 z = thread(); z < groups; z += threads()) {
    const i64 before = z > 0 ? ends[z - 1] : 0, end = ends[z];
    if (end < before) raise(fault, site, kGroupEndsDecrease, end, before);
    else if (z == groups - 1 && end != rows) raise(fault, site, kGroupEndsMissRows, end, rows);
  }
}
#endif

}  // namespace pf
