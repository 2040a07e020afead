// Sources of the pooling kernels, for tests and for other compilers: name and text.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "pyflame/tensor/dtype.h"

namespace pyflame::gpu {

std::vector<std::pair<std::string, std::string>> pool_sources(DType dtype);

}  // namespace pyflame::gpu
