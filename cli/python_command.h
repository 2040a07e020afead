// Commands that Python carries out, because what they need is in the package: run, bench, train and others.
#pragma once
#include <CLI/App.hpp>
#include <string>
#include <vector>

namespace pyflame::apps::cli {

// The words of a command line for a module of the package.
class PythonCommand {
 public:
  // `python`: the interpreter; empty: the one that python_interpreter() finds.
  PythonCommand(const char* command, const char* module, const std::string& python);
  void add(const std::string& word) { words_.push_back(word); }
  // One word, so that a value may begin with a dash.
  void add(const char* name, const std::string& value) { words_.push_back(std::string(name) + "=" + value); }
  // A program and its arguments, behind all options.
  void add_program(const std::vector<std::string>& words);
  // Replaces this process. Returns only by an error.
  [[noreturn]] void start();

 private:
  const char* command_;
  std::vector<std::string> words_;
};

// The options of the command end where a program begins, or at `--`. usage: how --help shows the program.
void takes_program(CLI::App* cmd, const char* usage = "FILE.py [ARGUMENT ...]");
// The program and its arguments, once the command line is read.
std::vector<std::string> program_of(const CLI::App* cmd);

}  // namespace pyflame::apps::cli
