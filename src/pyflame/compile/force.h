// Implementations that the user has chosen: PYFLAME_FORCE, and pf.tuning.force() in a program.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pyflame/base/error.h"

namespace pyflame {

// A forced configuration cannot be made for a group. Then the window's ops do not run one by one, because an op alone may have the
// configuration.
class ForcedError : public Error {
 public:
  using Error::Error;
};

// "gpu.matmul_units:tile=64x64,splits=2" is an entry with one of its configurations; without a configuration, the entry's own choice.
struct ForcedEntry {
  std::string impl, configuration;
};
// What is forced for groups whose first op this is. Any thread may call. ErrorKind::Value: PYFLAME_FORCE cannot be read.
std::optional<ForcedEntry> forced_entry(std::string_view op);
// For programs that are compiled afterwards; compiled ones are forgotten. An empty entry: nothing is forced any more, not
// even by PYFLAME_FORCE. Returns what was forced before ("" for nothing).
std::string force_entry(const std::string& op, const std::string& entry);

// Names of candidates, such as "rocm.blaslt:solution=42", that are measured before all others wherever their
// implementation accepts the problem, although its own list may not have them. They come from elsewhere, so that they
// are used only after they were checked and measured here. alone: no other candidates are measured.
struct Suggestions {
  std::vector<std::string> names;
  bool alone = false;
};
void suggest_candidates(Suggestions suggestions);
Suggestions suggested_candidates();

}  // namespace pyflame
