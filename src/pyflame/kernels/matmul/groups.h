// The parts of products of groups, for the kernels in matmul/tile.h and matmul/matrix_cores.h. Group z ends at ends[z], where the next one begins.
#pragma once

namespace pf {

#ifdef PF_ON_DEVICE
// Group z multiplies some rows of A with B's matrix z.
struct GroupsOfRows {
  static constexpr bool kGroups = true;
  const int* ends;
  PF_DEVICE Part at(const MatmulShape& p, i64 z) const {
    const GroupRange r(ends, z, p.m);
    return {r.begin, r.end - r.begin, 0, p.k};
  }
};
// Group z adds some terms of the sums, and gives a matrix of its own.
struct GroupsOfTerms {
  static constexpr bool kGroups = true;
  const int* ends;
  PF_DEVICE Part at(const MatmulShape& p, i64 z) const {
    const GroupRange r(ends, z, p.k);
    return {0, p.m, r.begin, r.end - r.begin};
  }
};
#endif

}  // namespace pf
