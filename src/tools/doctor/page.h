// The document "pyflame.doctor/1" as a page: one file that contains its style, pictures and script and can be opened offline. The page
// shows what the document says and computes nothing new. It leaves out what the document lacks.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace pyflame::tools::doctor {

std::string html_page(const nlohmann::json& document);

}  // namespace pyflame::tools::doctor
