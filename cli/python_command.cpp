// Finds the interpreter and starts a module of the package.
#include "python_command.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "pyflame/base/error.h"

namespace pyflame::apps::cli {

namespace {

namespace fs = std::filesystem;

std::string find_python() {
  std::error_code ignored;
  const fs::path beside = fs::read_symlink("/proc/self/exe", ignored).parent_path() / "python3";
  return fs::exists(beside, ignored) ? beside.string() : "python3";
}

}  // namespace

PythonCommand::PythonCommand(const char* command, const char* module, const std::string& python)
    : command_(command), words_{python.empty() ? find_python() : python, "-m", module} {}

void PythonCommand::start() {
  std::vector<char*> arguments;
  for (std::string& word : words_) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  PF_FAIL(OS, "{}: Python cannot be started; got {}: {}; hint: name it with --python", command_, words_[0],
          std::strerror(errno));
}

}  // namespace pyflame::apps::cli
