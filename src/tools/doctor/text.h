// The doctor's document as text for a terminal, and as a script that fixes what was found.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "tools/doctor/rules.h"
#include "tools/view/text.h"

namespace pyflame::tools::doctor {

struct TextOptions {
  bool verbose = false;             // print findings of severity INFO completely
  Severity least = Severity::info;  // less severe findings are left out
};

std::string report_text(const nlohmann::json& document, const view::Style& style, const TextOptions& options = {});

// A table of the links between GPUs, followed by processors, IOMMU and access control. Empty if there is no GPU.
std::string topology_text(const nlohmann::json& facts, const view::Style& style);

// A shell script with the commands of all findings, each after the reason for it. Only the user runs it.
std::string fix_script(const nlohmann::json& document);
// `text`, a single line, as lines of comment.
std::string shell_comment(std::string_view text);

}  // namespace pyflame::tools::doctor
