// One product of bfloat16 matrices by oneDNN on the calling thread, with sums in float32. Processors with AVX512_BF16 or AMX multiply bfloat16
// numbers at least twice as fast as float32 numbers, and the operands need not be converted. docs/decisions/0003-cpu-gemm.md has the measurements.
#pragma once
#include <cstdint>

#include "pyflame/base/half.h"

namespace pyflame::cpu {

// Whether this processor has instructions for it, and oneDNN a kernel that uses them. Other processors multiply in float32.
bool has_bf16_gemm();

// C[m,n] = op(A) op(B), row-major. ta: A is stored [k,m]. Up to 7 rows of zeros are added to A where that saves the library another kernel.
void gemm(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const bfloat16* a, int64_t lda, const bfloat16* b,
          int64_t ldb, float* c, int64_t ldc);

}  // namespace pyflame::cpu
