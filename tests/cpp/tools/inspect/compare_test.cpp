// Differences between builds and budgets: what counts as worse, what is matched, what a budget says of kernels that it does not know.
#include "tools/inspect/compare.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "pyflame/base/error.h"

namespace pyflame::tools::inspect {
namespace {

using Json = nlohmann::json;

Json kernel(const std::string& symbol, const std::string& gfx = "gfx942") {
  return {{"name", "void " + symbol + "(int)"},
          {"symbol", symbol},
          {"object", 0},
          {"gfx", gfx},
          {"target", gfx},
          {"vgpr", 64},
          {"agpr", 0},
          {"sgpr", 20},
          {"vgpr_spill", 0},
          {"sgpr_spill", 0},
          {"lds", 1024},
          {"scratch", 0},
          {"code_bytes", 1000},
          {"occupancy", {{"waves_per_simd", 8}, {"max_waves", 8}}},
          {"isa", {{"instructions", 100}, {"findings", Json::array({{{"id", "full-vmcnt-wait"}, {"count", 2}}})}}}};
}

Json document(std::vector<Json> kernels) {
  return {{"inputs", {"file"}}, {"kernels", kernels}, {"problems", Json::array()}, {"missing", Json::array()}};
}

Json check(const Json& d, const Json& budget) { return check_gate(d, budget.dump(), "budget.json"); }

TEST(Diff, EqualBuildsDifferInNothing) {
  const Json d = diff(document({kernel("a"), kernel("b")}), document({kernel("b"), kernel("a")}));
  EXPECT_TRUE(d["changed"].empty());
  EXPECT_EQ(d["summary"]["same"], 2);
}

TEST(Diff, ChangesHaveADirectionAndTheImportantOnesComeFirst) {
  Json small = kernel("small"), spilled = kernel("spilled"), better = kernel("better");
  small["sgpr"] = 21;
  spilled["vgpr_spill"] = 12;
  spilled["vgpr"] = 60;
  better["occupancy"]["waves_per_simd"] = 9;
  const Json d =
      diff(document({kernel("small"), kernel("spilled"), kernel("better")}), document({small, spilled, better}));
  ASSERT_EQ(d["changed"].size(), 3u);
  EXPECT_EQ(d["changed"][0]["symbol"], "spilled");
  EXPECT_EQ(d["changed"][0]["verdict"], "mixed");
  EXPECT_EQ(d["changed"][0]["changes"][0],
            (Json{{"what", "vgpr_spill"}, {"title", "VGPR spills"}, {"from", 0}, {"to", 12}, {"worse", true}}));
  EXPECT_EQ(d["changed"][1]["verdict"], "better");
  EXPECT_EQ(d["changed"][2]["symbol"], "small");
}

TEST(Diff, KernelsAreMatchedBySymbolAndTarget) {
  const Json d = diff(document({kernel("a"), kernel("a", "gfx1100"), kernel("gone")}),
                      document({kernel("a"), kernel("a", "gfx1201"), kernel("new")}));
  EXPECT_EQ(d["summary"]["same"], 1);
  EXPECT_EQ(d["added"].size(), 2u);
  EXPECT_EQ(d["removed"].size(), 2u);
}

TEST(Diff, FindingsThatComeAndGo) {
  Json b = kernel("a");
  b["isa"]["findings"] = Json::array({{{"id", "scratch-in-loop"}}});
  const Json changes = diff(document({kernel("a")}), document({b}))["changed"][0]["changes"];
  ASSERT_EQ(changes.size(), 2u);
  EXPECT_EQ(changes[0]["title"], "full-vmcnt-wait");
  EXPECT_EQ(changes[0]["worse"], false);
  EXPECT_EQ(changes[1]["title"], "scratch-in-loop");
  EXPECT_EQ(changes[1]["worse"], true);
  b.erase("isa");  // not read: nothing is said about findings
  EXPECT_TRUE(diff(document({kernel("a")}), document({b}))["changed"].empty());
}

TEST(Gate, TheStateThatMadeTheBudgetPasses) {
  const Json d = document({kernel("a"), kernel("b", "gfx1100")});
  const Json g = check(d, make_gate(d));
  EXPECT_EQ(g["checked"], 2);
  EXPECT_TRUE(g["worse"].empty());
  EXPECT_TRUE(g["unlisted"].empty());
  EXPECT_TRUE(g["vanished"].empty());
}

TEST(Gate, EachFigureThatGetsWorseFails) {
  const Json budget = make_gate(document({kernel("a")}));
  const auto worse = [&](const char* key, const Json& value, const char* section = nullptr) {
    Json k = kernel("a");
    (section ? k[section] : k)[key] = value;
    std::vector<std::string> what;
    const Json g = check(document({k}), budget);
    for (const Json& w : g["worse"]) what.push_back(w["what"]);
    return what;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(worse("vgpr", 65), Names{"VGPRs"});
  EXPECT_EQ(worse("vgpr_spill", 1), Names{"VGPR spills"});
  EXPECT_EQ(worse("sgpr_spill", 1), Names{"SGPR spills"});
  EXPECT_EQ(worse("scratch", 16), Names{"scratch"});
  EXPECT_EQ(worse("lds", 1025), Names{"LDS"});
  EXPECT_EQ(worse("waves_per_simd", 7, "occupancy"), Names{"waves per SIMD"});
  EXPECT_EQ(worse("code_bytes", 1153), Names{"code bytes"});
  EXPECT_EQ(worse("findings", Json::array({{{"id", "scratch-in-loop"}, {"count", 3}}}), "isa"),
            Names{"finding scratch-in-loop"});
  // Better is no failure, nor is code that grew by less than a tenth.
  EXPECT_EQ(worse("vgpr", 10), Names{});
  EXPECT_EQ(worse("waves_per_simd", 8, "occupancy"), Names{});
  EXPECT_EQ(worse("code_bytes", 1090), Names{});
  EXPECT_EQ(worse("sgpr", 90), Names{});
  // A figure that cannot be had any more does not pass.
  EXPECT_EQ(worse("vgpr_spill", nullptr), Names{"VGPR spills"});
}

TEST(Gate, KernelsThatAreNewOrGoneAreSaid) {
  const Json g = check(document({kernel("a"), kernel("new")}), make_gate(document({kernel("a"), kernel("gone")})));
  ASSERT_EQ(g["unlisted"].size(), 1u);
  EXPECT_EQ(g["unlisted"][0]["symbol"], "new");
  ASSERT_EQ(g["vanished"].size(), 1u);
  EXPECT_EQ(g["vanished"][0]["kernel"], "gone");
  EXPECT_TRUE(g["worse"].empty());
}

TEST(Gate, RowsMayBePatterns) {
  const Json budget = {
      {"schema", "pyflame.inspect.gate/1"},
      {"kernels", {{{"kernel", "attn_*_fwd"}, {"vgpr", 60}}, {{"kernel", "*"}, {"gfx", "gfx1100"}, {"vgpr", 64}}}}};
  const Json g = check(document({kernel("attn_128_fwd"), kernel("other", "gfx1100"), kernel("other")}), budget);
  EXPECT_EQ(g["checked"], 2);
  EXPECT_EQ(g["unlisted"].size(), 1u);
  ASSERT_EQ(g["worse"].size(), 1u);
  EXPECT_EQ(g["worse"][0]["symbol"], "attn_128_fwd");
}

TEST(Gate, WhatIsNoBudgetIsAnError) {
  const Json d = document({kernel("a")});
  const auto message = [&](const std::string& text) {
    try {
      check_gate(d, text, "budget.json");
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_NE(message("").find("is not a budget"), std::string::npos);
  EXPECT_NE(message("[1,2]").find("is not a budget"), std::string::npos);
  EXPECT_NE(message(R"({"schema":"pyflame.inspect.gate/1","kernels":[{"vgpr":1}]})").find("names no kernel"),
            std::string::npos);
  EXPECT_NE(message(R"({"schema":"pyflame.inspect.gate/1","kernels":[{"kernel":"a","vgpr":"many"}]})")
                .find("is not a whole number"),
            std::string::npos);
  EXPECT_NE(message(R"({"schema":"pyflame.inspect.gate/1","kernels":[{"kernel":"a","gfx":7}]})").find("is not a text"),
            std::string::npos);
  EXPECT_NE(message(R"({"schema":"pyflame.inspect.gate/1","kernels":[{"kernel":"z"}]})").find("nothing was compared"),
            std::string::npos);
}

}  // namespace
}  // namespace pyflame::tools::inspect
