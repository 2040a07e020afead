// Products of rounded rows and tiles of weights, for several instruction sets, on the calling thread. The best one is selected at run time.
#pragma once
#include <cstdint>

#include "pyflame/tensor/weight_tiles.h"

namespace pyflame::cpu::vec {

// Rows of x, each block of 32 elements as integers from -127 to 127 times a scale.
struct RoundedRows {
  int8_t* q;     // [rows, columns]
  float* scale;  // [rows, columns / 32]
  float* sum;    // the same: the scale times the sum of the block's integers
  int64_t columns;

  int64_t blocks() const { return columns / kTileBlock; }
  RoundedRows from(int64_t row) const {
    return {q + row * columns, scale + row * blocks(), sum + row * blocks(), columns};
  }
};

// The scale of a block is its largest magnitude / 127; it is NaN if an element is not finite. A block whose magnitudes are all below 1e-30
// becomes zeros.
void round_rows(const float* x, int64_t rows, const RoundedRows& to);
// y[i * ldy + r] = the product of row i of x and row r of the tile, r < columns of y <= 8
void tile_product(const TileForm& form, const uint8_t* tile, const RoundedRows& x, int64_t rows, float* y, int64_t ldy,
                  int64_t outputs);

}  // namespace pyflame::cpu::vec
