// Files inside the program (cmake/embed.cmake), by their name relative to src/pyflame: the program then needs no folder of its own.
#pragma once
#include <string_view>

namespace pyflame {

// Empty when there is no such file. Defined where the tools are linked (pyflame_tools), not in the core library.
std::string_view embedded(std::string_view name);

}  // namespace pyflame
