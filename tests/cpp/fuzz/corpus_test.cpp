// What the fuzzer found once stays mended: every file of tests/fuzz/corpus/<target> is read again by that target.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "fuzz/targets.h"
#include "support/source_dir.h"

namespace pyflame::fuzz {
namespace {

const std::filesystem::path kCorpus = test::file_of_project("tests/fuzz/corpus");

std::vector<uint8_t> bytes_of(const std::filesystem::path& path) {
  const std::string text = test::read_all(path.string());
  return {text.begin(), text.end()};
}

TEST(FuzzCorpus, EveryFindingIsRead) {
  size_t files = 0;
  for (const auto& folder : std::filesystem::directory_iterator(kCorpus)) {
    const Target* target = find_target(folder.path().filename().string());
    ASSERT_NE(target, nullptr) << folder.path() << " is no target";
    for (const auto& file : std::filesystem::directory_iterator(folder)) {
      SCOPED_TRACE(file.path().string());
      EXPECT_NO_THROW(run(*target, bytes_of(file.path())));
      ++files;
    }
  }
  EXPECT_GT(files, 0u);
}

TEST(FuzzCorpus, EveryTargetReadsNothingAndNonsense) {
  const std::vector<std::vector<uint8_t>> inputs = {{},
                                                    {0},
                                                    std::vector<uint8_t>(4096, 0),
                                                    std::vector<uint8_t>(4096, 0xff),
                                                    {'{', '"', 'a', '"', ':', '['},
                                                    {'\n', ',', '\n'}};
  for (const Target& target : targets())
    for (const auto& input : inputs) {
      SCOPED_TRACE(target.name);
      EXPECT_NO_THROW(run(target, input));
    }
}

}  // namespace
}  // namespace pyflame::fuzz
