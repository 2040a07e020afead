// Multi-tensor updates: all tensors of a step are one list of equal chunks, so that many small parameters cost one
// pass over the threads and a large one is shared between them.
#pragma once
#include "pyflame/backends/cpu/common.h"

namespace pyflame::cpu {

Refusal accept_update(const Problem& p);
std::unique_ptr<Executable> make_adam(const Problem& p);
std::unique_ptr<Executable> make_sgd(const Problem& p);
std::unique_ptr<Executable> make_sum_squares(const Problem& p);
std::unique_ptr<Executable> make_scale_all(const Problem& p);

}  // namespace pyflame::cpu
