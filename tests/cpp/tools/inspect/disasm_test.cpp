// Disassemblers of this machine, where it has any; and the whole analysis of code objects.
#include "tools/inspect/disasm.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "pyflame/base/error.h"
#include "support/source_dir.h"
#include "tools/inspect/disasm_child.h"
#include "tools/inspect/disasm_find.h"
#include "tools/inspect/elf.h"
#include "tools/inspect/isa.h"

namespace pyflame::tools::inspect {
namespace {

using nlohmann::json;

struct MadeObject {
  Memory file;
  Elf elf;
  IsaObject object;
  std::vector<std::string> names;

  MadeObject(const std::string& gfx, const std::string& name)
      : file(map_file(pyflame::test::file_of_project("tests/inspect/data/isa/" + name))) {
    elf = parse_elf(file.bytes);
    gfx_ = gfx;
    object.gfx = gfx_;
    object.elf = file.bytes;
    for (const ElfSymbol& s : elf.symbols) {
      if (s.type != Elf::kFunction || s.size == 0) continue;
      object.kernels.push_back({s.value, elf.contents(s, s.size), 0, -1});
      names.emplace_back(s.name);
    }
  }
  size_t index(const std::string& name) const {
    return static_cast<size_t>(std::find(names.begin(), names.end(), name) - names.begin());
  }

 private:
  std::string gfx_;
};

bool has_finding(const json& isa, const std::string& id) {
  return std::any_of(isa["findings"].begin(), isa["findings"].end(), [&](const json& f) { return f["id"] == id; });
}

TEST(Disasm, ListingOfObjdump) {
  const Listing l = parse_listing(
      "file.co:\tfile format elf64-amdgpu\n\n0000000000001c00 <copy>:\n"
      "\ts_load_b32 s2, s[0:1], 0x10                                // 000000001C00: F4000080 F8000010 \n"
      "\ts_cbranch_execz 45                                         // 000000001C08: BFA5002D <copy+0xdc>\n"
      "\ts_delay_alu instid0(VALU_DEP_1) | instskip(NEXT)// 000000001C0C: BF870121\n");
  ASSERT_EQ(l.size(), 3u);
  EXPECT_EQ(l.address(0), 0x1c00u);
  EXPECT_EQ(l.bytes(0), 8u);
  EXPECT_EQ(l.mnemonic(0), "s_load_b32");
  EXPECT_EQ(l.operands(0), "s2, s[0:1], 0x10");
  EXPECT_EQ(l.operands(1), "45");
  EXPECT_EQ(l.bytes(2), 4u);
  EXPECT_EQ(l.operands(2), "instid0(VALU_DEP_1) | instskip(NEXT)");
}

TEST(Disasm, ListingOfAnyText) {
  EXPECT_EQ(parse_listing("").size(), 0u);
  EXPECT_EQ(parse_listing("no code\n: x\nzz: v_nop\n10:\n").size(), 0u);
  const Listing l = parse_listing("10: v_nop\n18: s_endpgm");
  ASSERT_EQ(l.size(), 2u);
  EXPECT_EQ(l.bytes(0), 8u);
  EXPECT_EQ(l.mnemonic(1), "s_endpgm");
}

TEST(Disasm, PathWithoutDisassembler) {
  try {
    Disassemblers d("/nonexistent");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::Value);
    EXPECT_NE(std::string(e.what()).find("/nonexistent"), std::string::npos);
  }
}

TEST(Disasm, NewestFirstAndLibrariesBeforeTools) {
  const auto root = std::filesystem::temp_directory_path() / "pyflame-many-llvms";
  std::filesystem::remove_all(root);
  for (const char* folder : {"lib", "llvm/lib", "llvm/bin"}) std::filesystem::create_directories(root / folder);
  for (const char* name : {"lib/libLLVM-9.so", "lib/libLLVM-15.so.1", "lib/libLLVM.so.22.1", "lib/libLLVMSupport.so",
                           "lib/libLLVMCore.a", "lib/libamd_comgr.so.3", "llvm/bin/llvm-objdump", "llvm/bin/clang"})
    std::ofstream(root / name) << "x";
  std::filesystem::create_symlink("libLLVM.so.22.1", root / "lib/libLLVM.so");
  std::string order;
  for (const DisassemblerKind& k : find_disassemblers(root.native()))
    order += std::filesystem::path(k.path).filename().native() + " ";
  EXPECT_EQ(order, "libLLVM.so.22.1 libLLVM-15.so.1 libLLVM-9.so libamd_comgr.so.3 llvm-objdump ");
  EXPECT_EQ(find_disassemblers((root / "lib/libLLVM-9.so").native()).size(), 1u);
  EXPECT_TRUE(find_disassemblers((root / "llvm/bin/clang").native()).empty());
  std::filesystem::remove_all(root);
}

// A file that is named like a library and is none: the sentence says so, nothing else fails.
TEST(Disasm, WhatIsMissingIsSaid) {
  const auto folder = std::filesystem::temp_directory_path() / "pyflame-no-llvm";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "libLLVM.so.99") << "no library";
  const MadeObject o("gfx942", "isa_gfx942.co");
  const IsaResult r = analyse_isa({o.object}, {folder.native(), 1});
  ASSERT_EQ(r.missing.size(), 1u);
  EXPECT_NE(r.missing[0].find("gfx942"), std::string::npos);
  EXPECT_NE(r.missing[0].find("libLLVM.so.99"), std::string::npos) << r.missing[0];
  EXPECT_NE(r.missing[0].find("--llvm"), std::string::npos);
  EXPECT_TRUE(r.kernels[0][0].is_null());
  std::filesystem::remove_all(folder);
}

