// Products of rounded rows and tiles of weights, for several instruction sets, on the calling thread. The best one is selected at run time.
#pragma once
#include <cstdint>

#include "pyflame/tensor/weight_tiles.h"

namespace pyflame::cpu::vec {

// Rows of x, each block of 32 elements as integers of 15 bits times a scale. An integer is 128 * high + low, both from -127 to 127, so that
// products of bytes multiply it. One row of x costs little more than with integers of 8 bits, because reading the weights takes most of the time.
constexpr int kPlanes = 2, kLowBits = 7;
constexpr int32_t kMostRounded = 127 << kLowBits;

struct RoundedRows {
  int8_t* q;     // [rows, planes, columns]: high, then low
  float* scale;  // [rows, columns / 32]
  float* sum;    // [rows, columns / 16]: the scale times the sum of the integers of each half of a block
  int64_t columns;

  int64_t blocks() const { return columns / kTileBlock; }
  RoundedRows from(int64_t row) const {
    return {q + row * kPlanes * columns, scale + row * blocks(), sum + row * 2 * blocks(), columns};
  }
};

// The scale of a block is its largest magnitude / kMostRounded; it is NaN if an element is not finite. A block whose magnitudes are all below 1e-30
// becomes zeros.
void round_rows(const float* x, int64_t rows, const RoundedRows& to);
// The sum over a block is multiplied by the scale of x before that of the weights. It is finite where the magnitudes of x are below 8e34: there are
// 32 products with integers up to 128. The product of the two scales would not overflow, but loses digits below 1e-38 where x is small.
// y[i * ldy + r] = the product of row i of x and row r of the tile, r < columns of y <= 8
void tile_product(const TileForm& form, const uint8_t* tile, const RoundedRows& x, int64_t rows, float* y, int64_t ldy,
                  int64_t outputs);

}  // namespace pyflame::cpu::vec
