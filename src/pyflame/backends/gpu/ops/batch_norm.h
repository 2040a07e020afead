// The sources of batch_norm's kernels by name, for tests and for other compilers.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "pyflame/tensor/dtype.h"

namespace pyflame::gpu {

std::vector<std::pair<std::string, std::string>> batch_norm_sources(DType dtype);

}  // namespace pyflame::gpu
