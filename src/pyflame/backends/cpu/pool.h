// Pooling, NCHW: planes are independent of each other and small, so a task is a few planes and the loops are plain.
#pragma once
#include "pyflame/backends/cpu/common.h"

namespace pyflame::cpu {

Refusal accept_pool(const Problem& p);
std::unique_ptr<Executable> make_max_pool(const Problem& p);
std::unique_ptr<Executable> make_avg_pool(const Problem& p);
std::unique_ptr<Executable> make_avg_pool_grad(const Problem& p);

}  // namespace pyflame::cpu
