// Findings (base/finding.h) as JSON, as text for a terminal, and as cards of a page. Text and cards are made from the JSON, and
// leave out what is missing there.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "tools/base/finding.h"
#include "tools/view/html.h"
#include "tools/view/text.h"

namespace pyflame::tools::view {

// The keys that a finding has in every document: id, severity, title, what, why, fix (one text), do (the same as a list), command,
// where, group, source (who says so) and reference, which is the same as source: in inspect's document, "source" is a line of source code.
// A missing value is null. `gain` is there if it is known: without the finding, the program would be at most so many times as fast. An engine
// may add keys of its own.
nlohmann::json to_json(const Finding& finding);
nlohmann::json to_json(const std::vector<Finding>& findings);

// The colour of a severity, given its name; dim if there is no such severity.
Tone severity_tone(std::string_view name);
// The severity of a finding; `otherwise` if it names none that is known.
Severity severity_in(const nlohmann::json& finding, Severity otherwise = Severity::info);

std::string finding_text(const nlohmann::json& finding, const Style& style, bool with_source = true);
Html finding_card(const nlohmann::json& finding);
// At most `most` cards, and a note that says how many more there are.
Html finding_cards(const nlohmann::json& findings, size_t most);

// A label, and text in lines that all begin at `column`.
std::string labelled(const Style& style, std::string_view label, int column, std::string_view text);

}  // namespace pyflame::tools::view
