// Occupancy: agreement with LLVM's recorded figures, the rules where the hardware differs from them, next steps, refusals.
#include "tools/inspect/occupancy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "pyflame/base/error.h"
#include "support/source_dir.h"

namespace pyflame::tools::inspect {
namespace {

const GpuArch& arch(std::string_view name) {
  const GpuArch* a = find_gpu_arch(name);
  EXPECT_NE(a, nullptr) << name;
  return *a;
}

Occupancy of(std::string_view gfx, int vgpr, int64_t lds = 0, int block = 256, int wave = 0, bool wgp_mode = true) {
  KernelResources k;
  k.vgpr = vgpr, k.lds = lds, k.block = block, k.wave = wave, k.wgp_mode = wgp_mode;
  return occupancy(arch(gfx), k);
}

const Limit* limit(const Occupancy& o, Resource r) {
  const auto at = std::find_if(o.limits.begin(), o.limits.end(), [&](const Limit& l) { return l.resource == r; });
  return at == o.limits.end() ? nullptr : &*at;
}

TEST(Occupancy, AgreesWithWhatLlvmPrints) {
  std::ifstream file(pyflame::test::file_of_project("tests/inspect/llvm_occupancy.txt"));
  std::string line;
  std::set<std::string> targets;
  int rows = 0;
  while (std::getline(file, line)) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream in(line);
    std::string gfx, mode;
    KernelResources k;
    int expected = 0;
    in >> gfx >> k.wave >> mode >> k.block >> k.vgpr >> k.agpr >> k.sgpr >> k.lds >> expected;
    ASSERT_FALSE(in.fail()) << line;
    k.wgp_mode = mode == "WGP";
    const Occupancy o = occupancy(arch(gfx), k);
    ASSERT_EQ(o.compiler_waves, expected) << line;
    // The hardware's figure differs only by whole workgroups and LDS granules, and is never above the compiler's.
    ASSERT_LE(o.waves_per_simd, expected) << line;
    const bool alike = o.waves_per_workgroup == 1 && o.allocated_lds == k.lds;
    ASSERT_TRUE(!alike || o.waves_per_simd == expected) << line;
    targets.insert(gfx);
    ++rows;
  }
  EXPECT_GT(rows, 2000);
  for (const GpuArch& a : gpu_archs())
    EXPECT_TRUE(!a.amd || a.gfx == "gfx940" || a.gfx == "gfx941" || targets.count(std::string(a.gfx)) == 1) << a.gfx;
}

TEST(Occupancy, Registers) {
  struct Case {
    const char* gfx;
    int vgpr, waves;
  };
  for (const Case& c : std::vector<Case>{{"gfx942", 128, 4},
                                         {"gfx942", 129, 3},
                                         {"gfx942", 168, 3},
                                         {"gfx942", 169, 2},
                                         {"gfx942", 257, 1},
                                         {"gfx906", 24, 10},
                                         {"gfx906", 25, 9},
                                         {"gfx1100", 96, 16},
                                         {"gfx1100", 97, 12},
                                         {"gfx1100", 144, 10},
                                         {"gfx1100", 256, 5},
                                         {"gfx1030", 64, 16},
                                         {"gfx1030", 65, 12},
                                         {"gfx1030", 256, 4},
                                         {"gfx1250", 512, 2},
                                         {"gfx1250", 1024, 1}})
    EXPECT_EQ(of(c.gfx, c.vgpr, 0, arch(c.gfx).default_wave).waves_per_simd, c.waves) << c.gfx << " " << c.vgpr;
  EXPECT_EQ(of("gfx1100", 128, 0, 128, 32).waves_per_simd, 10);
  EXPECT_EQ(of("gfx1100", 128, 0, 128, 64).waves_per_simd, 5) << "wave64 has half the registers";
}

TEST(Occupancy, AccumulationRegisters) {
  KernelResources k;
  k.vgpr = 32, k.agpr = 128;
  EXPECT_EQ(occupancy(arch("gfx908"), k).allocated_vgpr, 128) << "as many as VGPRs, beside them";
  k.vgpr = 160;
  EXPECT_EQ(occupancy(arch("gfx90a"), k).waves_per_simd, 3) << "counted in the VGPRs";
}

TEST(Occupancy, LdsIsAllocatedInGranules) {
  // Ten workgroups of 12,900 bytes each would fit into 131,072 bytes; of 13 KiB only nine do.
  const Occupancy o = of("gfx1100", 32, 12900, 128);
  EXPECT_EQ(o.allocated_lds, 13 * 1024);
  EXPECT_EQ(limit(o, Resource::lds)->workgroups, 9);
  EXPECT_EQ(o.compiler_waves, 10);
  EXPECT_EQ(o.waves_per_simd, 9);
  EXPECT_EQ(of("gfx950", 32, 40961).allocated_lds, 33 * 1280);
  EXPECT_EQ(limit(of("gfx950", 32, 163840), Resource::lds)->workgroups, 1);
  EXPECT_EQ(limit(of("gfx942", 32, 0), Resource::lds), nullptr);
}

TEST(Occupancy, DynamicLdsCountsOnTop) {
  KernelResources k;
  k.lds = 16384, k.dynamic_lds = 16384;
  const Occupancy o = occupancy(arch("gfx942"), k);
  EXPECT_EQ(limit(o, Resource::lds)->workgroups, 2);
  EXPECT_EQ(o.compiler_waves, 4) << "the compiler does not know of it";
}

TEST(Occupancy, WgpModeHasTwiceOfEverything) {
  const Occupancy wgp = of("gfx1100", 96, 40000), cu = of("gfx1100", 96, 40000, 256, 32, false);
  EXPECT_EQ(wgp.simds, 4);
  EXPECT_EQ(cu.simds, 2);
  EXPECT_EQ(limit(wgp, Resource::lds)->workgroups, 3);
  EXPECT_EQ(limit(cu, Resource::lds)->workgroups, 1);
  EXPECT_EQ(limit(wgp, Resource::barriers)->workgroups, 32);
  EXPECT_EQ(limit(cu, Resource::barriers)->workgroups, 16);
  EXPECT_EQ(limit(of("gfx1100", 96, 0, 32), Resource::barriers), nullptr) << "one wave needs none";
  EXPECT_FALSE(of("gfx942", 96).kernel.wgp_mode);
}

TEST(Occupancy, OnlyWholeWorkgroups) {
  // Four waves per SIMD fit by registers, but only one workgroup of twelve waves is in sixteen slots.
  const Occupancy o = of("gfx942", 128, 0, 768);
  EXPECT_EQ(o.workgroups, 1);
  EXPECT_EQ(o.waves_per_simd, 3);
  EXPECT_EQ(o.compiler_waves, 4);
  EXPECT_DOUBLE_EQ(o.fill, 12.0 / 32);
}

TEST(Occupancy, AWorkgroupThatDoesNotFit) {
  const Occupancy o = of("gfx942", 170, 0, 1024);
  EXPECT_EQ(o.workgroups, 0);
  EXPECT_EQ(o.waves_per_simd, 0);
  EXPECT_EQ(o.limiter, Resource::vgprs);
  ASSERT_TRUE(o.next);
  EXPECT_EQ(o.next->workgroups, 1);
  EXPECT_EQ(o.next->changes[0].to, 128);
}

TEST(Occupancy, PartlyFilledWaves) {
  const Occupancy o = of("gfx942", 32, 0, 100);
  EXPECT_EQ(o.waves_per_workgroup, 2);
  EXPECT_EQ(o.idle_lanes, 28);
  EXPECT_EQ(of("gfx1100", 32, 0, 100, 32).idle_lanes, 28);
  EXPECT_EQ(of("gfx942", 32, 0, 1).waves_per_workgroup, 1);
}

TEST(Occupancy, LimiterAndNextStep) {
  Occupancy o = of("gfx942", 170);
  EXPECT_EQ(o.limiter, Resource::vgprs);
  ASSERT_TRUE(o.next);
  EXPECT_EQ(o.next->waves_per_simd, 3);
  ASSERT_EQ(o.next->changes.size(), 1u);
  EXPECT_EQ(o.next->changes[0].to, 168);

  o = of("gfx942", 170, 20000);  // three workgroups by LDS, two by registers
  EXPECT_EQ(o.limiter, Resource::vgprs);
  EXPECT_EQ(o.next->changes.size(), 1u);
  o = of("gfx942", 129, 20000);  // both three
  ASSERT_TRUE(o.next);
  ASSERT_EQ(o.next->changes.size(), 2u) << "both must shrink";
  EXPECT_EQ(o.next->changes[0].to, 128);
  EXPECT_EQ(o.next->changes[1].to, 16384);

  o = of("gfx942", 64);
  EXPECT_EQ(o.limiter, Resource::waves);
  EXPECT_EQ(o.fill, 1);
  EXPECT_FALSE(o.next);
  EXPECT_EQ(of("gfx906", 24, 0, 128).limiter, Resource::barriers);
  EXPECT_FALSE(of("gfx906", 24, 0, 128).next) << "no registers help against barriers";
}

TEST(Occupancy, ScalarRegistersLimitOldGenerationsOnly) {
  KernelResources k;
  k.sgpr = 102;
  const Occupancy o = occupancy(arch("gfx906"), k);
  EXPECT_EQ(o.limiter, Resource::sgprs);
  EXPECT_EQ(o.waves_per_simd, 7);
  EXPECT_EQ(o.next->changes[0].to, 100);
  EXPECT_EQ(limit(occupancy(arch("gfx1030"), k), Resource::sgprs), nullptr);
}

// What the next step promises is what happens.
TEST(Occupancy, TheNextStepIsReachedByItsChangesAndNotByLess) {
  for (const char* gfx : {"gfx906", "gfx90a", "gfx950", "gfx1030", "gfx1100", "gfx1250"})
    for (const int block : {64, 192, 256, 1024})
      for (int vgpr = 1; vgpr <= 256; vgpr += 5)
        for (const int64_t lds : {0, 9000, 33000}) {
          const Occupancy o = of(gfx, vgpr, lds, block);
          if (!o.next) continue;
          SCOPED_TRACE(std::string(gfx) + " " + std::to_string(block) + " " + std::to_string(vgpr) + " " +
                       std::to_string(lds));
          ASSERT_FALSE(o.next->changes.empty());
          KernelResources k = o.kernel;
          for (const NextStep::Change& c : o.next->changes) {
            ASSERT_LT(c.to, c.from);
            if (c.resource == Resource::vgprs) k.vgpr = static_cast<int>(c.to);
            if (c.resource == Resource::lds) k.lds = c.to;
          }
          const Occupancy then = occupancy(arch(gfx), k);
          ASSERT_EQ(then.workgroups, o.next->workgroups);
          ASSERT_EQ(then.waves_per_simd, o.next->waves_per_simd);
          ASSERT_GT(then.workgroups, o.workgroups);
          for (const NextStep::Change& c : o.next->changes) {
            KernelResources less = k;
            if (c.resource == Resource::vgprs) less.vgpr = static_cast<int>(c.to) + 1;
            if (c.resource == Resource::lds) less.lds = c.to + 1;
            ASSERT_EQ(occupancy(arch(gfx), less).workgroups, o.workgroups) << "a smaller saving is enough";
          }
        }
}

TEST(Occupancy, StepsOfRegisters) {
  const std::vector<VgprStep> steps = vgpr_steps(arch("gfx1100"), 32);
  ASSERT_FALSE(steps.empty());
  EXPECT_EQ(steps.front().waves, 5);
  EXPECT_EQ(steps.front().max_vgprs, 256);
  EXPECT_EQ(steps.back().waves, 16);
  EXPECT_EQ(steps.back().max_vgprs, 96);
  for (const GpuArch& a : gpu_archs()) {
    if (!a.amd) continue;
    for (const int wave : {32, 64}) {
      if (!(wave == 32 ? a.wave32 : a.wave64)) continue;
      int at = 0;
      for (int vgpr = a.addressable_vgprs; vgpr > 0; --vgpr) {
        const std::vector<VgprStep> all = vgpr_steps(a, wave);
        while (at + 1 < static_cast<int>(all.size()) && vgpr <= all[static_cast<size_t>(at) + 1].max_vgprs) ++at;
        ASSERT_EQ(of(a.gfx, vgpr, 0, wave, wave).waves_per_simd, all[static_cast<size_t>(at)].waves)
            << a.gfx << " " << vgpr;
      }
    }
  }
}

TEST(Occupancy, BlockSizes) {
  const std::vector<Occupancy> all = over_block_sizes(arch("gfx1100"), of("gfx1100", 200).kernel);
  ASSERT_EQ(all.size(), 6u);
  EXPECT_EQ(all.front().kernel.block, 32);
  EXPECT_EQ(all.back().kernel.block, 1024);
  EXPECT_EQ(all.back().workgroups, 0) << "32 waves of 216 registers";
}

TEST(Occupancy, TheGuidesFormula) {
  // Steps of 16 instead of 8.
  std::optional<GuideFigure> g = guide_formula(of("gfx942", 168));
  ASSERT_TRUE(g);
  EXPECT_EQ(g->waves_per_simd, 2);
  ASSERT_EQ(g->why_wrong.size(), 1u);
  EXPECT_NE(g->why_wrong[0].find("steps of 8"), std::string::npos);
  // The guide's own example is right.
  EXPECT_TRUE(guide_formula(of("gfx942", 170))->why_wrong.empty());
  // The LDS of gfx950, granules of LDS, SGPRs.
  EXPECT_NE(guide_formula(of("gfx950", 32, 65536))->why_wrong.at(0).find("163840"), std::string::npos);
  EXPECT_NE(guide_formula(of("gfx942", 32, 9300))->why_wrong.at(0).find("in steps of 512"), std::string::npos);
  KernelResources k;
  k.sgpr = 102;
  EXPECT_NE(guide_formula(occupancy(arch("gfx942"), k))->why_wrong.at(0).find("SGPRs"), std::string::npos);
  // It is of 64-wide waves and 512 registers.
  EXPECT_FALSE(guide_formula(of("gfx1100", 168)));
  EXPECT_FALSE(guide_formula(of("gfx906", 168)));
  const auto ranges = guide_wrong_vgprs(arch("gfx942"));
  EXPECT_EQ(ranges, (std::vector<std::pair<int, int>>{{65, 72}, {161, 168}}));
}

TEST(Occupancy, WhereTheGuideIsWrongThereIsAReason) {
  for (const char* gfx : {"gfx90a", "gfx942", "gfx950"})
    for (const int block : {64, 128, 192, 256, 512, 1024})
      for (int vgpr = 1; vgpr <= 256; vgpr += 3)
        for (int64_t lds = 0; lds <= 65536; lds += 1500) {
          const Occupancy o = of(gfx, vgpr, lds, block);
          const GuideFigure g = *guide_formula(o);
          const bool same = g.waves_per_simd * 4 == o.waves;
          ASSERT_EQ(same, g.why_wrong.empty()) << gfx << " " << block << " " << vgpr << " " << lds;
        }
}

TEST(Occupancy, WhatCannotBeIsRefused) {
  const auto message = [](const char* gfx, const KernelResources& k) -> std::string {
    try {
      occupancy(arch(gfx), k);
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::Value);
      return e.what();
    }
    return "accepted";
  };
  KernelResources k;
  EXPECT_EQ(message("gfx942", k), "accepted");
  k = {}, k.block = 1025;
  EXPECT_NE(message("gfx942", k).find("got 1025; expected 1 to 1024"), std::string::npos);
  k = {}, k.vgpr = 257;
  EXPECT_EQ(message("gfx942", k), "accepted");
  EXPECT_NE(message("gfx1100", k).find("got 257; expected 0 to 256"), std::string::npos);
  k = {}, k.vgpr = -1;
  EXPECT_NE(message("gfx942", k).find("got -1"), std::string::npos);
  k = {}, k.lds = INT64_MAX, k.dynamic_lds = INT64_MAX;
  EXPECT_NE(message("gfx942", k).find("cannot have that much LDS"), std::string::npos);
  k = {}, k.wave = 64;
  EXPECT_NE(message("gfx1250", k).find("got 64; expected 32"), std::string::npos);
  k = {}, k.sgpr = 1000;
  EXPECT_NE(message("gfx942", k).find("got 1000"), std::string::npos);
  EXPECT_NE(message("sm_90", {}).find("not an architecture of AMD"), std::string::npos);
}

TEST(Occupancy, Json) {
  const nlohmann::json j = to_json(of("gfx942", 170, 20000));
  EXPECT_EQ(j["limits"]["VGPRs"], 2);
  EXPECT_EQ(j["limits"]["LDS"], 3);
  EXPECT_EQ(j["limiter"], "VGPRs");
  EXPECT_EQ(j["next"]["save"], "2 VGPRs (170 -> 168)");
  EXPECT_EQ(j["next"]["hint"], "__launch_bounds__(256, 3) in HIP, waves_per_eu=3 in Triton");
  EXPECT_EQ(j["blocks"].size(), 5u);
  EXPECT_TRUE(j["wgp_mode"].is_null());
  EXPECT_TRUE(to_json(of("gfx942", 64))["next"].is_null());
}

}  // namespace
}  // namespace pyflame::tools::inspect
