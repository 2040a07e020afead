// The argument of the kernels in kernels/attention/paged.h, which the host fills in.
#pragma once

#ifndef PF_ON_DEVICE  // a kernel is compiled as one text
#include "pyflame/kernels/device/fault.h"
#endif

namespace pf {

// The keys of a sequence are split into parts of kPagedKeys, or of so many times more that there are at most kPagedParts. So the parts, and
// with them the order of every sum, depend on the length of that sequence alone.
enum { kPagedKeys = 128, kPagedParts = 64 };

struct PagedAttention {
  i64 sequences = 0, heads = 0, kv_heads = 0, dim = 0;
  i64 pages = 0, columns = 0;  // columns: of the block table
  int page_log2 = 0;           // of the keys of a page
  int most_parts = 0;          // of a sequence; 1: the results are written, otherwise partial sums
  double scale = 0, cap = 0;   // cap 0: none
  i64 window = 0;              // 0: none
  Fault* fault = nullptr;
  i64 site = 0;
};
static_assert(sizeof(PagedAttention) == 96);

}  // namespace pf
