// Classes, shapes and costs of single instructions; loops; the document.
#include "tools/inspect/isa.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "support/source_dir.h"
#include "tools/inspect/elf.h"
#include "tools/inspect/isa_program.h"
#include "tools/inspect/source_lines.h"

namespace pyflame::tools::inspect {
namespace {

OpInfo info(const char* name, const char* gfx = "gfx942", int wave = 0) {
  return classify(name, IsaArch::of(gfx, wave));
}

TEST(IsaClassify, MemoryOfAllGenerations) {
  struct Row {
    const char* name;
    OpClass kind;
    int bytes;
  };
  for (const Row& r : std::initializer_list<Row>{{"global_load_dwordx4", OpClass::global_load, 16},
                                                 {"global_load_b128", OpClass::global_load, 16},
                                                 {"global_load_dwordx3", OpClass::global_load, 12},
                                                 {"global_load_ubyte", OpClass::global_load, 1},
                                                 {"global_load_u8", OpClass::global_load, 1},
                                                 {"global_load_d16_hi_b16", OpClass::global_load, 2},
                                                 {"global_load_short_d16", OpClass::global_load, 2},
                                                 {"global_load_tr_b128_w32", OpClass::global_load, 16},
                                                 {"global_load_lds_dwordx4", OpClass::global_load, 16},
                                                 {"global_store_short", OpClass::global_store, 2},
                                                 {"global_store_b96", OpClass::global_store, 12},
                                                 {"global_atomic_add_f32", OpClass::global_atomic, 4},
                                                 {"global_atomic_pk_add_bf16", OpClass::global_atomic, 4},
                                                 {"global_atomic_cmpswap_x2", OpClass::global_atomic, 8},
                                                 {"flat_load_dwordx2", OpClass::global_load, 8},
                                                 {"buffer_load_format_xyzw", OpClass::global_load, 16},
                                                 {"buffer_store_b64", OpClass::global_store, 8},
                                                 {"scratch_load_dwordx2", OpClass::scratch_load, 8},
                                                 {"scratch_store_b32", OpClass::scratch_store, 4},
                                                 {"global_wb", OpClass::other, 0},
                                                 {"buffer_gl0_inv", OpClass::other, 0},
                                                 {"ds_read_b128", OpClass::lds_load, 16},
                                                 {"ds_load_b128", OpClass::lds_load, 16},
                                                 {"ds_read2_b32", OpClass::lds_load, 8},
                                                 {"ds_read2st64_b64", OpClass::lds_load, 16},
                                                 {"ds_read2st64_b32", OpClass::lds_load, 8},
                                                 {"ds_load_2addr_b64", OpClass::lds_load, 16},
                                                 {"ds_read_u16_d16_hi", OpClass::lds_load, 2},
                                                 {"ds_read_b64_tr_b16", OpClass::lds_load, 8},
                                                 {"ds_write_b64", OpClass::lds_store, 8},
                                                 {"ds_store_2addr_stride64_b32", OpClass::lds_store, 8},
                                                 {"ds_add_u32", OpClass::lds_atomic, 4},
                                                 {"ds_add_rtn_f32", OpClass::lds_atomic, 4},
                                                 {"ds_bpermute_b32", OpClass::lane_exchange, 0},
                                                 {"ds_swizzle_b32", OpClass::lane_exchange, 0},
                                                 {"s_load_dwordx8", OpClass::smem, 32},
                                                 {"s_buffer_load_b512", OpClass::smem, 64},
                                                 {"s_dcache_wb", OpClass::smem, 0}}) {
    const OpInfo i = info(r.name);
    EXPECT_EQ(static_cast<int>(i.kind), static_cast<int>(r.kind)) << r.name;
    EXPECT_EQ(i.bytes, r.bytes) << r.name;
  }
}

TEST(IsaClassify, Control) {
  EXPECT_TRUE(info("s_cbranch_execz").conditional);
  EXPECT_FALSE(info("s_branch").conditional);
  EXPECT_TRUE(info("s_swappc_b64").call);
  EXPECT_EQ(info("s_setpc_b64").kind, OpClass::branch);
  EXPECT_EQ(info("s_barrier").kind, OpClass::barrier);
  EXPECT_EQ(info("s_barrier_wait", "gfx1201").kind, OpClass::barrier);
  EXPECT_EQ(info("s_barrier_signal", "gfx1201").kind, OpClass::other);  // else each barrier of gfx12 would count twice
  EXPECT_EQ(info("s_endpgm_saved").kind, OpClass::end);
  EXPECT_EQ(info("s_wait_loadcnt_dscnt", "gfx1201").kind, OpClass::wait);
  EXPECT_EQ(info("s_delay_alu", "gfx1100").kind, OpClass::other);
  EXPECT_EQ(info("s_add_u32").kind, OpClass::salu);
  EXPECT_EQ(info("").kind, OpClass::unknown);
}

TEST(IsaClassify, MatrixShapesTypesAndPasses) {
  struct Row {
    const char *name, *gfx, *shape, *type;
    int cycles;
  };
  // Passes x 4: the tables of the CDNA 2, CDNA 3 and CDNA 4 ISA guides; for WMMA operations by rate.
  for (const Row& r :
       std::initializer_list<Row>{{"v_mfma_f32_32x32x8f16", "gfx90a", "32x32x8", "f16", 64},
                                  {"v_mfma_f32_16x16x16bf16_1k", "gfx90a", "16x16x16", "bf16", 32},
                                  {"v_mfma_f32_4x4x4f16", "gfx90a", "4x4x4", "f16", 8},
                                  {"v_mfma_f64_16x16x4f64", "gfx90a", "16x16x4", "f64", 32},
                                  {"v_mfma_f32_32x32x8_f16", "gfx942", "32x32x8", "f16", 32},
                                  {"v_mfma_f32_16x16x16_bf16", "gfx942", "16x16x16", "bf16", 16},
                                  {"v_mfma_f32_32x32x4_2b_f16", "gfx942", "32x32x4", "f16", 64},
                                  {"v_mfma_f32_16x16x4_f32", "gfx942", "16x16x4", "f32", 32},
                                  {"v_mfma_f32_32x32x2_f32", "gfx942", "32x32x2", "f32", 64},
                                  {"v_mfma_f32_32x32x4_xf32", "gfx942", "32x32x4", "xf32", 32},
                                  {"v_mfma_f32_16x16x32_fp8_fp8", "gfx942", "16x16x32", "fp8_fp8", 16},
                                  {"v_mfma_i32_32x32x16_i8", "gfx942", "32x32x16", "i8", 32},
                                  {"v_mfma_f64_16x16x4_f64", "gfx942", "16x16x4", "f64", 32},
                                  {"v_smfmac_f32_16x16x32_f16", "gfx942", "16x16x32", "f16", 16},
                                  {"v_mfma_f32_16x16x32_f16", "gfx950", "16x16x32", "f16", 16},
                                  {"v_mfma_f64_16x16x4_f64", "gfx950", "16x16x4", "f64", 64},
                                  {"v_mfma_scale_f32_16x16x128_f8f6f4", "gfx950", "16x16x128", "f8f6f4", 32},
                                  {"v_mfma_f32_32x32x64_f8f6f4", "gfx950", "32x32x64", "f8f6f4", 64},
                                  {"v_wmma_f32_16x16x16_f16", "gfx1100", "16x16x16", "f16", 32},
                                  {"v_wmma_i32_16x16x16_iu4", "gfx1100", "16x16x16", "iu4", 16},
                                  {"v_wmma_f32_16x16x16_bf16", "gfx1201", "16x16x16", "bf16", 16},
                                  {"v_wmma_f32_16x16x16_fp8_bf8", "gfx1201", "16x16x16", "fp8_bf8", 8},
                                  {"v_swmmac_f32_16x16x32_f16", "gfx1201", "16x16x32", "f16", 16}}) {
    const OpInfo i = info(r.name, r.gfx);
    EXPECT_EQ(i.kind, OpClass::matrix) << r.name;
    EXPECT_EQ(i.shape, r.shape) << r.name;
    EXPECT_EQ(i.type, r.type) << r.name;
    EXPECT_EQ(i.cycles, r.cycles) << r.name << " on " << r.gfx;
  }
}

TEST(IsaClassify, FormatsOfOperandsHalveThePasses) {
  const Program p("gfx950",
                  "v_mfma_f32_16x16x128_f8f6f4 v[0:3], v[4:11], v[12:19], v[0:3]\n"
                  "v_mfma_f32_16x16x128_f8f6f4 v[0:3], v[4:7], v[12:15], v[0:3] cbsz:4 blgp:4\n"
                  "v_mfma_f32_16x16x128_f8f6f4 v[0:3], v[4:7], v[12:19], v[0:3] cbsz:4\n");
  EXPECT_EQ(p.ops[0].cycles, 32u);
  EXPECT_EQ(p.ops[1].cycles, 16u);
  EXPECT_EQ(p.ops[2].cycles, 32u);
}

TEST(IsaClassify, IssueCycles) {
  EXPECT_EQ(info("v_add_f32_e32", "gfx942").cycles, 4);
  EXPECT_EQ(info("v_exp_f32_e32", "gfx942").cycles, 16);
  EXPECT_EQ(info("v_fma_f64", "gfx942").cycles, 4);
  EXPECT_EQ(info("v_fma_f64", "gfx906").cycles, 8);
  EXPECT_EQ(info("v_add_f32_e32", "gfx1100", 32).cycles, 1);
  EXPECT_EQ(info("v_add_f32_e32", "gfx1100", 64).cycles, 2);
  EXPECT_EQ(info("v_rcp_f32_e32", "gfx1100", 32).cycles, 4);
  EXPECT_EQ(info("v_fma_f64", "gfx1100", 32).cycles, 16);
  EXPECT_TRUE(info("v_dual_fmac_f32", "gfx1100").dual);
  EXPECT_EQ(info("v_dual_fmac_f32", "gfx1100").fma, FmaType::f32);
  EXPECT_EQ(info("v_dot2_f32_f16", "gfx1100").fma, FmaType::f16);
  EXPECT_EQ(info("v_dot4_i32_iu8", "gfx1100").fma, FmaType::i8);
  EXPECT_EQ(info("v_mad_u64_u32", "gfx942").fma, FmaType::none);
}

TEST(IsaClassify, Registers) {
  const Reg r = parse_reg("v[12:15]");
  EXPECT_EQ(r.file, 'v');
  EXPECT_EQ(r.first, 12);
  EXPECT_EQ(r.count, 4);
  EXPECT_EQ(parse_reg("-v3").first, 3);
  EXPECT_EQ(parse_reg("|a7|").file, 'a');
  EXPECT_EQ(parse_reg("v5.h").first, 5);
  for (const char* none :
       {"", "v", "vcc", "s[", "off", "0x10", "v[3:1]", "v[0:99999999999]", "v[-1:2]", "src_scc", "0"})
    EXPECT_EQ(parse_reg(none).file, 0) << none;
}

TEST(IsaClassify, Waits) {
  EXPECT_EQ(parse_wait("s_waitcnt", "vmcnt(0) lgkmcnt(3)").load, 0);
  EXPECT_EQ(parse_wait("s_waitcnt", "vmcnt(0) lgkmcnt(3)").lds, 3);
  EXPECT_EQ(parse_wait("s_waitcnt", "vmcnt(0) & lgkmcnt(0)").scalar, 0);
  EXPECT_EQ(parse_wait("s_waitcnt", "lgkmcnt(0)").load, -1);
  EXPECT_EQ(parse_wait("s_waitcnt_vscnt", "null, 0x0").store, 0);
  EXPECT_EQ(parse_wait("s_wait_loadcnt", "0x5").load, 5);
  EXPECT_EQ(parse_wait("s_wait_loadcnt_dscnt", "0x103").load, 1);
  EXPECT_EQ(parse_wait("s_wait_loadcnt_dscnt", "0x103").lds, 3);
  EXPECT_EQ(parse_wait("s_wait_kmcnt", "0x0").lds, -1);
}

TEST(IsaLoops, NestedLoops) {
  const Program p("gfx942",
                  "s_mov_b32 s0, 0\nouter:\ns_mov_b32 s1, 0\ninner:\nv_add_f32_e32 v0, v0, v1\nglobal_load_dwordx4 "
                  "v[4:7], v[8:9], off\n"
                  "s_cbranch_scc1 inner\nds_write_b64 v1, v[2:3]\ns_cbranch_scc0 outer\ns_endpgm\n");
  ASSERT_EQ(p.flow.loops.size(), 2u);
  EXPECT_EQ(p.flow.loops[0].depth, 1);
  EXPECT_FALSE(p.flow.loops[0].innermost);
  EXPECT_EQ(p.flow.loops[1].depth, 2);
  EXPECT_EQ(p.flow.loops[1].parent, 0);
  EXPECT_EQ(p.regions.loop_stats[1].instructions, 3u);
  EXPECT_EQ(p.regions.loop_stats[0].instructions, 6u);  // with the loop inside
  EXPECT_EQ(p.regions.loop_stats[0].load_bytes, 16u);
  EXPECT_EQ(p.regions.loop_stats[0].lds_bytes, 8u);
  EXPECT_EQ(p.regions.total.instructions, 8u);
  EXPECT_EQ(p.regions.total.widest_load, 16u);
  EXPECT_EQ(p.regions.total.widest_store, 0u);
}

TEST(IsaLoops, BlockOutOfLineBelongsToItsLoop) {
  // The rare part of the loop was laid out behind the end of the kernel.
  const Program p("gfx942",
                  "top:\ns_cbranch_scc1 rare\nback:\nv_nop\ns_cbranch_vccnz top\ns_endpgm\nv_nop\nrare:\nv_add_f32_e32 "
                  "v0, v0, v0\ns_branch back\n");
  ASSERT_EQ(p.flow.loops.size(), 1u);
  EXPECT_EQ(p.regions.loop_stats[0].instructions, 5u);
}

TEST(IsaLoops, JumpIntoTheMiddleIsNoLoop) {
  // Two ways into the cycle: no block of it is passed by both.
  const Program p("gfx942", "s_cbranch_scc1 second\nfirst:\nv_nop\nsecond:\nv_nop\ns_cbranch_vccnz first\ns_endpgm\n");
  EXPECT_TRUE(p.flow.loops.empty());
}

TEST(IsaLoops, EveryInstructionIsInOneRegion) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::string text;
    const unsigned n = 5 + random() % 60;
    for (unsigned i = 0; i < n; ++i) {
      switch (random() % 4) {
        case 0:
          text += fmt::format("s_cbranch_scc1 {}\n",
                              static_cast<uint16_t>(static_cast<int>(random() % n) - static_cast<int>(i)));
          break;
        case 1: text += random() % 8 ? "v_nop\n" : "s_endpgm\n"; break;
        default: text += "v_add_f32_e32 v0, v0, v1\n"; break;
      }
    }
    const Program p("gfx1100", text);
    size_t members = 0;
    for (const auto& own : p.regions.own) members += own.size();
    EXPECT_EQ(members, p.ops.size());
    for (size_t l = 0; l < p.flow.loops.size(); ++l) {
      const Loop& loop = p.flow.loops[l];
      EXPECT_TRUE(std::find(loop.blocks.begin(), loop.blocks.end(), loop.header) != loop.blocks.end());
      if (loop.parent < 0) continue;
      const Loop& around = p.flow.loops[static_cast<size_t>(loop.parent)];
      EXPECT_TRUE(std::includes(around.blocks.begin(), around.blocks.end(), loop.blocks.begin(), loop.blocks.end()))
          << text;
    }
  }
}

