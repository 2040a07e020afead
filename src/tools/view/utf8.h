// A strict UTF-8 decoder (no overlong forms, no surrogates), so that terminal and pages agree on what is valid text.
#pragma once
#include <cstddef>
#include <string_view>

namespace pyflame::tools::view {

constexpr char32_t kInvalid = 0xFFFFFFFF;

// The code point at text[at]; `at` moves behind it. An invalid byte gives kInvalid, and `at` moves by one.
inline char32_t next_code_point(std::string_view text, size_t& at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(at);
  const size_t begin = at++;
  if (lead < 0x80) return lead;
  const int more = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
  if (lead < 0xC2 || lead > 0xF4 || begin + static_cast<size_t>(more) >= text.size()) return kInvalid;
  char32_t code = lead & (0x3Fu >> more);
  for (int i = 1; i <= more; ++i) {
    const unsigned char next = byte(begin + static_cast<size_t>(i));
    if ((next & 0xC0u) != 0x80u) return kInvalid;
    code = code << 6 | (next & 0x3Fu);
  }
  constexpr char32_t kLeast[] = {0, 0x80, 0x800, 0x10000};
  if (code < kLeast[more] || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return kInvalid;
  at = begin + static_cast<size_t>(more) + 1;
  return code;
}

// C0 and C1 controls, and characters that change the direction or order of text. None of them may be printed from a
// file.
inline bool is_control(char32_t c) {
  return c < 0x20 || (c >= 0x7F && c < 0xA0) || c == 0x2028 || c == 0x2029 || c == 0x200E || c == 0x200F ||
         (c >= 0x202A && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069) || c == 0xFEFF;
}

}  // namespace pyflame::tools::view
