// Strides from shapes, and what given strides amount to.
#include "pyflame/tensor/layout.h"

#include <gtest/gtest.h>

namespace pyflame {
namespace {

using enum MemoryFormat;

TEST(Layout, ContiguityIgnoresDimsOfOneAndEmptyTensors) {
  EXPECT_EQ(contiguous_strides({2, 3, 4}), (Dims{12, 4, 1}));
  EXPECT_EQ(contiguous_strides({2, 0, 4}), (Dims{4, 4, 1}));
  EXPECT_TRUE(is_contiguous({2, 1, 4}, {4, 99, 1}));
  EXPECT_TRUE(is_contiguous({}, {}));
  EXPECT_TRUE(is_contiguous({0, 5}, {1, 7}));
  EXPECT_FALSE(is_contiguous({2, 4}, {1, 2}));
  EXPECT_FALSE(is_contiguous({2, 4}, {0, 1}));
}

TEST(Layout, ExtentIsTheReachOfAView) {
  EXPECT_EQ(extent({2, 3}, {10, 2}), 15);
  EXPECT_EQ(extent({5, 3}, {0, 1}), 3);
  EXPECT_EQ(extent({5, 0}, {1, 1}), 0);
  EXPECT_EQ(extent({}, {}), 1);
}

TEST(Layout, BroadcastDimsHaveStrideZero) {
  EXPECT_EQ(broadcast_strides({3, 1}, {1, 1}, {2, 3, 4}), (Dims{0, 1, 0}));
  EXPECT_EQ(broadcast_strides({1, 4}, {9, 2}, {1, 4}), (Dims{9, 2}));
}

TEST(Layout, StridesOfAMemoryFormat) {
  EXPECT_EQ(strides_of({2, 3, 4, 5}, contiguous), (Dims{60, 20, 5, 1}));
  EXPECT_EQ(strides_of({2, 3, 4, 5}, channels_last), (Dims{60, 1, 15, 3}));
  EXPECT_EQ(strides_of({2, 3}, contiguous), (Dims{3, 1}));
  EXPECT_EQ(nhwc({2, 3, 4, 5}), (Dims{2, 4, 5, 3}));
}

TEST(Layout, FormatOfStrides) {
  const Dims images{2, 3, 4, 5};
  EXPECT_TRUE(has_format(images, {60, 20, 5, 1}, contiguous));
  EXPECT_FALSE(has_format(images, {60, 20, 5, 1}, channels_last));
  EXPECT_TRUE(has_format(images, {60, 1, 15, 3}, channels_last));
  EXPECT_FALSE(has_format(images, {60, 1, 15, 3}, contiguous));
  // Rows of a larger image are of neither.
  EXPECT_FALSE(has_format(images, {120, 1, 30, 3}, channels_last));
  EXPECT_FALSE(has_format(images, {120, 40, 10, 1}, contiguous));
}

TEST(Layout, OneChannelOrOnePixelHasBothFormats) {
  for (const Dims& images : {Dims{2, 1, 4, 5}, Dims{2, 3, 1, 1}, Dims{2, 0, 4, 5}})
    for (const MemoryFormat made : {contiguous, channels_last})
      for (const MemoryFormat asked : {contiguous, channels_last})
        EXPECT_TRUE(has_format(images, strides_of(images, made), asked)) << images.str();
}

TEST(Layout, OnlyFourDimsAreChannelsLast) {
  EXPECT_FALSE(has_format({3, 4, 5}, {1, 15, 3}, channels_last));
  EXPECT_FALSE(has_format({1, 2, 3, 4, 5}, {120, 60, 1, 15, 3}, channels_last));
}

}  // namespace
}  // namespace pyflame
