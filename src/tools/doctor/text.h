// The doctor's document on a terminal, and as a script that mends what it found.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "tools/doctor/rules.h"
#include "tools/view/text.h"

namespace pyflame::tools::doctor {

struct TextOptions {
  bool verbose = false;             // INFO in full
  Severity least = Severity::info;  // nothing below
};

std::string report_text(const nlohmann::json& document, const view::Style& style, const TextOptions& options = {});

// GPUs against GPUs: how they reach each other; then processors, IOMMU and access control. Empty when there is no GPU.
std::string topology_text(const nlohmann::json& facts, const view::Style& style);

// A shell script with the commands of all findings, each behind the reason for it. Nothing runs it but the user.
std::string fix_script(const nlohmann::json& document);
// `text`, which has one line, as lines of comment.
std::string shell_comment(std::string_view text);

}  // namespace pyflame::tools::doctor
