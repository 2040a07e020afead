// The run time on a device: copies that do not wait, memory that comes back, replays that compute what launches do, failures that are told
// later. On 'cuda' or 'rocm' where there is one; skipped with the reason otherwise.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "pyflame/autograd/autograd.h"
#include "pyflame/backends/gpu/driver/arch.h"
#include "pyflame/backends/gpu/driver/device.h"
#include "pyflame/backends/gpu/driver/graph.h"
#include "pyflame/backends/gpu/driver/pinned.h"
#include "pyflame/base/env.h"
#include "pyflame/compile/program.h"
#include "pyflame/ops/ops.h"
#include "pyflame/optim/optim.h"
#include "pyflame/record/recorder.h"
#include "pyflame/runtime/allocator.h"
#include "pyflame/runtime/device.h"
#include "pyflame/runtime/explain.h"
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

TEST(GpuArch, AnOverrideIntoAnotherFamilyIsRefused) {
  EXPECT_EQ(gpu::override_refusal("V", "10.3.0", 100301), "");
  EXPECT_EQ(gpu::override_refusal("V", "11.0.0", 110003), "");
  EXPECT_EQ(gpu::override_refusal("V", "", 110003), "");
  const std::string why = gpu::override_refusal("V", "10.3.0", 110000);
  for (const char* part : {"V=10.3.0", "gfx1100", "unset V"}) EXPECT_NE(why.find(part), std::string::npos) << why;
  EXPECT_NE(gpu::override_refusal("V", "9.0.10", 90402), "");
}

TEST(GpuArch, OnlyTheMatrixInstructionsOfMi200FlushSubnormals) {
  EXPECT_TRUE(gpu::matrix_units_flush("gfx90a"));
  for (const char* arch : {"gfx908", "gfx942", "gfx950", "gfx1100", "sm_90"})
    EXPECT_FALSE(gpu::matrix_units_flush(arch));
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

// A bad index is reported at the first read that depends on it, with the op and the numbers. All other results are right, and the device works on.
// A cache that is larger than what is saved for a check: only rows of it are replaced, so the program is replayed all the same.
TEST_F(GpuRunTime, RowsOfALargeCacheAreReplayed) {
  if (env::gpu_graphs() == "0" || !memory_->replay_unsafe().empty()) GTEST_SKIP() << "replay is off";
  constexpr int64_t kRows = int64_t{1200} << 10, kWidth = 64;  // 300 MiB
  const Tensor cache = empty({kRows, kWidth}, DType::float32, where_);
  const Tensor x = rand({2, kWidth}, DType::float32, where_);
  const uint64_t before = replay_stats().replays;
  for (int64_t i = 0; i < 40; ++i) {
    const int64_t at[] = {i, kRows - 1 - i};
    const Tensor rows = to_device(from_host(at, {2}, DType::int64), where_);
    const Tensor values = mul(x, static_cast<double>(i + 1));
    put_slices_(cache, 0, rows, values);
    const Tensor sums = sum(index_select(cache, 0, rows), {1});
    const std::vector<float> got = read(sums), want = read(sum(values, {1}));
    EXPECT_EQ(got, want) << i;
  }
  EXPECT_GT(replay_stats().replays, before);
}

TEST_F(GpuRunTime, ABadIndexTaintsWhatDependsOnIt) {
  const Tensor table = to_device(arange(0, 20, 1, DType::float32, Device{}), where_);
  const auto index = [&](int64_t i) { return full({2}, static_cast<double>(i), DType::int64, where_); };
  const Tensor good = index_select(table, 0, index(3));
  cut_window();
  const Tensor bad = index_select(table, 0, index(25));
  const Tensor beside = add(table, 1.0);
  cut_window();
  const Tensor derived = mul(bad, 2.0);  // in a window of its own
  const Tensor also_good = index_select(table, 0, index(4));
  cut_window();
  EXPECT_EQ(read(good), (std::vector<float>{3, 3}));
  EXPECT_EQ(read(beside)[19], 20.0f);
  for (const Tensor& t : {bad, derived, bad}) try {
      read(t);
      ADD_FAILURE() << "an index was out of range";
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::Index);
      for (const char* part : {"index_select", "25", "20", "float32(20,)"})
        EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << part << " is missing in: " << e.what();
    }
  EXPECT_EQ(read(also_good), (std::vector<float>{4, 4}));
  EXPECT_NO_THROW(synchronize());  // it was told
  const Tensor after = index_select(table, 0, index(19));
  EXPECT_EQ(read(after), (std::vector<float>{19, 19}));
  index_select(table, 0, index(-1));
  EXPECT_THROW(synchronize(), Error);  // nobody holds it: told all the same
  EXPECT_NO_THROW(synchronize());
}

