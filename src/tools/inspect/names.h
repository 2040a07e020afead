// Names of kernels for tables: short, but so that two rows can be told apart.
#pragma once
#include <string>
#include <vector>

namespace pyflame::tools::inspect {

// "void ck::kernel<float>(float*, int)" -> "kernel<float>": without result, namespaces and parameters.
std::string short_name(const std::string& name);

// The names in at most `width` columns each. What several long names have in common is left out in the middle ("gemm_bf16…tile_64"),
// so that different names stay different wherever the width allows it.
std::vector<std::string> distinct(const std::vector<std::string>& names, size_t width);

}  // namespace pyflame::tools::inspect
