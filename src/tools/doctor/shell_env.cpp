// Reads the environment that a file sets. The input may be anything: each loop is bounded by the text, values and their
// number are limited, and nothing recurses.
#include "tools/doctor/shell_env.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <set>

#include "tools/base/text.h"

namespace pyflame::tools::doctor {

namespace {

constexpr size_t kMostAssignments = 10000, kMostPrograms = 1000, kMostProblems = 50, kMostValue = 32 << 10;

bool name_start(char c) { return std::isalpha(static_cast<unsigned char>(c)) || c == '_'; }
bool name_char(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }
bool is_name(std::string_view s) {
  return !s.empty() && s.size() <= 256 && name_start(s[0]) && std::all_of(s.begin(), s.end(), name_char);
}

struct Word {
  std::string text;
  bool quoted = false;
};

struct Line {
  std::string_view text;
  int number = 0;
};

std::vector<Line> lines_of(std::string_view text) {
  std::vector<Line> out;
  for (int n = 1; !text.empty(); ++n) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    out.push_back({line, n});
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return out;
}

class Reader {
 public:
  SettingsFile take() { return std::move(out_); }

  // Statements of a shell. `text` may hold line breaks (quotes span lines).
  void shell(std::string_view text, int line) {
    text_ = text;
    at_ = 0;
    line_ = line;
    while (at_ < text_.size()) statement();
  }

  void assign(const std::string& name, const Word& word, int line) {
    if (out_.assignments.size() >= kMostAssignments) return;
    Assignment a{name, word.text.substr(0, kMostValue), line};
    out_.environment[name] = a;
    out_.assignments.push_back(std::move(a));
  }

  void problem(const std::string& what, int line) {
    if (out_.problems.size() < kMostProblems) out_.problems.push_back(fmt::format("line {}: {}", line, what));
  }

  // KEY=VALUE words of ENV and Environment=.
  void pairs(std::string_view text, int line) {
    text_ = text;
    at_ = 0;
    line_ = line;
    while (std::optional<Word> w = word())
      if (const auto equals = split_assignment(*w)) assign(w->text.substr(0, *equals), value_of(*w, *equals), line);
  }

 private:
  static std::optional<size_t> split_assignment(const Word& w) {
    const size_t equals = w.text.find('=');
    return equals != std::string::npos && is_name(std::string_view(w.text).substr(0, equals)) ? std::optional(equals)
                                                                                              : std::nullopt;
  }
  static Word value_of(const Word& w, size_t equals) {
    Word value = w;
    value.text = w.text.substr(equals + 1);
    return value;
  }

  std::string variable(const std::string& name) const {
    const auto it = out_.environment.find(name);
    return it == out_.environment.end() ? "" : it->second.value;
  }

  void append(std::string& to, std::string_view what) const {
    to.append(what.substr(0, kMostValue - std::min(kMostValue, to.size())));  // A=$A$A… must not grow without bound
  }

  // Expands $NAME, ${NAME}, ${NAME:-default} or $(command). at_ is the position of the dollar sign.
  void dollar(Word& w) {
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
    append(w.text, value.empty() ? fallback : value);
    // A variable of the surrounding shell. The file does not say its value.
    if (value.empty() && fallback.empty() && !out_.environment.count(name)) append(w.text, "$" + name);
  }

  // The next word of the statement, or nothing at its end.
  std::optional<Word> word() {
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
    return w;
  }

  static bool ends_statement(char c) { return c == '\n' || c == ';' || c == '&' || c == '|' || c == '(' || c == ')'; }

