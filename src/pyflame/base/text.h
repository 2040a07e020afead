// Small functions on text, of ASCII only: what files and variables spell does not depend on a locale.
#pragma once
#include <algorithm>
#include <concepts>
#include <string>
#include <string_view>
#include <vector>

namespace pyflame {

inline std::string lower(std::string_view s) {
  std::string out(s);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return out;
}

// Without the blanks, ends of lines and zeros around it.
inline std::string_view trim(std::string_view s) {
  const auto blank = [](char c) { return c == ' ' || (c >= '\t' && c <= '\r') || c == '\0'; };
  while (!s.empty() && blank(s.front())) s.remove_prefix(1);
  while (!s.empty() && blank(s.back())) s.remove_suffix(1);
  return s;
}

// One part more than there are separators.
inline std::vector<std::string_view> split(std::string_view s, char separator) {
  std::vector<std::string_view> out;
  for (size_t begin = 0; begin <= s.size();) {
    const size_t end = std::min(s.find(separator, begin), s.size());
    out.push_back(s.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}
// The parts point into the text: one that ends with the expression (`host.read(path).text` in a for loop) is no text to split.
template <class S>
requires std::same_as<S, std::string> std::vector<std::string_view> split(S&& s, char separator)
= delete;

}  // namespace pyflame
