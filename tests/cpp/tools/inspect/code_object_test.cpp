// Code objects that clang 22 made (tests/inspect/data/co): every figure as `llvm-readelf --notes` and `-s` print it, in each kind of
// container that they come in.
#include "tools/inspect/code_object.h"

#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "pyflame/base/error.h"
#include "tools/inspect/container.h"
#include "tools/inspect/demangle.h"
#include "tools/inspect/elf.h"
#include "tools/inspect/sample.h"

namespace pyflame::tools::inspect {
namespace {

using test::Buffer;
using test::sample;
using test::sample_path;

const char* const kScale = "_ZN6sample5scaleIfEEvPT_S1_i";

const Kernel& find(const CodeObject& object, const std::string& symbol) {
  for (const Kernel& k : object.kernels)
    if (k.symbol == symbol) return k;
  throw std::runtime_error("no kernel " + symbol);
}

struct Expected {
  const char *gfx, *symbol;
  uint64_t vgpr, agpr, sgpr, vgpr_spill, lds, scratch, max_workgroup, wave, kernarg, code;
};

class RealCodeObject : public ::testing::TestWithParam<Expected> {};

TEST_P(RealCodeObject, HasTheFiguresOfLlvmReadelf) {
  const Expected& e = GetParam();
  const CodeObject object = parse_code_object(sample(std::string(e.gfx) + ".co").bytes);
  EXPECT_TRUE(object.problems.empty()) << object.problems.front();
  EXPECT_EQ(object.gfx, e.gfx);
  EXPECT_EQ(object.target, e.gfx);  // compiled for either setting of its features
  EXPECT_EQ(object.version, 6);
  EXPECT_EQ(object.kernels.size(), 5u);
  const Kernel& k = find(object, e.symbol);
  EXPECT_EQ(k.vgpr, e.vgpr);
  EXPECT_EQ(k.agpr, e.agpr);
  EXPECT_EQ(k.sgpr, e.sgpr);
  EXPECT_EQ(k.vgpr_spill, e.vgpr_spill);
  EXPECT_EQ(k.sgpr_spill, 0u);
  EXPECT_EQ(k.lds, e.lds);
  EXPECT_EQ(k.scratch, e.scratch);
  EXPECT_EQ(k.max_workgroup, e.max_workgroup);
  EXPECT_EQ(k.wave, e.wave);
  EXPECT_EQ(k.kernarg, e.kernarg);
  EXPECT_EQ(k.code.size(), e.code);
  EXPECT_EQ(k.wgp_mode.has_value(), e.wave == 32);
}

INSTANTIATE_TEST_SUITE_P(
    All, RealCodeObject,
    ::testing::Values(Expected{"gfx90a", "_ZN6sample5scaleIfEEvPT_S1_i", 3, 0, 11, 0, 0, 0, 1024, 64, 16, 96},
                      Expected{"gfx90a", "tile_sum", 10, 0, 11, 0, 4096, 0, 256, 64, 20, 212},
                      Expected{"gfx90a", "indexed", 6, 0, 20, 0, 0, 816, 1024, 64, 16, 248},
                      Expected{"gfx90a", "spilling", 48, 0, 10, 0, 0, 0, 1024, 64, 16, 464},
                      Expected{"gfx90a", "accumulators", 36, 32, 10, 0, 0, 0, 1024, 64, 8, 60},
                      Expected{"gfx942", "_ZN6sample5scaleIfEEvPT_S1_i", 3, 0, 12, 0, 0, 0, 1024, 64, 16, 84},
                      Expected{"gfx942", "tile_sum", 10, 0, 14, 0, 4096, 0, 256, 64, 20, 204},
                      Expected{"gfx942", "indexed", 4, 0, 18, 0, 0, 816, 1024, 64, 16, 224},
                      Expected{"gfx942", "spilling", 48, 0, 10, 0, 0, 0, 1024, 64, 16, 460},
                      Expected{"gfx942", "accumulators", 36, 32, 9, 0, 0, 0, 1024, 64, 8, 60},
                      Expected{"gfx950", "_ZN6sample5scaleIfEEvPT_S1_i", 3, 0, 12, 0, 0, 0, 1024, 64, 16, 84},
                      Expected{"gfx950", "tile_sum", 10, 0, 14, 0, 4096, 0, 256, 64, 20, 204},
                      Expected{"gfx950", "indexed", 4, 0, 18, 0, 0, 816, 1024, 64, 16, 224},
                      Expected{"gfx950", "spilling", 48, 0, 10, 0, 0, 0, 1024, 64, 16, 460},
                      Expected{"gfx950", "accumulators", 36, 32, 9, 0, 0, 0, 1024, 64, 8, 60},
                      Expected{"gfx1030", "_ZN6sample5scaleIfEEvPT_S1_i", 3, 0, 9, 0, 0, 0, 1024, 32, 16, 100},
                      Expected{"gfx1030", "tile_sum", 9, 0, 9, 0, 4096, 0, 256, 32, 20, 284},
                      Expected{"gfx1030", "indexed", 3, 0, 13, 0, 0, 816, 1024, 32, 16, 216},
                      Expected{"gfx1030", "spilling", 24, 0, 12, 91, 0, 208, 1024, 32, 16, 2960},
                      Expected{"gfx1030", "accumulators", 2, 0, 6, 0, 0, 0, 1024, 32, 8, 44},
                      Expected{"gfx1100", "_ZN6sample5scaleIfEEvPT_S1_i", 3, 0, 18, 0, 0, 0, 1024, 32, 16, 112},
                      Expected{"gfx1100", "tile_sum", 9, 0, 7, 0, 4096, 0, 256, 32, 20, 296},
                      Expected{"gfx1100", "indexed", 3, 0, 9, 0, 0, 816, 1024, 32, 16, 180},
                      Expected{"gfx1100", "spilling", 24, 0, 4, 101, 0, 224, 1024, 32, 16, 1312},
                      Expected{"gfx1100", "accumulators", 2, 0, 3, 0, 0, 0, 1024, 32, 8, 44},
                      Expected{"gfx1201", "_ZN6sample5scaleIfEEvPT_S1_i", 3, 0, 6, 0, 0, 0, 1024, 32, 16, 116},
                      Expected{"gfx1201", "tile_sum", 9, 0, 7, 0, 4096, 0, 256, 32, 20, 300},
                      Expected{"gfx1201", "indexed", 3, 0, 9, 0, 0, 816, 1024, 32, 16, 200},
                      Expected{"gfx1201", "spilling", 24, 0, 4, 98, 0, 220, 1024, 32, 16, 1688},
                      Expected{"gfx1201", "accumulators", 2, 0, 3, 0, 0, 0, 1024, 32, 8, 48}));

TEST(CodeObject, ArgumentsAreThoseOfTheSource) {
  const Kernel k = find(parse_code_object(sample("gfx942.co").bytes), kScale);
  ASSERT_EQ(k.arguments.size(), 3u);
  EXPECT_EQ(k.arguments[0].kind, "global_buffer");
  EXPECT_EQ(k.arguments[1].kind, "by_value");
  EXPECT_EQ(k.arguments[1].offset, 8u);
  EXPECT_EQ(k.arguments[2].size, 4u);
}

TEST(CodeObject, WithoutMetadataTheDescriptorsStandIn) {
  const CodeObject object = parse_code_object(sample("no_metadata.co").bytes);
  ASSERT_EQ(object.kernels.size(), 5u);
  ASSERT_EQ(object.problems.size(), 1u);
  EXPECT_NE(object.problems[0].find("no metadata note"), std::string::npos);
  const CodeObject whole = parse_code_object(sample("gfx942.co").bytes);
  for (const Kernel& k : object.kernels) {
    const Kernel& real = find(whole, k.symbol);
    EXPECT_TRUE(k.from_descriptor);
    EXPECT_GE(*k.vgpr, *real.vgpr);
    EXPECT_LT(*k.vgpr, *real.vgpr + 8);  // one granule
    EXPECT_EQ(k.lds, real.lds);
    EXPECT_EQ(k.scratch, real.scratch);
    EXPECT_EQ(k.kernarg, real.kernarg);
    EXPECT_EQ(k.wave, real.wave);
    EXPECT_EQ(k.code.size(), real.code.size());
    EXPECT_FALSE(k.vgpr_spill.has_value());  // not known, which is not zero
    EXPECT_FALSE(k.max_workgroup.has_value());
  }
}

TEST(CodeObject, KernelsWithoutASizeReachToTheNextOne) {
  // Hand-written assembly (Tensile) leaves sizes out, and has labels inside of its kernels.
  Buffer file = test::bytes_of(sample("gfx942.co"));
  const Elf elf = parse_elf(file);
  for (const ElfSection& s : elf.sections) {
    if (s.type != 2) continue;  // .symtab
    for (uint64_t at = s.offset + 24; at < s.offset + s.size; at += 24) {
      if ((file[at + 4] & 15) == Elf::kFunction)
        std::fill_n(file.begin() + static_cast<ptrdiff_t>(at) + 16, 8, uint8_t{0});
    }
  }
  const CodeObject object = parse_code_object(file), whole = parse_code_object(sample("gfx942.co").bytes);
  for (const Kernel& k : object.kernels) {
    const Kernel& real = find(whole, k.symbol);
    EXPECT_EQ(k.file_offset, real.file_offset);
    EXPECT_EQ(k.code.size(), real.code.size()) << k.symbol;  // without what fills up to the next one
  }
}

TEST(CodeObject, FeaturesAndMachinesAreOfTheFlags) {
  std::vector<uint8_t> file = test::bytes_of(sample("gfx942.co"));
  const auto with_flags = [&](uint32_t flags, uint8_t version) {
    std::memcpy(file.data() + 48, &flags, 4);
    file[8] = static_cast<uint8_t>(version - 2);
    return parse_code_object(file).target;
  };
  EXPECT_EQ(with_flags(0x54c, 5), "gfx942");  // "any" of both
  EXPECT_EQ(with_flags(0xe4c, 5), "gfx942:sramecc+:xnack-");
  EXPECT_EQ(with_flags(0xb4c, 4), "gfx942:sramecc-:xnack+");
  EXPECT_EQ(with_flags(0x13f, 3), "gfx90a:xnack+");
  EXPECT_EQ(with_flags(0x01000054, 6), "gfx11-generic");
  EXPECT_EQ(with_flags(0x0100055f, 6), "gfx9-4-generic");
  EXPECT_EQ(with_flags(0x7f, 6), "unknown-0x7f");
  EXPECT_EQ(gfx_of_machine(0x36), "gfx1030");
  EXPECT_EQ(gfx_of_machine(0x4e), "gfx1201");
  EXPECT_EQ(gfx_of_machine(0x00), "");
}

TEST(CodeObject, AContradictionBetweenMetadataAndDescriptorIsSaid) {
  std::vector<uint8_t> file = test::bytes_of(sample("gfx1100.co"));
  const Elf elf = parse_elf(file);
  for (const ElfSymbol& s : elf.symbols)
    if (s.name == "tile_sum.kd") {
      const uint32_t lds = 8192;
      std::memcpy(file.data() + (elf.contents(s, 64).data() - file.data()), &lds, 4);
    }
  const CodeObject object = parse_code_object(file);
  ASSERT_EQ(object.problems.size(), 1u);
  EXPECT_NE(object.problems[0].find("tile_sum: the metadata says 4096 bytes of LDS, its descriptor 8192"),
            std::string::npos);
}

TEST(CodeObject, OtherMachinesAndOtherFilesAreRefused) {
  std::vector<uint8_t> file = test::bytes_of(sample("gfx942.co"));
  file[18] = 62;  // x86-64
  EXPECT_THROW(parse_code_object(file), Error);
  EXPECT_THROW(parse_code_object(Bytes()), Error);
  file[4] = 1;  // 32 bits
  EXPECT_THROW(parse_code_object(file), Error);
}

// --- containers

using Found = std::vector<std::tuple<std::string, std::string, std::string>>;  // member, container, target

Found found(const FileContents& contents) {
  Found out;
  for (const FoundObject& o : contents.objects) out.emplace_back(o.member, o.container, o.object.target);
  return out;
}

TEST(Container, EachKindIsOpened) {
  EXPECT_EQ(found(read_file_contents(sample_path("gfx942.co"))), (Found{{"", "elf", "gfx942"}}));
  EXPECT_EQ(found(read_file_contents(sample_path("fat.o"))),
            (Found{{".hip_fatbin", "bundle", "gfx1100"}, {".hip_fatbin", "bundle", "gfx942"}}));
  EXPECT_EQ(found(read_file_contents(sample_path("fat_compressed.o"))),
            (Found{{".hip_fatbin", "compressed bundle", "gfx1100"}, {".hip_fatbin", "compressed bundle", "gfx942"}}));
  EXPECT_EQ(found(read_file_contents(sample_path("compressed.hipfb"))),
            (Found{{"", "compressed bundle", "gfx1100"}, {"", "compressed bundle", "gfx942"}}));
  EXPECT_EQ(found(read_file_contents(sample_path("archive.a"))), (Found{{"fat.o: .hip_fatbin", "bundle", "gfx1100"},
                                                                        {"fat.o: .hip_fatbin", "bundle", "gfx942"},
                                                                        {"gfx90a.co", "archive", "gfx90a"}}));
  EXPECT_EQ(found(read_file_contents(sample_path("thin.a"))),
            (Found{{"gfx90a.co", "archive", "gfx90a"}, {"gfx1030.co", "archive", "gfx1030"}}));
}

TEST(Container, TheSameKernelsComeOutOfEachOfThem) {
  const CodeObject alone = parse_code_object(sample("gfx942.co").bytes);
  for (const char* file : {"fat.o", "fat_compressed.o", "compressed.hipfb", "archive.a"}) {
    const FileContents contents = read_file_contents(sample_path(file));
    EXPECT_TRUE(contents.problems.empty()) << contents.problems.front().what;
    for (const FoundObject& o : contents.objects) {
      if (o.object.gfx != "gfx942") continue;
      ASSERT_EQ(o.object.kernels.size(), alone.kernels.size());
      for (const Kernel& k : alone.kernels) EXPECT_EQ(find(o.object, k.symbol).vgpr, k.vgpr);
    }
  }
}

TEST(Container, EachVersionAndMethodOfCompressedBundles) {
  const std::vector<uint8_t> bundle = test::bundle({{"hipv4-amdgcn-amd-amdhsa--gfx942", sample("gfx942.co").bytes}});
  for (const int version : {1, 2, 3})
    for (const bool zstd : {false, true}) {
      const FileContents contents = test::contents(test::compressed_bundle(bundle, version, zstd));
      EXPECT_TRUE(contents.problems.empty()) << contents.problems.front().what;
      EXPECT_EQ(found(contents), (Found{{version == 1 ? "#1" : "", "compressed bundle", "gfx942"}})) << version << zstd;
    }
}

TEST(Container, SeveralBundlesInARow) {
  const std::vector<uint8_t> a = test::bundle({{"hipv4-amdgcn-amd-amdhsa--gfx942", sample("gfx942.co").bytes}});
  const std::vector<uint8_t> b = test::bundle(
      {{"host-x86_64-unknown-linux-gnu-", {}}, {"hipv4-amdgcn-amd-amdhsa--gfx1201", sample("gfx1201.co").bytes}});
  std::vector<uint8_t> both = test::padded(a, 4096);
  both.insert(both.end(), b.begin(), b.end());
  both = test::padded(both, 4096);
  const std::vector<uint8_t> c = test::compressed_bundle(a, 2, true);
  both.insert(both.end(), c.begin(), c.end());
  EXPECT_EQ(found(test::contents(both)),
            (Found{{"#1", "bundle", "gfx942"}, {"#2", "bundle", "gfx1201"}, {"#3", "compressed bundle", "gfx942"}}));
}

TEST(Container, AnEntryOfTheCompilersCache) {
  std::vector<uint8_t> entry(8);
  const Bytes code = sample("gfx1100.co").bytes;
  const uint64_t size = code.size();
  std::memcpy(entry.data(), &size, 8);
  entry.insert(entry.end(), code.begin(), code.end());
  for (const char c : std::string("warning: unused"))
    entry.push_back(static_cast<uint8_t>(c));  // what the compiler said
  EXPECT_EQ(found(test::contents(entry)), (Found{{"", "comgr cache", "gfx1100"}}));
}

TEST(Container, OffloadBinariesOfTheNewDriver) {
  EXPECT_EQ(found(test::contents(test::offload_binary("amdgcn-amd-amdhsa", "gfx942", sample("gfx942.co").bytes))),
            (Found{{"", "bundle", "gfx942"}}));
}

TEST(Container, WhatHasNoCodeForAmdGpusIsSaid) {
  EXPECT_EQ(test::contents(test::to_bytes("BC\xc0\xde and so on")).others.begin()->first,
            "LLVM bitcode (no machine code yet)");
  EXPECT_EQ(test::contents(test::to_bytes("\x83\xa9solutions\xdc and so on")).others.begin()->first,
            "Tensile selection library (no machine code)");
  std::vector<uint8_t> elf = test::bytes_of(sample("fat.o"));
  elf[18] = 190;  // CUDA
  EXPECT_EQ(test::contents(elf).others.begin()->first, "NVIDIA GPU code");
  const FileContents text =
      test::contents(test::to_bytes("# __CLANG_OFFLOAD_BUNDLE____START__ hip-amdgcn-amd-amdhsa--gfx942\ns_endpgm\n"));
  ASSERT_EQ(text.problems.size(), 1u);
  EXPECT_NE(text.problems[0].what.find("a text bundle (hip-amdgcn-amd-amdhsa--gfx942)"), std::string::npos);
}

TEST(Container, CodeThatWasRemovedIsSaid) {
  // Placeholder copies of libraries keep their size and lose their contents.
  std::vector<uint8_t> file = test::bytes_of(sample("fat.o"));
  const Elf elf = parse_elf(file);
  const Bytes fatbin = elf.find(".hip_fatbin")->data;
  std::fill_n(file.begin() + (fatbin.data() - file.data()), fatbin.size(), uint8_t{0});
  const FileContents contents = test::contents(file);
  EXPECT_TRUE(contents.objects.empty());
  ASSERT_EQ(contents.problems.size(), 1u);
  EXPECT_NE(contents.problems[0].what.find("all zero"), std::string::npos);
}

// --- names

TEST(Demangle, NamesOfEachKind) {
  Demangler demangle;
  EXPECT_EQ(demangle(kScale), "void sample::scale<float>(float*, float, int)");
  EXPECT_EQ(demangle("Cijk_Ailk_Bljk_SB_MT128x96x16"), "Cijk_Ailk_Bljk_SB_MT128x96x16");
  EXPECT_EQ(demangle("_Zbroken"), "_Zbroken");
  // Longer than the C++ library reads.
  EXPECT_EQ(demangle("_ZN2ck4gemmI" + std::string(2000, 'f') + "EEvv"), "ck::gemm<…>");
}

TEST(Demangle, NamesThatMultiplyWithEachStepAreBounded) {
  const std::string digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
  const auto symbol = [&](size_t levels) {  // each level names the one before twice
    std::string s = "_Z1fSt4pairI1AS0_E";
    for (size_t i = 0; i < levels; ++i) s += std::string("S_IS") + digits[i + 1] + "_S" + digits[i + 1] + "_E";
    return s;
  };
  Demangler demangle;
  EXPECT_EQ(demangle(symbol(2)).substr(0, 20), "f(std::pair<A, A>, s");
  EXPECT_EQ(demangle(symbol(34)), "f");  // 34 doublings of 20 characters would be 300 GB
  // Below the bound on references a name is still too long to be one, and not many of those are unrolled.
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(demangle(symbol(12)), "f");
}

}  // namespace
}  // namespace pyflame::tools::inspect
