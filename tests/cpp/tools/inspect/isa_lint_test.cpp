// Each lint on a program that has the fault, and on one that comes near it but does not.
#include <gtest/gtest.h>

#include <set>

#include "tools/inspect/isa_program.h"

namespace pyflame::tools::inspect {
namespace {

struct RuleCase {
  std::string id, gfx, faulty, sound;
};

std::string vector_product(int sums, bool polynomial) {
  std::string body = "ds_read_b128 v[100:103], v99\n";
  for (int i = 0; i < sums; ++i)
    body += polynomial ? fmt::format("v_pk_fma_f16 v{}, v{}, v100, v101\n", i, i)
                       : fmt::format("v_pk_fma_f16 v{}, v100, v101, v{}\n", i, i);
  return looped(body);
}

std::vector<RuleCase> cases() {
  const std::string load4 =
      "global_load_dword v1, v[10:11], off\nglobal_load_dword v2, v[10:11], off offset:4\n"
      "global_load_dword v3, v[10:11], off offset:8\nglobal_load_dword v4, v[10:11], off offset:12\n";
  return {
      {"narrow-global-load", "gfx942", looped(load4),
       // The base changes in between, so that nobody knows whether they are neighbours.
       looped("global_load_dword v1, v[10:11], off\nv_add_u32_e32 v10, 64, v10\nglobal_load_dword v2, v[10:11], off "
              "offset:4")},
      {"narrow-global-store", "gfx1100",
       looped("global_store_b32 v1, v2, s[2:3]\nglobal_store_b32 v1, v3, s[2:3] offset:4\n"
              "global_store_b64 v1, v[4:5], s[2:3] offset:8"),
       looped("global_store_b32 v1, v2, s[2:3]\nglobal_store_b32 v1, v3, s[2:3] offset:256")},
      {"small-global-access", "gfx90a", looped("global_load_ushort v1, v[10:11], off"),
       looped("global_load_dwordx4 v[0:3], v[10:11], off\nglobal_load_dword v4, v[12:13], off")},
      {"flat-access", "gfx942", looped("flat_load_dwordx4 v[0:3], v[10:11]"),
       looped("global_load_dwordx4 v[0:3], v[10:11], off")},
      {"scratch-in-loop", "gfx1100", looped("scratch_load_b32 v1, off, off offset:16"),
       "scratch_load_b32 v1, off, off offset:16\n" + looped("v_add_f32_e32 v0, v0, v1")},
      {"sgpr-spill-in-loop", "gfx90a", "v_writelane_b32 v40, s5, 1\n" + looped("v_readlane_b32 s5, v40, 1"),
       looped("v_readlane_b32 s5, v40, 1")},
      {"atomic-in-loop", "gfx942", looped("global_atomic_add_f32 v1, v2, s[2:3]"),
       // A sum that is scattered over many addresses.
       looped("v_add_u32_e32 v1, 64, v1\nglobal_atomic_add_f32 v1, v2, s[2:3]")},
      {"lds-atomic-in-loop", "gfx942", looped("ds_add_f32 v1, v2"), looped("ds_write_b128 v1, v[4:7]")},
      {"cas-loop", "gfx90a",
       looped("v_add_f32_e32 v4, v5, v6\nglobal_atomic_cmpswap v1, v2, v[4:5], s[2:3] glc\ns_waitcnt vmcnt(0)\n"
              "v_cmp_eq_u32_e32 vcc, v1, v5\nv_mov_b32_e32 v5, v1"),
       // In the loop of a persistent kernel, one lane claims something once a pass.
       looped("global_load_dword v7, v2, s[2:3] glc\ns_waitcnt vmcnt(0)\nv_mov_b32_e32 v4, s5\nv_mov_b32_e32 v5, v7\n"
              "global_atomic_cmpswap v7, v2, v[4:5], s[2:3] glc\nv_add_f32_e32 v8, v8, v9")},
      {"waterfall-loop", "gfx1030",
       looped("v_readfirstlane_b32 s4, v0\nv_cmp_eq_u32_e32 vcc_lo, s4, v0\ns_and_saveexec_b32 s5, "
              "vcc_lo\nbuffer_load_dword v1, v2, "
              "s[4:7], 0 offen\ns_xor_b32 exec_lo, exec_lo, s5"),
       // The value is uniform, and the comparison is another one.
       looped("v_readfirstlane_b32 s4, v0\nv_cmp_eq_u32_e32 vcc_lo, 0, v3\ns_and_saveexec_b32 s5, vcc_lo\n"
              "buffer_load_dword v1, v2, s[4:7], 0 offen")},
      {"narrow-lds-access", "gfx942",
       looped("ds_read_b32 v1, v9\nds_read_b32 v2, v9 offset:4\nds_read_b32 v3, v9 offset:8\nds_read_b32 v4, v9 "
              "offset:12"),
       looped("ds_read_b128 v[0:3], v9\nds_read_b128 v[4:7], v9 offset:16")},
      {"small-lds-access", "gfx942", looped("ds_read_b32 v1, v9\nds_read_b32 v2, v9 offset:512"),
       looped("ds_read_b64_tr_b16 v[0:1], v9")},
      {"double-lds-conversion", "gfx942",
       looped("ds_write_b128 v20, v[0:3]\ns_barrier\nds_read_b128 v[4:7], v21\nv_mul_f32_e32 v4, 2.0, "
              "v4\nds_write_b128 v22, "
              "v[4:7]\ns_barrier\nds_read_b128 v[8:11], v23"),
       // A reduction in LDS joins two different reads: that is no change of layout.
       looped("ds_write_b32 v20, v0\ns_barrier\nds_read_b32 v4, v21\nds_read_b32 v5, v20\nv_add_f32_e32 v4, v4, "
              "v5\nds_write_b32 v20, "
              "v4\ns_barrier\nds_read_b32 v8, v21")},
      {"full-vmcnt-wait", "gfx942",
       looped("global_load_dwordx4 v[0:3], v[10:11], off\nv_add_u32_e32 v10, 16, v10\ns_waitcnt vmcnt(0)"),
       // Loaded in the pass before: the wait comes before the load.
       looped("s_waitcnt vmcnt(0)\nv_mov_b32_e32 v4, v0\nglobal_load_dwordx4 v[0:3], v[10:11], off")},
      {"full-lgkmcnt-wait", "gfx1201", looped("ds_load_b128 v[0:3], v9\ns_wait_dscnt 0x0"),
       looped("ds_load_b128 v[0:3], v9\ns_wait_dscnt 0x1")},
      {"scalar-load-in-loop", "gfx1100", looped("s_load_b32 s4, s[2:3], 0x10\ns_waitcnt lgkmcnt(0)"),
       "s_load_b32 s4, s[2:3], 0x10\ns_waitcnt lgkmcnt(0)\n" + looped("s_add_i32 s0, s0, s4")},
      {"store-wait-in-loop", "gfx1100", looped("global_store_b128 v1, v[4:7], s[2:3]\ns_waitcnt_vscnt null, 0x0"),
       looped("global_store_b128 v1, v[4:7], s[2:3]")},
      {"barriers-in-loop", "gfx942", looped("s_barrier\nv_nop\ns_barrier"), looped("s_barrier")},
      {"no-matrix-instructions", "gfx1100", vector_product(16, false), vector_product(16, true)},
      {"low-matrix-share", "gfx942",
       looped("v_mfma_f32_16x16x16_f16 a[0:3], v[0:1], v[2:3], a[0:3]\n" + repeated(20, "v_add_u32_e32 v9, 1, v9")),
       looped(repeated(8, "v_mfma_f32_32x32x8_f16 a[0:15], v[0:1], v[2:3], a[0:15]") +
              repeated(20, "v_add_u32_e32 v9, 1, v9"))},
      {"matrix-result-stall", "gfx942",
       looped("v_mfma_f32_32x32x8_f16 v[0:15], v[40:41], v[42:43], 0\nv_exp_f32_e32 v0, v0"),
       looped("v_mfma_f32_32x32x8_f16 v[0:15], v[40:41], v[42:43], v[0:15]\nv_mfma_f32_32x32x8_f16 v[0:15], v[40:41], "
              "v[42:43], v[0:15]")},
      {"nop-padding", "gfx90a", looped("v_add_f32_e32 v0, v0, v1\ns_nop 7"),
       looped(repeated(40, "v_add_f32_e32 v0, v0, v1") + "s_nop 0")},
      {"accvgpr-traffic", "gfx90a", looped(repeated(6, "v_accvgpr_read_b32 v1, a1\nv_accvgpr_write_b32 a1, v1")),
       looped(repeated(200, "v_add_f32_e32 v0, v0, v1") + repeated(4, "v_accvgpr_read_b32 v1, a1"))},
      {"unpacked-f16", "gfx942", looped(repeated(8, "v_mul_f16_e32 v0, v1, v2")),
       looped(repeated(8, "v_pk_mul_f16 v0, v1, v2"))},
      {"unpacked-f32", "gfx942", looped(repeated(16, "v_fma_f32 v0, v1, v2, v3")),
       looped(repeated(16, "v_pk_fma_f32 v[0:1], v[2:3], v[4:5], v[6:7]"))},
      {"division-in-loop", "gfx942", looped("v_div_scale_f32 v0, vcc, v1, v1, v2\nv_div_scale_f32 v3, vcc, v1, v1, v2"),
       looped("v_rcp_f32_e32 v0, v1")},
      {"integer-division-in-loop", "gfx942", looped("v_rcp_iflag_f32_e32 v0, v1"),
       "v_rcp_iflag_f32_e32 v0, v1\n" + looped("v_mul_hi_u32 v2, v0, v1")},
      {"f64-conversion", "gfx1100", "v_cvt_f64_f32_e32 v[0:1], v2\nv_cvt_f32_f64_e32 v2, v[0:1]\ns_endpgm\n",
       "v_cvt_f64_f32_e32 v[0:1], v2\nglobal_store_b64 v4, v[0:1], s[2:3]\ns_endpgm\n"},
      {"loop-exceeds-instruction-cache", "gfx942", looped(repeated(17000, "v_add_f32_e32 v0, v0, v1")),
       looped(repeated(15000, "v_add_f32_e32 v0, v0, v1"))},
      {"dynamic-register-index", "gfx1100", looped("v_movrels_b32_e32 v0, v4"), "v_movrels_b32_e32 v0, v4\ns_endpgm\n"},
      {"function-call", "gfx942", "s_swappc_b64 s[30:31], s[4:5]\ns_endpgm\n", "s_setpc_b64 s[30:31]\n"},
  };
}

TEST(IsaLint, EachFiresWhereItShould) {
  for (const RuleCase& c : cases()) {
    const Program p(c.gfx, c.faulty);
    const IsaFinding* f = p.find(c.id);
    ASSERT_TRUE(f) << c.id << " did not fire; found: " << p.names();
    EXPECT_GE(f->count, 1u) << c.id;
    EXPECT_FALSE(f->what.empty()) << c.id;
    EXPECT_FALSE(f->what[0] >= 'a' && f->what[0] <= 'z') << c.id << ": " << f->what;
    EXPECT_EQ(f->addresses.at(0), f->address) << c.id;
    EXPECT_GE(f->address, 0x1000u);
  }
}

TEST(IsaLint, NoneFiresWhereItShouldNot) {
  for (const RuleCase& c : cases()) {
    const Program p(c.gfx, c.sound);
    EXPECT_FALSE(p.find(c.id)) << c.id << ": " << (p.find(c.id) ? p.find(c.id)->what : "");
  }
}

TEST(IsaLint, EachIsTestedAndStandsOnceInTheTable) {
  std::set<std::string> tested, listed;
  for (const RuleCase& c : cases()) tested.insert(c.id);
  for (const RuleText& rule : isa_lints()) {
    EXPECT_TRUE(listed.insert(rule.id).second) << rule.id;
    EXPECT_TRUE(rule.severity != Severity::crit) << rule.id;
    EXPECT_FALSE(rule.title.empty()) << rule.id;
    EXPECT_GT(rule.why.size(), 40u) << rule.id;
    ASSERT_FALSE(rule.fixes.empty()) << rule.id;
    EXPECT_GT(rule.fixes[0].text.size(), 20u) << rule.id;
  }
  EXPECT_EQ(tested, listed);
}

TEST(IsaLint, WorstPlaceIsNamedAndAllAreCounted) {
  const Program p("gfx942",
                  "s_mov_b32 s0, 0\nouter:\nflat_load_dword v1, v[2:3]\ninner:\nflat_load_dword v1, "
                  "v[2:3]\nflat_load_dword v1, v[2:3]\n"
                  "s_cbranch_scc1 inner\ns_cbranch_scc0 outer\nflat_store_dword v[2:3], v1\ns_endpgm\n");
  const IsaFinding* f = p.find("flat-access");
  ASSERT_TRUE(f);
  EXPECT_EQ(f->count, 3u);  // the store behind the loops runs once
  EXPECT_EQ(f->address, 0x1008u);
  EXPECT_EQ(p.flow.loops[static_cast<size_t>(f->loop)].depth, 2);
  EXPECT_NE(f->what.find("The same in 1 other place."), std::string::npos) << f->what;
}

TEST(IsaLint, FindingsAreSortedBySeverity) {
  const Program p("gfx942",
                  looped("s_barrier\nscratch_load_dword v1, off, off\ns_barrier\nflat_load_dwordx4 v[0:3], v[4:5]"));
  std::string order;
  for (const IsaFinding& f : p.findings) order += name_of(f.severity)[0];
  EXPECT_EQ(order, "HMI") << p.names();
}

TEST(IsaLint, WidthOfStraightCodeCountsWhereThereIsNoLoop) {
  EXPECT_TRUE(Program("gfx942", "global_load_ushort v1, v[2:3], off\ns_endpgm\n").find("small-global-access"));
  EXPECT_FALSE(Program("gfx942", "global_load_ushort v1, v[2:3], off\n" + looped("v_add_f32_e32 v0, v0, v1"))
                   .find("small-global-access"));
}

TEST(IsaLint, WhatAWaitWaitsForIsNamed) {
  const Program p("gfx90a", looped("global_load_dwordx4 v[0:3], v[8:9], off\nglobal_load_dwordx4 v[4:7], v[8:9], off "
                                   "offset:16\nv_add_u32_e32 v8, 1, v8\ns_waitcnt vmcnt(0) lgkmcnt(0)"));
  const IsaFinding* f = p.find("full-vmcnt-wait");
  ASSERT_TRUE(f);
  EXPECT_NE(f->what.find("2 are in flight; between the first, global_load_dwordx4 at 0x1004, and the wait is other "
                         "work of about 4 cycles."),
            std::string::npos)
      << f->what;
  // Enough work in between.
  EXPECT_FALSE(Program("gfx90a", looped("global_load_dwordx4 v[0:3], v[8:9], off\n" +
                                        repeated(32, "v_add_f32_e32 v9, v9, v9") + "s_waitcnt vmcnt(0)"))
                   .find("full-vmcnt-wait"));
}

TEST(IsaLint, AWaitBehindTheWorkOfTheLoopIsNone) {
  // The loads are spread over the products, as in a loop with two buffers: only the last one is close to the wait.
  std::string body;
  for (int i = 0; i < 8; ++i)
    body +=
        "v_mfma_f32_32x32x8_f16 a[0:15], v[0:1], v[2:3], a[0:15]\nbuffer_load_dwordx4 v[8:11], v7, s[4:7], 0 offen\n";
  EXPECT_FALSE(Program("gfx942", looped(body + "s_waitcnt vmcnt(0)")).find("full-vmcnt-wait"));
  // A loop that asks one address until another workgroup has written there.
  EXPECT_FALSE(Program("gfx942", looped("v_mov_b32_e32 v2, s9\nglobal_load_dword v1, v2, s[2:3] sc0 sc1\n"
                                        "s_waitcnt vmcnt(0)\nv_cmp_eq_u32_e32 vcc, v1, v3"))
                   .find("full-vmcnt-wait"));
}

TEST(IsaLint, AProductWithStatisticsFromLdsIsNoSecondChangeOfLayout) {
  // As in the backward pass of attention: what is written the second time is a matrix result.
  EXPECT_FALSE(
      Program("gfx942", looped("ds_write_b64 v20, v[0:1]\ns_barrier\nds_read_b32 v4, v21\n"
                               "v_mfma_f32_16x16x16_f16 v[8:11], v[12:13], v[14:15], 0\nv_sub_f32_e32 v8, v8, v4\n"
                               "ds_write_b32 v22, v8\ns_barrier\nds_read_b32 v30, v23"))
          .find("double-lds-conversion"));
}

TEST(IsaLint, ASumOverLanesThroughLdsIsNoChangeOfLayout) {
  EXPECT_FALSE(Program("gfx1030", looped("ds_write_b32 v20, v1\nds_read_b32 v4, v21\nv_add_f32_e32 v1, v1, v4\n"
                                         "ds_write_b32 v20, v1\nds_read_b32 v4, v22\nv_add_f32_e32 v1, v1, v4"))
                   .find("double-lds-conversion"));
}

TEST(IsaLint, AMaximumThatIsBroadcastThroughLdsIsNoChangeOfLayout) {
  EXPECT_FALSE(
      Program("gfx942", looped("ds_write_b32 v20, v1\ns_barrier\nds_read_b32 v4, v21\nds_bpermute_b32 v5, v22, v4\n"
                               "v_cmp_lt_f32_e32 vcc, v4, v5\nv_cndmask_b32_e32 v4, v4, v5, vcc\n"
                               "ds_write_b32 v20, v4\ns_barrier\nds_read_b32 v6, v23"))
          .find("double-lds-conversion"));
}

TEST(IsaLint, ReadsAroundAWriteToLdsAreNotNeighbours) {
  EXPECT_FALSE(
      Program("gfx942", looped("ds_read_b64 v[0:1], v9\nds_write_b64 v8, v[0:1]\nds_read_b64 v[2:3], v9 offset:8"))
          .find("narrow-lds-access"));
}

TEST(IsaLint, DoublePrecisionThatIsRoundedInBetweenIsNoDetour) {
  EXPECT_FALSE(Program("gfx942", "v_cvt_f32_f64_e32 v2, v[0:1]\nv_cvt_f64_f32_e32 v[4:5], v2\ns_endpgm\n")
                   .find("f64-conversion"));
}

TEST(IsaLint, TheLoopOfAPersistentKernelIsNotJudgedAsAPassOfItsMainLoop) {
  const std::string main_loop = "inner:\n" + repeated(30, "v_add_f32_e32 v0, v0, v1") + "s_cbranch_scc1 inner\n";
  const std::string around =
      "v_rcp_iflag_f32_e32 v3, v4\nglobal_load_dwordx4 v[20:23], v[10:11], off\nv_add_u32_e32 v10, 16, v10\ns_waitcnt "
      "vmcnt(0)\n";
  const Program persistent("gfx942", "outer:\n" + around + main_loop + "s_cbranch_scc0 outer\ns_endpgm\n");
  EXPECT_FALSE(persistent.find("integer-division-in-loop"));
  EXPECT_FALSE(persistent.find("full-vmcnt-wait"));
  // A short loop inside, such as a retry, leaves the loop around it the main one.
  const Program with_retry(
      "gfx942", "outer:\n" + around + "inner:\nv_nop\ns_cbranch_scc1 inner\ns_cbranch_scc0 outer\ns_endpgm\n");
  EXPECT_TRUE(with_retry.find("integer-division-in-loop"));
  EXPECT_TRUE(with_retry.find("full-vmcnt-wait"));
}

TEST(IsaLint, AnAtomicOperationWhoseFormerValueIsUsedIsNotASum) {
  EXPECT_FALSE(Program("gfx942", looped("global_atomic_add v1, v2, v3, s[2:3] sc0")).find("atomic-in-loop"));
  EXPECT_FALSE(Program("gfx1201", looped("global_atomic_add_u32 v1, v2, v3, s[2:3] th:TH_ATOMIC_RETURN"))
                   .find("atomic-in-loop"));
  EXPECT_FALSE(Program("gfx942", looped("global_atomic_smin v1, v2, s[2:3]")).find("atomic-in-loop"));
  EXPECT_TRUE(Program("gfx942", looped("buffer_atomic_add_f32 v1, v2, s[4:7], 0 offen")).find("atomic-in-loop"));
  EXPECT_FALSE(Program("gfx942", looped("buffer_atomic_add_f32 v1, v2, s[4:7], 0 offen\ns_add_u32 s4, s4, s8"))
                   .find("atomic-in-loop"));
}

TEST(IsaLint, SwapsOfLdsAndBuffersAreRetriesToo) {
  EXPECT_TRUE(
      Program("gfx942", looped("v_add_f32_e32 v4, v5, v6\nds_cmpst_rtn_b32 v7, v1, v5, v4\nv_mov_b32_e32 v5, v7"))
          .find("cas-loop"));
  EXPECT_TRUE(
      Program("gfx1100", looped("v_add_f32_e32 v4, v5, v6\nds_cmpstore_rtn_b32 v5, v1, v4, v5")).find("cas-loop"));
  // A search for a free place expects the same value each time.
  EXPECT_FALSE(Program("gfx942", looped("v_add_u32_e32 v1, 4, v1\nds_cmpst_rtn_b32 v7, v1, v5, v4")).find("cas-loop"));
}

TEST(IsaLint, NoValueIsFollowedWhereNamesOfRegistersChange) {
  const std::string loads = "ds_load_b64 v[0:1], v9\nds_load_b64 v[2:3], v9 offset:8\n";
  EXPECT_TRUE(Program("gfx1250", looped(loads)).find("narrow-lds-access"));
  EXPECT_FALSE(Program("gfx1250", looped("s_set_vgpr_msb 64\n" + loads)).find("narrow-lds-access"));
}

TEST(IsaLint, CopiesToLdsHaveTheWidthOfTheHardware) {
  EXPECT_FALSE(Program("gfx942", looped("buffer_load_dword v21, s[4:7], 0 offen lds")).find("small-global-access"));
}

TEST(IsaLint, MatrixOfSinglePrecisionIsOnlyAskedForWhereThereIsOne) {
  std::string body = "ds_read_b128 v[100:103], v99\n";
  for (int i = 0; i < 16; ++i) body += fmt::format("v_fmac_f32_e32 v{}, v100, v101\n", i);
  EXPECT_TRUE(Program("gfx942", looped(body)).find("no-matrix-instructions"));
  EXPECT_FALSE(Program("gfx1100", looped(body)).find("no-matrix-instructions"));
  // Packed ones are as fast as the matrix units are with single precision.
  body = "ds_read_b128 v[100:103], v99\n";
  for (int i = 0; i < 32; i += 2)
    body += fmt::format("v_pk_fma_f32 v[{}:{}], v[100:101], v[102:103], v[{}:{}]\n", i, i + 1, i, i + 1);
  EXPECT_FALSE(Program("gfx942", looped(body)).find("no-matrix-instructions"));
  EXPECT_FALSE(Program("gfx1030", vector_product(16, false)).find("no-matrix-instructions"));
}

TEST(IsaLint, AProductWithAVectorNeedsNoMatrixInstructions) {
  // Each of the matrix's values is used once.
  std::string body;
  for (int i = 0; i < 16; ++i)
    body += fmt::format("global_load_dword v{0}, v[90:91], off\nv_fmac_f32_e32 v{1}, v{0}, v80\n", 40 + i, i);
  EXPECT_FALSE(Program("gfx942", looped(body)).find("no-matrix-instructions"));
}

TEST(IsaLint, ScratchThroughABuffer) {
  const std::string spill = looped("buffer_load_dword v1, off, s[24:27], 0 offset:4");
  EXPECT_TRUE(Program("gfx90a", spill, 64, 64).find("scratch-in-loop"));
  EXPECT_FALSE(Program("gfx90a", spill, 64, 0).find("scratch-in-loop"));  // the metadata says that there is no scratch
  EXPECT_FALSE(
      Program("gfx90a", looped("buffer_load_dwordx4 v[0:3], v5, s[4:7], 0 offen"), 64, 64).find("scratch-in-loop"));
}

}  // namespace
}  // namespace pyflame::tools::inspect
