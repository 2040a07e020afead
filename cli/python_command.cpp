// Starts a module of the package.
#include "python_command.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "pyflame/base/error.h"
#include "pyflame/base/python.h"

namespace pyflame::apps::cli {

PythonCommand::PythonCommand(const char* command, const char* module, const std::string& python)
    : command_(command), words_{python_interpreter(python), "-m", module} {}

void PythonCommand::start() {
  std::vector<char*> arguments;
  for (std::string& word : words_) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  PF_FAIL(OS, "{}: Python cannot be started; got {}: {}; hint: name it with --python", command_, words_[0],
          std::strerror(errno));
}

}  // namespace pyflame::apps::cli
