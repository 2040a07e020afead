// The sources of the pooling kernels by name, for tests and for other compilers.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "pyflame/tensor/dtype.h"

namespace pyflame::gpu {

std::vector<std::pair<std::string, std::string>> pool_sources(DType dtype);

}  // namespace pyflame::gpu
