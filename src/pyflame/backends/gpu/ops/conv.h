// The sources of the convolution kernels by name, for tests and for other compilers: every variant of a dtype.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "pyflame/tensor/dtype.h"

namespace pyflame::gpu {

std::vector<std::pair<std::string, std::string>> conv_sources(DType dtype);

}  // namespace pyflame::gpu
