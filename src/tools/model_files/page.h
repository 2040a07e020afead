// The page of `pyflame inspect-model`.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace pyflame::tools::model_files {

std::string html_page(const nlohmann::json& document);

}  // namespace pyflame::tools::model_files
