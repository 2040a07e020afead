// Pooling. Planes are independent of each other and small: a task is a few of them. Where the result lies channels-last a task is rows of
// windows, or images, and the loops go over channels. An element's sum is added up in the same order either way.
#pragma once
#include "pyflame/backends/cpu/common.h"

namespace pyflame::cpu {

Refusal accept_pool(const Problem& p);
std::unique_ptr<Executable> make_max_pool(const Problem& p);
std::unique_ptr<Executable> make_max_pool_grad(const Problem& p);
std::unique_ptr<Executable> make_avg_pool(const Problem& p);
std::unique_ptr<Executable> make_avg_pool_grad(const Problem& p);

}  // namespace pyflame::cpu