// --- source lines

TEST(IsaSourceLines, OfACodeObject) {
  const Memory file = map_file(pyflame::test::file_of_project("tests/inspect/data/isa/isa_lines.co"));
  const SourceLines lines = SourceLines::of_elf(file.bytes);
  ASSERT_FALSE(lines.empty());
  const Elf elf = parse_elf(file.bytes);
  std::set<std::string> seen;
  for (const ElfSymbol& s : elf.symbols) {
    if (s.name != "sum_lines" || s.type != Elf::kFunction) continue;
    for (uint64_t a = s.value; a < s.value + s.size; a += 4) seen.insert(lines.find(a));
    EXPECT_EQ(lines.find(s.value - 4), "");
  }
  EXPECT_TRUE(seen.count("isa_lines.h:5")) << *seen.begin();
  EXPECT_TRUE(
      std::any_of(seen.begin(), seen.end(), [](const std::string& s) { return s.ends_with("isa_lines.hip:7"); }));
}

TEST(IsaSourceLines, DamagedTables) {
  const Memory file = map_file(pyflame::test::file_of_project("tests/inspect/data/isa/isa_lines.co"));
  const ElfSection section = *parse_elf(file.bytes).find(".debug_line");
  std::mt19937 random(3);
  for (int round = 0; round < 3000; ++round) {
    std::vector<uint8_t> bytes(section.data.begin(), section.data.end());
    for (int i = 0; i < 4; ++i) bytes[random() % bytes.size()] = static_cast<uint8_t>(random());
    if (round % 3 == 0) bytes.resize(random() % bytes.size());
    SourceLines::of_sections(bytes, {}, {}).find(0x1700);
  }
  EXPECT_TRUE(SourceLines::of_elf({}).empty());
  EXPECT_TRUE(SourceLines::of_sections({}, {}, {}).empty());
}

