// Small text functions of the probes.
#include "tools/system/text.h"

#include <algorithm>
#include <charconv>

namespace pyflame::tools::system {

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

template <class T>
std::optional<T> parse(std::string_view s) {
  s = trim(s);
  int base = 10;
  if (s.size() > 2 && s[0] == '0' && (s[1] == 'x' || s[1] == 'X')) {
    base = 16;
    s.remove_prefix(2);
  }
  T value{};
  const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), value, base);
  if (error != std::errc() || end != s.data() + s.size() || s.empty()) return std::nullopt;
  return value;
}

}  // namespace

std::optional<int64_t> to_number(std::string_view s) { return parse<int64_t>(s); }
std::optional<uint64_t> to_unsigned(std::string_view s) { return parse<uint64_t>(s); }

bool natural_less(std::string_view a, std::string_view b) {
  size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (is_digit(a[i]) && is_digit(b[j])) {
      const size_t i0 = std::min(a.find_first_not_of('0', i), a.size()),
                   j0 = std::min(b.find_first_not_of('0', j), b.size());
      size_t i1 = i0, j1 = j0;
      while (i1 < a.size() && is_digit(a[i1])) ++i1;
      while (j1 < b.size() && is_digit(b[j1])) ++j1;
      if (i1 - i0 != j1 - j0) return i1 - i0 < j1 - j0;
      if (const int c = a.substr(i0, i1 - i0).compare(b.substr(j0, j1 - j0)); c != 0) return c < 0;
      i = i1;
      j = j1;
    } else if (a[i] != b[j]) {
      return static_cast<unsigned char>(a[i]) < static_cast<unsigned char>(b[j]);
    } else {
      ++i;
      ++j;
    }
  }
  if ((a.size() - i == 0) != (b.size() - j == 0)) return a.size() - i == 0;
  return a < b;  // equal except for leading zeros
}

int64_t count_in_ranges(std::string_view s) {
  int64_t n = 0;
  for (std::string_view part : split(trim(s), ',')) {
    const size_t dash = part.find('-');
    const std::optional<int64_t> first = to_number(part.substr(0, dash));
    const std::optional<int64_t> last = dash == part.npos ? first : to_number(part.substr(dash + 1));
    if (first && last && *last >= *first && *first >= 0 && *last < (1 << 20)) n += *last - *first + 1;
  }
  return n;
}

Version parse_version(std::string_view s) {
  s = trim(s);
  Version v;
  int* const parts[] = {&v.major, &v.minor, &v.patch};
  for (int* part : parts) {
    int value = 0;
    const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), value);
    if (error != std::errc() || value < 0) break;
    *part = value;
    s.remove_prefix(static_cast<size_t>(end - s.data()));
    if (s.empty() || s.front() != '.') break;
    s.remove_prefix(1);
  }
  return v;
}

}  // namespace pyflame::tools::system
