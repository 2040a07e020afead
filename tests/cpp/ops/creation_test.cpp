// Creation, random numbers, printing.
#include <algorithm>

#include "pyflame/tensor/print.h"
#include "support/tensor_values.h"

namespace pyflame {
namespace {

using namespace testing;

TEST(Creation, InfersDtypes) {
  EXPECT_EQ(full({2}, true).dtype(), DType::bool_);
  EXPECT_EQ(full({2}, 3).dtype(), DType::int64);
  EXPECT_EQ(full({2}, 3.0).dtype(), DType::float32);
  EXPECT_EQ(zeros({2}).dtype(), DType::float32);
  EXPECT_EQ(arange(0, 3, 1).dtype(), DType::int64);
  EXPECT_EQ(arange(0, 3.0, 1).dtype(), DType::float32);
  EXPECT_EQ(full_like(make({1}, DType::int8), 3).dtype(), DType::int8);
  EXPECT_EQ(empty({2, 0}).numel(), 0);
}

TEST(Creation, Values) {
  expect_values(arange(2, 11, 3), {2, 5, 8});
  expect_values(arange(5, 0, -2), {5, 3, 1});
  expect_values(arange(3, 3, 1), {});
  expect_values(arange(0.0, 1.0, 0.25), {0, 0.25, 0.5, 0.75});
  EXPECT_EQ(arange(INT64_MIN, INT64_MAX, INT64_MAX).numel(), 3);
  expect_values(linspace(0, 1, 5), {0, 0.25, 0.5, 0.75, 1});
  expect_values(linspace(3, 9, 1), {3});
  expect_values(linspace(3, 9, 0), {});
  const Tensor line = linspace(-0.1, 0.7, 1001, DType::float64);
  EXPECT_EQ(select(line, 0, 0).item_f64(), -0.1);
  EXPECT_EQ(select(line, 0, -1).item_f64(), 0.7);
  expect_values(eye(2, 3), {1, 0, 0, 0, 1, 0});
  expect_values(one_hot(make({2, 0}, DType::int64)), {0, 0, 1, 1, 0, 0});
  expect_values(one_hot(make({1}, DType::int64), 2), {0, 1});
  const Tensor target = empty({3}, DType::float64);
  copy_(target, make({1, 2, 3}));
  expect_values(target, {1, 2, 3});
}

TEST(Creation, Errors) {
  EXPECT_ERROR(Value, "full: negative size; got shape (-1,)", zeros({-1}));
  EXPECT_ERROR(Value, "full: too many elements", zeros({int64_t{1} << 40, int64_t{1} << 40}));
  EXPECT_ERROR(Value, "empty: too many elements", empty({INT64_MAX, 2}));
  EXPECT_ERROR(Value, "arange: the step is 0", arange(0, 1, 0));
  EXPECT_ERROR(Value, "arange: the step leads away from the end", arange(0, 5, -1));
  EXPECT_ERROR(Value, "arange: not a finite range", arange(0.0, std::nan(""), 1));
  EXPECT_ERROR(Value, "linspace: negative number of steps", linspace(0, 1, -1));
  EXPECT_ERROR(Type, "one_hot: the index is not int64; got float64", one_hot(make({1}), 2));
}

TEST(Random, IsAFunctionOfSeedAndCall) {
  manual_seed(7);
  const std::vector<double> first = values(rand({100})), second = values(rand({100}));
  EXPECT_NE(first, second);
  manual_seed(7);
  EXPECT_EQ(values(rand({100})), first);
  const RngState state = get_rng_state();
  const std::vector<double> third = values(randn({100}));
  set_rng_state(state);
  EXPECT_EQ(values(randn({100})), third);
}

TEST(Random, StaysInRange) {
  manual_seed(1);
  for (double v : values(rand({1000}))) EXPECT_TRUE(v >= 0 && v < 1) << v;
  for (double v : values(randint(-3, 4, {1000}))) EXPECT_TRUE(v >= -3 && v <= 3 && v == std::floor(v)) << v;
  std::vector<double> order = values(randperm(50));
  std::sort(order.begin(), order.end());
  for (size_t i = 0; i < order.size(); ++i) EXPECT_EQ(order[i], static_cast<double>(i));
  const std::vector<double> normal = values(randn({20000}, DType::float64));
  double mean_of = 0, square_of = 0;
  for (double v : normal) mean_of += v / 20000, square_of += v * v / 20000;
  EXPECT_NEAR(mean_of, 0, 0.05);
  EXPECT_NEAR(square_of, 1, 0.05);
  expect_values(bernoulli(make({0, 1, 0, 1})), {0, 1, 0, 1});
}

TEST(Random, Dropout) {
  manual_seed(3);
  const Tensor x = leaf(std::vector<double>(1000, 1.0));
  const Tensor y = dropout(x, 0.25);
  size_t kept = 0;
  for (double v : values(y)) {
    EXPECT_TRUE(v == 0 || std::fabs(v - 1 / 0.75) < 1e-12) << v;
    kept += v != 0;
  }
  EXPECT_NEAR(static_cast<double>(kept), 750, 100);
  EXPECT_EQ(values(autograd::grad({sum(y)}, {x})[0]), values(y));  // the same mask and scale
  EXPECT_TRUE(dropout(x, 0.25, false).same(x));
  EXPECT_TRUE(dropout(x, 0).same(x));
  expect_values(dropout(make({1, 2}), 1), {0, 0});
  EXPECT_ERROR(Value, "dropout: the probability is out of range; got 1.5", dropout(x, 1.5));
  EXPECT_ERROR(Value, "randint: empty range; got low 3 and high 3", randint(3, 3, {1}));
  EXPECT_ERROR(Type, "rand: not a float dtype; got int64", rand({1}, DType::int64));
}

std::string format(const Tensor& t) { return format_tensor(t.data(), t.shape(), t.strides(), t.dtype()); }

TEST(Printing, LooksLikeNumPy) {
  EXPECT_EQ(format(make({1, 2, 3, 4}, {2, 2})), "[[1., 2.],\n [3., 4.]]");
  EXPECT_EQ(format(make({1, 10}, DType::int64)), "[ 1, 10]");
  EXPECT_EQ(format(make({0, 1}, DType::bool_)), "[False,  True]");
  EXPECT_EQ(format(make({0.5, -1.25})), "[ 0.5000, -1.2500]");
  EXPECT_EQ(format(make({1e-7, 1})), "[1.0000e-07, 1.0000e+00]");
  EXPECT_EQ(format(make({std::nan(""), 1})), "[nan,  1.]");
  EXPECT_EQ(format(make({3}, Dims{})), "3.");
  EXPECT_EQ(format(zeros({0})), "[]");
  EXPECT_EQ(format(transpose(make({1, 2, 3, 4}, {2, 2}), 0, 1)), "[[1., 3.],\n [2., 4.]]");
  EXPECT_EQ(format(arange(0, 1001, 1)), "[   0,    1,    2, ...,  998,  999, 1000]");
  EXPECT_EQ(format(zeros({2, 1, 1})), "[[[0.]],\n\n [[0.]]]");
}

}  // namespace
}  // namespace pyflame
