// The parts of each form of file that are settings, why they are set, and where they count.
#include "tools/doctor/shell_env.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>

#include "tools/base/text.h"
#include "tools/doctor/shell_reader.h"

namespace pyflame::tools::doctor {

namespace {

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

size_t indent_of(std::string_view s) { return s.find_first_not_of(" \t"); }

// The comment that belongs to each line: the one at its end, and the one above it. A comment counts for the lines below it up to a blank
// line or the next comment.
std::vector<std::string> comments_of(const std::vector<Line>& lines) {
  constexpr size_t kMostText = 2000, kMostLines = 12;
  std::vector<std::string> out;
  std::string above;
  size_t below = 0;
  bool open = false;  // the last line was a comment, too
  for (const Line& line : lines) {
    const std::string_view t = trim(line.text);
    std::string own;
    if (t.starts_with('#')) {
      if (!open) above.clear();
      if (above.size() < kMostText)
        above.append(above.empty() ? "" : " ")
            .append(trim(t.substr(t.find_first_not_of('#') == t.npos ? t.size() : t.find_first_not_of('#'))));
      below = 0;
    } else if (t.empty() || ++below > kMostLines) {
      above.clear();
    } else {
      own = above;
      if (const size_t hash = t.find(" #"); hash != t.npos)
        own.append(own.empty() ? "" : " ").append(trim(t.substr(hash + 2)));
    }
    open = t.starts_with('#');
    out.push_back(own.substr(0, kMostText));
  }
  return out;
}

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

// What `read` sets counts there only.
template <class Read>
void scoped(ShellReader& reader, Read&& read) {
  const std::vector<Branch> outer = reader.path();
  std::vector<Branch> inner = outer;
  inner.push_back({reader.new_construct(), 0, true});
  reader.set_path(std::move(inner));
  read();
  reader.set_path(outer);
}

// Settings between backquotes in running text: `export A=1`, `A=1`.
void inline_code(ShellReader& reader, const Line& line) {
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
    if (equals != std::string_view::npos && is_variable_name(setting.substr(0, equals)) &&
        setting.size() > equals + 1 && setting.substr(0, equals) != lower(setting.substr(0, equals)))
      scoped(reader, [&] { reader.mention(code, line.number); });
    rest.remove_prefix(close + ticks);
  }
}

// A block of consecutive lines as one text, so that quotes and continuations may span them.
void block(ShellReader& reader, std::string_view text, const std::vector<Line>& lines, size_t from, size_t to) {
  if (from >= to) return;
  const char* begin = lines[from].text.data();
  const char* end = lines[to - 1].text.data() + lines[to - 1].text.size();
  reader.shell(text.substr(static_cast<size_t>(begin - text.data()), static_cast<size_t>(end - begin)),
               lines[from].number);
}

// The heading and the paragraph above a place in a guide: what the guide says about the settings there. Blocks under one heading belong
// together; those under different headings are alternatives.
class Prose {
 public:
  explicit Prose(ShellReader& reader) : reader_(reader) {}
  void heading(std::string_view text) {
    heading_ = text;
    paragraph_.clear();
    reader_.set_path({{reader_.new_construct(), 0, true}});
    tell();
  }
  void line(std::string_view text) {
    if (trim(text).empty()) {
      ended_ = true;
      return;
    }
    if (ended_) paragraph_.clear();
    ended_ = false;
    if (paragraph_.size() < 2000) paragraph_.append(" ").append(trim(text));
    tell();
  }

 private:
  void tell() { reader_.prose(heading_ + "." + paragraph_); }
  ShellReader& reader_;
  std::string heading_, paragraph_;
  bool ended_ = false;
};

void markdown(ShellReader& reader, std::string_view text, const std::vector<Line>& lines) {
  Prose prose(reader);
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string_view t = trim(lines[i].text);
    if (!t.starts_with("```")) {
      if (t.starts_with("#")) prose.heading(t);
      else prose.line(t);
      inline_code(reader, lines[i]);
      continue;
    }
    size_t end = i + 1;
    while (end < lines.size() && !trim(lines[end].text).starts_with("```")) ++end;
    if (shell_language(t.substr(3)) && t.size() > 3) block(reader, text, lines, i + 1, end);
    i = end;
  }
}

