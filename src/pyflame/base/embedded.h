// Files that are built into the program (cmake/embed.cmake), by name relative to src/pyflame. So the program needs no data folder.
#pragma once
#include <string_view>

namespace pyflame {

// Both return an empty text if there is no such file.
std::string_view embedded(std::string_view name);       // files of the tools (library pyflame_tools)
std::string_view device_source(std::string_view name);  // sources of kernels, for the run-time compilers

}  // namespace pyflame