// A table of version 4, by hand: the older form of the list of files.
TEST(IsaSourceLines, VersionFour) {
  std::vector<uint8_t> body = {4, 0};  // version
  std::vector<uint8_t> header = {4, 1, 1, 0xfb, 14, 13, 0, 1, 1,
                                 1, 1, 0, 0,    0,  1,  0, 0, 1};  // step 4 … operands of opcodes 1 to 12
  header.push_back(0);                                             // no folders
  for (const char c : std::string("a.hip")) header.push_back(static_cast<uint8_t>(c));
  for (int i = 0; i < 4; ++i) header.push_back(0);  // end of the name; folder, time, size
  header.push_back(0);                              // end of the files
  const std::vector<uint8_t> program = {0,
                                        9,
                                        2,
                                        0,
                                        0x20,
                                        0,
                                        0,
                                        0,
                                        0,
                                        0,
                                        0,  // address 0x2000
                                        3,
                                        9,
                                        1,                // line 10
                                        13 + 14 * 2 + 6,  // two steps of 4 bytes, one line on
                                        2,
                                        1,
                                        0,
                                        1,
                                        1};  // one step, end
  const auto put32 = [](std::vector<uint8_t>& to, size_t value) {
    for (int i = 0; i < 4; ++i) to.push_back(static_cast<uint8_t>(value >> (8 * i)));
  };
  put32(body, header.size());
  body.insert(body.end(), header.begin(), header.end());
  body.insert(body.end(), program.begin(), program.end());
  std::vector<uint8_t> unit;
  put32(unit, body.size());
  unit.insert(unit.end(), body.begin(), body.end());
  const SourceLines lines = SourceLines::of_sections(unit, {}, {});
  EXPECT_EQ(lines.find(0x2000), "a.hip:10");
  EXPECT_EQ(lines.find(0x2007), "a.hip:10");
  EXPECT_EQ(lines.find(0x2008), "a.hip:11");
  EXPECT_EQ(lines.find(0x200c), "");
  EXPECT_EQ(lines.find(0x1fff), "");
}

}  // namespace
}  // namespace pyflame::tools::inspect
