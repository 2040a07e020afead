// The severities of all documents, worst first: their names, order and terminal colours.
#pragma once
#include <algorithm>
#include <array>
#include <string_view>

#include "tools/view/text.h"

namespace pyflame::tools::view {

constexpr std::array<std::string_view, 5> kSeverities = {"CRIT", "HIGH", "MED", "LOW", "INFO"};

// 0 for the worst; unknown names come last.
constexpr size_t severity_rank(std::string_view name) {
  return static_cast<size_t>(std::find(kSeverities.begin(), kSeverities.end(), name) - kSeverities.begin());
}

constexpr Tone severity_tone(std::string_view name) {
  constexpr Tone kTones[] = {Tone::red, Tone::red, Tone::yellow, Tone::cyan, Tone::dim, Tone::dim};
  return kTones[severity_rank(name)];
}

}  // namespace pyflame::tools::view
