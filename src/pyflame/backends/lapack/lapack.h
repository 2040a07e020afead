// Factorizations and solutions of linear systems by LAPACK, on the host. The CPU backend calls it on its memory; the GPU backends copy their
// operands to the host first; the reference computes in float64. A batch is divided among the threads of the pool by matrices; LAPACK
// itself runs on one thread. Large matrices are divided into blocks (blocks.h, blocked.h).
#pragma once
#include "pyflame/backends/backend.h"

namespace pyflame::lapack {

// Computes a node whose op stands in ops.def as LINALG. `ins` and `outs` are the first elements of its operands, of any strides; `compute` is
// the type of the arithmetic, float32, float64, complex64 or complex128. Matrices for which LAPACK reports a failure have it in the output `info`.
void run(const Node& node, DType compute, void* const* ins, void* const* outs, Params params);

}  // namespace pyflame::lapack
