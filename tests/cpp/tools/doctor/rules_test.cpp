// The language of conditions, and what the loader of the rule base refuses.
#include "tools/doctor/rules.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "pyflame/base/error.h"
#include "tools/base/text.h"
#include "tools/doctor/probes.h"
#include "tools/system/host.h"

namespace pyflame::tools::doctor {
namespace {

using Json = nlohmann::json;

Truth test(std::string_view condition, const Json& facts, const Json& locals = {}) {
  Scope s;
  s.facts = &facts;
  s.locals = &locals;
  return Condition::parse(condition).test(s);
}

const Json kFacts = {{"a", 1},
                     {"s", "text"},
                     {"yes", true},
                     {"null", nullptr},
                     {"rocm", {{"version", "6.3.0-39"}}},
                     {"env", {{"N", "8"}, {"HEX", "0x10"}, {"ON", "True"}, {"EMPTY", ""}}},
                     {"gpus", {{{"gfx", "gfx942"}, {"n", 1}}, {{"gfx", "gfx1036"}}}},
                     {"none", Json::array()}};

TEST(Condition, Truths) {
  for (const char* yes : {"a == 1",
                          "a != 2",
                          "a < 2 and a >= 1",
                          "s == 'text'",
                          "s startswith 'te'",
                          "s contains 'ex'",
                          "yes",
                          "yes == true",
                          "not a == 2",
                          "env.N > 7.5",
                          "env.N == 8",
                          "env.HEX == 16",
                          "a in [3, 1]",
                          "s in ['x', 'text']",
                          "rocm.version < v6.3.1",
                          "rocm.version >= v6.3 and rocm.version < v6.10",
                          "any gpus(gfx == 'gfx942')",
                          "all gpus(gfx startswith 'gfx')",
                          "count(gpus) == 2",
                          "exists(a)",
                          "not exists(null)",
                          "not exists(b.c)",
                          "set(N)",
                          "not set(EMPTY)",
                          "not set(M)",
                          "on(env.ON)",
                          "not off(env.ON)",
                          "(a == 2 or a == 1) and yes",
                          "null == 1 or a == 1",
                          "count(none) == 0",
                          "a == -1 or a > -1",
                          "any gpus(n == 1)"})
    EXPECT_EQ(test(yes, kFacts), Truth::yes) << yes;
  for (const char* no : {"a == 2", "not yes", "any gpus(gfx == 'gfx90a')", "any none(a == 1)", "all none(a == 1)",
                         "set(EMPTY)", "exists(null)", "s == 1", "null == 1 and a == 2", "all gpus(gfx == 'gfx942')"})
    EXPECT_EQ(test(no, kFacts), Truth::no) << no;
  // An unknown value stays unknown through `not`, `and`, `or` and lists.
  for (const char* unknown :
       {"b", "b == 1", "b != 1", "not b == 1", "null < 1", "s < 1", "b == 1 and a == 1", "b == 1 or a == 2",
        "all gpus(n == 1)", "any nowhere(a == 1)", "count(s) > 1", "on(b)", "b in ['x']", "a in b"})
    EXPECT_EQ(test(unknown, kFacts), Truth::unknown) << unknown;
}

TEST(Condition, MatchedItems) {
  Scope s;
  s.facts = &kFacts;
  std::vector<const Json*> matched;
  EXPECT_EQ(Condition::parse("any gpus(gfx startswith 'gfx10')").test(s, &matched), Truth::yes);
  ASSERT_EQ(matched.size(), 1u);
  EXPECT_EQ((*matched[0])["gfx"], "gfx1036");
}

TEST(Condition, NamesOfTheItemComeFirst) {
  const Json locals = {{"value", "0"}, {"gfx", "local"}};
  EXPECT_EQ(test("any gpus(gfx == 'gfx942' and value == 0)", kFacts, locals), Truth::yes);
  EXPECT_EQ(test("gfx == 'local'", kFacts, locals), Truth::yes);
}

TEST(Condition, RefusesWhatItDoesNotUnderstand) {
  for (const char* bad :
       {"",    "a ==",  "== 1",    "a = 1", "a == 'x", "(a == 1",  "a == 1)",  "a == 1 b", "any (a)", "any gpus a",
        "not", "a and", "a in [1", "1",     "'x'",     "exists()", "exists a", "a == 1x",  "a == -x", "a & b"})
    EXPECT_THROW(Condition::parse(bad), Error) << bad;
  EXPECT_THROW(Condition::parse(std::string(10000, '(') + "a" + std::string(10000, ')')), Error);
  std::string nots;
  for (int i = 0; i < 10000; ++i) nots += "not ";
  EXPECT_THROW(Condition::parse(nots + "a"), Error);
}

TEST(Versions, PartByPart) {
  EXPECT_EQ(compare_versions("6.3.0-39", "6.3"), 1);
  EXPECT_EQ(compare_versions("6.3.0", "6.3"), 0);
  EXPECT_EQ(compare_versions("6.10", "6.9"), 1);
  EXPECT_EQ(compare_versions("5.7.1", "6"), -1);
  EXPECT_EQ(compare_versions("", "0"), 0);
  EXPECT_EQ(compare_versions("99999999999999999999999", "1"), -1) << "what is no number counts as 0";
}

TEST(Settings, SameWhenTheyMeanTheSame) {
  EXPECT_TRUE(same_setting("True", "1") && same_setting("off", "0") && same_setting("100", "100.0") &&
              same_setting("0x10", "16"));
  EXPECT_FALSE(same_setting("1", "0") || same_setting("a", "b") || same_setting("", "0"));
}

TEST(Names, EditDistance) {
  EXPECT_EQ(edit_distance("abc", "abc", 2), 0);
  EXPECT_EQ(edit_distance("abc", "abd", 2), 1);
  EXPECT_EQ(edit_distance("abc", "ab", 2), 1);
  EXPECT_EQ(edit_distance("HSA_ENABLE_SDAM", "HSA_ENABLE_SDMA", 2), 2);
  EXPECT_EQ(edit_distance("abc", "xyzabc", 2), 3) << "beyond the limit";
}

TEST(Rules, TheProgramsOwnAreSound) {
  EXPECT_GE(rules().rules.size(), 130u);
  for (const Rule& r : rules().rules) {
    for (const Variable& v : r.variables) {
      const std::string name = v.name.back() == '*' ? v.name.substr(0, v.name.size() - 1) + "1" : v.name;
      EXPECT_TRUE(system::audited_variable(name)) << name << " would never be looked at";
      EXPECT_EQ(rules().of_variable(name), &r) << name << " belongs to two rules";
    }
    for (const Advice& a : r.guides) EXPECT_TRUE(a.name.empty() || rules().of_variable(a.name) == &r) << r.id;
  }
  for (const Contradiction& c : rules().contradictions)
    for (const std::string& name : c.names) EXPECT_TRUE(rules().knows(name)) << name;
  for (const Recommendation& r : rules().recommend) EXPECT_TRUE(rules().knows(r.name)) << r.name;
}

TEST(Rules, RefusesMistakesByName) {
  const auto error = [](const std::string& json) -> std::string {
    try {
      parse_rules(json);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  const auto rule = [](const std::string& inside) { return R"({"rules": [{"id": "X-1", )" + inside + "}]}"; };
  const std::string good = R"("title": "t", "source": "s", "why": "w", "cases": [{"severity": "LOW", "what": "x"}])";
  EXPECT_EQ(error(rule(good)), "");
  EXPECT_NE(error("not JSON").find("not JSON"), std::string::npos);
  EXPECT_NE(error(R"({"rulez": []})").find("'rulez'"), std::string::npos);
  EXPECT_NE(error(rule(R"("source": "s")")).find("X-1 lacks 'title'"), std::string::npos);
  EXPECT_NE(error(rule(good + R"(, "severty": 1)")).find("'severty'"), std::string::npos);
  EXPECT_NE(error(rule(R"("title": "t", "source": "s", "why": "w", "cases": [{"severity": "low", "what": "x"}])"))
                .find("'low'"),
            std::string::npos);
  EXPECT_NE(error(rule(R"("title": "t", "source": "s", "cases": [{"severity": "LOW", "what": "x"}])")).find("why"),
            std::string::npos);
  EXPECT_NE(
      error(
          rule(
              R"("title": "t", "source": "s", "why": "w", "cases": [{"when": "a ==", "severity": "LOW", "what": "x"}])"))
          .find("X-1, case 1"),
      std::string::npos);
  EXPECT_NE(error(rule(good + R"(, "variables": ["A"])")).find("who reads"), std::string::npos);
  EXPECT_NE(error(rule(good + R"(, "guides": [["nobody"]])")).find("'nobody'"), std::string::npos);
  EXPECT_NE(error(R"({"rules": [{"id": "A", )" + good + R"(}, {"id": "A", )" + good + "}]}").find("twice"),
            std::string::npos);
  EXPECT_NE(error(R"({"rules": [1]})").find("not an object"), std::string::npos);
}

TEST(Fill, QuotesForAShell) {
  const Json facts = {
      {"name", "a b'; rm -rf /"}, {"n", 1073741824}, {"list", {"x", 1}}, {"yes", true}, {"command", "sudo x && y"}};
  Scope s;
  s.facts = &facts;
  EXPECT_EQ(fill("run {name} {n|bytes} {list} {yes} {nothing}", s), "run a b'; rm -rf / 1 GiB x, 1 yes unknown");
  EXPECT_EQ(fill("unset {name}", s, true), "unset 'a b'\\''; rm -rf /'");
  EXPECT_EQ(fill("{command|raw}", s, true), "sudo x && y");
  EXPECT_EQ(fill("awk '{print $1}' {", s), "awk '{print $1}' {");
}

}  // namespace
}  // namespace pyflame::tools::doctor
