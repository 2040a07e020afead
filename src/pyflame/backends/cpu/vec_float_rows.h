// Products of rows of x and rows of 8-bit floats (tensor/float8_rows.h), for several instruction sets, on the calling thread. The best one is
// selected at run time.
#pragma once
#include <cstdint>

#include "pyflame/tensor/float8_rows.h"

namespace pyflame::cpu::vec {

// y[i * ldy] = the product of row i of x and the row of weights, in float32. Its sums have one order, whatever the number of rows of x.
void float_row_product(const Float8Rows& form, const uint8_t* weight, const float* x, int64_t rows, float* y,
                       int64_t ldy);
// The weights of a row.
void decode_float_row(const Float8Rows& form, const uint8_t* weight, float* to);

}  // namespace pyflame::cpu::vec