void restructured(ShellReader& reader, std::string_view text, const std::vector<Line>& lines) {
  Prose prose(reader);
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string_view t = trim(lines[i].text);
    if (!t.starts_with(".. code-block::")) {
      const std::string_view below = i + 1 < lines.size() ? trim(lines[i + 1].text) : "";
      const bool underlined = below.size() > 2 && std::string_view("=-~^*#").find(below[0]) != std::string_view::npos &&
                              below.find_first_not_of(below[0]) == std::string_view::npos;
      if (underlined && !t.empty()) prose.heading(t);
      else prose.line(t);
      inline_code(reader, lines[i]);
      continue;
    }
    const size_t outer = indent_of(lines[i].text);
    size_t end = i + 1;
    while (end < lines.size() && (trim(lines[end].text).empty() || indent_of(lines[end].text) > outer)) ++end;
    if (shell_language(t.substr(15))) block(reader, text, lines, i + 1, end);
    i = end - 1;
  }
}

// Joins lines that end with a backslash. Comments between them are left out.
std::string joined(const std::vector<Line>& lines, size_t& i) {
  std::string out(lines[i].text);
  while (out.ends_with('\\') && i + 1 < lines.size()) {
    out.pop_back();
    ++i;
    if (trim(lines[i].text).starts_with('#')) out += '\\';
    else out += lines[i].text;
  }
  return out;
}

// The stages of a Dockerfile: each has what its base sets, and nothing of its siblings.
class Stages {
 public:
  explicit Stages(ShellReader& reader) : reader_(reader) {}
  void from(std::string_view line) {
    std::vector<std::string> words;
    for (const std::string_view w : split(line, ' '))
      if (!w.empty() && !w.starts_with("--")) words.push_back(lower(w));
    const std::string base = words.empty() ? "" : words[0];
    const auto parent = paths_.find(base);
    std::vector<Branch> path = parent == paths_.end() ? std::vector<Branch>() : parent->second;
    path.push_back({reader_.new_construct(), 0, true});
    if (words.size() > 2 && words[1] == "as") paths_[words[2]] = path;
    reader_.set_path(std::move(path));
  }

 private:
  ShellReader& reader_;
  std::map<std::string, std::vector<Branch>> paths_;  // of the stages that have a name
};

void docker(ShellReader& reader, const std::vector<Line>& lines) {
  Stages stages(reader);
  for (size_t i = 0; i < lines.size(); ++i) {
    const int number = lines[i].number;
    const std::string line = joined(lines, i);
    std::string_view t = trim(line);
    const size_t blank = t.find_first_of(" \t");
    if (blank == std::string_view::npos) continue;
    const std::string instruction = lower(t.substr(0, blank));
    t = trim(t.substr(blank));
    if (instruction == "from") {
      stages.from(t);
    } else if (instruction == "run") {
      scoped(reader, [&] { reader.shell(t, number); });
    } else if (instruction == "arg") {
      if (const size_t equals = t.find('=');
          equals != std::string_view::npos && is_variable_name(t.substr(0, equals))) {
        std::string_view value = t.substr(equals + 1);
        if (value.size() > 1 && value.front() == '"' && value.back() == '"') value = value.substr(1, value.size() - 2);
        reader.local(std::string(t.substr(0, equals)), std::string(value));
      }
    } else if (instruction == "env") {
      const size_t space = t.find_first_of(" \t"), equals = t.find('=');
      if (space < equals && is_variable_name(t.substr(0, space)))
        reader.assign(std::string(t.substr(0, space)), std::string(trim(t.substr(space))), number);
      else reader.pairs(t, number);
    }
  }
}

