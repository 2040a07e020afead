// Prints the document of `pyflame inspect-model` for a terminal.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "tools/view/text.h"

namespace pyflame::tools::model_files {

// `all`: a row for each tensor instead of each group of layers, and metadata that is not cut.
std::string document_text(const nlohmann::json& document, const view::Style& style, bool all);
// A value of the metadata in one line: text as it is, a long array as its length.
std::string metadata_text(const nlohmann::json& value, bool all);

}  // namespace pyflame::tools::model_files
