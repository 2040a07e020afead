// Optimizers against their published formulas in double arithmetic, parameter groups, state, and schedules.
#include "pyflame/optim/optim.h"

#include <gtest/gtest.h>

#include "pyflame/optim/schedule.h"
#include "support/tensor_values.h"

namespace pyflame::optim {
namespace {

using testing::expect_values;
using testing::leaf;
using testing::make;
using testing::values;

const std::vector<double> kStart{1.0, -2.0, 3.0};

std::vector<double> gradient(int step) { return {0.5 * step, -0.25, 1.0 / step}; }

TEST(Sgd, MomentumNesterovAndDecay) {
  for (const bool nesterov : {false, true}) {
    const Tensor p = leaf(kStart);
    SGD opt(
        {{"p", p}},
        {.lr = 0.1, .momentum = 0.9, .dampening = nesterov ? 0.0 : 0.5, .weight_decay = 0.01, .nesterov = nesterov});
    std::vector<double> x = kStart, buffer(3);
    for (int step = 1; step <= 4; ++step) {
      const std::vector<double> g = gradient(step);
      p.set_grad(make(g));
      opt.step();
      for (size_t i = 0; i < 3; ++i) {
        const double d = g[i] + 0.01 * x[i];
        buffer[i] = step == 1 ? d : 0.9 * buffer[i] + (nesterov ? 1.0 : 0.5) * d;
        x[i] -= 0.1 * (nesterov ? d + 0.9 * buffer[i] : buffer[i]);
      }
      expect_values(p, x, 1e-12);
    }
  }
}

void adam_reference(std::vector<double>& x, std::vector<double>& m, std::vector<double>& v,
                    const std::vector<double>& g, int step, const AdamOptions& o) {
  for (size_t i = 0; i < x.size(); ++i) {
    double d = g[i];
    if (o.decoupled) x[i] -= o.lr * o.weight_decay * x[i];
    else d += o.weight_decay * x[i];
    m[i] = o.beta1 * m[i] + (1 - o.beta1) * d;
    v[i] = o.beta2 * v[i] + (1 - o.beta2) * d * d;
    const double mh = m[i] / (1 - std::pow(o.beta1, step)), vh = v[i] / (1 - std::pow(o.beta2, step));
    x[i] -= o.lr * mh / (std::sqrt(vh) + o.eps);
  }
}

TEST(Adam, CoupledAndDecoupledDecay) {
  for (const bool decoupled : {false, true}) {
    const AdamOptions o{.lr = 0.05, .weight_decay = 0.1, .decoupled = decoupled};
    const Tensor p = leaf(kStart);
    Adam opt({{"p", p}}, o);
    std::vector<double> x = kStart, m(3), v(3);
    for (int step = 1; step <= 5; ++step) {
      p.set_grad(make(gradient(step)));
      opt.step();
      adam_reference(x, m, v, gradient(step), step, o);
      expect_values(p, x, 1e-11);
    }
  }
}

TEST(Adam, GroupsAndParametersWithoutGradient) {
  const Tensor a = leaf(kStart), b = leaf(kStart), idle = leaf(kStart);
  AdamW opt({{"a", a}, {"idle", idle}}, {.lr = 0.1, .weight_decay = 0.5});
  opt.add_group({{"b", b}}, {.lr = 0.1, .weight_decay = 0});
  std::vector<double> xa = kStart, ma(3), va(3), xb = kStart, mb(3), vb(3), xi = kStart, mi(3), vi(3);
  for (int step = 1; step <= 3; ++step) {
    a.set_grad(make(gradient(step)));
    b.set_grad(make(gradient(step)));
    if (step == 3) idle.set_grad(make(gradient(step)));  // its first update, two steps late
    opt.step();
    adam_reference(xa, ma, va, gradient(step), step, {.lr = 0.1, .weight_decay = 0.5, .decoupled = true});
    adam_reference(xb, mb, vb, gradient(step), step, {.lr = 0.1, .decoupled = true});
  }
  adam_reference(xi, mi, vi, gradient(3), 1, {.lr = 0.1, .weight_decay = 0.5, .decoupled = true});
  expect_values(a, xa, 1e-11);
  expect_values(b, xb, 1e-11);
  expect_values(idle, xi, 1e-11);
  opt.zero_grad();
  EXPECT_FALSE(static_cast<bool>(a.grad()));
  EXPECT_ERROR(Value, "two groups", opt.add_group({{"a", a}}, {}));
  EXPECT_ERROR(Value, "must not be negative", Adam({{"a", a}}, {.lr = -1}));
  EXPECT_ERROR(Value, "not a leaf", Adam({{"x", mul(a, 2.0)}}, {}));
}

template <class Optimizer, class Options>
void expect_state_survives(const Options& o) {
  const Tensor p = leaf(kStart), q = leaf(kStart);
  Optimizer first({{"p", p}}, o);
  for (int step = 1; step <= 2; ++step) {
    p.set_grad(make(gradient(step)));
    first.step();
  }
  {
    grad_mode::Guard no_grad(false);
    copy_(q, p.detach());
  }
  Optimizer second({{"p", q}}, o);
  second.load_state_dict(first.state_dict());
  for (int step = 3; step <= 4; ++step) {
    p.set_grad(make(gradient(step)));
    q.set_grad(make(gradient(step)));
    first.step();
    second.step();
  }
  expect_values(q, values(p), 0);
  EXPECT_ERROR(Value, "unexpected: nonsense", second.load_state_dict({{"nonsense", ones({1})}}));
}

TEST(Optimizers, StateSurvivesSavingAndLoading) {
  expect_state_survives<SGD>(SgdOptions{.lr = 0.1, .momentum = 0.9});
  expect_state_survives<Adam>(AdamOptions{.lr = 0.1});
  const Tensor p = leaf(kStart);
  Adam opt({{"p", p}}, {});
  EXPECT_ERROR(Value, "missing: exp_avg.p", opt.load_state_dict({}));
}

// Values of PyTorch's schedulers.
TEST(Schedules, Values) {
  EXPECT_NEAR((StepLR{1.0, 3, 0.1})(7), 0.01, 1e-15);
  EXPECT_NEAR((CosineAnnealingLR{1.0, 10, 0.1})(5), 0.55, 1e-15);
  EXPECT_NEAR((CosineAnnealingLR{1.0, 10, 0.1})(10), 0.1, 1e-15);
  EXPECT_NEAR((LinearLR{0.3})(0), 0.1, 1e-15);
  EXPECT_NEAR((LinearLR{0.3})(9), 0.3, 1e-15);
  EXPECT_NEAR((LambdaLR{2.0, [](int64_t s) { return 1.0 / static_cast<double>(s + 1); }})(3), 0.5, 1e-15);
  const OneCycleLR one{1.0, 10};
  EXPECT_NEAR(one(0), 0.04, 1e-12);
  EXPECT_NEAR(one(2), 1.0, 1e-12);
  EXPECT_NEAR(one(9), 0.04 / 1e4, 1e-12);
  const WarmupCosine w{1.0, 4, 24, 0.1};
  EXPECT_NEAR(w(0), 0.2, 1e-15);
  EXPECT_NEAR(w(4), 1.0, 1e-15);
  EXPECT_NEAR(w(14), 0.55, 1e-15);
  EXPECT_NEAR(w(24), 0.1, 1e-15);
  EXPECT_NEAR(w(99), 0.1, 1e-15);
}

}  // namespace
}  // namespace pyflame::optim
