// The text of --help, in lines that are no longer than the terminal is wide.
#pragma once
#include <CLI/App.hpp>
#include <CLI/Formatter.hpp>
#include <string>
#include <string_view>

namespace pyflame::apps {

// Columns of --help: COLUMNS, or those of the terminal, at most 120; 100 elsewhere. At least 60.
int help_width();

// A text of lines; what is longer than `width` goes on in the next line, below the column where its last part begins.
std::string wrap_help(std::string_view text, int width);

class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter();
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override;
  // A word that the help does not list, such as a program and its arguments, is written as its description says.
  std::string make_option_usage(const CLI::Option* option) const override;

 private:
  int width_;
};

}  // namespace pyflame::apps
