// What the subcommands of the `pyflame` program share. Each one registers itself with the parser, and hands main() what to run once the
// command line is known to be valid.
#pragma once
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <functional>
#include <string>

namespace pyflame::apps {

constexpr int kOk = 0, kFailure = 1, kUsage = 2, kInterrupted = 130;

using Run = std::function<int()>;

// "--batch_size,--batch-size": options are written with underscores; dashes are accepted as well.
inline std::string names(const std::string& name) {
  std::string dashed = name;
  for (char& c : dashed) c = c == '_' ? '-' : c;
  return dashed == name ? "--" + name : "--" + name + ",--" + dashed;
}

// SIGINT and SIGTERM ask the program to end in order; a second signal ends it at once.
void catch_interrupts();
bool interrupted();

}  // namespace pyflame::apps
