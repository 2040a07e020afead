// Adding weights into bins, for several instruction sets, on the calling thread. The best one is selected at run time.
#pragma once
#include <cstdint>
#include <limits>

namespace pyflame::cpu::vec {

// Bin k has the values whose product with (divide: quotient by) the scale rounds to k, halves to the even number. Bin `start` is the first of the
// window.
struct Bins {
  double scale;
  bool divide;
  int64_t start, bins;
};
// Of the elements that can be used: bins from -2^50 to 2^50, and weights that are finite and not negative.
struct BinRange {
  double lowest = std::numeric_limits<double>::infinity(), highest = -std::numeric_limits<double>::infinity();
  int64_t most = 0, unusable = 0;  // most: the largest weight, of integers
};

// Adds n weights to sums, which are `copies` (1 or 4) rows of bins + 1: consecutive elements go to different rows, so that additions into one bin
// do not wait for each other. What is outside of the window goes to the last of a row. Sums of integers wrap around.
#define PF_VEC_BINS(V, W, Sum)                                                                                \
  void add_to_bins(const V* values, const W* weights, int64_t n, const Bins& bins, int64_t copies, Sum* sums, \
                   BinRange& range);
PF_VEC_BINS(double, int64_t, uint64_t)
PF_VEC_BINS(double, int32_t, uint64_t)
PF_VEC_BINS(double, double, double)
PF_VEC_BINS(double, float, double)
PF_VEC_BINS(float, int64_t, uint64_t)
PF_VEC_BINS(float, int32_t, uint64_t)
PF_VEC_BINS(float, double, double)
PF_VEC_BINS(float, float, double)
#undef PF_VEC_BINS

}  // namespace pyflame::cpu::vec
