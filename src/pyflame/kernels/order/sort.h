// Where sort, topk and randperm read their keys from, and how they write results.
#pragma once

#ifndef PF_ON_DEVICE  // a kernel is compiled as one text
#include "pyflame/kernels/device/view.h"
#include "pyflame/kernels/order/keys.h"
#endif

namespace pf {

template <class S, bool kDescending>
struct RowKeys {
  const S* x;
  View rows;
  i64 stride;
  struct Line {
    const S* x;
    i64 stride;
    PF_DEVICE void get(i64 i, typename Key<S>::type& key, u32& id) const {
      key = directed<S, kDescending>(Key<S>::of(x[i * stride]));
      id = (u32)i;
    }
  };
  PF_DEVICE Line line(i64 row) const { return {x + rows.at(row), stride}; }
};

struct RandomKeys {
  u64 seed, offset;
  PF_DEVICE const RandomKeys& line(i64) const { return *this; }
  PF_DEVICE void get(i64 i, u64& key, u32& id) const {
    key = philox64(seed, offset, (u64)i);
    id = (u32)i;
  }
};

// Values and, unless there is no place for them, positions in sorted order.
template <class S, bool kDescending>
struct OrderedRows {
  const S* x;
  View x_rows;
  i64 x_stride;
  S* values;
  View value_rows;
  i64 value_stride;
  i64* indices;
  View index_rows;
  i64 index_stride;
  struct Line {
    const S* x;
    S* values;
    i64* indices;
    i64 x_stride, value_stride, index_stride;
    PF_DEVICE void put(i64 i, typename Key<S>::type key, u32 id) const {
      const auto plain = directed<S, kDescending>(key);
      values[i * value_stride] = Key<S>::exact(plain) ? Key<S>::back(plain) : x[(i64)id * x_stride];
      if (indices) indices[i * index_stride] = (i64)id;
    }
  };
  PF_DEVICE Line line(i64 row) const {
    i64* const to = indices ? indices + index_rows.at(row) : nullptr;
    return {x + x_rows.at(row), values + value_rows.at(row), to, x_stride, value_stride, index_stride};
  }
};

struct Positions {
  i64* to;
  i64 stride;
  PF_DEVICE const Positions& line(i64) const { return *this; }
  PF_DEVICE void put(i64 i, u64, u32 id) const { to[i * stride] = (i64)id; }
};

static_assert(sizeof(RowKeys<u8, false>) == 152 && sizeof(RowKeys<double, true>) == 152);
static_assert(sizeof(OrderedRows<u8, false>) == 456 && sizeof(OrderedRows<double, true>) == 456);

}  // namespace pf
