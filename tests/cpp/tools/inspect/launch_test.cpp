// Launches: rounds, tails, XCDs and the advice that follows from them.
#include "tools/inspect/launch.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "pyflame/base/error.h"

namespace pyflame::tools::inspect {
namespace {

Occupancy kernel(std::string_view gfx, int vgpr, int block = 256) {
  KernelResources k;
  k.vgpr = vgpr, k.block = block;
  return occupancy(*find_gpu_arch(gfx), k);
}

Launch launch(std::string_view gfx, int vgpr, std::array<int64_t, 3> grid, int block = 256, int cus = 0) {
  const Occupancy o = kernel(gfx, vgpr, block);
  return analyse_launch(o, machine_of(*o.arch, cus), grid);
}

bool says(const Launch& l, std::string_view text) {
  for (const Finding& a : l.findings)
    if (a.what.find(text) != std::string::npos || a.why.find(text) != std::string::npos) return true;
  return false;
}

TEST(Launch, RoundsAndTail) {
  const Launch l = launch("gfx942", 128, {304 * 4 * 2 + 304, 1, 1});  // four workgroups per CU at once
  EXPECT_EQ(l.at_once, 304 * 4);
  EXPECT_EQ(l.rounds, 3);
  EXPECT_EQ(l.tail, 304);
  EXPECT_DOUBLE_EQ(l.fill, 1);
  EXPECT_DOUBLE_EQ(l.tail_fill, 0.25);
  EXPECT_DOUBLE_EQ(l.balance, 1) << "nine on each CU";
  EXPECT_DOUBLE_EQ(l.waves_per_simd, 4);
  EXPECT_TRUE(says(l, "The last of 3 rounds fills 25 %"));
}

TEST(Launch, AFullMachineNeedsNoAdvice) {
  const Launch l = launch("gfx942", 128, {304, 8, 1});
  EXPECT_EQ(l.rounds, 2);
  EXPECT_EQ(l.tail, l.at_once);
  EXPECT_DOUBLE_EQ(l.tail_fill, 1);
  EXPECT_TRUE(l.findings.empty());
}

TEST(Launch, FewerWorkgroupsThanUnits) {
  const Launch l = launch("gfx942", 128, {10, 10, 1});
  EXPECT_EQ(l.busy_units, 100);
  EXPECT_TRUE(says(l, "204 of 304 CUs have no workgroup"));
  EXPECT_EQ(l.findings[0].severity, Severity::high);
  EXPECT_TRUE(says(l, "at least 1024"));
}

TEST(Launch, TheGuidesThousandWorkgroupsAreForLargeMachines) {
  EXPECT_TRUE(says(launch("gfx942", 64, {1023, 1, 1}), "at least 1024"));
  EXPECT_FALSE(says(launch("gfx942", 64, {1024, 1, 1}), "at least 1024"));
  EXPECT_TRUE(says(launch("gfx950", 64, {512, 1, 1}), "at least 1024"));
  EXPECT_FALSE(says(launch("gfx1100", 64, {480, 1, 1}), "at least 1024"));
}

TEST(Launch, UnevenUnits) {
  const Launch l = launch("gfx90a", 64, {165, 1, 1});  // 110 CUs: 55 have two
  EXPECT_EQ(l.unit_most, 2);
  EXPECT_DOUBLE_EQ(l.balance, 0.75);
  EXPECT_TRUE(says(l, "The fullest CU runs 2 workgroups, the mean is 1.50"));
}

TEST(Launch, XcdsGetTheirTurns) {
  const Launch l = launch("gfx942", 64, {12, 1, 1});
  EXPECT_EQ(l.xcd_most, 2);
  EXPECT_EQ(l.xcd_least, 1);
  EXPECT_TRUE(says(l, "not a multiple of the 8 XCDs"));
  EXPECT_FALSE(says(launch("gfx942", 64, {16, 1, 1}), "XCDs:"));
  EXPECT_FALSE(says(launch("gfx942", 64, {8001, 1, 1}), "XCDs:")) << "one of a thousand does not matter";
}

TEST(Launch, WgpModeCountsWgps) {
  const Launch l = launch("gfx1100", 96, {100, 1, 1});
  EXPECT_EQ(l.units, 48);
  EXPECT_TRUE(l.wgps);
  EXPECT_EQ(to_json(l)["unit"], "WGP");
}

TEST(Launch, LanesWithoutWork) {
  const Launch l = launch("gfx942", 64, {304, 8, 1}, 65);
  EXPECT_DOUBLE_EQ(l.idle_lanes, 63.0 / 128);
  EXPECT_TRUE(says(l, "65 threads are not a multiple of the wave: 63 of 128 lanes"));
  EXPECT_EQ(l.findings.back().severity, Severity::high);
}

TEST(Launch, MachinesAndPartitions) {
  const GpuArch& gfx942 = *find_gpu_arch("gfx942");
  EXPECT_EQ(machine_of(gfx942).name, "AMD Instinct MI300X");
  EXPECT_EQ(machine_of(gfx942, 228).xccs, 6);
  EXPECT_EQ(machine_of(gfx942, 38).xccs, 1) << "one XCD of a partitioned MI300X";
  EXPECT_EQ(machine_of(gfx942, 152).xccs, 4);
  EXPECT_TRUE(machine_of(gfx942, 38).name.empty());
  EXPECT_EQ(machine_of(*find_gpu_arch("gfx1153"), 4).cus, 4);
  EXPECT_THROW(machine_of(*find_gpu_arch("gfx1153")), Error);
  EXPECT_THROW(machine_of(gfx942, -1), Error);
}

TEST(Launch, GridsThatCannotBe) {
  for (const std::array<int64_t, 3>& grid : std::vector<std::array<int64_t, 3>>{{0, 1, 1},
                                                                                {1, -1, 1},
                                                                                {int64_t{1} << 31, 1, 1},
                                                                                {1 << 30, 1 << 30, 1 << 30},
                                                                                {INT64_MAX, INT64_MAX, INT64_MAX}})
    EXPECT_THROW(launch("gfx942", 64, grid), Error) << grid[0];
  EXPECT_THROW(launch("gfx942", 256, {1, 1, 1}, 1024), Error) << "does not fit";
  EXPECT_EQ(launch("gfx942", 64, {1 << 30, 1 << 10, 1}).workgroups, int64_t{1} << 40);
}

TEST(Launch, Json) {
  const nlohmann::json j = to_json(launch("gfx942", 128, {400, 1, 1}));
  EXPECT_EQ(j["grid"], nlohmann::json({400, 1, 1}));
  EXPECT_EQ(j["machine"]["xccs"], 8);
  EXPECT_EQ(j["advice"].size(), 2u);
  for (const char* key : {"severity", "what", "why", "fix"}) EXPECT_TRUE(j["advice"][0].contains(key));
  EXPECT_TRUE(to_json(launch("gfx942", 128, {400, 1, 1}, 256, 100))["machine"]["name"].is_null());
}

}  // namespace
}  // namespace pyflame::tools::inspect