void systemd(ShellReader& reader, const std::vector<Line>& lines) {
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

std::string_view yaml_scalar(std::string_view s) {
  s = trim(s);
  if (s.size() > 1 && (s.front() == '"' || s.front() == '\'') && s.find(s.front(), 1) != std::string_view::npos)
    return s.substr(1, s.find(s.front(), 1) - 1);
  return trim(s.substr(0, s.find(" #")));
}

// Compose files and manifests of Kubernetes: "- NAME=value", "NAME: value", "- name: NAME" before "value: …", and scripts (run: |).
// Variables are distinguished from keys by their capital letters. Each block with settings is a scope of its own.
class Yaml {
 public:
  explicit Yaml(ShellReader& reader) : reader_(reader) {}

  void read(std::string_view text, const std::vector<Line>& lines) {
    for (size_t i = 0; i < lines.size(); ++i) {
      const std::string_view t = trim(lines[i].text);
      if (t.empty() || t.starts_with('#')) continue;
      const size_t indent = indent_of(lines[i].text);
      while (!open_.empty() &&
             (open_.back().indent > indent || (open_.back().indent == indent && !t.starts_with("- "))))
        open_.pop_back();
      if (const size_t end = script(lines, i); end > i) {
        path();
        scoped(reader_, [&] { block(reader_, text, lines, i + 1, end); });
        i = end - 1;
      } else {
        setting(t, lines[i].number, indent);
      }
    }
  }

 private:
  struct Opened {
    size_t indent;
    int construct;
  };

  static bool variable(std::string_view s) {
    return s.size() > 1 && is_variable_name(s) &&
           std::none_of(s.begin(), s.end(), [](char c) { return c >= 'a' && c <= 'z'; });
  }

  // The line after the text of a block scalar ("run: |"), or `i` if line `i` does not begin one.
  static size_t script(const std::vector<Line>& lines, size_t i) {
    const std::string_view head = yaml_scalar(lines[i].text);
    const size_t mark = head.find_last_of("|>");
    if (mark == std::string_view::npos || head.size() - mark > 3 || mark == 0) return i;
    const std::string_view before = trim(head.substr(0, mark));
    if (!before.ends_with(':') && !before.ends_with('-')) return i;
    const size_t outer = indent_of(lines[i].text);
    size_t end = i + 1;
    while (end < lines.size() && (trim(lines[end].text).empty() || indent_of(lines[end].text) > outer)) ++end;
    return end;
  }

  void path() {
    std::vector<Branch> path;
    for (const Opened& o : open_)
      if (path.size() < 64) path.push_back({o.construct, 0, true});
    reader_.set_path(std::move(path));
  }

  void assign(std::string_view name, std::string_view value, int line) {
    path();
    reader_.assign(std::string(name), std::string(value), line);
  }

  void setting(std::string_view t, int line, size_t indent) {
    if (t.starts_with("- ")) t = trim(t.substr(2));
    const std::string_view item = yaml_scalar(t);
    const size_t equals = item.find('='), colon = t.find(':');
    if (equals != std::string_view::npos && variable(item.substr(0, equals))) {
      assign(item.substr(0, equals), item.substr(equals + 1), line);
    } else if (colon != std::string_view::npos) {
      const std::string_view key = yaml_scalar(t.substr(0, colon)), value = yaml_scalar(t.substr(colon + 1));
      if (value.empty()) open_.push_back({indent, reader_.new_construct()});
      if (variable(key) && !value.empty()) assign(key, value, line);
      if (key == "value" && !named_.empty()) assign(named_, value, line);
      named_ = key == "name" && variable(value) ? std::string(value) : "";
    }
  }

  ShellReader& reader_;
  std::vector<Opened> open_;  // the keys whose blocks contain this line
  std::string named_;
};

// Whether what `a` sets is there in `world`, the path of a place in the file.
bool reaches(const std::vector<Branch>& a, const std::vector<Branch>& world) {
  return std::all_of(a.begin(), a.end(), [&](const Branch& b) {
    const auto same =
        std::find_if(world.begin(), world.end(), [&](const Branch& w) { return w.construct == b.construct; });
    return same == world.end() ? !b.scope : same->arm == b.arm;
  });
}

}  // namespace

bool same_place(const Assignment& a, const Assignment& b) {
  return std::equal(a.path.begin(), a.path.end(), b.path.begin(), b.path.end(),
                    [](const Branch& x, const Branch& y) { return x.construct == y.construct && x.arm == y.arm; });
}

std::vector<Settings> alternatives(const SettingsFile& file, bool (*counts)(std::string_view), size_t most) {
  std::vector<const Assignment*> worlds;  // one for each place
  std::vector<const Assignment*> kept;
  for (const Assignment& a : file.assignments) {
    if (!counts(a.name)) continue;
    kept.push_back(&a);
    if (worlds.size() < most &&
        std::none_of(worlds.begin(), worlds.end(), [&](const auto* w) { return same_place(*w, a); }))
      worlds.push_back(&a);
  }
  std::vector<Settings> out;
  for (const Assignment* world : worlds) {
    Settings settings;
    for (const Assignment* a : kept) {
      if (!reaches(a->path, world->path)) continue;
      if (a->unset) settings.erase(a->name);
      else settings[a->name] = *a;
    }
    out.push_back(std::move(settings));
  }
  if (out.empty()) out.emplace_back();
  return out;
}

SettingsFile read_settings(std::string_view text, std::string_view name) {
  text = text.substr(0, kSettingsLimit);
  const std::vector<Line> lines = lines_of(text);
  ShellReader reader(comments_of(lines));
  const Form form = form_of(lines, name);
  switch (form) {
    case Form::markdown: markdown(reader, text, lines); break;
    case Form::rst: restructured(reader, text, lines); break;
    case Form::docker: docker(reader, lines); break;
    case Form::systemd: systemd(reader, lines); break;
    case Form::yaml: Yaml(reader).read(text, lines); break;
    case Form::shell: reader.shell(text, 1); break;
  }
  SettingsFile file = reader.take();
  file.guide = form == Form::markdown || form == Form::rst;
  return file;
}

}  // namespace pyflame::tools::doctor
