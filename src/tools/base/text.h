// Small functions on text. They handle ASCII only: the spelling of files and variables does not depend on a locale.
#pragma once
#include <algorithm>
#include <concepts>
#include <string>
#include <string_view>
#include <vector>

namespace pyflame::tools {

inline std::string lower(std::string_view s) {
  std::string out(s);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return out;
}

// Without the blanks, line ends and zero bytes at both ends.
inline std::string_view trim(std::string_view s) {
  const auto blank = [](char c) { return c == ' ' || (c >= '\t' && c <= '\r') || c == '\0'; };
  while (!s.empty() && blank(s.front())) s.remove_prefix(1);
  while (!s.empty() && blank(s.back())) s.remove_suffix(1);
  return s;
}

// Returns one part more than there are separators.
inline std::vector<std::string_view> split(std::string_view s, char separator) {
  std::vector<std::string_view> out;
  for (size_t begin = 0; begin <= s.size();) {
    const size_t end = std::min(s.find(separator, begin), s.size());
    out.push_back(s.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}
// The parts point into the text, so the text must outlive them: do not split a temporary (`host.read(path).text` in a for loop).
template <class S>
requires std::same_as<S, std::string> std::vector<std::string_view> split(S&& s, char separator)
= delete;

}  // namespace pyflame::tools
