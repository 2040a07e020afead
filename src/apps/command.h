// What the subcommands of the `pyflame` program share. Each one registers itself with the parser, and hands main() what to run once the
// command line is known to be valid.
#pragma once
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Validators.hpp>
#include <charconv>
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

// Checks of numbers, for options that have no upper limit: CLI11's own name the greatest double as one.
inline std::string check_number(const std::string& text, bool zero) {
  double value = 0;
  const char* end = text.data() + text.size();
  const bool number = std::from_chars(text.data(), end, value).ptr == end && !text.empty();
  if (number && (zero ? value >= 0 : value > 0)) return "";
  return "not a valid value; got '" + text + "'; expected a number " + (zero ? "of at least 0" : "greater than 0");
}
inline const CLI::Validator kAtLeastZero([](std::string& text) { return check_number(text, true); }, "");
inline const CLI::Validator kAboveZero([](std::string& text) { return check_number(text, false); }, "");

// SIGINT and SIGTERM ask the program to end in order; a second signal ends it at once.
void catch_interrupts();
bool interrupted();

}  // namespace pyflame::apps
