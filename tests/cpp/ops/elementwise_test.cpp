// Elementwise ops: values, promotion, broadcasting, gradients, and what users are told.
#include "support/tensor_values.h"

namespace pyflame {
namespace {

using namespace testing;

TEST(Elementwise, BroadcastsAndComputes) {
  const Tensor a = make({1, 2, 3, 4, 5, 6}, {2, 3}), b = make({10, 20, 30});
  expect_values(add(a, b), {11, 22, 33, 14, 25, 36});
  expect_values(sub(1.0, a), {0, -1, -2, -3, -4, -5});
  expect_values(add(transpose(a, 0, 1), make({1, 2})), {2, 6, 3, 7, 4, 8});
  EXPECT_EQ(add(make({}, {0, 3}), b).shape(), (Dims{0, 3}));
  EXPECT_EQ(add(2, 3).shape(), Dims{});
  EXPECT_EQ(add(2, 3).item_i64(), 5);
}

TEST(Elementwise, PromotesAsPyTorch) {
  const Tensor i32 = make({1, 2}, DType::int32), f32 = make({1, 2}, DType::float32), b = make({0, 1}, DType::bool_);
  const Tensor u8 = make({1, 2}, DType::uint8), zero_dim = make({2}, Dims{}, DType::float64),
               f16 = make({1, 2}, DType::float16);
  EXPECT_EQ(add(i32, 1).dtype(), DType::int32);
  EXPECT_EQ(add(i32, 1.5).dtype(), DType::float32);
  EXPECT_EQ(add(f16, 1.5).dtype(), DType::float16);
  EXPECT_EQ(add(f32, zero_dim).dtype(), DType::float32);
  EXPECT_EQ(add(i32, zero_dim).dtype(), DType::float64);
  EXPECT_EQ(add(b, 1).dtype(), DType::int64);
  EXPECT_EQ(div(i32, i32).dtype(), DType::float32);
  EXPECT_EQ(floor_divide(i32, u8).dtype(), DType::int32);
  EXPECT_EQ(exp(i32).dtype(), DType::float32);
  EXPECT_EQ(lt(f32, i32).dtype(), DType::bool_);
  EXPECT_EQ(where(b, 1.0, 2).dtype(), DType::float32);
  EXPECT_EQ(add(b, b).dtype(), DType::bool_);
  expect_values(add(b, b), {0, 1});
  expect_values(gt(u8, -1), {1, 1});  // not compared as 255
  expect_values(lt(u8, 300), {1, 1});
}

TEST(Elementwise, IntegerDivisionRoundsDown) {
  const Tensor a = make({-7, 7, -7, 7}, DType::int64), b = make({2, 2, -2, -2}, DType::int64);
  expect_values(floor_divide(a, b), {-4, 3, 3, -4});
  expect_values(remainder(a, b), {1, 1, -1, -1});
  expect_values(remainder(make({-7.5, 7.5}), 2.0), {0.5, 1.5});
  expect_values(pow(make({2, 3}, DType::int64), 5), {32, 243});
}

TEST(Elementwise, SpecialValues) {
  expect_values(clamp(make({kNan, -5, 5, 0.5}), Scalar(-1.0), Scalar(1.0)), {kNan, -1, 1, 0.5});
  expect_values(maximum(make({kNan, 1}), make({1, kNan})), {kNan, kNan});
  expect_values(relu(make({kNan, -1, 2})), {kNan, 0, 2});
  expect_values(isnan(make({kNan, kInf, 1})), {1, 0, 0});
  expect_values(isinf(make({kNan, -kInf, 1})), {0, 1, 0});
  expect_values(isnan(make({1, 2}, DType::int64)), {0, 0});
  expect_values(round(make({0.5, 1.5, -2.5})), {0, 2, -2});
  expect_values(logical_xor(make({0, 2}), make({3, 4}, DType::int64)), {1, 0});
}

TEST(Elementwise, UnaryGradients) {
  const Tensor x = make({-1.3, -0.4, 0.7, 2.1}), positive = make({0.3, 0.9, 1.7, 4.2});
  for (Tensor (*f)(const Tensor&) : {neg, abs, exp, expm1, sin, cos, tanh, erf, sigmoid, relu, silu, square})
    check_gradient([f](const Tensors& v) { return f(v[0]); }, {x});
  for (Tensor (*f)(const Tensor&) : {sqrt, rsqrt, reciprocal, log, log1p})
    check_gradient([f](const Tensors& v) { return f(v[0]); }, {positive}, 1e-5);
  check_gradient([](const Tensors& v) { return gelu(v[0]); }, {x});
  check_gradient([](const Tensors& v) { return gelu(v[0], "tanh"); }, {x});
  check_gradient([](const Tensors& v) { return softplus(v[0], 2, 3); }, {x});
  check_gradient([](const Tensors& v) { return leaky_relu(v[0], 0.1); }, {x});
  check_gradient([](const Tensors& v) { return clamp(v[0], Scalar(-1.0), Scalar(1.0)); }, {x});
  check_gradient([](const Tensors& v) { return masked_fill(v[0], make({1, 0, 0, 1}, DType::bool_), 3.0); }, {x});
  check_gradient([](const Tensors& v) { return clone(transpose(reshape(v[0], {2, 2}), 0, 1)); }, {x});
}

TEST(Elementwise, BinaryGradients) {
  const Tensor a = make({0.7, 1.2, 2.5, 0.4, 3.3, 1.9}, {2, 3}), row = make({1.5, 0.57, 2.2}),
               column = make({0.9, 1.4}, {2, 1});
  for (Tensor (*f)(const Value&, const Value&) : {add, sub, mul, div, pow, maximum, minimum, remainder}) {
    check_gradient([f](const Tensors& v) { return f(v[0], v[1]); }, {a, row}, 1e-5);
    check_gradient([f](const Tensors& v) { return f(v[0], v[1]); }, {column, a}, 1e-5);
    check_gradient([f](const Tensors& v) { return f(v[0], 1.7); }, {a}, 1e-5);
    check_gradient([f](const Tensors& v) { return f(1.7, v[0]); }, {a}, 1e-5);
  }
  for (double e : {0.0, 0.5, 1.0, 2.0, 3.0, -1.0, -0.5, 2.5})
    check_gradient([e](const Tensors& v) { return pow(v[0], e); }, {a}, 1e-5);
  const Tensor c = make({1, 0, 1, 0, 0, 1}, {2, 3}, DType::bool_);
  check_gradient([c](const Tensors& v) { return where(c, v[0], v[1]); }, {a, row});
  check_gradient([](const Tensors& v) { return mul(v[0], v[0]); }, {a});
}

TEST(Elementwise, GradientsAtSpecialPoints) {
  const Tensor x = leaf({0, 0, 2}), e = leaf({0, 2, 3});
  const Tensors g = autograd::grad({sum(pow(x, e))}, {x, e});
  expect_values(g[0], {0, 0, 12});
  expect_values(g[1], {0, 0, 8 * std::log(2.0)});

  const Tensor a = leaf({1, 2, 5}), b = leaf({1, 3, 4});
  const Tensors tie = autograd::grad({sum(maximum(a, b))}, {a, b});
  expect_values(tie[0], {0.5, 0, 1});
  expect_values(tie[1], {0.5, 1, 0});

  const Tensor edge = leaf({-1, 1, 1.5});
  expect_values(autograd::grad({sum(clamp(edge, Scalar(-1.0), Scalar(1.0)))}, {edge})[0], {1, 1, 0});
  expect_values(autograd::grad({sum(abs(x))}, {x})[0], {0, 0, 1});
}

TEST(Elementwise, CastCarriesTheGradientBack) {
  const Tensor x = leaf({1, 2});
  const Tensor y = mul(cast(x, DType::float32), make({3, 4}, DType::float32));
  const Tensor g = autograd::grad({sum(y)}, {x})[0];
  EXPECT_EQ(g.dtype(), DType::float64);
  expect_values(g, {3, 4});
  EXPECT_FALSE(cast(x, DType::int64).requires_grad());
  EXPECT_TRUE(cast(x, DType::float64).same(x));
}

TEST(Elementwise, Errors) {
  const Tensor a = make({1, 2, 3, 4, 5, 6}, {2, 3}), b = make({1, 2, 3, 4});
  EXPECT_ERROR(Value, "add: shapes do not broadcast; got (2, 3) and (4,); expected", add(a, b));
  const Tensor flags = make({1, 0}, DType::bool_), ints = make({1, 2}, DType::int64);
  EXPECT_ERROR(Type, "sub: not defined for two bool tensors", sub(flags, flags));
  EXPECT_ERROR(Type, "neg: not defined for bool", neg(flags));
  EXPECT_ERROR(Type, "where: the condition is not bool; got float64", where(a, a, a));
  EXPECT_ERROR(Type, "masked_fill: the mask is not bool; got float64", masked_fill(a, a, 1));
  EXPECT_ERROR(Runtime, "floor_divide: integer division by zero", floor_divide(ints, 0));
  EXPECT_ERROR(Runtime, "pow: integers to a negative integer power", pow(ints, -1));
  EXPECT_ERROR(Value, "clamp: no bounds", clamp(a, {}, {}));
  EXPECT_ERROR(Value, "gelu: unknown approximation; got 'fast'", gelu(a, "fast"));
  EXPECT_ERROR(Type, "exp: an undefined tensor", exp(Tensor()));
}

}  // namespace
}  // namespace pyflame
