// The parts of products of groups, for the kernels in this folder.
#pragma once

namespace pf {

#ifdef PF_ON_DEVICE
// The rows of each group times its own matrix of B; there is one batch entry. The rows are cut where a tile's worth of rows begins and where a group begins.
// So each piece belongs to one group, and the number of pieces does not depend on where the groups are. Some pieces are empty.
struct GroupsOfRows {
  static constexpr bool kGroups = true;
  const int* ends;
  i64 groups;
  // Where group i + 1 begins.
  PF_DEVICE i64 cut(i64 i, i64 rows) const {
    const i64 at = i < groups - 1 ? ends[i] : rows;
    return at < 0 ? 0 : at > rows ? rows : at;
  }
  template <int kRows>
  PF_DEVICE u32 slots(const MatmulShape& p) const {
    return (u32)((p.m + kRows - 1) / kRows + groups - 1);
  }
  // The cuts of both kinds in ascending order, of which this finds number `slot` and the next one (a search in two sorted lists at once).
  template <int kRows>
  PF_DEVICE Part at(const MatmulShape& p, i64, u32 slot) const {
    const i64 tiles = (p.m + kRows - 1) / kRows;
    i64 low = slot > tiles ? slot - tiles : 0, high = slot < groups - 1 ? slot : groups - 1;
    while (low < high) {
      const i64 middle = (low + high) / 2;
      if (cut(middle, p.m) <= (slot - middle - 1) * kRows) low = middle + 1;
      else high = middle;
    }
    const i64 of_group = low < groups - 1 ? cut(low, p.m) : p.m, tile = slot - low;
    const i64 of_tile = tile * kRows < p.m ? tile * kRows : p.m;
    const bool begins = low < groups - 1 && of_group <= of_tile;
    const i64 row = begins ? of_group : of_tile, group = begins ? low + 1 : low;
    const i64 next_group = begins ? cut(low + 1, p.m) : of_group, next_tile = begins ? of_tile : of_tile + kRows;
    i64 end = next_group < next_tile ? next_group : next_tile;
    if (end > p.m) end = p.m;
    return {row, end, 0, p.k, group};
  }
};

// Group z adds some terms of the sums, and gives a matrix of its own.
struct GroupsOfTerms {
  static constexpr bool kGroups = true;
  const int* ends;
  template <int kRows>
  PF_DEVICE u32 slots(const MatmulShape& p) const {
    return WholeProduct().template slots<kRows>(p);
  }
  template <int kRows>
  PF_DEVICE Part at(const MatmulShape& p, i64 z, u32 slot) const {
    i64 begin = z > 0 ? ends[z - 1] : 0, end = ends[z];
    begin = begin < 0 ? 0 : begin > p.k ? p.k : begin;
    end = end < begin ? begin : end > p.k ? p.k : end;
    return {(i64)slot * kRows, p.m, begin, end, z};
  }
};

// One row each: the matrix of a row's group.
struct MatrixOfGroup {
  const int* ends;
  int groups;
  PF_DEVICE i64 of(i64 row) const { return group_of_row(ends, groups, row); }
};
#endif

}  // namespace pf
