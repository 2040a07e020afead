// Images read at the places of a grid, for several instruction sets, on the calling thread. The best one is selected at run time.
#pragma once
#include <cstdint>

#include "pyflame/ops/attrs.h"

namespace pyflame::cpu::vec {

constexpr int64_t kGridBlock = 128;  // places at a time
constexpr int64_t kGridCorners = 16;

// The corners of the places of a block: corner k of place i has number [k * kGridBlock + i]. Elements outside of the image are at -1.
template <class T>
struct GridBlock {
  alignas(64) int32_t at[kGridCorners * kGridBlock];
  alignas(64) T weight[kGridCorners * kGridBlock];
  alignas(64) T slope[3][kGridCorners * kGridBlock];  // the weight's derivatives by the numbers of a place
};

struct GridRule {
  GridAttrs attrs;
  int64_t dims, size[3];
  int64_t corners() const {
    const int64_t taps = attrs.mode == int64_t(GridMode::Linear) ? 2 : attrs.mode == int64_t(GridMode::Nearest) ? 1 : 4;
    return dims == 2 ? taps * taps : taps * taps * taps;
  }
};

// Images are planes of elements (one for each channel), or rows of channels (one for each element).
#define PF_VEC_GRID_FUNCTIONS(T)                                                                                     \
  /* The block of n <= kGridBlock places */                                                                          \
  void grid_corners(const GridRule& rule, const T* places, int64_t n, bool slopes, GridBlock<T>& to);                \
  /* y[i] = the weighted sum of the corners of place i in a plane */                                                 \
  void sample_plane(const GridBlock<T>& b, int64_t corners, const T* plane, T* y, int64_t n);                        \
  /* to[i * dims + d] = the sum over channels and corners of g[c * ld + i] plane[c * elements + at] slope[d] */      \
  void grid_slopes_of_planes(const GridBlock<T>& b, const GridRule& rule, const T* planes, int64_t elements,         \
                             const T* g, int64_t ld, int64_t channels, T* to, int64_t n);                            \
  /* y[i * channels + c] */                                                                                          \
  void sample_rows(const GridBlock<T>& b, int64_t corners, const T* rows, int64_t channels, T* y, int64_t n);        \
  void grid_slopes_of_rows(const GridBlock<T>& b, const GridRule& rule, const T* rows, int64_t channels, const T* g, \
                           T* to, int64_t n);                                                                        \
  /* rows[at * channels + c] += weight g[i * channels + c], place after place */                                     \
  void add_to_rows(const GridBlock<T>& b, int64_t corners, const T* g, int64_t channels, T* rows, int64_t n);        \
  /* y[j * ldy + i] = x[i * ldx + j] for i < rows, j < columns */                                                    \
  void transpose(const T* x, int64_t ldx, T* y, int64_t ldy, int64_t rows, int64_t columns);

PF_VEC_GRID_FUNCTIONS(float)
PF_VEC_GRID_FUNCTIONS(double)
#undef PF_VEC_GRID_FUNCTIONS

}  // namespace pyflame::cpu::vec
