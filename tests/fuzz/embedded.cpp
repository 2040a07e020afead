// The embedded files, read from the sources beside the fuzzer.
#include <fstream>
#include <iterator>
#include <map>
#include <string>

#include "tools/doctor/embedded.h"
#include "tools/view/embedded.h"

namespace pyflame::tools {

namespace {

std::string_view source(const std::string& name) {
  static std::map<std::string, std::string> files;
  auto at = files.find(name);
  if (at == files.end()) {
    std::ifstream in(PYFLAME_FUZZ_SOURCES + name, std::ios::binary);
    at = files.emplace(name, std::string(std::istreambuf_iterator<char>(in), {})).first;
  }
  return at->second;
}

}  // namespace

std::string_view doctor::embedded(std::string_view name) { return source("doctor/" + std::string(name)); }
std::string_view view::embedded(std::string_view name) { return source("view/" + std::string(name)); }

}  // namespace pyflame::tools
