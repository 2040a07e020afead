// The tools' documents as pages of their own: one file each, with its style, pictures and script inside, that opens offline. A page
// shows what the document says and computes nothing new. Whatever is missing from a document is left out of its page.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace pyflame::tools::view {

std::string doctor_page(const nlohmann::json& document);   // "pyflame.doctor/1"
std::string inspect_page(const nlohmann::json& document);  // "pyflame.inspect/1"
std::string report_page(const nlohmann::json& document);   // "pyflame.report/1"
std::string train_page(const nlohmann::json& document);    // "pyflame.train/1"

}  // namespace pyflame::tools::view
