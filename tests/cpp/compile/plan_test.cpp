// Plans are results: how many steps named snippets take, how many bytes they need, and that numbers which change from call to call
// make no new programs. On the device 'null', which plans and runs nothing, unless the CPU's own choices are meant.
#include <gtest/gtest.h>

#include "pyflame/autograd/autograd.h"
#include "pyflame/ops/ops.h"
#include "support/plan.h"

namespace pyflame {
namespace {

using testing::Plan;
using testing::plan_of;

constexpr Device kNull{DeviceType::null};

class Plans : public ::testing::TestWithParam<DeviceType> {
 protected:
  void SetUp() override {
    SKIP_UNLESS_DEFAULT_SETTINGS();
    device_ = Device{GetParam()};
  }
  Tensor input(const Dims& shape) const {
    Tensor t = rand(shape, DType::float32, device_);
    synchronize();
    return t;
  }
  Device device_;
};
INSTANTIATE_TEST_SUITE_P(Devices, Plans, ::testing::Values(DeviceType::null, DeviceType::cpu),
                         [](const auto& of) { return Device{of.param}.str(); });

#define EXPECT_STEPS(plan, n) EXPECT_EQ((plan).steps, n) << (plan).text

TEST_P(Plans, ElementwiseChain) {
  const Tensor x = input({64, 128}), w = input({128}), b = input({128}), r = input({64, 128});
  const Plan p = plan_of([&] { return add(gelu(add(mul(x, w), b)), r); });
  EXPECT_STEPS(p, 1);
  EXPECT_EQ(p.arena, 0u) << p.text;
  EXPECT_EQ(p.new_bytes, 64u * 128 * 4) << p.text;
}

TEST_P(Plans, AddRelu) {
  const Tensor x = input({64, 128}), y = input({64, 128});
  EXPECT_STEPS(plan_of([&] { return relu(add(x, y)); }), 1);
}

TEST_P(Plans, Dropout) {
  const Tensor x = input({64, 128});
  EXPECT_STEPS(plan_of([&] { return dropout(x, 0.1); }), 1);
}

TEST_P(Plans, LinearWithBiasGeluAndResidual) {
  const Tensor x = input({64, 128}), w = input({256, 128}), b = input({256}), r = input({64, 256});
  const Plan p = plan_of([&] { return add(gelu(linear(x, w, b)), r); });
  EXPECT_STEPS(p, 1);
  EXPECT_EQ(p.new_bytes, 64u * 256 * 4) << p.text;
}

TEST_P(Plans, SoftmaxByHand) {
  const Tensor x = input({64, 128});
  const Plan p = plan_of([&] {
    const Tensor e = exp(sub(x, amax(x, {-1}, true)));
    return div(e, sum(e, {-1}, true));
  });
  EXPECT_STEPS(p, 1);
  EXPECT_EQ(p.arena, 0u) << p.text;
}

TEST_P(Plans, LayerNormByHand) {
  const Tensor x = input({64, 128}), w = input({128}), b = input({128});
  const Plan p = plan_of([&] {
    const Tensor d = sub(x, mean(x, {-1}, true));
    const Tensor v = mean(square(d), {-1}, true);
    return add(mul(mul(d, rsqrt(add(v, 1e-5))), w), b);
  });
  EXPECT_STEPS(p, 1);
}

TEST_P(Plans, MeanOfSquaredDifference) {
  const Tensor a = input({64, 128}), b = input({64, 128});
  EXPECT_STEPS(plan_of([&] { return mean(square(sub(a, b))); }), 1);
}

TEST_P(Plans, BiasGradientJoinsItsProducer) {
  const Tensor g = input({64, 128}), y = input({64, 128});
  const Plan p = plan_of([&] {
    const Tensor through = mul(g, sub(1.0, square(y)));  // tanh
    return Tensors{through, sum(through, {0})};
  });
  EXPECT_STEPS(p, 1);
}

TEST_P(Plans, InPlaceBecomesInPlaceAgain) {
  const Tensor x = input({64, 128});
  const Plan p = plan_of([&] { return binary_(add, "add_", unary_(tanh, "tanh_", x), Value(1.0)); });
  EXPECT_STEPS(p, 1);
  EXPECT_EQ(p.arena + p.new_bytes, 0u) << p.text;
}

TEST_P(Plans, NothingIsDropped) {
  const Tensor x = input({16, 16});
  const Plan p = plan_of([&] {
    for (int i = 0; i < 100; ++i) matmul(x, x);
    return x;
  });
  EXPECT_EQ(p.ops, 100);
  EXPECT_STEPS(p, 100);
}

TEST_P(Plans, TemporariesShareTheArena) {
  const Tensor x = input({64, 64});
  const Plan p = plan_of([&] {
    Tensor y = x;
    for (int i = 0; i < 20; ++i) y = matmul(y, x);
    return y;
  });
  EXPECT_STEPS(p, 20);
  EXPECT_EQ(p.new_bytes, 64u * 64 * 4);
  // Two products are alive at a time. The rest of the memory is the kernels' workspace.
  if (device_ == kNull) {
    EXPECT_EQ(p.arena, 2u * 64 * 64 * 4) << p.text;
  }
}

// ---- a training step

struct Mlp {
  Tensors parameters;
  explicit Mlp(Device device) {
    for (const Dims& shape : {Dims{256, 128}, Dims{256}, Dims{10, 256}, Dims{10}})
      parameters.push_back(mul(randn(shape, DType::float32, device), 0.05));
    synchronize();
    for (Tensor& p : parameters) p.set_requires_grad(true);
  }
  Tensor loss(const Tensor& x, const Tensor& target) const {
    const Tensor h = dropout(relu(linear(x, parameters[0], parameters[1])), 0.1);
    return cross_entropy(linear(h, parameters[2], parameters[3]), target);
  }
};

TEST_P(Plans, MlpTrainingStep) {
  const Mlp mlp(device_);
  const Tensor x = input({32, 128});
  const Tensor target = zeros({32}, DType::int64, device_);
  Tensors m, v;
  for (const Tensor& p : mlp.parameters) m.push_back(zeros_like(p)), v.push_back(zeros_like(p));
  synchronize();
  auto step = [&](int64_t n, double lr) {
    for (const Tensor& p : mlp.parameters) p.set_grad(Tensor());
    autograd::backward({mlp.loss(x, target)});
    Tensors grads;
    for (const Tensor& p : mlp.parameters) grads.push_back(p.grad());
    adam_step(mlp.parameters, grads, m, v, {lr, 0.9, 0.999, 1e-8, 0.01, n, true, false});
    cut_window();
  };
  const Plan first = plan_of([&] {
    step(1, 1e-3);
    return x;
  });
  // What it took when this was written; fewer is welcome.
  EXPECT_LE(first.steps, 14) << first.text;

  // Dropout, Adam and a schedule: no program is new after a few rounds.
  for (int n = 2; n < 5; ++n) step(n, 1e-3 / n);
  const CacheStats before = cache_stats();
  for (int n = 5; n < 30; ++n) step(n, 1e-3 / n);
  const CacheStats after = cache_stats();
  EXPECT_EQ(after.misses, before.misses);
  EXPECT_GT(after.hits, before.hits);
}

// ---- values that are no part of a key

TEST_P(Plans, RunTimeValuesMakeNoPrograms) {
  const Tensor x = input({64, 32});
  const Tensor q = input({1, 2, 1, 16}), cache = input({1, 2, 40, 16});
  auto round = [&](int i) {
    const Tensor y = add(mul(slice(x, 0, i, i + 8), 0.5 + i), i);
    synchronize();
    const Tensor z = scaled_dot_product_attention(q, cache, cache, {}, 0.0, false, {}, false, 1 + i);
    synchronize();
    const Tensor w = leaky_relu(pow(x, 2.5 + i), 0.1 * i);
    synchronize();
    fill_(slice(x, 1, i, i + 1), 1.0 * i);
    const Tensor r = rand({5}, DType::float32, device_);
    const Tensor a = arange(i, i + 7, 1, DType::float32, device_);
    synchronize();
    return w;
  };
  round(0);
  round(1);
  for (int i = 2; i < 20; ++i) {
    const uint64_t before = cache_stats().misses;
    const Plan p = plan_of([&] { return round(i); });
    EXPECT_EQ(cache_stats().misses, before) << "round " << i << "\n" << p.text;
  }
}

TEST_P(Plans, WhatIsPartOfAKey) {
  const Tensor x = input({64, 32}), y = input({64, 32});
  auto misses = [&](auto fn) {
    const uint64_t before = cache_stats().misses;
    const Tensor kept = fn();
    synchronize();
    return cache_stats().misses - before;
  };
  misses([&] { return mul(sub(x, y), 1.5); });
  EXPECT_EQ(misses([&] { return mul(sub(x, y), 2.5); }), 0u);
  EXPECT_EQ(misses([&] { return mul(sub(x, x), 1.5); }), 1u) << "aliasing";
  EXPECT_EQ(misses([&] { return mul(sub(slice(x, 0, 0, 8), slice(y, 0, 0, 8)), 1.5); }), 1u) << "shape";
  EXPECT_EQ(misses([&] { return mul(sub(slice(x, 0, 8, 16), slice(y, 0, 4, 12)), 1.5); }), 0u) << "offset";
  EXPECT_EQ(misses([&] { return mul(sub(transpose(x, 0, 1), transpose(y, 0, 1)), 1.5); }), 1u) << "strides";
  Tensor alive;
  EXPECT_EQ(misses([&] { return alive = sub(x, y), mul(alive, 1.5); }), 1u) << "liveness";
}

}  // namespace
}  // namespace pyflame
