// Foreign, truncated and hostile input: every reader answers with a sentence, in bounded time and memory. Run under AddressSanitizer
// as well (make asan).
#include <gtest/gtest.h>

#include <chrono>
#include <random>

#include "pyflame/base/error.h"
#include "tools/inspect/archive.h"
#include "tools/inspect/bundle.h"
#include "tools/inspect/code_object.h"
#include "tools/inspect/decompress.h"
#include "tools/inspect/elf.h"
#include "tools/inspect/msgpack.h"
#include "tools/inspect/sample.h"

namespace pyflame::tools::inspect {
namespace {

using test::Buffer;
using test::contents;
using test::sample;

// What a bundle of one small code object is: short enough for every prefix of it to be read.
Buffer small_bundle() {
  Buffer out = test::bundle({{"hipv4-amdgcn-amd-amdhsa--gfx942", sample("gfx942.co").bytes}});
  return out;
}

bool says(const FileContents& c, const std::string& what) {
  for (const Problem& p : c.problems)
    if (p.what.find(what) != std::string::npos) return true;
  return false;
}

TEST(Hostile, EveryPrefixOfACodeObject) {
  const Bytes whole = sample("gfx1100.co").bytes;
  size_t most = 0;
  for (size_t n = 0; n < whole.size(); ++n) {
    // A copy of its own: one byte too far is then beyond an allocation.
    const Buffer prefix(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(n));
    const FileContents c = contents(prefix);
    if (n >= 64) {
      EXPECT_FALSE(c.problems.empty()) << n;
    }
    for (const FoundObject& o : c.objects) most = std::max(most, o.object.kernels.size());
  }
  // The section table stands at the end of the file, notes are found by segments without it: a file that lost its end still says what
  // its kernels need.
  EXPECT_EQ(most, 5u);
}

TEST(Hostile, PrefixesOfEachContainer) {
  std::vector<Buffer> files = {small_bundle(),
                               test::compressed_bundle(small_bundle(), 3, true),
                               test::compressed_bundle(small_bundle(), 1, false),
                               test::bytes_of(sample("fat_compressed.o")),
                               test::bytes_of(sample("compressed.hipfb")),
                               test::bytes_of(sample("thin.a")),
                               test::offload_binary("amdgcn-amd-amdhsa", "gfx942", sample("gfx942.co").bytes)};
  for (const Buffer& whole : files)
    for (size_t n = 0; n < whole.size(); n += n < 600 ? 1 : 61)
      contents(Buffer(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(n)));
  const Buffer archive = test::bytes_of(sample("archive.a"));
  for (size_t n = 0; n < archive.size(); n += n < 600 ? 1 : 331)
    contents(Buffer(archive.begin(), archive.begin() + static_cast<ptrdiff_t>(n)));
}

TEST(Hostile, FlippedBits) {
  std::mt19937 random(20240229);
  for (const char* name :
       {"gfx942.co", "gfx1201.co", "no_metadata.co", "fat.o", "fat_compressed.o", "compressed.hipfb", "archive.a"}) {
    const Buffer whole = test::bytes_of(sample(name));
    for (int round = 0; round < 600; ++round) {
      Buffer damaged = whole;
      const int flips = 1 + static_cast<int>(random() % 8);
      // Half of them in the first 512 bytes and the last 2,048, where the tables stand.
      for (int i = 0; i < flips; ++i) {
        const size_t at = random() % 4 == 0   ? random() % std::min<size_t>(512, damaged.size())
                          : random() % 3 == 0 ? damaged.size() - 1 - random() % std::min<size_t>(2048, damaged.size())
                                              : random() % damaged.size();
        damaged[at] ^= static_cast<uint8_t>(1u << (random() % 8));
      }
      contents(damaged);
    }
  }
}

TEST(Hostile, RandomBytesBehindEachMagic) {
  std::mt19937 random(7);
  for (const std::string& magic :
       {std::string("\x7f"
                    "ELF\2\1\1\x40"),
        std::string("__CLANG_OFFLOAD_BUNDLE__"), std::string("CCOB\3\0\1\0", 8), std::string("!<arch>\n"),
        std::string("!<thin>\n"), std::string("\x10\xff\x10\xad\1\0\0\0", 8),
        std::string("# __CLANG_OFFLOAD_BUNDLE____START__ ")})
    for (int round = 0; round < 300; ++round) {
      Buffer file = test::to_bytes(magic);
      const size_t n = random() % 400;
      // Small numbers are likelier to be taken for sizes that fit.
      for (size_t i = 0; i < n; ++i) file.push_back(static_cast<uint8_t>(random() % 3 == 0 ? random() : random() % 3));
      contents(file);
    }
}

// --- MessagePack

Buffer code_object_with_note(const Buffer& metadata) {
  // An ELF file with one segment: the note.
  Buffer note;
  test::put<uint32_t>(note, 7);
  test::put<uint32_t>(note, static_cast<uint32_t>(metadata.size()));
  test::put<uint32_t>(note, 32);
  test::put_text(note, std::string_view("AMDGPU\0\0", 8));
  note.insert(note.end(), metadata.begin(), metadata.end());
  note = test::padded(note, 4);
  Buffer out;
  test::put_text(out, std::string_view("\x7f"
                                       "ELF\2\1\1\x40\3\0\0\0\0\0\0\0",
                                       16));
  test::put<uint16_t>(out, 3);
  test::put<uint16_t>(out, 224);
  test::put<uint32_t>(out, 1);
  test::put<uint64_t>(out, 0);
  test::put<uint64_t>(out, 64);
  test::put<uint64_t>(out, 0);
  test::put<uint32_t>(out, 0x54c);
  for (const uint16_t v : {64, 56, 1, 64, 0, 0}) test::put<uint16_t>(out, v);
  test::put<uint32_t>(out, 4);
  test::put<uint32_t>(out, 4);
  test::put<uint64_t>(out, 120);
  test::put<uint64_t>(out, 0);
  test::put<uint64_t>(out, 0);
  test::put<uint64_t>(out, note.size());
  test::put<uint64_t>(out, note.size());
  test::put<uint64_t>(out, 4);
  out.insert(out.end(), note.begin(), note.end());
  return out;
}

Buffer kernels_of(const Buffer& list) {
  Buffer out = test::to_bytes(
      "\x81\xae"
      "amdhsa.kernels");
  out.insert(out.end(), list.begin(), list.end());
  return out;
}

TEST(Hostile, MetadataThatIsRightIsReadFromASegment) {
  const CodeObject o =
      parse_code_object(code_object_with_note(kernels_of(test::to_bytes("\x91\x82\xa5.name\xa1k\xab.vgpr_count\x2a"))));
  ASSERT_EQ(o.kernels.size(), 1u);
  EXPECT_EQ(o.kernels[0].vgpr, 42u);
  EXPECT_FALSE(o.kernels[0].sgpr.has_value());
  EXPECT_TRUE(o.problems.empty());
}

TEST(Hostile, DeepNestingCostsNoStack) {
  const Buffer deep(4'000'000, 0x91);  // arrays of one array of one array …
  MsgpackReader in{Bytes(deep)};
  EXPECT_THROW(in.skip(), Error);
  Buffer closed(1'000'000, 0x91);
  closed.push_back(0xc0);
  MsgpackReader whole{Bytes(closed)};
  whole.skip();
  EXPECT_TRUE(whole.done());
  Buffer metadata = test::to_bytes("\x81\xa3xyz");
  metadata.insert(metadata.end(), 1'000'000, 0x81);
  EXPECT_EQ(parse_code_object(code_object_with_note(metadata)).problems.size(), 1u);
}

TEST(Hostile, AnnouncedCountsAllocateNothing) {
  for (const char* head : {"\xdf\xff\xff\xff\xff", "\xdd\xff\xff\xff\xff", "\xdb\xff\xff\xff\xff",
                           "\xc6\xff\xff\xff\xff", "\xc9\xff\xff\xff\xff"}) {
    MsgpackReader in{Bytes(reinterpret_cast<const uint8_t*>(head), 5)};
    EXPECT_THROW(in.skip(), Error);
    EXPECT_FALSE(parse_code_object(code_object_with_note(kernels_of(Buffer(head, head + 5)))).problems.empty());
  }
  // A kernel without a name is where reading ends; those before it stay.
  const CodeObject o = parse_code_object(
      code_object_with_note(kernels_of(test::to_bytes("\xdd\xff\xff\xff\xff\x81\xa5.name\xa1k\x80\x80"))));
  EXPECT_EQ(o.kernels.size(), 1u);
  ASSERT_EQ(o.problems.size(), 1u);
  EXPECT_NE(o.problems[0].find("cannot be read after 1 kernels"), std::string::npos);
}

TEST(Hostile, MetadataOfOtherTypes) {
  for (const char* text : {"\x91\x82\xa5.name\xa1k\xab.vgpr_count\xa1x", "\x91\x82\xa5.name\xa1k\xab.vgpr_count\xff",
                           "\x91\x81\xa5.name\x07", "\x91\x82\xa5.name\xa1k\xb4.reqd_workgroup_size\x91\x01",
                           "\x91\x82\xa5.name\xa1k\xa5.args\x81\xa1x\x01", "\x93\x01\x02\x03", "\x07"})
    EXPECT_FALSE(parse_code_object(code_object_with_note(kernels_of(test::to_bytes(text)))).problems.empty()) << text;
}

// --- bundles

TEST(Hostile, BundlesWithWrongTables) {
  Buffer many = test::to_bytes("__CLANG_OFFLOAD_BUNDLE__");
  test::put<uint64_t>(many, ~uint64_t{0});
  many.resize(200);
  EXPECT_TRUE(says(contents(many), "can contain"));

  Buffer overflow = test::bundle({{"hipv4-amdgcn-amd-amdhsa--gfx942", sample("gfx942.co").bytes}});
  const uint64_t offset = ~uint64_t{0} - 8;
  std::memcpy(overflow.data() + 32, &offset, 8);
  EXPECT_TRUE(says(contents(overflow), "is outside of the bundle"));

  Buffer name = test::bundle({{"hipv4-amdgcn-amd-amdhsa--gfx942", {}}});
  std::memcpy(name.data() + 48, &offset, 8);
  EXPECT_TRUE(says(contents(name), "cannot be read after entry 0"));
}

TEST(Hostile, ABundleThatContainsItselfManyTimes) {
  // Each entry is the whole file again: read without a bound, that is 500^8 bundles.
  std::vector<std::pair<std::string, Bytes>> entries(500, {"hipv4-amdgcn-amd-amdhsa--gfx942", {}});
  Buffer file = test::bundle(entries);
  const uint64_t size = file.size();
  size_t at = 32;
  for (size_t i = 0; i < entries.size(); ++i) {
    const uint64_t zero = 0;
    std::memcpy(file.data() + at, &zero, 8);
    std::memcpy(file.data() + at + 8, &size, 8);
    at += 24 + entries[i].first.size();
  }
  const auto begin = std::chrono::steady_clock::now();
  const FileContents c = contents(file);
  EXPECT_TRUE(says(c, "overlaps itself"));
  EXPECT_LT(c.problems.size(), 100u);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
}

TEST(Hostile, ManyMagicWordsAreReadInLinearTime) {
  Buffer file;
  for (int i = 0; i < 200'000; ++i) test::put_text(file, "CCOB\7\0\1\0");
  EXPECT_TRUE(says(contents(file), "version"));
}

// --- decompression

TEST(Hostile, BombsAreBounded) {
  const Buffer zeros(200 << 20, 0);
  for (const bool zstd : {false, true}) {
    const Buffer packed = test::compressed(zeros, zstd);
    const Compression method = zstd ? Compression::zstd : Compression::zlib;
    // It announces little and gives much: no byte beyond the announced ones is written.
    const Decompressed little = decompress(method, packed, 1000);
    EXPECT_EQ(little.data.bytes.size(), 1000u);
    EXPECT_NE(little.problem.find("more than the 1000 bytes"), std::string::npos);
  }
  // It announces much from little.
  const Buffer packed = test::compressed(zeros, true);
  const Decompressed refused = decompress(Compression::zstd, packed, zeros.size());
  EXPECT_TRUE(refused.data.bytes.empty());
  EXPECT_NE(refused.problem.find("are decompressed"), std::string::npos);
  for (const int version : {2, 3}) {
    const FileContents c = contents(test::compressed_bundle(small_bundle(), version, true, 0xffffffffu));
    EXPECT_TRUE(says(c, "are decompressed")) << version;
    EXPECT_TRUE(c.objects.empty());
  }
}

TEST(Hostile, ADamagedStreamGivesWhatCameBefore) {
  const Buffer whole = test::bundle({{"hipv4-amdgcn-amd-amdhsa--gfx942", sample("gfx942.co").bytes},
                                     {"hipv4-amdgcn-amd-amdhsa--gfx1100", sample("gfx1100.co").bytes}});
  const FileContents longer = contents(test::compressed_bundle(whole, 3, true, whole.size() + 100));
  EXPECT_TRUE(says(longer, "but announces"));
  EXPECT_EQ(longer.objects.size(), 2u);
  const FileContents shorter = contents(test::compressed_bundle(whole, 2, false, whole.size() - 8192));
  EXPECT_TRUE(says(shorter, "more than the"));
  EXPECT_TRUE(says(shorter, "is outside of the bundle"));
  ASSERT_EQ(shorter.objects.size(), 1u);
  EXPECT_EQ(shorter.objects[0].object.gfx, "gfx942");
}

// --- archives

TEST(Hostile, ArchivesWithWrongMembers) {
  const auto header = [](const std::string& name, const std::string& size) {
    std::string h = name + std::string(16 - name.size(), ' ') + std::string(32, '0') + size;
    h.resize(58, ' ');
    return h + "`\n";
  };
  for (const std::string& size : std::vector<std::string>{"99999999999", "-1", "x", "", "18446744073709551615"}) {
    const FileContents c = contents(test::to_bytes("!<arch>\n" + header("a/", size.substr(0, 10)) + "rest"));
    EXPECT_FALSE(c.problems.empty()) << size;
  }
  const Archive names =
      parse_archive(test::to_bytes("!<arch>\n" + header("/99999999", "2") + "xx" + header("#1/5000", "2") + "yy"));
  ASSERT_EQ(names.members.size(), 2u);
  EXPECT_EQ(names.members[0].name, "");
  EXPECT_EQ(names.members[1].name, "yy");
  // A thin archive names files; one that is not there is said.
  EXPECT_TRUE(says(contents(test::to_bytes("!<thin>\n" + header("nowhere.o/", "10"))), "cannot be opened"));
}

}  // namespace
}  // namespace pyflame::tools::inspect
