// The one file of the program that makes the page of a run: where the engine's headers are, view is a function of tensors.
#include <nlohmann/json.hpp>

#include "tools/view/page.h"

namespace pyflame::cli {

std::string page_of_run(const nlohmann::json& document);  // train_report.h, which cannot be included beside view/

std::string page_of_run(const nlohmann::json& document) { return tools::view::train_page(document); }

}  // namespace pyflame::cli
