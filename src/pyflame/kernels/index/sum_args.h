// The arguments of the kernels in kernels/index/sum.h, which the host fills in.
#pragma once

#ifndef PF_ON_DEVICE  // a kernel is compiled as one text
#include "pyflame/kernels/device/fault.h"
#include "pyflame/kernels/device/view.h"
#endif

namespace pf {

constexpr u32 kNowhere = 0xffffffffu;  // the key of an index that is out of range: it is sorted last and never added

// Makes the keys of a line, which are the indices themselves.
struct IndexKeys {
  const i64* index;
  View lines;
  i64 stride, size;
  Fault* fault;
  int site;
  struct Line {
    const i64* index;
    i64 stride, size;
    Fault* fault;
    int site;
    PF_DEVICE void get(i64 i, u32& key, u32& id) const {
      const i64 at = index[i * stride];
      key = kNowhere, id = (u32)i;
      if (at >= 0 && at < size) key = (u32)at;
#ifdef PF_ON_DEVICE
      else if (fault) raise(fault, site, kIndexOutOfRange, at, size);
#endif
    }
  };
  PF_DEVICE Line line(i64 l, bool narrow = false) const {
    return {index + lines.at(l, narrow), stride, size, fault, site};
  }
};

struct SumShape {
  i64 lines = 1, count = 1, width = 1;
  i64 shared_keys = 0;        // 1: all lines use the keys of line 0
  i64 pieces = 1;             // per line
  View from_lines, to_lines;  // of the lines in source and output
  i64 from_stride = 0,
      from_step = 0;  // from one source to the next in a line, from one element to the next in a source
  i64 to_stride = 0, to_step = 0;
};
static_assert(sizeof(IndexKeys) == 176);
static_assert(sizeof(SumShape) == 344);

}  // namespace pf
