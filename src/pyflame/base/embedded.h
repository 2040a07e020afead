// Files inside the program (cmake/embed.cmake), by their name relative to src/pyflame: the program then needs no folder of its own.
#pragma once
#include <string_view>

namespace pyflame {

// Both are empty when there is no such file.
std::string_view embedded(std::string_view name);       // what the tools carry (library pyflame_tools)
std::string_view device_source(std::string_view name);  // sources of kernels, for the run-time compilers

}  // namespace pyflame
