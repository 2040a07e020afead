// Where sort, topk and randperm take their keys from, and how they write what comes first.
#pragma once

namespace pf {

template <class S, bool kDescending>
struct RowKeys {
  const S* x;
  View rows;
  i64 stride;
  PF_DEVICE void get(i64 row, i64 i, typename Key<S>::type& key, u32& id) const {
    key = directed<S, kDescending>(Key<S>::of(x[rows.at(row) + i * stride]));
    id = (u32)i;
  }
};

struct RandomKeys {
  u64 seed, offset;
  PF_DEVICE void get(i64, i64 i, u64& key, u32& id) const {
    key = philox64(seed, offset, (u64)i);
    id = (u32)i;
  }
};

// Values and positions in their order.
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
  PF_DEVICE void put(i64 row, i64 i, typename Key<S>::type key, u32 id) const {
    const auto plain = directed<S, kDescending>(key);
    values[value_rows.at(row) + i * value_stride] =
        Key<S>::exact(plain) ? Key<S>::back(plain) : x[x_rows.at(row) + (i64)id * x_stride];
    indices[index_rows.at(row) + i * index_stride] = (i64)id;
  }
};

struct Positions {
  i64* to;
  i64 stride;
  PF_DEVICE void put(i64, i64 i, u64, u32 id) const { to[i * stride] = (i64)id; }
};

}  // namespace pf
