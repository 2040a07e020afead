// The view of a single kernel, and how figures of the document are written.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "tools/view/text.h"

namespace pyflame::tools::inspect {

// The number under a key; 0 where there is none.
int64_t integer(const nlohmann::json& j, const char* key);
std::string shown(const nlohmann::json& j, const char* key);      // "128", "–" where it is not known
std::string size_cell(const nlohmann::json& j, const char* key);  // "1.5 KiB", "0", "–"
std::string plural(int64_t n, const char* what);                  // "1 kernel", "2 kernels"

// "title   text", the text wrapped behind its column.
std::string titled(const view::Style& style, const std::string& title, const std::string& text);

std::string kernel_text(const nlohmann::json& document, const nlohmann::json& kernel, const view::Style& style);

}  // namespace pyflame::tools::inspect
