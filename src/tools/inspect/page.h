// The document "pyflame.inspect/1" as a page: one file with its style, pictures and script inside, which opens offline. The page
// shows what the document says and computes nothing new. It leaves out what the document lacks.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace pyflame::tools::inspect {

std::string html_page(const nlohmann::json& document);

}  // namespace pyflame::tools::inspect