  void single(Word& w) {
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

  void doubled(Word& w) {
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

  void backquote(Word& w) {
    const size_t close = text_.find('`', at_ + 1);
    const size_t end = close == std::string_view::npos ? text_.size() : close + 1;
    const std::string_view inside = text_.substr(at_, end - at_);
    line_ += static_cast<int>(std::count(inside.begin(), inside.end(), '\n'));
    append(w.text, inside);
    at_ = end;
  }

  // The text of a here-document is the input of a command and contains no settings.
  void here_document(const std::string& delimiter) {
    while (at_ < text_.size()) {
      const size_t end = std::min(text_.find('\n', at_), text_.size());
      const std::string_view line = trim(text_.substr(at_, end - at_));
      at_ = std::min(end + 1, text_.size());
      ++line_;
      if (line == delimiter) return;
    }
  }

  void statement() {
    if (ends_statement(text_[at_])) {
      line_ += text_[at_] == '\n';
      ++at_;
      return;
    }
    static const std::set<std::string_view> kKeywords = {"then", "do",   "else", "elif",  "if",      "while",
                                                         "{",    "}",    "!",    "fi",    "done",    "$",
                                                         "time", "exec", "sudo", "nohup", "command", "RUN"};
    const int line = line_;
    std::vector<Word> words;
    std::string here;
    const size_t began = at_;
    while (std::optional<Word> w = word()) {
      if (words.empty() && !w->quoted && kKeywords.count(w->text)) continue;
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
        assign(w->text.substr(0, *equals), value_of(*w, *equals), line);
      else if (words.size() < 10000) words.push_back(std::move(*w));
    }
    if (at_ == began) ++at_;
    if (!here.empty()) {
      while (at_ < text_.size() && text_[at_] != '\n') ++at_;
      if (at_ < text_.size()) ++at_, ++line_;
    }
    run(words, line);
    if (!here.empty()) here_document(here);
  }

  void run(const std::vector<Word>& words, int line) {
    size_t i = 0;
    for (; i < words.size(); ++i) {
      const auto equals = split_assignment(words[i]);
      if (!equals) break;
      assign(words[i].text.substr(0, *equals), value_of(words[i], *equals), line);
    }
    if (i >= words.size()) return;
    const std::string& command = words[i].text;
    if (command == "export" || command == "declare" || command == "typeset" || command == "local" ||
        command == "readonly") {
      exported(words, i + 1, line);
    } else if (command == "unset") {
      for (size_t k = i + 1; k < words.size(); ++k) out_.environment.erase(words[k].text);
    } else if (command == "setenv" && i + 2 < words.size() && is_name(words[i + 1].text)) {
      assign(words[i + 1].text, words[i + 2], line);
    } else if (command == "env") {
      run({words.begin() + static_cast<std::ptrdiff_t>(std::min(first_setting(words, i + 1), words.size())),
           words.end()},
          line);
    } else {
      started(words, i, line);
    }
  }

  static size_t first_setting(const std::vector<Word>& words, size_t i) {
    while (i < words.size() && words[i].text.starts_with('-')) ++i;
    return i;
  }

  void exported(const std::vector<Word>& words, size_t i, int line) {
    bool any = false;
    std::string lost;
    for (; i < words.size(); ++i) {
      const std::string& w = words[i].text;
      if (const auto equals = split_assignment(words[i])) {
        assign(w.substr(0, *equals), value_of(words[i], *equals), line);
        any = true;
      } else if (any && lost.empty() && !w.empty() && !w.starts_with('-') && !w.starts_with('$') && w != "\\" &&
                 (!is_name(w) || (w == lower(w) && !out_.environment.count(w)))) {
        lost = w;
      }
    }
    if (!lost.empty() && out_.programs.size() < kMostPrograms) out_.programs.push_back({lost, line, true});
  }

  void started(const std::vector<Word>& words, size_t i, int line) {
    if (out_.programs.size() < kMostPrograms) out_.programs.push_back({words[i].text.substr(0, 256), line, false});
    // docker run -e NAME=VALUE
    for (size_t k = i + 1; k < words.size(); ++k) {
      std::string w = words[k].text;
      if ((w == "-e" || w == "--env") && k + 1 < words.size()) w = words[++k].text;
      else if (w.starts_with("--env=")) w = w.substr(6);
      else continue;
      Word pair = words[k];
      pair.text = w;
      if (const auto equals = split_assignment(pair)) assign(w.substr(0, *equals), value_of(pair, *equals), line);
    }
  }

  SettingsFile out_;
  std::string_view text_;
  size_t at_ = 0;
  int line_ = 1;
};

// --- the parts of a file that are settings

enum class Form { shell, docker, systemd, markdown, rst, yaml };

Form form_of(const std::vector<Line>& lines, std::string_view name) {
  const std::string base = lower(name.substr(name.rfind('/') + 1));
  if (base.find("dockerfile") != std::string::npos || base.find("containerfile") != std::string::npos)
    return Form::docker;
  if (base.ends_with(".service") || base.ends_with(".conf")) return Form::systemd;
  if (base.ends_with(".yml") || base.ends_with(".yaml")) return Form::yaml;
  if (base.ends_with(".md")) return Form::markdown;
  if (base.ends_with(".rst")) return Form::rst;
  if (base.ends_with(".sh") || base.ends_with(".env") || base == ".env" || base.ends_with(".bash")) return Form::shell;
  for (const Line& l : lines) {
    const std::string_view t = trim(l.text);
    if (t.starts_with("#!")) return Form::shell;
    if (t.starts_with("```")) return Form::markdown;
    if (t.starts_with(".. code-block::")) return Form::rst;
    if (t.starts_with("Environment=")) return Form::systemd;
    if (l.text.starts_with("FROM ")) return Form::docker;
  }
  return Form::shell;
}

bool shell_language(std::string_view language) {
  static const std::set<std::string> kShells = {"",     "bash",          "sh",     "shell", "console", "zsh",
                                                "text", "shell-session", "dotenv", "env"};
  return kShells.count(lower(trim(language)));
}

// Settings between backquotes in running text: `export A=1`, `A=1`.
void inline_code(Reader& reader, const Line& line) {
  std::string_view rest = line.text;
  while (true) {
    const size_t open = rest.find('`');
    if (open == std::string_view::npos) return;
    size_t ticks = 1;
    while (open + ticks < rest.size() && rest[open + ticks] == '`') ++ticks;
    const std::string fence(ticks, '`');
    const size_t close = rest.find(fence, open + ticks);
    if (close == std::string_view::npos) return;
    std::string_view code = trim(rest.substr(open + ticks, close - open - ticks));
    const std::string_view setting = code.starts_with("export ") ? trim(code.substr(7)) : code;
    const size_t equals = setting.find('=');
    // NAME= without a value, or with a list of methods, is not a setting.
    if (equals != std::string_view::npos && is_name(setting.substr(0, equals)) && setting.size() > equals + 1 &&
        setting.substr(0, equals) != lower(setting.substr(0, equals)))
      reader.shell(code, line.number);
    rest.remove_prefix(close + ticks);
  }
}

// A block of consecutive lines as one text, so that quotes and continuations may span them.
void block(Reader& reader, std::string_view text, const std::vector<Line>& lines, size_t from, size_t to) {
  if (from >= to) return;
  const char* begin = lines[from].text.data();
  const char* end = lines[to - 1].text.data() + lines[to - 1].text.size();
  reader.shell(text.substr(static_cast<size_t>(begin - text.data()), static_cast<size_t>(end - begin)),
               lines[from].number);
}

void markdown(Reader& reader, std::string_view text, const std::vector<Line>& lines) {
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string_view t = trim(lines[i].text);
    if (!t.starts_with("```")) {
      inline_code(reader, lines[i]);
      continue;
    }
    size_t end = i + 1;
    while (end < lines.size() && !trim(lines[end].text).starts_with("```")) ++end;
    if (shell_language(t.substr(3)) && t.size() > 3) block(reader, text, lines, i + 1, end);
    i = end;
  }
}

void restructured(Reader& reader, std::string_view text, const std::vector<Line>& lines) {
  const auto indent = [](std::string_view s) { return s.find_first_not_of(" \t"); };
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string_view t = trim(lines[i].text);
    if (!t.starts_with(".. code-block::")) {
      inline_code(reader, lines[i]);
      continue;
    }
    const size_t outer = indent(lines[i].text);
    size_t end = i + 1;
    while (end < lines.size() && (trim(lines[end].text).empty() || indent(lines[end].text) > outer)) ++end;
    if (shell_language(t.substr(15))) block(reader, text, lines, i + 1, end);
    i = end - 1;
  }
}

// Joins lines that end with a backslash.
std::string joined(const std::vector<Line>& lines, size_t& i) {
  std::string out(lines[i].text);
  while (out.ends_with('\\') && i + 1 < lines.size()) {
    out.pop_back();
    out += lines[++i].text;
  }
  return out;
}

void docker(Reader& reader, const std::vector<Line>& lines) {
  for (size_t i = 0; i < lines.size(); ++i) {
    const int number = lines[i].number;
    const std::string line = joined(lines, i);
    std::string_view t = trim(line);
    if (lower(t.substr(0, 4)) == "run ") {
      reader.shell(t.substr(4), number);
    } else if (lower(t.substr(0, 4)) == "env ") {
      t = trim(t.substr(4));
      const size_t blank = t.find_first_of(" \t"), equals = t.find('=');
      if (blank < equals && is_name(t.substr(0, blank)))
        reader.assign(std::string(t.substr(0, blank)), {std::string(trim(t.substr(blank))), false}, number);
      else reader.pairs(t, number);
    }
  }
}

void systemd(Reader& reader, const std::vector<Line>& lines) {
  for (size_t i = 0; i < lines.size(); ++i) {
    const int number = lines[i].number;
    const std::string line = joined(lines, i);
    const std::string_view t = trim(line);
    if (t.starts_with("EnvironmentFile="))
      reader.problem(fmt::format("the settings in {} were not read; hint: pass that file itself", t.substr(16)),
                     number);
    if (!t.starts_with("Environment=")) continue;
    // Quotes hold whole assignments here: "A=1" "B=2".
    std::string plain;
    for (const char c : t.substr(12)) plain += c == '$' ? std::string("\\$") : std::string(1, c);
    reader.pairs(plain, number);
  }
}

// Compose files and manifests of Kubernetes: "- NAME=value", "NAME: value", and "- name: NAME" before "value: …". Variables are distinguished from keys by their capital letters.
void yaml(Reader& reader, const std::vector<Line>& lines) {
  const auto variable = [](std::string_view s) {
    return s.size() > 1 && is_name(s) && std::none_of(s.begin(), s.end(), [](char c) { return c >= 'a' && c <= 'z'; });
  };
  const auto plain = [](std::string_view s) {
    s = trim(s);
    if (s.size() > 1 && (s.front() == '"' || s.front() == '\'') && s.find(s.front(), 1) != std::string_view::npos)
      return s.substr(1, s.find(s.front(), 1) - 1);
    return trim(s.substr(0, s.find(" #")));
  };
  std::string named;
  for (const Line& line : lines) {
    std::string_view t = trim(line.text);
    if (t.starts_with("- ")) t = trim(t.substr(2));
    const std::string_view item = plain(t);
    const size_t equals = item.find('='), colon = t.find(':');
    if (equals != std::string_view::npos && variable(item.substr(0, equals))) {
      reader.assign(std::string(item.substr(0, equals)), {std::string(item.substr(equals + 1)), false}, line.number);
    } else if (colon != std::string_view::npos) {
      const std::string_view key = plain(t.substr(0, colon)), value = plain(t.substr(colon + 1));
      if (variable(key) && !value.empty()) reader.assign(std::string(key), {std::string(value), false}, line.number);
      if (key == "value" && !named.empty()) reader.assign(named, {std::string(value), false}, line.number);
      named = key == "name" && variable(value) ? std::string(value) : "";
    }
  }
}

}  // namespace

SettingsFile read_settings(std::string_view text, std::string_view name) {
  text = text.substr(0, kSettingsLimit);
  const std::vector<Line> lines = lines_of(text);
  Reader reader;
  switch (form_of(lines, name)) {
    case Form::markdown: markdown(reader, text, lines); break;
    case Form::rst: restructured(reader, text, lines); break;
    case Form::docker: docker(reader, lines); break;
    case Form::systemd: systemd(reader, lines); break;
    case Form::yaml: yaml(reader, lines); break;
    case Form::shell: reader.shell(text, 1); break;
  }
  return reader.take();
}

}  // namespace pyflame::tools::doctor
