// Rules and findings as all tools have them: severities, order, JSON, text and cards.
#include "tools/view/finding.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace pyflame::tools::view {
namespace {

using json = nlohmann::json;

RuleText rule() {
  return {.id = "R-1",
          .severity = Severity::high,
          .title = "A title",
          .why = "It costs time.",
          .fixes = {"Do this.", on_amd("Ask rocBLAS.")},
          .command = on_amd("rocm-smi"),
          .source = "a guide"};
}

Finding finding(const char* id, Severity severity, const char* group = "") {
  Finding f;
  f.id = id;
  f.severity = severity;
  f.group = group;
  return f;
}

std::string order(std::vector<Finding> findings) {
  sort_findings(findings);
  std::string ids;
  for (const Finding& f : findings) ids += f.id;
  return ids;
}

TEST(Severity, NamesOrderAndExitCodes) {
  for (size_t i = 0; i < kSeverities.size(); ++i)
    EXPECT_EQ(severity_of(kSeverities[i]), static_cast<Severity>(i)) << kSeverities[i];
  EXPECT_EQ(severity_of("crit"), Severity::crit);
  EXPECT_EQ(severity_of("Med"), Severity::med);
  for (const char* none : {"", "critical", "ME", " MED"}) EXPECT_FALSE(severity_of(none)) << none;
  EXPECT_EQ(exit_code(Severity::crit), 5);
  EXPECT_EQ(exit_code(Severity::high), 4);
  EXPECT_EQ(exit_code(Severity::med), 3);
  EXPECT_EQ(exit_code(Severity::low), 0);
  EXPECT_EQ(exit_code(Severity::info), 0);
  EXPECT_EQ(severity_tone("HIGH"), Tone::red);
  EXPECT_EQ(severity_tone("no such"), Tone::dim);
}

TEST(Finding, WhatSpeaksOfOneVendorIsGivenForItsDevicesOnly) {
  const Finding amd = make_finding(rule(), "x"), other = make_finding(rule(), "x", false);
  EXPECT_EQ(amd.fixes, (std::vector<std::string>{"Do this.", "Ask rocBLAS."}));
  EXPECT_EQ(amd.command, "rocm-smi");
  EXPECT_EQ(other.fixes, (std::vector<std::string>{"Do this."}));
  EXPECT_EQ(other.command, "");
}

TEST(Finding, TheWorstComesFirstAndGroupsStayTogether) {
  const Finding low = finding("l", Severity::low), med = finding("m", Severity::med),
                high = finding("h", Severity::high);
  EXPECT_EQ(order({low, med, high}), "hml");
  EXPECT_EQ(order({low, finding("a", Severity::low), finding("b", Severity::low)}), "lab")
      << "otherwise the order is kept";
  EXPECT_EQ(order({finding("x", Severity::info, "g"), med, finding("y", Severity::high, "g"), low}), "yxml");
  EXPECT_EQ(order({finding("x", Severity::info, "g"), finding("u", Severity::low, "k"),
                   finding("y", Severity::high, "g"), finding("v", Severity::med, "k")}),
            "yxvu");
  Finding cause = finding("c", Severity::low);
  cause.first = true;
  EXPECT_EQ(order({high, cause, med}), "chm");
}

TEST(Finding, EveryDocumentHasTheSameKeys) {
  Finding f = make_finding(rule(), "It was found 3 times.");
  f.where = "train.py:12";
  EXPECT_EQ(to_json(f), (json{{"id", "R-1"},
                              {"severity", "HIGH"},
                              {"title", "A title"},
                              {"what", "It was found 3 times."},
                              {"why", "It costs time."},
                              {"fix", "Do this. Ask rocBLAS."},
                              {"do", {"Do this.", "Ask rocBLAS."}},
                              {"command", "rocm-smi"},
                              {"where", "train.py:12"},
                              {"group", nullptr},
                              {"source", "a guide"},
                              {"reference", "a guide"}}));
  const json bare = to_json(finding("x", Severity::info));
  for (const char* key : {"title", "fix", "command", "where", "group", "source", "reference"})
    EXPECT_TRUE(bare[key].is_null()) << key;
  EXPECT_TRUE(bare["do"].empty());
}

TEST(Finding, Text) {
  Finding f = make_finding(rule(), "It was found 3 times.");
  f.where = "train.py:12";
  EXPECT_EQ(finding_text(to_json(f), {}),
            "HIGH  R-1      A title (train.py:12)\n"
            "           It was found 3 times.\n"
            "      why  It costs time.\n"
            "      fix  - Do this.\n"
            "           - Ask rocBLAS.\n"
            "           rocm-smi\n"
            "           (a guide)\n");
  EXPECT_EQ(finding_text({{"severity", "LOW"}, {"what", "No title."}, {"fix", "One text."}}, {}, false),
            "LOW   No title.\n      fix  One text.\n");
}

TEST(Finding, CardsOfAnyDocument) {
  const std::string card = finding_card(to_json(make_finding(rule(), "a <b> found"))).str();
  for (const char* part :
       {"tone-high", "A title", "a &lt;b&gt; found", "It costs time.", "Ask rocBLAS.", "rocm-smi", "source: a guide"})
    EXPECT_NE(card.find(part), std::string::npos) << part << " is not in " << card;
  for (const json& odd :
       {json(), json(1), json::array(), json::object(), json{{"severity", 5}, {"do", "x"}, {"fix", {1}}}}) {
    EXPECT_FALSE(finding_card(odd).empty());
    EXPECT_FALSE(finding_text(odd, {}).empty());
  }
  const std::string two = finding_cards({{{"what", "first"}}, {{"what", "second"}}, {{"what", "third"}}}, 2).str();
  EXPECT_NE(two.find("second"), std::string::npos);
  EXPECT_EQ(two.find("third"), std::string::npos);
  EXPECT_NE(two.find("and 1 more"), std::string::npos);
}

}  // namespace
}  // namespace pyflame::tools::view
