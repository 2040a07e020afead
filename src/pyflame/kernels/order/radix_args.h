// The arguments of the kernels in kernels/order/radix.h, which the host fills in.
#pragma once

#ifndef PF_ON_DEVICE  // a kernel is compiled as one text
#include "pyflame/kernels/device/view.h"
#endif

namespace pf {

// Pairs of key and position in memory, which one pass hands to the next.
template <class K>
struct Pairs {
  K* keys = nullptr;
  u32* ids = nullptr;
  i64 stride = 0;  // from one row to the next
  struct Line {
    K* keys;
    u32* ids;
    PF_DEVICE void get(i64 i, K& key, u32& id) const { key = keys[i], id = ids[i]; }
    PF_DEVICE void put(i64 i, K key, u32 id) const { keys[i] = key, ids[i] = id; }
  };
  PF_DEVICE Line line(i64 row) const { return {keys + row * stride, ids + row * stride}; }
};

struct SortShape {
  i64 rows = 0, n = 0;     // n: items per row
  i64 keep = 0;            // how many of the first items of a sorted row are wanted
  i64 tiles = 0;           // per row
  int begin = 0, end = 0;  // bits of the key; for a pass: its first bit
};
static_assert(sizeof(Pairs<u32>) == 24 && sizeof(Pairs<u64>) == 24);
static_assert(sizeof(SortShape) == 40);

}  // namespace pf
