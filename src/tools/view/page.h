// The tools' documents as pages: one file each, with style, pictures and script inside, which can be opened offline. A
// page shows the contents of the document and computes nothing. What is missing in a document is left out of its page.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace pyflame::tools::view {

std::string doctor_page(const nlohmann::json& document);   // "pyflame.doctor/1"
std::string inspect_page(const nlohmann::json& document);  // "pyflame.inspect/1"
std::string report_page(const nlohmann::json& document);   // "pyflame.report/1"
std::string train_page(const nlohmann::json& document);    // "pyflame.train/1"

}  // namespace pyflame::tools::view
