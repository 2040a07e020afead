// The record of measured entries: what was measured in one environment says nothing in another, unsound entries never win, two users of
// one file see each other's entries, and a file that cannot be used is as if it were empty.
#include "pyflame/compile/choices.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "support/temp_folder.h"

namespace pyflame {
namespace {

const Environment kHere{"H", "sm_90", "13000", "", "1"};

TEST(Choices, TheFastestSoundEntryOfThisEnvironment) {
  test::TempFolder folder;
  Choices& c = Choices::in(folder.str() + "/choices.sqlite");
  if (!c.trouble().empty()) GTEST_SKIP() << c.trouble();
  EXPECT_FALSE(c.best(kHere, "matmul", "p"));
  c.store(kHere, "matmul", "p", {{"slow", 9, 0, true}, {"wrong", 1, 1e9, false}, {"fast", 3, 0.5, true}});
  EXPECT_EQ(c.best(kHere, "matmul", "p"), "fast");
  EXPECT_FALSE(c.best(kHere, "matmul", "another problem"));
  EXPECT_FALSE(c.best(kHere, "conv2d", "p"));
  for (Environment other :
       {Environment{"H", "sm_90", "13010", "", "1"}, Environment{"H", "sm_90", "13000", "", "2"},
        Environment{"A", "sm_90", "13000", "", "1"}, Environment{"H", "sm_90", "13000", "cublaslt 130002", "1"}})
    EXPECT_FALSE(c.best(other, "matmul", "p"));
  c.store(kHere, "matmul", "p", {{"slow", 2, 0, true}});  // measured again
  EXPECT_EQ(c.best(kHere, "matmul", "p"), "slow");
}

TEST(Choices, AFileThatIsNoDatabaseIsLeftAlone) {
  test::TempFolder folder;
  const std::string path = folder.str() + "/choices.sqlite";
  std::ofstream(path) << std::string(5000, 'x');
  Choices& c = Choices::in(folder.str() + "/choices.sqlite");
  EXPECT_FALSE(c.trouble().empty());
  EXPECT_FALSE(c.best(kHere, "matmul", "p"));
  c.store(kHere, "matmul", "p", {{"a", 1, 0, true}});
  EXPECT_EQ(std::filesystem::file_size(path), 5000u);
}

TEST(Choices, AFolderThatCannotBeWritten) {
  Choices& c = Choices::in("/proc/no/such/folder/choices.sqlite");
  EXPECT_FALSE(c.trouble().empty());
  EXPECT_FALSE(c.best(kHere, "matmul", "p"));
}

}  // namespace
}  // namespace pyflame
