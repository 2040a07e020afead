// The style and the script of the pages. They are built into the library (cmake/embed.cmake), so that the tools need no data folder.
#pragma once
#include <string_view>

namespace pyflame::tools::view {

// By name relative to src/tools/view; empty if there is no such file.
std::string_view embedded(std::string_view name);

}  // namespace pyflame::tools::view
