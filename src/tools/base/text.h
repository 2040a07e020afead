// Small functions on text. They handle ASCII only: the spelling of files and variables does not depend on a locale.
#pragma once
#include <algorithm>
#include <concepts>
#include <cstdlib>
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

// The number of single-character changes between two names, at most `limit` + 1.
inline int edit_distance(std::string_view a, std::string_view b, int limit) {
  const auto n = static_cast<int>(a.size()), m = static_cast<int>(b.size());
  if (std::abs(n - m) > limit || n > 200 || m > 200) return limit + 1;
  std::vector<int> row(static_cast<size_t>(m) + 1);
  for (int j = 0; j <= m; ++j) row[static_cast<size_t>(j)] = j;
  for (int i = 1; i <= n; ++i) {
    int diagonal = row[0], least = row[0] = i;
    for (int j = 1; j <= m; ++j) {
      const auto k = static_cast<size_t>(j);
      const int change = diagonal + (a[static_cast<size_t>(i - 1)] != b[k - 1]);
      diagonal = row[k];
      row[k] = std::min({change, row[k] + 1, row[k - 1] + 1});
      least = std::min(least, row[k]);
    }
    if (least > limit) return limit + 1;
  }
  return std::min(row.back(), limit + 1);
}

// The candidate that a misspelt name most probably means, of those at most `limit` changes away. nullptr: none.
inline const std::string* meant(std::string_view name, const std::vector<std::string>& candidates, int limit) {
  const std::string* best = nullptr;
  int least = limit + 1;
  for (const std::string& candidate : candidates)
    if (const int d = edit_distance(name, candidate, least - 1); d < least) {
      least = d;
      best = &candidate;
    }
  return best;
}

}  // namespace pyflame::tools
