// Bounded reading of real files, for both kinds of Host.
#pragma once
#include <string>
#include <vector>

#include "tools/system/host.h"

namespace pyflame::tools::system {

constexpr size_t kListLimit = 65536;

Reading read_regular_file(const std::string& path, size_t limit);
// The names in a folder, in natural order (card2 before card10).
std::vector<std::string> list_folder(const std::string& path);

}  // namespace pyflame::tools::system
