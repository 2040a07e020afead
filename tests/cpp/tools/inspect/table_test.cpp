// The table of a library: which kernel stands first, which rows are one, and names that can be told apart.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "tools/inspect/document.h"
#include "tools/inspect/names.h"
#include "tools/inspect/order.h"
#include "tools/inspect/text.h"

namespace pyflame::tools::inspect {
namespace {

using Json = nlohmann::json;

Json kernel(const std::string& name, const std::string& target, size_t object, const Json& severities = Json::array()) {
  Json findings = Json::array();
  for (const Json& s : severities) findings.push_back({{"id", "some-rule"}, {"severity", s}});
  return {{"name", name},
          {"symbol", name},
          {"target", target},
          {"object", object},
          {"gfx", target},
          {"vgpr", 64},
          {"vgpr_spill", 0},
          {"sgpr_spill", 0},
          {"scratch", 0},
          {"lds", 0},
          {"code_bytes", 1024},
          {"advice", Json::array()},
          {"isa", {{"findings", findings}}}};
}

Json objects(const std::vector<std::string>& paths) {
  Json out = Json::array();
  for (const std::string& p : paths) out.push_back({{"path", p}, {"member", ""}});
  return out;
}

TEST(InspectOrder, AKernelWithAFindingOfHighIsWorst) {
  Json low_occupancy = kernel("a", "gfx942", 0), high = kernel("z", "gfx942", 1, {"HIGH"}),
       med = kernel("m", "gfx942", 2, {"MED", "MED"});
  low_occupancy["occupancy"] = {{"waves_per_simd", 0}, {"max_waves", 8}};
  const Json d = sorted({low_occupancy, med, high}, SortBy::worst);
  EXPECT_EQ(d[0]["name"], "z");
  EXPECT_EQ(d[1]["name"], "m");
  EXPECT_EQ(d[2]["name"], "a");
}

TEST(InspectOrder, ArchitecturesOfOneKernelAreOneGroup) {
  const Json all =
      Json::array({kernel("gemm", "gfx950", 1), kernel("gemm", "gfx942", 0), kernel("other", "gfx942", 0)});
  EXPECT_EQ(groups(all, objects({"gfx942/gemm.co", "gfx950/gemm.co"})), Json::parse("[[0, 1], [2]]"));
  // Another file has a kernel of that name, too.
  EXPECT_EQ(groups(all, objects({"gfx942/gemm.co", "gfx950/gemm_v2.co"})), Json::parse("[[0], [1], [2]]"));
  // A file that has it twice for one target, as templates in two source files.
  const Json twice = Json::array(
      {kernel("t", "gfx942", 0), kernel("t", "gfx942", 1), kernel("t", "gfx950", 2), kernel("t", "gfx950", 3)});
  EXPECT_EQ(groups(twice, objects({"l.so", "l.so", "l.so", "l.so"})), Json::parse("[[0, 2], [1, 3]]"));
}

TEST(InspectNames, DifferentNamesStayDifferent) {
  const std::vector<std::string> names = {"attention_forward_bf16_head128_causal_group_tile_128x64",
                                          "attention_forward_bf16_head128_causal_group_tile_128x128",
                                          "attention_forward_bf16_head128_tile_128x64",
                                          "attention_forward_bf16_head64_causal_group_tile_128x64", "norm"};
  for (const size_t width : {40, 32}) {
    const auto shown = distinct(names, width);
    EXPECT_EQ(std::set<std::string>(shown.begin(), shown.end()).size(), names.size()) << width << " " << shown[0];
    for (const std::string& s : shown) EXPECT_LE(view::width_of(s), static_cast<int>(width)) << s;
    EXPECT_EQ(shown[4], "norm");
  }
  EXPECT_EQ(distinct(names, 100), names);
  EXPECT_EQ(distinct({}, 10), std::vector<std::string>{});
  for (const std::string& s : distinct({"größe_größe_größe_größe", "größe_größe_größe_größe_2", ""}, 9))
    EXPECT_LE(view::width_of(s), 9);
}

Json document(const Json& kernels, const Json& files) {
  return {{"kernels", kernels},
          {"objects", files},
          {"groups", groups(kernels, files)},
          {"missing", Json::array()},
          {"problems", Json::array()},
          {"summary",
           {{"kernels", kernels.size()},
            {"kernels_found", kernels.size()},
            {"objects", files.size()},
            {"files", files.size()},
            {"targets", Json::object()},
            {"by_severity", Json::object()},
            {"others", Json::object()}}}};
}

TEST(InspectText, RowsAreFoldedAndToldApart) {
  const std::string stem = "matrix_product_bf16_with_scales_of_tiles_and_a_long_name_that_is_the_same_for_all_of_them_";
  Json kernels = Json::array();
  for (size_t i = 0; i < 6; ++i) kernels.push_back(kernel(stem + std::to_string(16 << i), "gfx942", 2 * i));
  for (size_t i = 0; i < 6; ++i) kernels.push_back(kernel(stem + std::to_string(16 << i), "gfx950", 2 * i + 1));
  kernels.push_back(kernel("same", "gfx942", 12));
  kernels.push_back(kernel("same", "gfx942", 13));
  Json files = Json::array();
  for (size_t i = 0; i < 12; ++i)
    files.push_back({{"path", fmt::format("{}/m{}.co", i % 2 ? "gfx950" : "gfx942", i / 2)}, {"member", ""}});
  files.push_back({{"path", "first.co"}, {"member", ""}});
  files.push_back({{"path", "second.co"}, {"member", ""}});
  const std::string text = document_text(document(kernels, files), view::Style{}, TextOptions{});
  for (size_t i = 0; i < 6; ++i)
    EXPECT_NE(text.find(std::to_string(16 << i) + "  gfx942 +1"), std::string::npos) << text;
  EXPECT_NE(text.find("same in first.co"), std::string::npos) << text;
  EXPECT_NE(text.find("same in second.co"), std::string::npos) << text;
  EXPECT_NE(text.find("14 kernels in 14 code objects of 14 files, 8 without those that differ by"), std::string::npos)
      << text;
  EXPECT_EQ(text.find("spills"), text.find("spills VGPRs")) << "an empty column takes room:\n" << text;
  // Of one kernel alone, each architecture is a row.
  const std::string one = document_text(
      document(Json::array({kernel("k", "gfx942", 0), kernel("k", "gfx950", 1)}), objects({"a/k", "b/k"})),
      view::Style{}, TextOptions{});
  EXPECT_NE(one.find("gfx942"), std::string::npos);
  EXPECT_NE(one.find("gfx950"), std::string::npos) << one;
}

Json one_kernel(const Kernel& k, int block = 0, const Json& isa = nullptr) {
  Scan scan;
  scan.objects.push_back({"k.co", "", "elf", "gfx1250", "gfx1250", 6, 1000, 1, {}});
  ScannedKernel scanned{k, "k", 0, 100, nullptr};
  if (!isa.is_null()) scanned.isa = std::make_shared<const Json>(isa);
  scan.kernels.push_back(scanned);
  return document(scan, {SortBy::worst, block, 0, {}, 0});
}

TEST(InspectDocument, AWorkgroupThatDoesNotFitIsNotAssumed) {
  // Hand-written: the assembler's default of 1024 threads stands in the file, but four waves fill the registers.
  Kernel k;
  k.symbol = "k";
  k.wave = 32, k.vgpr = 1024, k.sgpr = 100, k.lds = 0, k.max_workgroup = 1024;
  const Json d = one_kernel(k);
  const Json& o = d["kernels"][0]["occupancy"];
  EXPECT_GT(o["waves_per_simd"].get<int>(), 0);
  EXPECT_LT(o["block"].get<int>(), 256);
  EXPECT_EQ(o["block_from"], "assumed");
  EXPECT_NE(document_text(d, view::Style{}, {}).find("256 do not fit"), std::string::npos);
  // Who asks for 256 is told that they do not fit, and so is a kernel that requires them.
  EXPECT_EQ(one_kernel(k, 256)["kernels"][0]["occupancy"]["waves_per_simd"], 0);
  k.required_workgroup = {256, 1, 1};
  EXPECT_EQ(one_kernel(k)["kernels"][0]["occupancy"]["waves_per_simd"], 0);
  EXPECT_EQ(one_kernel(k)["kernels"][0]["occupancy"]["block_from"], "required");
}

TEST(InspectDocument, AWaitIsWorseWhereFewWavesFit) {
  const Json isa = {{"mix", Json::object()},
                    {"findings",
                     {{{"id", "full-vmcnt-wait"}, {"severity", "MED"}, {"what", "It waits."}},
                      {{"id", "function-call"}, {"severity", "MED"}, {"what", "It calls."}}}}};
  Kernel k;
  k.symbol = "k";
  k.wave = 32, k.vgpr = 32, k.max_workgroup = 256;
  const Json many = one_kernel(k, 0, isa)["kernels"][0]["isa"]["findings"];
  EXPECT_EQ(many[0]["id"], "function-call");
  EXPECT_EQ(many[1]["severity"], "LOW");
  EXPECT_NE(many[1]["what"].get<std::string>().find("waves fit on a SIMD"), std::string::npos);
  k.vgpr = 512;
  EXPECT_EQ(one_kernel(k, 0, isa)["kernels"][0]["isa"]["findings"][0]["severity"], "MED");
}

}  // namespace
}  // namespace pyflame::tools::inspect
