// Pooling. Planes are independent and small; a task is several of them. If the result is channels-last, a task is rows
// of windows, or images, and the loops run over channels. The order of an element's sum is the same in either case.
#pragma once
#include "pyflame/backends/cpu/common.h"

namespace pyflame::cpu {

Refusal accept_pool(const Problem& p);
std::unique_ptr<Executable> make_max_pool(const Problem& p);
std::unique_ptr<Executable> make_max_pool_grad(const Problem& p);
std::unique_ptr<Executable> make_avg_pool(const Problem& p);
std::unique_ptr<Executable> make_avg_pool_grad(const Problem& p);

}  // namespace pyflame::cpu
