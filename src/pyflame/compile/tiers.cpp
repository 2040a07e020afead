#include "pyflame/compile/tiers.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstdint>
#include <string_view>

namespace pyflame {

namespace {

void add_dim(std::string& key, Tier tier, uint64_t n) {
  constexpr uint64_t kMostAlignment = 8;
  if (n <= 1) key += static_cast<char>('0' + n);
  else if (tier == Tier::any_size) key += '*';
  else key += '~' + std::to_string(std::bit_ceil(n)) + '/' + std::to_string(std::min(kMostAlignment, n & (~n + 1)));
}

void add_stride(std::string& key, uint64_t n) {
  if (n <= 1) key += static_cast<char>('0' + n);
  else key += '*';
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

std::string tier_key(Tier tier, const std::string& problem) {
  std::string key = tier == Tier::bucket ? "bucket " : "any size ";
  constexpr std::string_view kStrides = " strides ";
  for (size_t at = 0; at < problem.size();) {
    // "(8, 64)", "(8,)" and "()" are lists of numbers; the operands of an op are no such list.
    size_t end = at + 1;
    while (end < problem.size() && (is_digit(problem[end]) || problem[end] == ',' || problem[end] == ' ')) ++end;
    if (problem[at] != '(' || end >= problem.size() || problem[end] != ')') {
      key += problem[at++];
      continue;
    }
    const bool strides = key.ends_with(kStrides);
    while (at <= end) {
      if (!is_digit(problem[at])) {
        key += problem[at++];
        continue;
      }
      uint64_t n = 0;
      const char* const from = problem.data() + at;
      const char* const to = std::from_chars(from, problem.data() + end, n).ptr;
      at += static_cast<size_t>(to - from);
      if (strides) add_stride(key, n);
      else add_dim(key, tier, n);
    }
  }
  return key;
}

}  // namespace pyflame
