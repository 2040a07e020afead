// Finds the interpreter.
#include "pyflame/base/python.h"

#include <filesystem>

#include "pyflame/base/env.h"

namespace pyflame {

std::string python_interpreter(const std::string& given) {
  namespace fs = std::filesystem;
  if (!given.empty()) return given;
  if (!env::python().empty()) return env::python();
  std::error_code ignored;
  const fs::path own = fs::read_symlink("/proc/self/exe", ignored).parent_path() / "python3";
  return fs::exists(own, ignored) ? own.string() : "python3";
}

}  // namespace pyflame
