// matmul, and the groups that begin with one. A problem becomes a list of equal tasks when it is planned: batch dims
// are merged into the rows if memory allows it, operands that BLAS cannot read in place are packed, and the output is
// divided into blocks whose number depends on the shape only.
#pragma once
#include "pyflame/backends/cpu/common.h"

namespace pyflame::cpu {

Refusal accept_matmul_float32(const Problem& p);  // and the 16-bit types, which are computed in float32
Refusal accept_matmul_float64(const Problem& p);
std::unique_ptr<Executable> make_matmul(const Problem& p);
Refusal accept_gemv(const Problem& p);
std::unique_ptr<Executable> make_gemv(const Problem& p);
Refusal accept_matmul_integer(const Problem& p);
std::unique_ptr<Executable> make_matmul_integer(const Problem& p);

}  // namespace pyflame::cpu
