// The documents of `pyflame inspect` as text for a terminal. Nothing is computed here: long names are cut, and long
// lists end with the number of further entries.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "tools/view/text.h"

namespace pyflame::tools::inspect {

struct TextOptions {
  size_t top = 40;  // rows of a table
};

// One kernel: everything that is known of it. Several: a table, and totals.
std::string document_text(const nlohmann::json& document, const view::Style& style, const TextOptions& options);
std::string diff_text(const nlohmann::json& diff, const view::Style& style, const TextOptions& options);
// What could not be read, and what is missing to read more.
std::string problems_text(const nlohmann::json& document, const view::Style& style);
std::string gate_text(const nlohmann::json& gate, const view::Style& style, const TextOptions& options);

}  // namespace pyflame::tools::inspect
