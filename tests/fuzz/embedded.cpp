// The embedded files, read where they lie: the fuzzer runs beside its sources.
#include "tools/base/embedded.h"

#include <fstream>
#include <iterator>
#include <map>
#include <string>

namespace pyflame::tools {

std::string_view embedded(std::string_view name) {
  static std::map<std::string, std::string, std::less<>> files;
  auto at = files.find(name);
  if (at == files.end()) {
    std::ifstream in(PYFLAME_FUZZ_SOURCES + std::string(name), std::ios::binary);
    at = files.emplace(name, std::string(std::istreambuf_iterator<char>(in), {})).first;
  }
  return at->second;
}

}  // namespace pyflame::tools
