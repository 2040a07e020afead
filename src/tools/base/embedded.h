// Files that are built into the program (cmake/embed.cmake), so that the tools need no data folder.
#pragma once
#include <string_view>

namespace pyflame::tools {

// By name relative to src/tools; empty if there is no such file.
std::string_view embedded(std::string_view name);

}  // namespace pyflame::tools
