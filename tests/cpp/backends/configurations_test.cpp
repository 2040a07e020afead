// What configurations have in common, whatever implementation they are of.
#include <gtest/gtest.h>

#include "pyflame/backends/backend.h"
#include "pyflame/backends/cpu/estimate.h"

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

// The estimate of work that threads of the CPU share.
TEST(Configurations, TasksOfThreads) {
  const auto us = [](double number, double threads, double whole_us, double bytes = 0) {
    return cpu::tasks_us({number, whole_us / number, bytes / number, bytes}, threads);
  };
  EXPECT_LT(us(8, 8, 10000), us(1, 8, 10000)) << "one task leaves seven threads idle";
  EXPECT_LT(us(8, 8, 10000), us(9, 8, 10000)) << "in the last round one thread works";
  EXPECT_LT(us(8, 8, 10000), us(800, 8, 10000)) << "tasks are handed out";
  EXPECT_LT(us(1, 1, 4), us(8, 8, 4)) << "other threads must wake up";
  EXPECT_EQ(us(8, 8, 10, 1e9), us(16, 16, 10, 1e9)) << "memory is the limit";
}

}  // namespace

}  // namespace pyflame
