// Reads shell text and records what it sets, for all forms of files of settings (shell_env.cpp). Nothing is executed. The input may be
// anything: each loop is bounded by the text, values and their number are limited, and nothing recurses.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/doctor/shell_env.h"

namespace pyflame::tools::doctor {

bool is_variable_name(std::string_view s);

class ShellReader {
 public:
  // The reason that a comment gives for each line: reasons[n - 1] is that of line n.
  explicit ShellReader(std::vector<std::string> reasons) : reasons_(std::move(reasons)) {}
  SettingsFile take() { return std::move(out_); }

  // Statements of a shell. `text` may hold line breaks (quotes span lines).
  void shell(std::string_view text, int line);
  // The same for text that a guide mentions in a sentence.
  void mention(std::string_view text, int line);
  // KEY=VALUE words of ENV and Environment=.
  void pairs(std::string_view text, int line);
  void assign(const std::string& name, std::string_view value, int line);
  // A value that later text can use, but that is not in the environment of a program.
  void local(const std::string& name, const std::string& value) { locals_[name] = value; }
  void problem(const std::string& what, int line);
  // What follows counts for `reason` also, until it is set again.
  void prose(std::string reason) { prose_ = std::move(reason); }

  // Where the settings that follow count. Every new place needs a new construct.
  int new_construct() { return constructs_++; }
  const std::vector<Branch>& path() const { return path_; }
  void set_path(std::vector<Branch> path);

 private:
  enum class Kind { scope, subshell, conditional, choice };
  struct Word {
    std::string text;
    bool quoted = false;
  };

  void enter(Kind kind, int construct);
  void leave(Kind kind);
  void next_arm(Kind kind);
  bool within(Kind kind) const { return !kinds_.empty() && kinds_.back() == kind; }

  static std::optional<size_t> split_assignment(const Word& w);
  std::string variable(const std::string& name) const;
  static void append(std::string& to, std::string_view what);
  void dollar(Word& w);
  void single(Word& w);
  void doubled(Word& w);
  void backquote(Word& w);
  std::optional<Word> word();
  void remember_reads(const Word& w);
  void here_document(const std::string& delimiter);
  bool keyword(const std::string& word);
  void separator();
  void statement();
  void run(const std::vector<Word>& words, int line);
  void exported(const std::vector<Word>& words, size_t i, int line);
  void started(const std::vector<Word>& words, size_t i, int line);
  void assign_words(const std::vector<Word>& words, size_t from, size_t to, int line);

  SettingsFile out_;
  std::vector<std::string> reasons_;
  std::string prose_;
  std::map<std::string, std::string> locals_;
  std::vector<std::string> reads_;  // variables that the word being read expands
  std::vector<Branch> path_;
  std::vector<Kind> kinds_;  // of the last entries of path_
  size_t base_ = 0;          // how many entries of path_ were there before kinds_
  int constructs_ = 0;
  std::string_view text_;
  size_t at_ = 0;
  int line_ = 1;
};

}  // namespace pyflame::tools::doctor
