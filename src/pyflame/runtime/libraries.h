// The parts of this build, for `pyflame info`, bug reports and benchmark records.
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace pyflame {

// Name and version of each library as it is loaded, which may differ from what it was compiled against: oneDNN,
// OpenBLAS, Highway, fmt.
std::vector<std::pair<std::string, std::string>> library_versions();
std::string build_type();  // "release", "debug", with the sanitizers if any
std::string compiler();    // "GCC 12.2.0"

}  // namespace pyflame
