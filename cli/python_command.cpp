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

void PythonCommand::add_program(const std::vector<std::string>& words) {
  add("--");
  for (const std::string& word : words) add(word);
}

void PythonCommand::start() {
  std::vector<char*> arguments;
  for (std::string& word : words_) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  PF_FAIL(OS, "{}: Python cannot be started; got {}: {}; hint: name it with --python", command_, words_[0],
          std::strerror(errno));
}

// CLI11 gives what follows `--` to the parent of a command that has no more words to read. So the command has one that it never reads: the program
// stays among what remains.
void takes_program(CLI::App* cmd, const char* usage) {
  cmd->prefix_command();
  cmd->validate_positionals();
  cmd->add_option("program", CLI::callback_t(), usage)
      ->group("")
      ->check(CLI::Validator([](std::string&) { return "of the program"; }, ""));
}

std::vector<std::string> program_of(const CLI::App* cmd) {
  std::vector<std::string> words = cmd->remaining();
  if (!words.empty() && words[0] == "--") words.erase(words.begin());
  return words;
}

}  // namespace pyflame::apps::cli
