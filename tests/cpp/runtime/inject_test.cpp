// Kernels that fail on purpose (compile/inject.h): what is poisoned, on a device that computes and on the one that only plans.
#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "pyflame/autograd/autograd.h"
#include "pyflame/compile/inject.h"
#include "pyflame/ops/ops.h"
#include "pyflame/record/recorder.h"
#include "pyflame/runtime/address_space.h"
#include "pyflame/runtime/device.h"
#include "support/plan.h"
#include "support/tensor_values.h"

namespace pyflame {
namespace {

using testing::error_of;
using testing::expect_values;

bool sound(const Tensor& t) {
  try {
    t.data();
    return true;
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("failed on purpose"), std::string::npos) << e.what();
    return false;
  }
}

class Inject : public ::testing::TestWithParam<DeviceType> {
 protected:
  void SetUp() override {
    set_current_device(device_);
    set_reads_are_zeros(true);  // of the null device
  }
  void TearDown() override {
    flush();
    set_reads_are_zeros(false);
    stop_injecting();
    set_current_device({});
  }
  static void flush() {
    try {
      synchronize();
    } catch (const Error&) {
    }
  }
  void fail(const char* op, uint64_t run = 0, bool after = false) {
    synchronize();
    start_injecting({op, run, after});
  }
  bool computes() const { return GetParam() != DeviceType::null; }
  Device device_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Devices, Inject, ::testing::Values(DeviceType::cpu, DeviceType::null, DeviceType::reference),
                         [](const auto& at) { return Device{at.param}.str(); });

TEST_P(Inject, TheErrorNamesOpShapesAndWhatWasFusedWithIt) {
  const Tensor x = full({2, 3}, 1.0);
  fail("exp");
  const Tensor y = add(exp(mul(x, 2.0)), 1.0);
  const std::string text = error_of(ErrorKind::Runtime, [&] { y.data(); });
  for (const std::string& part : {std::string("exp: the kernel failed on purpose"),
                                  std::string("while running exp(float32(2, 3))"), "on " + device_.str()})
    EXPECT_NE(text.find(part), std::string::npos) << part << " is missing in: " << text;
  if (GetParam() != DeviceType::reference && testing::default_settings()) {
    for (const char* part : {"in one kernel with 2 other ops", "mul(float32(2, 3)", "add(float32(2, 3)"})
      EXPECT_NE(text.find(part), std::string::npos) << part << " is missing in: " << text;
  }
  EXPECT_NO_THROW(synchronize());  // it was told
  EXPECT_EQ(stop_injecting(), 1u);
  EXPECT_TRUE(sound(add(exp(mul(x, 2.0)), 1.0)));
}

TEST_P(Inject, OnlyTheRunThatIsDueFails) {
  fail("matmul", 2);
  const Tensor x = full({3, 3}, 1.0);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(sound(matmul(x, x)), i != 2);
    flush();
  }
  EXPECT_EQ(stop_injecting(), 5u);
}

TEST_P(Inject, AllResultsOfAnOpAndEverythingMadeOfThem) {
  const Tensor x = testing::make({3, 1, 2, 9, 7, 8}, {2, 3}, DType::float32);
  for (const bool after : {false, true}) {
    fail("topk", 0, after);
    const auto [values, index] = topk(x, 2);
    const Tensor below = sum(values), beside = add(x, 1.0), base = zeros({3, 2});
    const Tensor view = select(base, 0, 0);
    copy_(view, select(values, 0, 0));
    for (const Tensor& t : {values, index, below, base, view}) EXPECT_FALSE(sound(t));
    EXPECT_TRUE(sound(beside));
    const Tensor later = mul(values, 2.0);  // another window
    EXPECT_FALSE(sound(later));
    if (computes()) expect_values(beside, {4, 2, 3, 10, 8, 9});
    fill_(base, 5.0);  // as a whole
    EXPECT_TRUE(sound(view));
    if (computes()) expect_values(view, {5, 5});
    stop_injecting();
  }
}

TEST_P(Inject, OtherThreadsSeeIt) {
  fail("softmax");
  const Tensor bad = softmax(full({2, 3}, 1.0), 1), good = full({2, 3}, 2.0);
  std::thread([&] {
    set_reads_are_zeros(true);
    EXPECT_FALSE(sound(add(bad, 1.0)));
    EXPECT_TRUE(sound(add(good, 1.0)));
  }).join();
  EXPECT_FALSE(sound(bad));
}

TEST_P(Inject, AnUpdateOfManyTensorsSpoilsThoseOfSpoiltGradients) {
  Tensors p, g, m, v;
  for (int i = 0; i < 3; ++i) {
    p.push_back(full({4}, 1.0));
    m.push_back(zeros({4}));
    v.push_back(zeros({4}));
    g.push_back(full({4}, 0.5));
  }
  fail("tanh");
  g[1] = tanh(g[1]);
  flush();
  adam_step(p, g, m, v, {0.1, 0.9, 0.99, 1e-8, 0, 1, false, false});
  sgd_step(p, g, {}, {0.1, 0, 0, 0, false, false, true});
  for (size_t i = 0; i < 3; ++i)
    for (const Tensor& t : {p[i], m[i], v[i]}) EXPECT_EQ(sound(t), i != 1);
  if (computes()) expect_values(p[0], {0.85, 0.85, 0.85, 0.85}, 1e-6);
}

TEST_P(Inject, AGradientThatFailsLeavesTheForwardPassAndOtherLeaves) {
  Tensor a = full({3, 4}, 1.0), b = full({3, 4}, 1.0);
  a.set_requires_grad(true);
  b.set_requires_grad(true);
  const Tensor y = add(sum(mul(a, 2.0)), sum(rms_norm(b, {4})));
  fail("rms_norm_grad");
  EXPECT_THROW(autograd::backward({y}), Error);
  EXPECT_TRUE(sound(y));
  EXPECT_TRUE(sound(b));
  EXPECT_FALSE(sound(b.grad()));
  EXPECT_TRUE(sound(a.grad()));
  if (computes()) expect_values(a.grad(), std::vector<double>(12, 2.0));
}

}  // namespace
}  // namespace pyflame
