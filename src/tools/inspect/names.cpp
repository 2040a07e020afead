#include "tools/inspect/names.h"

#include <algorithm>
#include <functional>
#include <string_view>
#include <unordered_map>

#include "tools/view/text.h"

namespace pyflame::tools::inspect {

namespace {

// A part of a name, up to the end of a word. It tells names apart if other names have another part here, behind the same
// beginning.
struct Part {
  std::string text;
  bool tells = false;
};

std::vector<Part> parts_of(const std::string& name) {
  constexpr std::string_view kEnds = "_<>,: ()/";
  std::vector<Part> parts;
  for (const char c : name) {
    const bool starts = parts.empty() || (kEnds.find(parts.back().text.back()) != std::string_view::npos &&
                                          kEnds.find(c) == std::string_view::npos);
    if (starts) parts.emplace_back();
    parts.back().text += c;
  }
  return parts;
}

size_t columns(const std::string& text) { return static_cast<size_t>(view::width_of(text)); }

// Bytes of UTF-8 that continue a character.
bool continues(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

// The first `most` columns of a text.
std::string cut(const std::string& text, size_t most) {
  std::string out = text;
  while (columns(out) > most) {
    while (!out.empty() && continues(out.back())) out.pop_back();
    if (!out.empty()) out.pop_back();
  }
  return out;
}

// The last `most` columns of a text.
std::string end_of(const std::string& text, size_t most) {
  size_t at = text.size();
  for (size_t n = 0; at > 0 && n < most; ++n) {
    --at;
    while (at > 0 && continues(text[at])) --at;
  }
  return text.substr(at);
}

// Shortens the longest stretch of parts that tell nothing, then the next one, and then the parts that tell names apart, in
// their middle, until the name fits.
std::string fitted(const std::vector<Part>& parts, size_t width) {
  constexpr size_t kLeastPart = 9;
  struct Stretch {
    std::string text;
    bool tells, shortened = false;
  };
  std::vector<Stretch> stretches;
  size_t total = 0;
  for (const Part& p : parts) {
    if (stretches.empty() || p.tells || stretches.back().tells) stretches.push_back({"", p.tells});
    stretches.back().text += p.text;
    total += columns(p.text);
  }
  for (const bool telling : {false, true}) {
    const size_t least = telling ? kLeastPart : 1;
    while (total > width) {
      Stretch* longest = nullptr;
      for (Stretch& s : stretches)
        if (s.tells == telling && !s.shortened && columns(s.text) > least &&
            (!longest || columns(s.text) > columns(longest->text)))
          longest = &s;
      if (!longest) break;
      const size_t had = columns(longest->text), keep = std::max(least, had - std::min(had, total - width)) - 1;
      const size_t tail = telling ? 2 * keep / 3 : 0;
      longest->text = cut(longest->text, keep - tail) + "…" + end_of(longest->text, tail);
      longest->shortened = true;
      total -= had - keep - 1;
    }
  }
  std::string out;
  for (const Stretch& s : stretches) out += s.text;
  return columns(out) > width ? cut(out, width - 1) + "…" : out;
}

}  // namespace

std::string short_name(const std::string& name) {
  std::string_view s = name;
  if (s.starts_with("void ")) s.remove_prefix(5);
  // The parameters are in the last bracket. "(anonymous namespace)::f" has another bracket in front.
  if (s.ends_with(')')) {
    int depth = 0;
    for (size_t i = s.size(); i-- > 0;) {
      depth += s[i] == ')' ? 1 : s[i] == '(' ? -1 : 0;
      if (depth == 0) {
        if (i > 0) s = s.substr(0, i);
        break;
      }
    }
  }
  // Removes the namespaces: the text before the last "::" that is not in a bracket.
  int depth = 0;
  size_t begin = 0;
  for (size_t i = 0; i + 1 < s.size(); ++i) {
    depth += s[i] == '<' || s[i] == '(' ? 1 : s[i] == '>' || s[i] == ')' ? -1 : 0;
    if (depth == 0 && s[i] == ':' && s[i + 1] == ':' && i + 2 < s.size()) begin = i + 2;
  }
  return std::string(s.substr(begin));
}

std::vector<std::string> distinct(const std::vector<std::string>& names, size_t width) {
  // By the hash of a beginning: the hash of one part that follows it, and whether others follow, too. 0 is the end of a name.
  struct Next {
    size_t part = 0;
    bool several = false;
  };
  std::unordered_map<size_t, Next> next;
  const auto hash = [](const std::string& text) { return std::hash<std::string>()(text) | 1; };
  const auto join = [](size_t begin, size_t part) { return (begin ^ part) * size_t{0x9e3779b97f4a7c15}; };
  std::vector<std::vector<Part>> all;
  for (const std::string& name : names) {
    all.push_back(parts_of(name));
    size_t begin = 1;
    const auto follow = [&](size_t part) {
      const auto [it, fresh] = next.try_emplace(begin, Next{part, false});
      it->second.several = it->second.several || it->second.part != part;
      begin = join(begin, part);
    };
    for (const Part& p : all.back()) follow(hash(p.text));
    follow(0);
  }
  std::vector<std::string> out;
  for (std::vector<Part>& parts : all) {
    size_t begin = 1;
    for (Part& p : parts) {
      p.tells = next[begin].several;
      begin = join(begin, hash(p.text));
    }
    out.push_back(fitted(parts, std::max<size_t>(width, 2)));
  }
  return out;
}

}  // namespace pyflame::tools::inspect