// A decoder that does what LLVM does on some bytes.
class Crashing : public Decoder {
 public:
  size_t one(uint64_t, Bytes code, std::string_view& text) override {
    if (code[0] == 0xee) std::abort();
    text = "v_nop";
    return 4;
  }
};

TEST(Disasm, CrashCostsOneInstruction) {
  std::vector<uint8_t> code(400'000, 0);
  code[200'000] = code[300'000] = 0xee;
  const auto child = disassembler_in_child([] { return std::make_unique<Crashing>(); });
  ASSERT_TRUE(child);
  for (int round = 0; round < 2; ++round) {
    Listing l;
    child->read(0x1000, code, l);
    ASSERT_EQ(l.size(), 100'000u);
    for (size_t i = 0; i < l.size(); ++i) {
      EXPECT_EQ(l.address(i), 0x1000 + 4 * i);
      EXPECT_EQ(l.mnemonic(i), i == 50'000 || i == 75'000 ? "" : "v_nop") << i;
    }
  }
}

TEST(Disasm, CrashEverywhereEnds) {
  const std::vector<uint8_t> code(10'000, 0xee);
  const auto child = disassembler_in_child([] { return std::make_unique<Crashing>(); });
  ASSERT_TRUE(child);
  Listing l;
  child->read(0, code, l);
  EXPECT_EQ(l.size(), 2500u);
}

TEST(Disasm, NoDecoderNoChild) {
  EXPECT_FALSE(disassembler_in_child([] { return std::unique_ptr<Decoder>(); }));
}

class DisasmOfThisMachine : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!Disassemblers().open(GetParam(), 0)) GTEST_SKIP() << "no LLVM library here reads " << GetParam();
  }
};

TEST_P(DisasmOfThisMachine, FindsWhatTheKernelsWereWrittenFor) {
  const std::string gfx = GetParam();
  const MadeObject o(gfx, "isa_" + gfx + ".co");
  ASSERT_FALSE(o.names.empty());
  const IsaResult r = analyse_isa({o.object});
  EXPECT_TRUE(r.missing.empty());
  EXPECT_FALSE(r.disassembler.empty());
  const auto isa = [&](const char* name) -> const json& { return r.kernels[0].at(o.index(name)); };
  for (size_t i = 0; i < o.names.size(); ++i) {
    ASSERT_TRUE(r.kernels[0][i].is_object()) << o.names[i];
    EXPECT_FALSE(r.kernels[0][i].contains("undecoded")) << o.names[i];
    uint64_t sum = 0;
    for (const auto& [name, count] : r.kernels[0][i]["mix"].items()) sum += count.get<uint64_t>();
    EXPECT_EQ(sum, r.kernels[0][i]["instructions"]) << o.names[i];
  }
  EXPECT_FALSE(has_finding(isa("vector_copy"), "small-global-access"));
  EXPECT_FALSE(has_finding(isa("vector_copy"), "narrow-global-load"));
  EXPECT_TRUE(has_finding(isa("scalar_copy"), "narrow-global-load"));
  EXPECT_TRUE(has_finding(isa("scalar_copy"), "narrow-global-store"));
  EXPECT_TRUE(has_finding(isa("lds_transpose"), "small-lds-access"));
  EXPECT_FALSE(has_finding(isa("lds_transpose"), "double-lds-conversion"));
  EXPECT_TRUE(has_finding(isa("double_conversion"), "double-lds-conversion"));
  EXPECT_TRUE(has_finding(isa("spilling"), "scratch-in-loop"));
  EXPECT_FALSE(has_finding(isa("atomics"), "atomic-in-loop"));  // its address changes in each pass
  EXPECT_TRUE(has_finding(isa("cas_sum"), "cas-loop"));
  EXPECT_TRUE(has_finding(isa("slow_arithmetic"), "f64-conversion"));
  EXPECT_TRUE(has_finding(isa("slow_arithmetic"), "division-in-loop"));
  EXPECT_TRUE(has_finding(isa("slow_arithmetic"), "integer-division-in-loop"));
  EXPECT_TRUE(has_finding(isa("flat_pointer"), "flat-access"));
  EXPECT_EQ(has_finding(isa("vector_gemm"), "no-matrix-instructions"), gfx != "gfx1030");
  if (gfx != "gfx1030") {
    const json& loop = isa("matrix_gemm")["loops"].at(0);
    EXPECT_EQ(loop["matrix"].at(0)["shape"], "16x16x16");
    EXPECT_EQ(loop["matrix"].at(0)["type"], "f16");
    EXPECT_GT(loop["matrix_share"].get<double>(), 0.2);
  }
  // One float4 read and one written by each lane.
  const json& copy = isa("vector_copy")["loops"].at(0);
  EXPECT_EQ(copy["load_bytes"], 16 * isa("vector_copy")["wave"].get<int>());
  EXPECT_EQ(copy["store_bytes"], copy["load_bytes"]);
}

