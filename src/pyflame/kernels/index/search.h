// Binary search of values in sorted rows, one thread for each value.
#pragma once

namespace pf {

#ifdef PF_ON_DEVICE

// How many elements of a row come before a value; kRight: or equal it. NaN comes after everything. `each` values belong
// to a row. I: a type for n. kRows: there is more than one row.
template <class S, bool kRight, int kThreads, class I, bool kRows>
PF_DEVICE void search_sorted(const S* sorted, const S* values, i64* to, const View& lines, const View& where, i64 n,
                             i64 step, i64 each, i64 count) {
  const bool narrow = count < (i64)1 << 31;
  for (i64 i = (i64)group().x * kThreads + thread(); i < count; i += (i64)groups().x * kThreads) {
    const S* row = sorted + (kRows ? lines.at(divided(i, each, narrow).quotient, narrow) : 0);
    const C<S> v = load(values + where.at(i, narrow));
    I low = 0, high = (I)n;
    while (low < high) {
      const I middle = low + (high - low) / 2;
      const C<S> here = load(row + (i64)middle * step);
      if (here < v || (kRight && here == v) || v != v) low = middle + 1;
      else high = middle;
    }
    to[i] = low;
  }
}

#endif

}  // namespace pf
