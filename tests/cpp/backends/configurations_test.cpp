// What configurations have in common, whatever implementation they are of.
#include <gtest/gtest.h>

#include "pyflame/backends/backend.h"

namespace pyflame {

namespace {

TEST(Configurations, PartsThatDiffer) {
  EXPECT_EQ(differing_parts("", ""), 0U);
  EXPECT_EQ(differing_parts("tile=64x64,splits=2", "tile=64x64,splits=2"), 0U);
  EXPECT_EQ(differing_parts("tile=64x64,splits=2", "splits=2,tile=64x64"), 0U) << "the order means nothing";
  EXPECT_EQ(differing_parts("tile=64x64,splits=2", "tile=64x64,splits=3"), 1U);
  EXPECT_EQ(differing_parts("tile=64x64", "tile=64x64,dies=8"), 1U);
  EXPECT_EQ(differing_parts("tile=64x64,dies=8", "tile=64x64"), 1U);
  EXPECT_EQ(differing_parts("tile=64x64,waves=4", "tile=128x64,splits=2"), 3U);
  EXPECT_EQ(differing_parts("held", "held,"), 0U);
  EXPECT_EQ(differing_parts("", "threads=1"), 1U);
}

}  // namespace

}  // namespace pyflame
