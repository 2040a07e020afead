// The layout of a result follows the op, its inputs and the backend's preference.
#include <gtest/gtest.h>

#include "pyflame/backends/backend.h"
#include "pyflame/ops/ops.h"
#include "pyflame/record/emit.h"

namespace pyflame {
namespace {

constexpr auto row_major = MemoryFormat::contiguous, channels_last = MemoryFormat::channels_last;

MemoryFormat preference(DeviceType device, OpId op, DType dtype, const Dims& x, const Dims& weight, const Dims& result,
                        MemoryFormat given = row_major) {
  return find_backend(device)->preferred_format({op, dtype, result, {&x, &weight}, given});
}

TEST(PreferredFormat, CpuTakesLargeConvolutionsChannelsLast) {
  const auto conv = [](DType dtype, int64_t channels, int64_t side, int64_t taps) {
    return preference(DeviceType::cpu, OpId::conv2d, dtype, {4, channels, side, side}, {16, channels, taps, taps},
                      {4, 16, side, side});
  };
  EXPECT_EQ(conv(DType::float32, 16, 20, 3), channels_last);
  EXPECT_EQ(conv(DType::float32, 16, 20, 1), row_major);  // single pixels
  EXPECT_EQ(conv(DType::float32, 16, 2, 3), row_major);   // too little work
  EXPECT_EQ(conv(DType::float64, 16, 20, 3), row_major);
  EXPECT_EQ(conv(DType::float16, 16, 20, 3), row_major);
}

TEST(PreferredFormat, CpuTakesTheGradientOfAnImageByItsOwnChannels) {
  const auto gradient = [](int64_t channels) {
    return preference(DeviceType::cpu, OpId::conv2d_grad_input, DType::float32, {4, 16, 20, 20}, {16, channels, 3, 3},
                      {4, channels, 20, 20});
  };
  EXPECT_EQ(gradient(16), channels_last);
  EXPECT_EQ(gradient(12), row_major);  // no whole vectors
}

TEST(PreferredFormat, GpusTakeConvolutionsOfMatrixUnitsChannelsLast) {
  for (const DeviceType device : {DeviceType::rocm, DeviceType::cuda}) {
    if (!find_backend(device)) continue;
    const auto conv = [&](DType dtype, int64_t channels_of_a_group, int64_t made) {
      return preference(device, OpId::conv2d, dtype, {1, 8, 4, 4}, {made, channels_of_a_group, 3, 3}, {1, made, 4, 4});
    };
    EXPECT_EQ(conv(DType::bfloat16, 8, 16), channels_last);
    EXPECT_EQ(conv(DType::float16, 8, 12), row_major);
    EXPECT_EQ(conv(DType::float16, 1, 8), row_major);  // depthwise
    EXPECT_EQ(conv(DType::float32, 8, 16), row_major);
  }
}

TEST(PreferredFormat, ImagesKeepTheirFormatWhereTheBackendComputesBoth) {
  for (const auto& [device, expected] : {std::pair{DeviceType::cpu, channels_last},
                                         {DeviceType::rocm, channels_last},
                                         {DeviceType::reference, row_major},
                                         {DeviceType::null, row_major}}) {
    if (!find_backend(device)) continue;
    EXPECT_EQ(preference(device, OpId::relu, DType::float32, {2, 3, 4, 5}, {}, {2, 3, 4, 5}, channels_last), expected);
    EXPECT_EQ(preference(device, OpId::relu, DType::float32, {2, 3, 4, 5}, {}, {2, 3, 4, 5}), row_major);
  }
}

TEST(FreeLayout, FollowsAConvolutionAndEndsWhenSomebodyLooks) {
  const Tensor x = randn({4, 16, 20, 20}), w = randn({16, 16, 3, 3});
  const Tensor y = relu(conv2d(x, w, {}, 1, 1));
  ASSERT_TRUE(y.is_channels_last());
  EXPECT_TRUE(y.impl()->free_layout);
  const Storage* before = y.storage().get();
  fix_layout(y);
  EXPECT_FALSE(y.impl()->free_layout);
  EXPECT_TRUE(y.is_contiguous());
  EXPECT_NE(y.storage().get(), before);
  fix_layout(y);  // once is enough
  EXPECT_TRUE(y.is_contiguous());
}

TEST(FreeLayout, AUsersOwnLayoutStays) {
  const Tensor x = contiguous(randn({2, 3, 4, 5}), channels_last), y = relu(x);
  EXPECT_TRUE(y.is_channels_last());
  EXPECT_FALSE(y.impl()->free_layout);
  fix_layout(y);
  EXPECT_TRUE(y.is_channels_last());
}

TEST(FreeLayout, TheReferenceIsRowMajor) {
  const Device reference{DeviceType::reference};
  const Tensor x = contiguous(to_device(randn({2, 3, 4, 5}), reference), channels_last);
  EXPECT_TRUE(x.is_channels_last());
  EXPECT_TRUE(relu(x).is_contiguous());
}

}  // namespace
}  // namespace pyflame
