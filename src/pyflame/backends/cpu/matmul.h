// matmul and the groups that begin with one. A problem is brought to a list of equal tasks at plan time: batch dims are
// folded into the rows where memory allows, what BLAS cannot read in place is packed, and the output is cut into blocks
// whose number depends on the shape only.
#pragma once
#include "pyflame/backends/cpu/common.h"

namespace pyflame::cpu {

Refusal accept_matmul_float32(const Problem& p);  // and the 16-bit types, computed in float32
Refusal accept_matmul_float64(const Problem& p);
std::unique_ptr<Executable> make_matmul(const Problem& p);
Refusal accept_gemv(const Problem& p);
std::unique_ptr<Executable> make_gemv(const Problem& p);
Refusal accept_matmul_integer(const Problem& p);
std::unique_ptr<Executable> make_matmul_integer(const Problem& p);

}  // namespace pyflame::cpu
