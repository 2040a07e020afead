// Small functions on text that the probes share.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tools/base/text.h"

namespace pyflame::tools::system {

// Decimal, or hexadecimal with 0x; nullopt unless the whole text is a number that fits.
std::optional<int64_t> to_number(std::string_view s);
// The same for the full range of 64 bits.
std::optional<uint64_t> to_unsigned(std::string_view s);
// Natural order: card2 comes before card10.
bool natural_less(std::string_view a, std::string_view b);
// "0-3,8" has 5 numbers.
int64_t count_in_ranges(std::string_view s);
inline bool contains(std::string_view s, std::string_view part) { return s.find(part) != std::string_view::npos; }

// A version as numbers, for comparing: "6.3.0-39" and "6.3" are equal.
struct Version {
  int major = -1, minor = 0, patch = 0;
  explicit operator bool() const { return major >= 0; }
  auto operator<=>(const Version&) const = default;
};
Version parse_version(std::string_view s);

}  // namespace pyflame::tools::system
