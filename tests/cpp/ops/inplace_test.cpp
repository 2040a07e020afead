// In-place ops: values through views, casting rules, and their effect on the tape.
#include "support/tensor_values.h"

namespace pyflame {
namespace {

using namespace testing;

Tensor mul_(const Tensor& x, const Value& b) { return binary_(mul, "mul_", x, b); }
Tensor add_(const Tensor& x, const Value& b) { return binary_(add, "add_", x, b); }

TEST(InPlace, WritesThroughViews) {
  const Tensor x = make({1, 2, 3, 4, 5, 6}, {2, 3});
  add_(select(x, 1, 1), 10);
  expect_values(x, {1, 12, 3, 4, 15, 6});
  copy_(transpose(x, 0, 1), make({1, 2}));
  expect_values(x, {1, 1, 1, 2, 2, 2});
  fill_(slice(x, 1, 0, {}, 2), 7);
  expect_values(x, {7, 1, 7, 7, 2, 7});
  unary_(neg, "neg_", x);
  expect_values(x, {-7, -1, -7, -7, -2, -7});
}

TEST(InPlace, SourceAndDestinationMayOverlap) {
  const Tensor x = make({1, 2, 3, 4, 5});
  copy_(slice(x, 0, 1, 5), slice(x, 0, 0, 4));
  expect_values(x, {1, 1, 2, 3, 4});
  const Tensor square_matrix = make({1, 2, 3, 4}, {2, 2});
  copy_(square_matrix, transpose(square_matrix, 0, 1));
  expect_values(square_matrix, {1, 3, 2, 4});
  add_(square_matrix, transpose(square_matrix, 0, 1));
  expect_values(square_matrix, {2, 5, 5, 8});
}

TEST(InPlace, CountsVersionsAndKeepsTheDtype) {
  const Tensor x = make({1, 2}, DType::float32);
  const uint32_t before = x.storage()->version;
  add_(x, make({0.5, 0.5}));
  EXPECT_EQ(x.dtype(), DType::float32);
  EXPECT_GT(x.storage()->version, before);
  const Tensor ints = make({1, 2}, DType::int64);
  EXPECT_ERROR(Runtime, "add_: result type float32 can't be cast to int64", add_(ints, 1.5));
  copy_(ints, make({1.9, -1.9}));  // copies may lose what the dtype cannot hold
  expect_values(ints, {1, -1});
}

TEST(InPlace, HistoryIsReplaced) {
  const Tensor w = leaf({1, 2, 3});
  const Tensor y = mul(w, 2.0);
  mul_(y, make({2, 4, 6}));
  expect_values(autograd::grad({sum(y)}, {w}, {}, true)[0], {4, 8, 12});

  const Tensor z = mul(w, 3.0);
  copy_(z, make({9, 9, 9}));
  expect_values(autograd::grad({sum(z)}, {w})[0], {0, 0, 0});

  const Tensor s = mul(w, 1.0);
  unary_(sin, "sin_", s);  // its gradient needs the old value
  expect_values(autograd::grad({sum(s)}, {w})[0], {std::cos(1.0), std::cos(2.0), std::cos(3.0)});

  const Tensor buffer = zeros({2, 3}, DType::float64);
  copy_(buffer, w);  // broadcasts: the gradient is summed
  EXPECT_TRUE(buffer.requires_grad());
  expect_values(autograd::grad({sum(buffer)}, {w})[0], {2, 2, 2});
}

TEST(InPlace, WritingAViewReachesItsBase) {
  const Tensor w = leaf({1, 2}), x = leaf({1, 1, 1, 1});
  const Tensor base = mul(x, 5.0);
  const Tensor other = slice(base, 0, 1, 3);  // made before the write
  mul_(slice(base, 0, 0, 2), w);
  expect_values(base, {5, 10, 5, 5});
  const Tensors g = autograd::grad({sum(mul(base, make({1, 2, 3, 4})))}, {x, w}, {}, true);
  expect_values(g[0], {5, 20, 15, 20});
  expect_values(g[1], {5, 10});
  const Tensors through = autograd::grad({sum(mul(other, make({10, 100})))}, {x, w});
  expect_values(through[0], {0, 100, 500, 0});
  expect_values(through[1], {0, 50});
}

TEST(InPlace, WritingAViewOfAPlainBufferMakesItPartOfTheTape) {
  const Tensor w = leaf({1, 2});
  const Tensor buffer = zeros({3, 2}, DType::float64);
  copy_(select(buffer, 0, 1), w);
  fill_(select(buffer, 0, 0), 4);
  EXPECT_TRUE(buffer.requires_grad());
  expect_values(autograd::grad({sum(square(buffer))}, {w})[0], {2, 4});
}

TEST(InPlace, NestedViews) {
  const Tensor w = leaf({1, 2, 3, 4, 5, 6}, {2, 3});
  const Tensor base = mul(w, 1.0);
  const Tensor inner = select(transpose(base, 0, 1), 0, 2);
  mul_(inner, inner);
  expect_values(base, {1, 2, 9, 4, 5, 36});
  EXPECT_NE(inner.grad_fn(), Ref<GradNode>());
  expect_values(autograd::grad({sum(base)}, {w})[0], {1, 1, 6, 1, 1, 12});
}

TEST(InPlace, Gradients) {
  const Tensor a = make({0.5, -1, 2, 3}, {2, 2}), b = make({4, 5});
  check_gradient(
      [](const Tensors& v) {
        const Tensor x = mul(v[0], 1.5);
        mul_(x, v[1]);
        copy_(select(x, 1, 0), mul(v[1], v[1]));
        add_(transpose(x, 0, 1), v[1]);
        return square(x);
      },
      {a, b}, 1e-5);
}

TEST(InPlace, ChangedAfterSavingIsAnError) {
  const Tensor w = leaf({1, 2});
  const Tensor y = mul(w, 2.0), z = mul(y, y);
  add_(y, 1);
  EXPECT_ERROR(Runtime, "mul: a tensor needed for the gradient was modified in place; got version",
               autograd::grad({sum(z)}, {w}));
  EXPECT_ERROR(Runtime, "hint: clone() it before the in-place op", autograd::grad({sum(z)}, {w}));
}

TEST(InPlace, LeavesAreProtected) {
  const Tensor w = leaf({1, 2});
  EXPECT_ERROR(Runtime, "add_: a leaf tensor that requires grad is being used in an in-place operation", add_(w, 1));
  EXPECT_ERROR(Runtime, "fill_: a view of a leaf tensor that requires grad is being used", fill_(slice(w, 0, 0, 1), 1));
  Tensor untracked;
  {
    grad_mode::Guard off(false);
    add_(w, 1);
    untracked = slice(w, 0, 0, 1);
    fill_(untracked, 5);
  }
  expect_values(w, {5, 3});
  EXPECT_TRUE(w.is_leaf());
  EXPECT_ERROR(Runtime, "fill_: a view of a leaf", fill_(untracked, 1));
}

TEST(InPlace, InferenceTensorsStayOutOfTheTape) {
  const Tensor w = leaf({1, 2});
  Tensor made;
  {
    grad_mode::Guard inference(false, true);
    made = mul(w, 2.0);
  }
  EXPECT_FALSE(made.requires_grad());
  EXPECT_ERROR(Runtime, "a tensor made under inference_mode cannot be saved for the gradient", mul(w, made));
  EXPECT_ERROR(Runtime, "a tensor made under inference_mode cannot be saved for the gradient",
               mul(w, slice(made, 0, 0, 1)));
  EXPECT_ERROR(Runtime, "fill_: a tensor made under inference_mode cannot be changed in place", fill_(made, 1));
  EXPECT_ERROR(Runtime, "requires_grad: this tensor was made under inference_mode", made.set_requires_grad(true));
  EXPECT_TRUE(mul(w, clone(made)).requires_grad());
}

TEST(InPlace, OtherErrors) {
  const Tensor x = make({1, 2, 3}), row = make({1, 2}, {2, 1});
  EXPECT_ERROR(Runtime, "add_: several elements of the written tensor share one memory location",
               add_(expand(row, {2, 3}), 1));
  EXPECT_ERROR(Value, "add_: the result has a larger shape than the tensor; got (2, 3) for a tensor of shape (3,)",
               add_(x, row));
  EXPECT_ERROR(Value, "copy_: the value has a larger shape than the tensor", copy_(x, zeros({2, 3})));
  EXPECT_ERROR(Value, "copy_: shapes do not broadcast", copy_(x, zeros({2})));
}

}  // namespace
}  // namespace pyflame
