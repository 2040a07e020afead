// The run time on a device: copies that do not wait, memory that comes back, replays that compute what launches do, failures that are told
// later. On 'cuda' or 'rocm' where there is one; skipped with the reason otherwise.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "pyflame/backends/gpu/device.h"
#include "pyflame/backends/gpu/graph.h"
#include "pyflame/backends/gpu/pinned.h"
#include "pyflame/base/env.h"
#include "pyflame/compile/explain.h"
#include "pyflame/compile/program.h"
#include "pyflame/ops/ops.h"
#include "pyflame/record/recorder.h"
#include "pyflame/runtime/allocator.h"
#include "pyflame/runtime/device.h"
#include "pyflame/runtime/replayer.h"
#include "support/tensor_values.h"

namespace pyflame {
namespace {

TEST(GpuGraphs, AreOffWhereTheyAreKnownToBeWrong) {
  EXPECT_NE(gpu::graphs_corrupt(DeviceType::rocm, "gfx942", 70253211), "");
  EXPECT_EQ(gpu::graphs_corrupt(DeviceType::rocm, "gfx942", 60443484), "");
  EXPECT_EQ(gpu::graphs_corrupt(DeviceType::rocm, "gfx1100", 70253211), "");
  EXPECT_NE(gpu::graphs_corrupt(DeviceType::rocm, "gfx950", 70051831), "");
  EXPECT_EQ(gpu::graphs_corrupt(DeviceType::cuda, "sm_90", 13000), "");
}

class GpuRunTime : public ::testing::Test {
 protected:
  void SetUp() override {
    if (device_count(DeviceType::cuda) > 0) where_ = {DeviceType::cuda, 0};
    else if (device_count(DeviceType::rocm) > 0) where_ = {DeviceType::rocm, 0};
    else GTEST_SKIP() << "no GPU: " << unavailable_reason(DeviceType::cuda);
    memory_ = device_memory(where_);
  }
  static std::vector<float> read(const Tensor& t) {
    const Tensor host = contiguous(to_device(t, Device{}));
    const auto* p = static_cast<const float*>(host.data());
    return std::vector<float>(p, p + host.numel());
  }
  Device where_;
  DeviceMemory* memory_ = nullptr;
};

TEST_F(GpuRunTime, CopiesOfAllSizesArriveInOrder) {
  std::vector<char> sent(size_t{21} << 20), got(sent.size());
  for (size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<char>(i * 131 + (i >> 12));
  void* p = memory_->allocate(sent.size());
  ASSERT_NE(p, nullptr);
  for (const size_t n :
       {size_t{1}, size_t{255}, size_t{65536}, size_t{65537}, size_t{600000}, size_t{4} << 20, sent.size()})
    for (int round = 0; round < 3; ++round) {
      for (size_t i = 0; i < n; i += 997) ++sent[i];
      memory_->from_host(p, sent.data(), n);
      std::memset(got.data(), 0, n);
      memory_->to_host(got.data(), p, n);
      ASSERT_EQ(std::memcmp(got.data(), sent.data(), n), 0) << n;
    }
  // Many small ones in a row go round the ring several times.
  for (int i = 0; i < 3000; ++i) {
    const int value[64] = {i, i + 1};
    memory_->from_host(static_cast<char*>(p) + 4096 * (i % 512), value, 4096 < sizeof value ? 4096 : sizeof value);
  }
  int last[2] = {};
  memory_->to_host(last, static_cast<char*>(p) + 4096 * (2999 % 512), sizeof last);
  EXPECT_EQ(last[0], 2999);
  EXPECT_EQ(last[1], 3000);
  memory_->release(p);
}

TEST_F(GpuRunTime, MarksPassInOrder) {
  const uint64_t a = memory_->mark(), b = memory_->mark();
  EXPECT_LT(a, b);
  memory_->wait();
  EXPECT_TRUE(memory_->passed(b));
  EXPECT_TRUE(memory_->passed(a));
}

TEST_F(GpuRunTime, MemoryComesBackAndIsCounted) {
  synchronize();
  const MemoryStats before = memory_stats(where_);
  {
    const Tensor x = zeros({1 << 20}, DType::float32, where_);
    synchronize();
    EXPECT_GE(memory_stats(where_).allocated, before.allocated + (4 << 20));
  }
  synchronize();
  EXPECT_EQ(memory_stats(where_).allocated, before.allocated);
  for (int i = 0; i < 20; ++i) {
    const Tensor x = full({1 << 20}, i, DType::float32, where_);
    synchronize();
  }
  EXPECT_LE(memory_stats(where_).allocations, before.allocations + 2);
}

TEST_F(GpuRunTime, OutOfMemoryIsReportedAndSurvived) {
  const Tensor sound = full({4}, 2.0, DType::float32, where_);
  Tensor huge = zeros({int64_t{1} << 46}, DType::uint8, where_);
  try {
    huge.data();
    FAIL() << "no device has so much";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::OutOfMemory);
    for (const char* part : {"live:", "largest hole", "held by other processes", "hint:"})
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << part << " is missing in: " << e.what();
  }
  EXPECT_EQ(read(sound), (std::vector<float>{2, 2, 2, 2}));
}

TEST_F(GpuRunTime, ReplaysComputeWhatLaunchesDo) {
  const Tensor x = rand({64, 33}, DType::float32, where_);
  const ReplayStats before = replay_stats();
  std::vector<float> first;
  for (int i = 0; i < 60; ++i) {
    // Another number each time: an argument of the graph.
    Tensor y = mul(x, static_cast<double>(i));
    for (int k = 0; k < 6; ++k) y = softmax(y, 1);
    cut_window();
    const std::vector<float> now = read(y);
    Tensor want = mul(to_device(x, Device{}), static_cast<double>(i));
    for (int k = 0; k < 6; ++k) want = softmax(want, 1);
    const std::vector<float> expected = read(want);
    for (size_t j = 0; j < now.size(); ++j) ASSERT_NEAR(now[j], expected[j], 1e-5) << "round " << i;
  }
  const ReplayStats after = replay_stats();
  EXPECT_EQ(after.differed, before.differed);
  const bool may = env::gpu_graphs() != "0" && memory_->replay_unsafe().empty();
  EXPECT_EQ(after.verified > before.verified, may);
  if (may && env::gpu_graphs() == "1") {
    EXPECT_GT(after.replays, before.replays + 20);
  }
}

}  // namespace
}  // namespace pyflame
