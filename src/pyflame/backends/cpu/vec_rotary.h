// Rotary embedding of one head, for several instruction sets, on the calling thread. The best one is selected at run time.
#pragma once
#include <cstdint>

#include "pyflame/base/half.h"

namespace pyflame::cpu::vec {

// The n numbers of x (n is even) are pairs (x[i], x[i + n/2]), which are rotated: y = x cos + turned sin, where turned[i] is -x[i + n/2] in the
// first half and x[i - n/2] in the second. Each product and the sum are rounded to the dtype, as the elementwise ops do. x and y do not overlap.
void rotate(const float* x, const float* cos, const float* sin, float* y, int64_t n);
void rotate(const double* x, const double* cos, const double* sin, double* y, int64_t n);
void rotate(const bfloat16* x, const bfloat16* cos, const bfloat16* sin, bfloat16* y, int64_t n);
void rotate(const float16* x, const float16* cos, const float16* sin, float16* y, int64_t n);

}  // namespace pyflame::cpu::vec
