// What follows from the tables of gpu_arch.h for products of 8-bit numbers.
#pragma once
#include <string_view>

#include "pyflame/base/gpu_arch.h"

namespace pyflame {

// The peak of products of int8 in 10^12 operations a second, without sparsity. 0: no matrix cores, or unknown.
double int8_tflops(const GpuProduct& product);

// Whether the matrix cores multiply a dtype of 8 bits ("int8", "float8_e4m3fn", …) in its own format.
bool multiplies_8_bits(const GpuArch& arch, std::string_view dtype);

}  // namespace pyflame
