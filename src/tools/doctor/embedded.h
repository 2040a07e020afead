// Files of the doctor that are built into the library (cmake/embed.cmake), so that it needs no data folder.
#pragma once
#include <string_view>

namespace pyflame::tools::doctor {

// By name relative to src/tools/doctor; empty if there is no such file.
std::string_view embedded(std::string_view name);

}  // namespace pyflame::tools::doctor