// The tool prints what the library says, so that the analysis of both is the same document.
TEST_P(DisasmOfThisMachine, LibraryAndToolAgree) {
  const std::string gfx = GetParam();
  const MadeObject o(gfx, "isa_" + gfx + ".co");
  std::string tool;
  const Disassemblers all;
  for (const DisassemblerKind& k : all.found()) {
    Disassemblers one(k.path);
    if (k.kind == DisassemblerKind::Kind::tool &&
        one.run_tool(gfx, 0, o.file.bytes, [](uint64_t, uint32_t, std::string_view) {}))
      tool = k.path;
    if (!tool.empty()) break;
  }
  if (tool.empty()) GTEST_SKIP() << "no llvm-objdump here reads " << gfx;
  IsaObject twice = o.object;  // two names of the same code
  twice.kernels.push_back(twice.kernels.front());
  const IsaResult by_tool = analyse_isa({twice}, {tool, 2}), by_library = analyse_isa({o.object}, {"", 2});
  EXPECT_EQ(by_tool.kernels[0].back(), by_tool.kernels[0].front());
  EXPECT_NE(by_tool.disassembler.find("objdump"), std::string::npos);
  for (size_t i = 0; i < o.names.size(); ++i) {
    EXPECT_EQ(by_tool.kernels[0][i]["mix"], by_library.kernels[0][i]["mix"]) << o.names[i];
    EXPECT_EQ(by_tool.kernels[0][i]["loops"], by_library.kernels[0][i]["loops"]) << o.names[i];
    EXPECT_EQ(by_tool.kernels[0][i]["findings"], by_library.kernels[0][i]["findings"]) << o.names[i];
  }
}

TEST_P(DisasmOfThisMachine, AnyBytes) {
  std::mt19937 random(11);
  std::vector<std::vector<uint8_t>> codes = {{}, {0x00}, {0xff, 0xff, 0xff}, std::vector<uint8_t>(size_t{16} << 20, 0)};
  for (int i = 0; i < 20; ++i) {
    codes.emplace_back(random() % 4000);
    for (uint8_t& b : codes.back()) b = static_cast<uint8_t>(random());
  }
  IsaObject object;
  object.gfx = GetParam();
  for (const auto& c : codes) object.kernels.push_back({0x1000, c, 0, -1});
  size_t calls = 0;
  const IsaResult r = analyse_isa({object}, {}, [&](size_t) { ++calls; });
  EXPECT_EQ(calls, codes.size());
  for (size_t i = 0; i < codes.size(); ++i) {
    ASSERT_TRUE(r.kernels[0][i].is_object()) << i;
    EXPECT_EQ(r.kernels[0][i]["instructions"] == 0, codes[i].empty()) << i;
  }
  EXPECT_TRUE(r.kernels[0][3].contains("cut_after_bytes"));
}

INSTANTIATE_TEST_SUITE_P(Archs, DisasmOfThisMachine,
                         ::testing::Values("gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201"),
                         [](const auto& p) { return std::string(p.param); });

TEST(Disasm, SourceLineOfAFinding) {
  if (!Disassemblers().open("gfx942", 0)) GTEST_SKIP() << "no LLVM library here reads gfx942";
  const MadeObject o("gfx942", "isa_lines.co");
  const IsaResult r = analyse_isa({o.object});
  const json& findings = r.kernels[0].at(o.index("sum_lines"))["findings"];
  EXPECT_TRUE(std::any_of(findings.begin(), findings.end(), [](const json& f) {
    return f["source"] == "isa_lines.h:5";
  })) << findings.dump(1);
}

}  // namespace
}  // namespace pyflame::tools::inspect
