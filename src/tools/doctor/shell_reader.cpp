// Words, quotes, expansions and statements of a shell, as far as they decide what is set.
#include "tools/doctor/shell_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "tools/base/text.h"

namespace pyflame::tools::doctor {

namespace {

constexpr size_t kMostAssignments = 10000, kMostPrograms = 1000, kMostProblems = 50, kMostValue = 32 << 10,
                 kDeepest = 64;

bool name_start(char c) { return std::isalpha(static_cast<unsigned char>(c)) || c == '_'; }
bool name_char(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }
bool ends_statement(char c) { return c == '\n' || c == ';' || c == '&' || c == '|' || c == '(' || c == ')'; }

}  // namespace

bool is_variable_name(std::string_view s) {
  return !s.empty() && s.size() <= 256 && name_start(s[0]) && std::all_of(s.begin(), s.end(), name_char);
}

void ShellReader::shell(std::string_view text, int line) {
  text_ = text;
  at_ = 0;
  line_ = line;
  while (at_ < text_.size()) statement();
  // An if that is not closed ends with its text.
  path_.resize(base_);
  kinds_.clear();
}

void ShellReader::mention(std::string_view text, int line) {
  const size_t first = out_.assignments.size();
  shell(text, line);
  for (size_t k = first; k < out_.assignments.size(); ++k) out_.assignments[k].mentioned = true;
}

void ShellReader::pairs(std::string_view text, int line) {
  text_ = text;
  at_ = 0;
  line_ = line;
  while (std::optional<Word> w = word())
    if (const auto equals = split_assignment(*w)) assign(w->text.substr(0, *equals), w->text.substr(*equals + 1), line);
}

void ShellReader::assign(const std::string& name, std::string_view value, int line) {
  if (out_.assignments.size() >= kMostAssignments) return;
  Assignment a;
  a.name = name;
  a.value = value.substr(0, kMostValue);
  a.line = line;
  const auto at = static_cast<size_t>(line - 1);
  if (at < reasons_.size()) a.reason = reasons_[at];
  // A variable that is handed on, as in docker run -e A="$A", keeps its reason.
  if (const auto it = out_.environment.find(name); it != out_.environment.end() && it->second.value == a.value &&
                                                   it->second.reason != a.reason && a.reason.size() < 4000)
    a.reason += (a.reason.empty() ? "" : " ") + it->second.reason;
  if (!prose_.empty()) a.reason += (a.reason.empty() ? "" : " ") + prose_;
  a.path = path_;
  out_.environment[name] = a;
  out_.assignments.push_back(std::move(a));
}

void ShellReader::problem(const std::string& what, int line) {
  if (out_.problems.size() < kMostProblems) out_.problems.push_back(fmt::format("line {}: {}", line, what));
}

void ShellReader::set_path(std::vector<Branch> path) {
  path_ = std::move(path);
  base_ = path_.size();
  kinds_.clear();
}

void ShellReader::enter(Kind kind, int construct) {
  if (path_.size() >= kDeepest) return;
  path_.push_back({construct, 0, kind == Kind::scope || kind == Kind::subshell});
  kinds_.push_back(kind);
}

void ShellReader::leave(Kind kind) {
  if (!within(kind)) return;
  path_.pop_back();
  kinds_.pop_back();
}

void ShellReader::next_arm(Kind kind) {
  if (within(kind)) ++path_.back().arm;
}

std::optional<size_t> ShellReader::split_assignment(const Word& w) {
  const size_t equals = w.text.find('=');
  return equals != std::string::npos && is_variable_name(std::string_view(w.text).substr(0, equals))
             ? std::optional(equals)
             : std::nullopt;
}

std::string ShellReader::variable(const std::string& name) const {
  if (const auto it = out_.environment.find(name); it != out_.environment.end()) return it->second.value;
  const auto it = locals_.find(name);
  return it == locals_.end() ? "" : it->second;
}

// A=$A$A… must not grow without bound.
void ShellReader::append(std::string& to, std::string_view what) {
  to.append(what.substr(0, kMostValue - std::min(kMostValue, to.size())));
}

// Expands $NAME, ${NAME}, ${NAME:-default} or $(command). at_ is the position of the dollar sign.
void ShellReader::dollar(Word& w) {
  ++at_;
  if (at_ < text_.size() && text_[at_] == '(') {
    const size_t begin = at_ - 1;
    for (int depth = 0; at_ < text_.size(); ++at_) {
      if (text_[at_] == '\n') ++line_;
      depth += (text_[at_] == '(') - (text_[at_] == ')');
      if (depth == 0) break;
    }
    if (at_ < text_.size()) ++at_;
    return append(w.text, text_.substr(begin, at_ - begin));
  }
  const bool braces = at_ < text_.size() && text_[at_] == '{';
  if (braces) ++at_;
  const size_t begin = at_;
  while (at_ < text_.size() && name_char(text_[at_])) ++at_;
  const std::string name(text_.substr(begin, at_ - begin));
  std::string fallback;
  if (braces) {
    const size_t close = std::min(text_.find('}', at_), text_.size());
    std::string_view rest = text_.substr(at_, close - at_);
    if (rest.starts_with(":-") || rest.starts_with(":=")) fallback = rest.substr(2);
    else if (rest.starts_with("-")) fallback = rest.substr(1);
    else if (!rest.empty()) fallback = "$(" + name + std::string(rest) + ")";  // ${A%b}: only a shell can expand it
    line_ += static_cast<int>(std::count(rest.begin(), rest.end(), '\n'));
    at_ = std::min(close + 1, text_.size());
  }
  if (name.empty()) {
    if (!braces) append(w.text, "$");
    return;
  }
  const std::string value = variable(name);
  if (reads_.size() < 100) reads_.push_back(name);
  append(w.text, value.empty() ? fallback : value);
  // A variable of the surrounding shell. The file does not say its value.
  if (value.empty() && fallback.empty() && !out_.environment.count(name) && !locals_.count(name))
    append(w.text, "$" + name);
}

// The next word of the statement, or nothing at its end.
std::optional<ShellReader::Word> ShellReader::word() {
  while (at_ < text_.size()) {
    if (text_[at_] == ' ' || text_[at_] == '\t') ++at_;
    else if (text_.substr(at_, 2) == "\\\n") at_ += 2, ++line_;
    else break;
  }
  if (at_ >= text_.size() || ends_statement(text_[at_])) return std::nullopt;
  if (text_[at_] == '#') {
    while (at_ < text_.size() && text_[at_] != '\n') ++at_;
    return std::nullopt;
  }
  Word w;
  while (at_ < text_.size()) {
    const char c = text_[at_];
    if (c == ' ' || c == '\t' || ends_statement(c)) break;
    if (c == '\'') {
      single(w);
    } else if (c == '"') {
      doubled(w);
    } else if (c == '\\') {
      if (at_ + 1 < text_.size() && text_[at_ + 1] == '\n') ++line_;
      else if (at_ + 1 < text_.size()) append(w.text, text_.substr(at_ + 1, 1));
      at_ = std::min(at_ + 2, text_.size());
    } else if (c == '$') {
      dollar(w);
    } else if (c == '`') {
      backquote(w);
    } else {
      append(w.text, text_.substr(at_++, 1));
    }
  }
  remember_reads(w);
  return w;
}

// A=${A:-1} only keeps a value that is there; every other expansion uses the variable.
void ShellReader::remember_reads(const Word& w) {
  for (const std::string& name : reads_)
    if (out_.reads.size() < 1000 && !w.text.starts_with(name + "=")) out_.reads.insert(name);
  reads_.clear();
}

void ShellReader::single(Word& w) {
  const int from = line_;
  const size_t close = text_.find('\'', at_ + 1);
  if (close == std::string_view::npos) {
    problem("a quote is not closed", from);
    at_ = text_.size();
    return;
  }
  const std::string_view inside = text_.substr(at_ + 1, close - at_ - 1);
  line_ += static_cast<int>(std::count(inside.begin(), inside.end(), '\n'));
  append(w.text, inside);
  w.quoted = true;
  at_ = close + 1;
}

void ShellReader::doubled(Word& w) {
  const int from = line_;
  w.quoted = true;
  for (++at_; at_ < text_.size() && text_[at_] != '"';) {
    if (text_[at_] == '\n') ++line_;
    if (text_[at_] == '\\' && at_ + 1 < text_.size()) {
      const char next = text_[at_ + 1];
      if (next == '\n') ++line_;
      else if (next == '"' || next == '\\' || next == '$' || next == '`') append(w.text, text_.substr(at_ + 1, 1));
      else append(w.text, text_.substr(at_, 2));
      at_ += 2;
    } else if (text_[at_] == '$') {
      dollar(w);
    } else if (text_[at_] == '`') {
      backquote(w);
    } else {
      append(w.text, text_.substr(at_++, 1));
    }
  }
  if (at_ >= text_.size()) problem("a quote is not closed", from);
  else ++at_;
}

void ShellReader::backquote(Word& w) {
  const size_t close = text_.find('`', at_ + 1);
  const size_t end = close == std::string_view::npos ? text_.size() : close + 1;
  const std::string_view inside = text_.substr(at_, end - at_);
  line_ += static_cast<int>(std::count(inside.begin(), inside.end(), '\n'));
  append(w.text, inside);
  at_ = end;
}

// The text of a here-document is the input of a command and contains no settings.
void ShellReader::here_document(const std::string& delimiter) {
  while (at_ < text_.size()) {
    const size_t end = std::min(text_.find('\n', at_), text_.size());
    const std::string_view line = trim(text_.substr(at_, end - at_));
    at_ = std::min(end + 1, text_.size());
    ++line_;
    if (line == delimiter) return;
  }
}

// Words before the command of a statement. Returns whether `word` is one of them.
bool ShellReader::keyword(const std::string& word) {
  static const std::set<std::string_view> kKeywords = {"then", "do",   "else", "elif",  "if",      "while", "case",
                                                       "{",    "}",    "!",    "fi",    "done",    "$",     "esac",
                                                       "time", "exec", "sudo", "nohup", "command", "RUN"};
  if (!kKeywords.count(word)) return false;
  if (word == "if") enter(Kind::conditional, new_construct());
  else if (word == "elif" || word == "else") next_arm(Kind::conditional);
  else if (word == "fi") leave(Kind::conditional);
  else if (word == "case") enter(Kind::choice, new_construct());
  else if (word == "esac") leave(Kind::choice);
  return true;
}

// One of the characters between statements.
void ShellReader::separator() {
  const char c = text_[at_++];
  line_ += c == '\n';
  if (c == '(') enter(Kind::subshell, new_construct());
  if (c == ')') leave(Kind::subshell);  // in a case, the end of a pattern
  if (c == ';' && at_ < text_.size() && text_[at_] == ';') {
    ++at_;
    next_arm(Kind::choice);
  }
}

void ShellReader::assign_words(const std::vector<Word>& words, size_t from, size_t to, int line) {
  for (size_t k = from; k < to; ++k)
    if (const auto equals = split_assignment(words[k]))
      assign(words[k].text.substr(0, *equals), words[k].text.substr(*equals + 1), line);
}

void ShellReader::statement() {
  if (ends_statement(text_[at_])) return separator();
  const int line = line_;
  const size_t first = out_.assignments.size(), began = at_;
  std::vector<Word> words;
  std::string here;
  while (std::optional<Word> w = word()) {
    if (words.empty() && !w->quoted && keyword(w->text)) continue;
    if (const size_t p = w->quoted ? std::string::npos : w->text.find("<<");
        p != std::string::npos && !w->text.starts_with("<<<")) {
      here = w->text.substr(p + 2);
      if (here.starts_with('-')) here.erase(0, 1);
      if (here.empty())
        if (std::optional<Word> next = word()) here = next->text;
      continue;
    }
    // Assignments in front of a command are carried out one after the other: A=1 B=$A.
    if (const auto equals = words.empty() ? split_assignment(*w) : std::nullopt)
      assign(w->text.substr(0, *equals), w->text.substr(*equals + 1), line);
    else if (words.size() < 10000) words.push_back(std::move(*w));
  }
  if (at_ == began) ++at_;
  if (!words.empty() && out_.assignments.size() > first) {
    // They count for this command only.
    const Branch command{new_construct(), 0, true};
    for (size_t k = first; k < out_.assignments.size(); ++k) {
      Assignment& a = out_.assignments[k];
      a.one_command = true;
      a.path.push_back(command);
      out_.environment[a.name] = a;
    }
  }
  if (!here.empty()) {
    while (at_ < text_.size() && text_[at_] != '\n') ++at_;
    if (at_ < text_.size()) ++at_, ++line_;
  }
  run(words, line);
  if (!here.empty()) here_document(here);
}

void ShellReader::run(const std::vector<Word>& words, int line) {
  if (words.empty()) return;
  const std::string& command = words[0].text;
  if (command == "export" || command == "declare" || command == "typeset" || command == "local" ||
      command == "readonly") {
    exported(words, 1, line);
  } else if (command == "unset") {
    for (size_t k = 1; k < words.size(); ++k) {
      if (!is_variable_name(words[k].text)) continue;
      assign(words[k].text, "", line);
      if (!out_.assignments.empty() && out_.assignments.back().name == words[k].text)
        out_.assignments.back().unset = true;
      out_.environment.erase(words[k].text);
    }
  } else if (command == "setenv" && words.size() > 2 && is_variable_name(words[1].text)) {
    assign(words[1].text, words[2].text, line);
  } else if (command == "env") {
    size_t i = 1;
    while (i < words.size() && words[i].text.starts_with('-')) ++i;
    size_t program = i;
    while (program < words.size() && split_assignment(words[program])) ++program;
    const size_t first = out_.assignments.size();
    if (program < words.size()) enter(Kind::scope, new_construct());
    assign_words(words, i, program, line);
    for (size_t k = first; k < out_.assignments.size(); ++k) out_.assignments[k].one_command = program < words.size();
    if (program < words.size()) {
      leave(Kind::scope);
      started(words, program, line);
    }
  } else {
    started(words, 0, line);
  }
}

void ShellReader::exported(const std::vector<Word>& words, size_t i, int line) {
  assign_words(words, i, words.size(), line);
  if (words[0].text != "export") return;  // local, declare and readonly take names, so a word after A=1 is one of them
  // After an assignment, a word that cannot be a name is an argument: `export A=1 program --option` sets A and starts nothing.
  const Word* after = nullptr;
  bool argument = false;
  for (bool any = false; i < words.size(); ++i) {
    const Word& w = words[i];
    if (w.text.find_first_of("<>") != std::string::npos && !w.quoted) return;  // a redirection, or a <placeholder>
    if (split_assignment(w)) any = true;
    else if (any && !w.text.empty() && !w.quoted && w.text.find_first_of("$=\\") == std::string::npos) {
      if (!after && w.text[0] != '-') after = &w;
      argument |= !is_variable_name(w.text);
    }
  }
  if (after && argument && out_.programs.size() < kMostPrograms) out_.programs.push_back({after->text, line, true});
}

void ShellReader::started(const std::vector<Word>& words, size_t i, int line) {
  if (out_.programs.size() < kMostPrograms) out_.programs.push_back({words[i].text.substr(0, 256), line, false});
  // docker run -e NAME=VALUE
  bool inside = false;
  for (size_t k = i + 1; k < words.size(); ++k) {
    Word pair = words[k];
    if ((pair.text == "-e" || pair.text == "--env") && k + 1 < words.size()) pair = words[++k];
    else if (pair.text.starts_with("--env=")) pair.text.erase(0, 6);
    else continue;
    const auto equals = split_assignment(pair);
    if (!equals) continue;
    if (!inside) enter(Kind::scope, new_construct());
    inside = true;
    assign(pair.text.substr(0, *equals), pair.text.substr(*equals + 1), line);
  }
  if (inside) leave(Kind::scope);
}

}  // namespace pyflame::tools::doctor
