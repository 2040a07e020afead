// Reductions: dims, dtypes, empty axes, ties, infinities, gradients.
#include "support/tensor_values.h"

namespace pyflame {
namespace {

using namespace testing;

const Tensor& sample() {
  static const Tensor* t = new Tensor(make({3, -1, 2, 0.5, 4, -2, 1, 7, 0.25, -3, 6, 5}, {2, 3, 2}));
  return *t;
}

TEST(Reduce, DimsAndShapes) {
  const Tensor& x = sample();
  EXPECT_EQ(sum(x).shape(), Dims{});
  EXPECT_EQ(sum(x, {0, 2}).shape(), Dims{3});
  EXPECT_EQ(sum(x, {-1}, true).shape(), (Dims{2, 3, 1}));
  expect_values(sum(x, {0, 2}), {3 - 1 + 1 + 7, 2 + 0.5 + 0.25 - 3, 4 - 2 + 6 + 5});
  expect_values(mean(x, {1}), {3, -2.5 / 3, 7.25 / 3, 3});
  expect_values(prod(x, {1}), {24, 1, 1.5, -105});
  expect_values(amax(x, {1}), {4, 0.5, 6, 7});
  expect_values(amin(x, {0, 1}), {0.25, -3});
  expect_values(sum(transpose(x, 0, 2), {1}), values(transpose(sum(x, {1}), 0, 1)));
  expect_values(var(x, {1}), {1, 1.583333333333333, 9.770833333333334, 28}, 1e-9);
  expect_values(std_dev(make({1, 1, 4})), {std::sqrt(3.0)});
  expect_values(norm(make({3, 4})), {5});
  EXPECT_EQ(sum(make({5}, Dims{})).item_f64(), 5);
  expect_values(sum_to(x, {3, 1}), values(sum(x, {0, 2})));
}

TEST(Reduce, Dtypes) {
  const Tensor ints = make({100, 100, 100}, DType::int8), flags = make({1, 0, 1}, DType::bool_);
  EXPECT_EQ(sum(ints).dtype(), DType::int64);
  EXPECT_EQ(sum(ints).item_i64(), 300);
  EXPECT_EQ(sum(flags).item_i64(), 2);
  EXPECT_EQ(prod(ints).item_i64(), 1000000);
  EXPECT_EQ(sum(ints, {}, false, DType::float32).dtype(), DType::float32);
  EXPECT_EQ(sum(ints, {}, false, DType::int32).dtype(), DType::int32);
  EXPECT_EQ(mean(ints, {}, false, DType::float32).item_f64(), 100);
  const Tensor half = full({1000, 100}, 2.0, DType::float16);
  EXPECT_EQ(mean(half).item_f64(), 2);  // the sum does not fit into float16
  expect_values(any(make({0, 0, 3, 0}, {2, 2}), {1}), {0, 1});
  expect_values(all(make({kNan, 1, 3, 0}, {2, 2}), {1}), {1, 0});
  EXPECT_EQ(amax(flags).dtype(), DType::bool_);
}

TEST(Reduce, EmptyAxes) {
  const Tensor x = zeros({0, 3}, DType::float64);
  expect_values(sum(x, {0}), {0, 0, 0});
  expect_values(prod(x, {0}), {1, 1, 1});
  expect_values(mean(x, {0}), {kNan, kNan, kNan});
  expect_values(logsumexp(x, {0}), {-kInf, -kInf, -kInf});
  EXPECT_FALSE(any(x).item<bool>());
  EXPECT_TRUE(all(x).item<bool>());
  EXPECT_EQ(sum(x, {1}).shape(), Dims{0});
  EXPECT_EQ(amax(x, {1}).shape(), Dims{0});
  EXPECT_ERROR(Index, "amax: no elements to choose from; got shape (0, 3)", amax(x, {0}));
  EXPECT_ERROR(Index, "argmax: no elements to choose from", argmax(x));
  expect_values(var(make({1}), {}, 1), {kNan});
}

TEST(Reduce, Arguments) {
  const Tensor x = make({1, 5, 5, 7, kNan, 2}, {2, 3});
  expect_values(argmax(x, 1), {1, 1});
  expect_values(argmin(make({3, 1, 1}, DType::int64)), {1});
  EXPECT_EQ(argmax(x).item_i64(), 4);
  EXPECT_EQ(argmax(x, 1, true).shape(), (Dims{2, 1}));
  EXPECT_EQ(argmax(make({0, 1}, DType::bool_)).item_i64(), 1);
  const auto [top, at] = max(x, 1);
  expect_values(top, {5, kNan});
  expect_values(at, {1, 1});
  EXPECT_EQ(max(make({4}, Dims{}), 0).second.item_i64(), 0);
}

TEST(Reduce, LogSumExpIsStable) {
  expect_values(logsumexp(make({1000, 1000}), {0}), {1000 + std::log(2.0)});
  expect_values(logsumexp(make({-kInf, -kInf, kInf, 0}, {2, 2}), {1}), {-kInf, kInf});
  const Tensor x = leaf({-kInf, -kInf});
  expect_values(autograd::grad({logsumexp(x, {0})}, {x})[0], {0, 0});
}

TEST(Reduce, Gradients) {
  const Tensor& x = sample();
  const std::vector<std::function<Tensor(const Tensor&)>> reductions = {
      [](const Tensor& t) { return sum(t); },
      [](const Tensor& t) {
        return square(sum(t, {0, 2}));
      },
      [](const Tensor& t) { return square(mean(t, {1}, true)); },
      [](const Tensor& t) { return prod(t, {1}); },
      [](const Tensor& t) {
        return prod(t, {0, 2}, true);
      },
      [](const Tensor& t) { return square(amax(t, {1})); },
      [](const Tensor& t) { return square(amin(t)); },
      [](const Tensor& t) { return square(max(t, 1).first); },
      [](const Tensor& t) { return square(min(t, -1, true).first); },
      [](const Tensor& t) { return var(t, {1}); },
      [](const Tensor& t) {
        return std_dev(t, {0, 1}, 0);
      },
      [](const Tensor& t) { return logsumexp(t, {1}); },
      [](const Tensor& t) { return norm(t); },
      [](const Tensor& t) {
        return square(sum_to(t, {3, 1}));
      },
  };
  for (size_t i = 0; i < reductions.size(); ++i) {
    SCOPED_TRACE("reduction " + std::to_string(i));
    check_gradient([&](const Tensors& v) { return reductions[i](v[0]); }, {x}, 1e-5);
  }
}

TEST(Reduce, GradientOfProductsWithZeros) {
  for (const std::vector<double>& v : {std::vector<double>{2, 0, 3}, {0, 0, 3}, {0, 0, 0}}) {
    const Tensor x = leaf(v);
    expect_values(autograd::grad({prod(x)}, {x})[0], {v[1] * v[2], v[0] * v[2], v[0] * v[1]});
    check_gradient([](const Tensors& t) { return prod(t[0]); }, {make(v)}, 1e-5);
  }
}

TEST(Reduce, TiesShareTheGradient) {
  const Tensor x = leaf({2, 5, 5, 1});
  expect_values(autograd::grad({amax(x)}, {x})[0], {0, 0.5, 0.5, 0});
  expect_values(autograd::grad({max(x)}, {x})[0], {0, 0.5, 0.5, 0});
  expect_values(autograd::grad({max(x, 0).first}, {x})[0], {0, 1, 0, 0});
  const Tensor zero = leaf({0, 0});
  expect_values(autograd::grad({norm(zero)}, {zero})[0], {0, 0});
  expect_values(autograd::grad({std_dev(zero)}, {zero})[0], {0, 0});
}

TEST(Reduce, Errors) {
  const Tensor& x = sample();
  EXPECT_ERROR(Value, "sum: a dim appears twice; got dims (0, -3)", sum(x, {0, -3}));
  EXPECT_ERROR(Index, "mean: dim out of range; got 3", mean(x, {3}));
  EXPECT_ERROR(Type, "mean: needs a float dtype; got int64", mean(make({1, 2}, DType::int64)));
  EXPECT_ERROR(Type, "var: needs a float dtype", var(make({1, 2}, DType::int64)));
  EXPECT_ERROR(Value, "sum_to: the shape does not broadcast", sum_to(x, {5}));
}

}  // namespace
}  // namespace pyflame
