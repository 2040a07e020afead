// The tables of names behind classify.h.
#pragma once
#include <string_view>

#include "tools/profile/classify.h"

namespace pyflame::tools::profile::detail {

struct Pattern {
  std::string_view text;  // in lower case; a ^ at the front means that the name begins with the rest
  Category category = Category::other;
  std::string_view library;
};

// Each returns the first entry that fits the name in lower case, or nullptr.
const Pattern* find_known_name(std::string_view name);  // names that a library gave: they say what the kernel does
const Pattern* find_word(std::string_view name);        // words that kernels of users have in common
const Pattern* find_operator(std::string_view name);    // operators, modules and functions of Python
std::string_view library_in(std::string_view kernel);   // from a namespace; empty: not known

}  // namespace pyflame::tools::profile::detail