TEST_F(GpuRunTime, CopiesBetweenDevices) {
  if (device_count(where_.type) < 2) GTEST_SKIP() << "one device only";
  const Device other{where_.type, 1};
  const Tensor x = rand({1000, 333}, DType::float32, where_);
  const Tensor y = to_device(add(x, 1.0), other);
  const Tensor z = to_device(mul(y, 2.0), where_);
  const std::vector<float> want = read(mul(add(x, 1.0), 2.0)), got = read(z);
  EXPECT_EQ(got, want);
  EXPECT_EQ(y.device(), other);
}

struct Net {
  Device where;
  std::vector<std::pair<std::string, Tensor>> params;
  Net(Device d, const std::vector<Tensor>& from) : where(d) {
    for (size_t i = 0; i < from.size(); ++i) {
      Tensor t = d == Device{} ? clone(from[i]) : to_device(from[i], d);
      t.set_requires_grad(true);
      params.emplace_back("p" + std::to_string(i), t);
    }
  }
  // With a smooth activation: where relu is near 0, two roundings of a number may differ by a whole gradient.
  Tensor loss(const Tensor& x, const Tensor& y) const {
    Tensor h = to_device(x, where);
    for (size_t i = 0; i < params.size(); i += 2) {
      h = linear(h, params[i].second, params[i + 1].second);
      if (i + 2 < params.size()) h = tanh(h);
    }
    return cross_entropy(h, to_device(y, where));
  }
};

// Consecutive windows, reused memory, updates in place and replays, all together.
TEST_F(GpuRunTime, TrainingIsTheHosts) {
  std::vector<Tensor> start;
  for (const auto& [out, in] : {std::pair<int64_t, int64_t>{24, 33}, {16, 24}, {10, 16}}) {
    start.push_back(mul(rand({out, in}, DType::float32, Device{}), 0.2));
    start.push_back(zeros({out}, DType::float32, Device{}));
  }
  const Tensor x = rand({8, 33}, DType::float32, Device{}), y = remainder(arange(0, 8, 1, DType::int64, Device{}), 10);
  const uint64_t differed = replay_stats().differed;
  Net host(Device{}, start), gpu(where_, start);
  optim::Adam host_adam(host.params, {.lr = 1e-2}), gpu_adam(gpu.params, {.lr = 1e-2});
  for (int i = 0; i < 25; ++i) {
    const Tensor a = host.loss(x, y), b = gpu.loss(x, y);
    host_adam.zero_grad();
    gpu_adam.zero_grad();
    autograd::backward({a});
    autograd::backward({b});
    for (size_t k = 0; k < host.params.size(); ++k) {
      const std::vector<float> want = read(host.params[k].second.grad()), got = read(gpu.params[k].second.grad());
      for (size_t j = 0; j < want.size(); ++j)
        ASSERT_NEAR(got[j], want[j], 1e-4) << "step " << i << ", gradient " << k << ", element " << j;
    }
    host_adam.step();
    gpu_adam.step();
    ASSERT_NEAR(read(b)[0], read(a)[0], 1e-4) << "step " << i;
    for (size_t k = 0; k < host.params.size(); ++k) {
      const std::vector<float> want = read(host.params[k].second), got = read(gpu.params[k].second);
      for (size_t j = 0; j < want.size(); ++j)
        ASSERT_NEAR(got[j], want[j], 1e-3) << "step " << i << ", parameter " << k;
    }
  }
  EXPECT_EQ(replay_stats().differed, differed) << "a replay, in branches or as a chain, is not what was launched";
}

// Without a read in between: as a program trains.
TEST_F(GpuRunTime, TrainingLearns) {
  std::vector<Tensor> start;
  for (const auto& [out, in] : {std::pair<int64_t, int64_t>{24, 33}, {16, 24}, {10, 16}}) {
    start.push_back(mul(sub(rand({out, in}, DType::float32, Device{}), 0.5), 0.4));
    start.push_back(zeros({out}, DType::float32, Device{}));
  }
  const Tensor x = to_device(rand({8, 33}, DType::float32, Device{}), where_),
               y = to_device(remainder(arange(0, 8, 1, DType::int64, Device{}), 10), where_);
  Net net(where_, start);
  optim::Adam adam(net.params, {.lr = 1e-2});
  std::vector<Tensor> losses;
  for (int i = 0; i < 200; ++i) {
    losses.push_back(net.loss(x, y));
    adam.zero_grad();
    autograd::backward({losses.back()});
    adam.step();
  }
  EXPECT_GT(read(losses.front())[0], 2.0f);
  EXPECT_LT(read(losses.back())[0], 0.1f);
}

}  // namespace
}  // namespace pyflame
