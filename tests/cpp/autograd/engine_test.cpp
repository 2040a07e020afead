// The backward pass over the tape: which gradients accumulate where and in which order, and what remains after a failure.
#include <gtest/gtest.h>

#include "pyflame/autograd/autograd.h"
#include "pyflame/ops/ops.h"
#include "pyflame/record/recorder.h"
#include "support/tensor_values.h"

namespace pyflame {
namespace {

using autograd::backward;
using autograd::grad;
using testing::expect_values;
using testing::leaf;
using testing::make;
using testing::values;

TEST(Backward, AccumulatesIntoLeaves) {
  const Tensor x = leaf({1, 2, 3});
  backward({sum(square(x))});
  expect_values(x.grad(), {2, 4, 6});
  const Tensor g = x.grad();
  backward({sum(mul(x, 10.0))});
  expect_values(x.grad(), {12, 14, 16});
  EXPECT_TRUE(g.same(x.grad()));  // in place: a handle on it stays right
  expect_values(g, {12, 14, 16});
}

TEST(Backward, SharedSubgraphsAreWalkedOnce) {
  const Tensor x = leaf({2});
  Tensor y = x;
  int calls = 0;
  for (int i = 0; i < 20; ++i) y = add(mul(y, 0.5), mul(y, 0.5));
  const Tensor z = mul(x, 3.0);
  autograd::register_hook(z, [&](const Tensor&) {
    ++calls;
    return Tensor();
  });
  backward({sum(add(add(y, z), mul(z, z)))});
  EXPECT_EQ(calls, 1);
  expect_values(x.grad(), {1 + 3 + 2 * 6 * 3});
}

TEST(Backward, SeveralOutputsAndGivenGradients) {
  const Tensor x = leaf({1, 2});
  const Tensor seed = make({10, 100});
  backward({mul(x, 2.0), sum(x)}, {seed, Tensor()});
  expect_values(x.grad(), {21, 201});
  expect_values(seed, {10, 100});
  backward({x}, {seed});  // a leaf itself
  expect_values(x.grad(), {31, 301});
  expect_values(seed, {10, 100});
  EXPECT_ERROR(Runtime, "one element", backward({mul(x, 2.0)}));
  EXPECT_ERROR(Runtime, "does not require grad", backward({sum(x.detach())}));
  EXPECT_ERROR(Runtime, "shape", backward({mul(x, 2.0)}, {make({1, 2, 3})}));
}

TEST(Backward, GradientsOfLeavesAreTheirOwn) {
  const Tensor a = leaf({1, 2}), b = leaf({3, 4});
  const Tensor s = add(a, b);
  autograd::retain_grad(s);
  Tensor seen;
  autograd::register_hook(s, [&](const Tensor& g) {
    seen = g;
    return Tensor();
  });
  backward({sum(mul(s, 2.0))}, {}, true);
  fill_(a.grad(), 7.0);
  expect_values(b.grad(), {2, 2});
  expect_values(s.grad(), {2, 2});
  expect_values(seen, {2, 2});
}

TEST(Backward, ASecondTimeIsAnErrorUnlessRetained) {
  const Tensor x = leaf({1, 2});
  const Tensor y = sum(mul(x, x));
  backward({y}, {}, true);
  backward({y});
  expect_values(x.grad(), {4, 8});
  EXPECT_ERROR(Runtime, "backward a second time", backward({y}));
  expect_values(x.grad(), {4, 8});
}

TEST(Backward, AnExceptionLeavesGradsAsTheyWere) {
  const Tensor a = leaf({1, 2}), b = leaf({3, 4});
  backward({sum(mul(a, b))});
  const Tensor c = mul(a, 2.0);
  const Tensor broken = mul(b, 3.0);
  autograd::retain_grad(c);
  autograd::register_hook(broken, [](const Tensor&) -> Tensor { PF_FAIL(Runtime, "hook: on purpose"); });
  EXPECT_ERROR(Runtime, "on purpose", backward({sum(add(c, broken))}));
  expect_values(a.grad(), {3, 4});
  expect_values(b.grad(), {1, 2});
  EXPECT_FALSE(static_cast<bool>(c.grad()));
  // Hooks of leaves run before anything is deposited.
  const size_t id = autograd::register_hook(b, [](const Tensor&) -> Tensor { PF_FAIL(Runtime, "hook: leaf"); });
  EXPECT_ERROR(Runtime, "hook: leaf", backward({sum(add(a, b))}));
  expect_values(a.grad(), {3, 4});
  expect_values(b.grad(), {1, 2});
  autograd::remove_hook(b, id);
  backward({sum(add(a, b))});
  expect_values(a.grad(), {4, 5});
  expect_values(b.grad(), {2, 3});
}

TEST(Backward, InPlaceAfterSavingNamesTheOp) {
  const Tensor x = leaf({1, 2});
  const Tensor y = mul(x, 2.0);
  const Tensor z = sum(mul(y, y));
  binary_(add, "add_", y, Value(1.0));
  EXPECT_ERROR(Runtime, "mul: a tensor needed for the gradient was modified in place", backward({z}));
  EXPECT_FALSE(static_cast<bool>(x.grad()));
  EXPECT_ERROR(Runtime, "leaf", fill_(x, 1.0));
}

TEST(Backward, InPlaceOnViewsGoesThroughTheBase) {
  const Tensor x = leaf({1, 2, 3, 4});
  const Tensor y = mul(x, 1.0);
  binary_(mul, "mul_", slice(y, 0, 1, 3), Value(10.0));
  backward({sum(y)});
  expect_values(x.grad(), {1, 10, 10, 1});
}

TEST(Backward, AViewWhoseBaseWasRewrittenCountsAsOlderThanItsUser) {
  const Tensor x = leaf({1, 2, 3});
  const Tensor base = mul(x, 1.0);
  const Tensor view = slice(base, 0, 0, 2);
  binary_(mul, "mul_", base, Value(2.0));
  const Tensor other = leaf({1, 1});
  const Tensor y = mul(other, view);  // the view gets its new history here, as the second input
  backward({add(sum(y), sum(view))});
  expect_values(x.grad(), {4, 4, 0});
  expect_values(other.grad(), {2, 4});
}

// ---- hooks

TEST(Hooks, ReplaceAndAreRemoved) {
  const Tensor x = leaf({1, 2});
  const Tensor y = mul(x, 3.0);
  const size_t id = autograd::register_hook(y, [](const Tensor& g) { return mul(g, 2.0); });
  autograd::register_hook(y, [](const Tensor& g) { return add(g, 1.0); });
  autograd::register_hook(x, [](const Tensor& g) { return mul(g, 10.0); });
  const Tensor s = sum(y);
  backward({s}, {}, true);
  expect_values(x.grad(), {90, 90});
  expect_values(grad({s}, {x}, {}, true)[0], {90, 90});  // grad() runs the same hooks
  expect_values(grad({s}, {y}, {}, true)[0], {3, 3});
  autograd::remove_hook(y, id);
  x.set_grad(Tensor());
  backward({s});
  expect_values(x.grad(), {60, 60});
  EXPECT_ERROR(Runtime, "does not require grad", autograd::register_hook(make({1}), [](const Tensor& g) { return g; }));
}

TEST(Hooks, RunOnceWithTheTotal) {
  const Tensor x = leaf({1});
  int calls = 0;
  autograd::register_hook(x, [&](const Tensor& g) {
    ++calls;
    expect_values(g, {5});
    return Tensor();
  });
  backward({add(mul(x, 2.0), mul(x, 3.0))});
  EXPECT_EQ(calls, 1);
}

TEST(Hooks, OfAnotherShapeAreRefused) {
  const Tensor x = leaf({1, 2});
  autograd::register_hook(x, [](const Tensor&) { return make({1}); });
  EXPECT_ERROR(Runtime, "hook: the returned gradient has another shape", backward({sum(x)}));
}

TEST(RetainGrad, KeepsWhatIsNotALeaf) {
  const Tensor x = leaf({1, 2});
  const Tensor y = mul(x, 3.0);
  autograd::retain_grad(y);
  autograd::retain_grad(y);
  backward({sum(square(y))});
  expect_values(y.grad(), {6, 12});
  const Tensor z = mul(x, 3.0);
  backward({sum(z)});
  EXPECT_FALSE(static_cast<bool>(z.grad()));
}

TEST(RetainGrad, KeepsNoGraphAlive) {
  const Tensor x = leaf({1, 2});
  std::weak_ptr<int> alive;
  {
    const Tensor y = mul(x, 3.0);
    auto token = std::make_shared<int>(1);
    alive = token;
    autograd::register_hook(y, [token](const Tensor&) { return Tensor(); });
    autograd::retain_grad(y);
    backward({sum(y)}, {}, true);
    expect_values(y.grad(), {1, 1});
    y.set_grad(Tensor());
    EXPECT_FALSE(static_cast<bool>(y.grad()));
  }
  EXPECT_TRUE(alive.expired());
}

// ---- grad()

TEST(Grad, AccumulatesNothing) {
  const Tensor x = leaf({1, 2}), w = leaf({3, 4});
  const Tensor h = mul(x, w);
  const Tensors g = grad({sum(square(h))}, {h, x, x}, {}, true);
  expect_values(g[0], {6, 16});
  expect_values(g[1], {18, 64});
  expect_values(g[2], {18, 64});
  EXPECT_FALSE(static_cast<bool>(x.grad()));
  EXPECT_FALSE(static_cast<bool>(w.grad()));
}

TEST(Grad, UnusedInputs) {
  const Tensor x = leaf({1, 2}), y = leaf({3, 4});
  EXPECT_ERROR(Runtime, "input 1 was not used", grad({sum(x)}, {x, y}));
  const Tensors g = grad({sum(x)}, {x, y}, {}, false, false, true);
  expect_values(g[0], {1, 1});
  EXPECT_FALSE(static_cast<bool>(g[1]));
  EXPECT_ERROR(Runtime, "does not require grad", grad({sum(x)}, {make({1})}));
}

TEST(Grad, TwiceAndThrice) {
  const Tensor x = leaf({0.5, -1.25, 2});
  const Tensor y = sum(mul(mul(x, x), mul(x, x)));
  const Tensor g1 = grad({y}, {x}, {}, true, true)[0];
  const Tensor g2 = grad({sum(g1)}, {x}, {}, true, true)[0];
  const Tensor g3 = grad({sum(g2)}, {x})[0];
  for (size_t i = 0; i < 3; ++i) {
    const double v = values(x)[i];
    EXPECT_NEAR(values(g1)[i], 4 * v * v * v, 1e-12);
    EXPECT_NEAR(values(g2)[i], 12 * v * v, 1e-12);
    EXPECT_NEAR(values(g3)[i], 24 * v, 1e-12);
  }
}

TEST(Grad, SecondDerivativesAgreeWithDifferences) {
  testing::check_gradient(
      [](const Tensors& x) { return tanh(matmul(x[0], x[1])); },
      {make({0.1, -0.4, 0.7, 0.2, 0.5, -0.3}, {2, 3}), make({0.3, -0.2, 0.6, 0.4, -0.5, 0.8}, {3, 2})});
  testing::check_gradient([](const Tensors& x) { return softmax(mul(x[0], sigmoid(x[0])), -1); },
                          {make({0.1, -0.4, 0.7, 0.2}, {2, 2})});
}

TEST(Grad, APenaltyOnTheGradientReachesTheLeaves) {
  const Tensor x = make({1, 2}), w = leaf({3, 4});
  const Tensor g = grad({sum(square(mul(x, w)))}, {w}, {}, true, true)[0];  // 2 x^2 w
  backward({sum(square(g))});                                               // 8 x^4 w
  expect_values(w.grad(), {24, 512});
}

TEST(Backward, CreateGraphGivesDifferentiableGrads) {
  const Tensor x = leaf({2});
  backward({mul(mul(x, x), x)}, {}, true, true);
  expect_values(x.grad(), {12});
  EXPECT_TRUE(x.grad().requires_grad());
  expect_values(grad({x.grad()}, {x})[0], {12});
  x.set_grad(Tensor());  // a gradient with a history holds its leaf, and the leaf holds it
}

// ---- checkpoint

TEST(Checkpoint, EqualsPlainBitForBit) {
  auto run = [](bool checkpointed) {
    manual_seed(77);
    const Tensor x = mul(randn({33, 17}), 1.0), w = randn({17, 9}), b = randn({9});
    for (const Tensor& t : {x, w, b}) t.set_requires_grad(true);
    auto block = [&](const Tensors& in) -> Tensors { return {dropout(gelu(add(matmul(in[0], w), b)), 0.3)}; };
    const Tensor y = checkpointed ? autograd::checkpoint(block, {x})[0] : block({x})[0];
    const Tensor after = dropout(y, 0.5);  // the generator goes on where it was
    backward({sum(square(after))});
    const Tensor next = rand({4});
    return std::vector<std::vector<double>>{values(after), values(x.grad()), values(w.grad()), values(b.grad()),
                                            values(next)};
  };
  EXPECT_EQ(run(true), run(false));
}

TEST(Checkpoint, WhatIsPassedThroughKeepsItsHistory) {
  const Tensor x = leaf({1, 2});
  const Tensors out = autograd::checkpoint([](const Tensors& in) -> Tensors { return {in[0], mul(in[0], 2.0)}; }, {x});
  EXPECT_TRUE(x.is_leaf());
  backward({sum(add(out[0], out[1]))});
  expect_values(x.grad(), {3, 3});
}

TEST(Checkpoint, ParametersInsideBelongToTheOuterWalk) {
  const Tensor x = leaf({1, 2}), w = leaf({3, 4}), other = leaf({1, 1});
  auto block = [&](const Tensors& in) -> Tensors {
    return autograd::checkpoint([&](const Tensors& deep) -> Tensors { return {mul(mul(deep[0], w), w)}; },
                                {mul(in[0], 2.0)});
  };
  auto loss = [&] { return sum(mul(autograd::checkpoint(block, {x})[0], w)); };  // 2 x w^3, w inside and outside
  int calls = 0;
  autograd::register_hook(w, [&](const Tensor&) {
    ++calls;
    return Tensor();
  });
  const Tensors g = grad({loss()}, {x, w});  // accumulates nothing, and finds what is used inside
  expect_values(g[0], {2 * 27, 2 * 64});
  expect_values(g[1], {6 * 9, 12 * 16});
  EXPECT_FALSE(static_cast<bool>(w.grad()));
  EXPECT_EQ(calls, 1);
  backward({loss()});
  expect_values(w.grad(), {6 * 9, 12 * 16});
  EXPECT_EQ(calls, 2);
  // A failure after the checkpoint does not change the parameters inside it.
  const Tensor broken = mul(x, 1.0);
  autograd::register_hook(broken, [](const Tensor&) -> Tensor { PF_FAIL(Runtime, "hook: on purpose"); });
  const Tensor y = sum(autograd::checkpoint(block, {broken})[0]);
  EXPECT_ERROR(Runtime, "on purpose", backward({y}));
  expect_values(w.grad(), {6 * 9, 12 * 16});
}

TEST(Checkpoint, SecondDerivativesAreRefused) {
  const Tensor x = leaf({1, 2});
  const Tensor y = sum(autograd::checkpoint([](const Tensors& in) -> Tensors { return {square(in[0])}; }, {x})[0]);
  EXPECT_ERROR(NotImplemented, "checkpoint", grad({y}, {x}, {}, true, true));
}

TEST(Checkpoint, AFailureInsideRestoresTheGenerator) {
  manual_seed(5);
  const Tensor x = leaf({1, 2});
  int calls = 0;
  const Tensor y = autograd::checkpoint(
      [&](const Tensors& in) -> Tensors {
        PF_CHECK(calls++ == 0, Runtime, "block: on purpose");
        return {dropout(in[0], 0.5)};
      },
      {x})[0];
  const uint64_t offset = get_rng_state().offset;
  EXPECT_ERROR(Runtime, "on purpose", backward({sum(y)}));
  EXPECT_EQ(get_rng_state().offset, offset);
  EXPECT_FALSE(static_cast<bool>(x.grad()));
}

// ---- depth

TEST(Depth, ALongChainIsWalkedAndReleasedWithoutRecursion) {
  const Tensor x = leaf({1});
  for (const bool retain : {false, true}) {
    x.set_grad(Tensor());
    Tensor y = x;
    for (int i = 0; i < 100000; ++i) y = add(y, 1.0);
    backward({y}, {}, retain);
    expect_values(x.grad(), {1});
  }
  Tensor y = x;  // never walked
  for (int i = 0; i < 100000; ++i) y = mul(y, y);
  y = Tensor();
  synchronize();
}

}  // namespace
}  // namespace pyflame
