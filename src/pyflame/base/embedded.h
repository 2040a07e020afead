// Sources of kernels that are built into the library (cmake/embed.cmake), for the run-time compilers.
#pragma once
#include <string_view>

namespace pyflame {

// By name relative to src/pyflame; empty if there is no such file.
std::string_view device_source(std::string_view name);

}  // namespace pyflame
