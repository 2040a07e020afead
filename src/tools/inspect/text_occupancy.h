// The documents of `pyflame occupancy` for a person at a terminal.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "tools/view/text.h"

namespace pyflame::tools::inspect {

std::string occupancy_text(const nlohmann::json& document, const view::Style& style);
std::string architectures_text(const nlohmann::json& document, const view::Style& style);

}  // namespace pyflame::tools::inspect
