// The report as one document: `pyflame report --json` prints it, and the text and the HTML page are made from it.
// Nothing is computed after it.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "tools/base/finding.h"
#include "tools/profile/analyse.h"
#include "tools/view/text.h"

namespace pyflame::tools::profile {

nlohmann::json make_document(const Profile& profile, const Options& options);

// In advice.cpp: what to do next, by rules over the document; not sorted.
std::vector<Finding> make_advice(const nlohmann::json& document);
std::string make_verdict(const nlohmann::json& document);

// In text.cpp.
std::string to_text(const nlohmann::json& document, const view::Style& style);

}  // namespace pyflame::tools::profile
