// Sums of the rows of bags; each element of the result has a thread.
#pragma once

namespace pf {

#ifdef PF_ON_DEVICE

template <class S, int kThreads>
PF_DEVICE void sum_bags(const S* table, const i64* index, const i64* offsets, S* to, const BagShape& p, Fault* fault,
                        int site) {
  const i64 count = p.bags * p.width;
  const bool narrow = count < (i64)1 << 31;
  for (i64 e = (i64)group().x * kThreads + thread(); e < count; e += (i64)groups().x * kThreads) {
    const Division at = divided(e, p.width, narrow);
    i64 i = offsets[at.quotient * p.begin];
    const i64 last = at.quotient + 1 < p.bags ? offsets[(at.quotient + 1) * p.begin] : p.rows;
    if (i < 0 || last > p.rows || i > last || (at.quotient == 0 && i != 0)) {
      if (fault) raise(fault, site, kIndexOutOfRange, i, p.rows + 1);
      continue;
    }
    C<S> sum = 0;
#pragma unroll 4
    for (; i < last; ++i) {
      const i64 row = index[i * p.index_step];
      const bool good = row >= 0 && row < p.size;
      if (good) sum += load(table + row * p.row + at.rest * p.column);
      else if (fault) raise(fault, site, kIndexOutOfRange, row, p.size);
    }
    store(to + at.quotient * p.to_row + at.rest * p.to_column, sum);
  }
}

#endif

}  // namespace pf
