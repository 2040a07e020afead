// Tensors from literals, their values as doubles, and gradients checked against central differences.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "pyflame/autograd/autograd.h"
#include "pyflame/ops/ops.h"

namespace pyflame::testing {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// A tensor of the given values; float64 unless told otherwise. Without a shape: 1-D.
inline Tensor make(const std::vector<double>& values, const Dims& shape, DType dtype = DType::float64) {
  return cast(from_host(values.data(), shape, DType::float64), dtype);
}
inline Tensor make(const std::vector<double>& values, DType dtype = DType::float64) {
  return make(values, {static_cast<int64_t>(values.size())}, dtype);
}
// The same as a leaf that requires a gradient.
inline Tensor leaf(const std::vector<double>& values, const Dims& shape) {
  Tensor t = make(values, shape);
  t.set_requires_grad(true);
  return t;
}
inline Tensor leaf(const std::vector<double>& values) { return leaf(values, {static_cast<int64_t>(values.size())}); }

inline std::vector<double> values(const Tensor& t) {
  const Tensor dense = contiguous(cast(t.detach(), DType::float64));
  const auto* p = static_cast<const double*>(dense.data());
  return {p, p + dense.numel()};
}

// The first element of a float32 tensor. Reading it runs what is pending.
inline float first(const Tensor& t) { return *static_cast<const float*>(t.data()); }

inline void expect_values(const Tensor& t, const std::vector<double>& expected, double tolerance = 1e-12) {
  const std::vector<double> got = values(t);
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(expected[i])) EXPECT_TRUE(std::isnan(got[i])) << "element " << i << " is " << got[i];
    else if (std::isinf(expected[i])) EXPECT_EQ(got[i], expected[i]) << "element " << i;
    else EXPECT_NEAR(got[i], expected[i], tolerance) << "element " << i;
  }
}

// The message of the Error that fn throws; fails the test when it throws none or one of another kind.
inline std::string error_of(ErrorKind kind, const std::function<void()>& fn) {
  try {
    fn();
  } catch (const Error& e) {
    EXPECT_EQ(static_cast<int>(e.kind()), static_cast<int>(kind)) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}
#define EXPECT_ERROR(error_kind, text, ...)                                                           \
  do {                                                                                                \
    const std::string message_ =                                                                      \
        ::pyflame::testing::error_of(::pyflame::ErrorKind::error_kind, [&] { (void)(__VA_ARGS__); }); \
    EXPECT_NE(message_.find(text), std::string::npos) << message_;                                    \
  } while (0)

using Function = std::function<Tensor(const Tensors&)>;

// Compares the gradients of sum(fn(inputs) * w), w fixed and uneven, with central differences. Inputs are float64.
inline void check_first_gradient(const Function& fn, const Tensors& inputs, double tolerance) {
  auto weighted = [&](const Tensors& xs) {
    const Tensor y = fn(xs);
    const Tensor w = reshape(add(mul(arange(0, y.numel(), 1, DType::float64), 0.37), 0.5), y.shape());
    return sum(mul(y, w));
  };
  Tensors leaves;
  for (const Tensor& x : inputs) leaves.push_back(clone(x.detach()).set_requires_grad(true));
  const Tensor loss = weighted(leaves);
  Tensors grads(leaves.size());  // a loss without history is constant
  if (loss.requires_grad()) grads = autograd::grad({loss}, leaves, {}, false, false, true);
  constexpr double kStep = 1e-5;
  for (size_t k = 0; k < inputs.size(); ++k) {
    const std::vector<double> at = values(inputs[k]);
    const std::vector<double> got = grads[k] ? values(grads[k]) : std::vector<double>(at.size(), 0.0);
    ASSERT_EQ(got.size(), at.size());
    for (size_t i = 0; i < at.size(); ++i) {
      auto moved = [&](double by) {
        std::vector<double> v = at;
        v[i] += by;
        Tensors xs = inputs;
        xs[k] = make(v, inputs[k].shape());
        grad_mode::Guard off(false);
        return weighted(xs).item_f64();
      };
      const double expected = (moved(kStep) - moved(-kStep)) / (2 * kStep);
      EXPECT_NEAR(got[i], expected, tolerance * std::max(1.0, std::fabs(expected)))
          << "input " << k << ", element " << i;
    }
  }
}

// First and second derivatives.
inline void check_gradient(const Function& fn, const Tensors& inputs, double tolerance = 1e-6) {
  check_first_gradient(fn, inputs, tolerance);
  for (size_t k = 0; k < inputs.size(); ++k) {
    auto first = [&](const Tensors& xs) -> Tensor {
      Tensors with_grad = xs;
      grad_mode::Guard on(true);
      if (!with_grad[k].requires_grad()) with_grad[k] = clone(xs[k]).set_requires_grad(true);
      const Tensor y = fn(with_grad);
      const Tensor w = reshape(add(mul(arange(0, y.numel(), 1, DType::float64), 0.21), 0.8), y.shape());
      const Tensor g = autograd::grad({sum(mul(y, w))}, {with_grad[k]}, {}, true, true, true)[0];
      return g ? g : zeros_like(xs[k]);
    };
    SCOPED_TRACE("second derivative by input " + std::to_string(k));
    check_first_gradient(first, inputs, tolerance * 10);
  }
}

}  // namespace pyflame::testing
