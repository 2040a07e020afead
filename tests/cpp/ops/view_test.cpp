// Views and joins: shapes and strides, shared storage, gradients, bounds.
#include "support/tensor_values.h"

namespace pyflame {
namespace {

using namespace testing;

Tensor counting(const Dims& shape) { return reshape(arange(0, shape.numel(), 1, DType::float64), shape); }

TEST(View, SharesStorage) {
  const Tensor x = counting({2, 3});
  for (const Tensor& v : {view(x, {3, 2}), transpose(x, 0, 1), select(x, 0, 1), slice(x, 1, 0, 3, 2), unsqueeze(x, 1),
                          expand(unsqueeze(x, 0), {4, 2, 3}), flatten(x), as_strided(x, {2, 2}, {1, 2}, 1)})
    EXPECT_EQ(v.storage(), x.storage());
  EXPECT_NE(reshape(transpose(x, 0, 1), {6}).storage(), x.storage());
}

TEST(View, Geometry) {
  const Tensor x = counting({2, 3, 4});
  expect_values(select(x, -1, -1), {3, 7, 11, 15, 19, 23});
  expect_values(slice(x, 2, 1, {}, 2), {1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23});
  expect_values(slice(x, 0, -1, 100), {12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23});
  EXPECT_EQ(slice(x, 1, 2, 1).shape(), (Dims{2, 0, 4}));
  EXPECT_EQ(slice(x, 1, 0, 3, INT64_MAX).shape(), (Dims{2, 1, 4}));
  EXPECT_EQ(permute(x, {2, 0, 1}).shape(), (Dims{4, 2, 3}));
  expect_values(select(permute(x, {2, 0, 1}), 0, 0), {0, 4, 8, 12, 16, 20});
  EXPECT_EQ(squeeze(counting({1, 2, 1})).shape(), Dims{2});
  EXPECT_EQ(squeeze(x, 1).shape(), x.shape());
  EXPECT_EQ(unsqueeze(x, -1).shape(), (Dims{2, 3, 4, 1}));
  EXPECT_EQ(flatten(x, 1).shape(), (Dims{2, 12}));
  EXPECT_EQ(reshape(x, {-1, 6}).shape(), (Dims{4, 6}));
  EXPECT_EQ(reshape(zeros({0, 3}), {3, 0}).shape(), (Dims{3, 0}));
  EXPECT_EQ(expand(zeros({3, 1}), {2, -1, 4}).shape(), (Dims{2, 3, 4}));
  EXPECT_EQ(view(transpose(x, 0, 1), {3, 2, 2, 2}).shape(), (Dims{3, 2, 2, 2}));
  expect_values(view(transpose(x, 0, 1), {3, 2, 2, 2}), values(transpose(x, 0, 1)));
  EXPECT_EQ(flatten(make({7}, Dims{})).shape(), Dims{1});
}

TEST(View, SplitAndChunk) {
  const Tensor x = counting({5, 2});
  const Tensors halves = split(x, 2);
  ASSERT_EQ(halves.size(), 3u);
  expect_values(halves[2], {8, 9});
  ASSERT_EQ(chunk(x, 3).size(), 3u);
  ASSERT_EQ(chunk(x, 4).size(), 3u);  // as PyTorch: pieces of two
  expect_values(split(x, Dims{1, 4})[0], {0, 1});
}

TEST(View, Gradients) {
  const Tensor x = make({0.5, -1, 2, 3, 0.25, -4}, {2, 3});
  const std::vector<std::function<Tensor(const Tensor&)>> views = {
      [](const Tensor& t) {
        return view(t, {3, 2});
      },
      [](const Tensor& t) { return reshape(transpose(t, 0, 1), {6}); },
      [](const Tensor& t) { return transpose(t, 0, 1); },
      [](const Tensor& t) {
        return permute(unsqueeze(t, 0), {2, 0, 1});
      },
      [](const Tensor& t) {
        return expand(unsqueeze(t, 1), {2, 4, 3});
      },
      [](const Tensor& t) { return squeeze(unsqueeze(t, 1)); },
      [](const Tensor& t) { return select(t, 1, -1); },
      [](const Tensor& t) { return slice(t, 1, 0, {}, 2); },
      [](const Tensor& t) { return narrow(t, 1, 1, 2); },
      [](const Tensor& t) { return split(t, 2, 1)[1]; },
      [](const Tensor& t) {
        return as_strided(t, {2, 2}, {1, 3}, 1);
      },
      [](const Tensor& t) {
        return as_strided(t, {4, 3}, {1, 1}, 0);
      },  // overlapping windows
      [](const Tensor& t) { return as_strided(transpose(t, 0, 1), {3}, {2}, 0); },
  };
  for (size_t i = 0; i < views.size(); ++i) {
    SCOPED_TRACE("view " + std::to_string(i));
    check_gradient([&](const Tensors& v) { return square(views[i](v[0])); }, {x});
  }
}

TEST(View, Errors) {
  const Tensor x = counting({2, 3});
  EXPECT_ERROR(Value, "view: the strides do not allow this shape", view(transpose(x, 0, 1), {6}));
  EXPECT_ERROR(Value, "view: the shape does not fit; got (4,) for a tensor of shape (2, 3); expected 6 elements",
               view(x, {4}));
  EXPECT_ERROR(Value, "reshape: more than one size is -1", reshape(x, {-1, -1}));
  EXPECT_ERROR(Value, "reshape: -1 is ambiguous next to a size of 0", reshape(zeros({0}), {0, -1}));
  EXPECT_ERROR(Index, "select: index out of range; got 2; expected -2 <= index < 2 for dim 0 of shape (2, 3)",
               select(x, 0, 2));
  EXPECT_ERROR(Index, "transpose: dim out of range; got 2", transpose(x, 0, 2));
  EXPECT_ERROR(Value, "permute: a dim appears twice", permute(x, {0, 0}));
  EXPECT_ERROR(Value, "expand: a size does not match", expand(x, {4, 3}));
  EXPECT_ERROR(Value, "slice: the step is not positive; got 0", slice(x, 0, {}, {}, 0));
  EXPECT_ERROR(Value, "narrow: the length does not fit", narrow(x, 1, 2, 2));
  EXPECT_ERROR(Value, "as_strided: reaches beyond the storage", as_strided(x, {4}, {2}, 0));
  EXPECT_ERROR(Value, "as_strided: reaches beyond the storage", as_strided(x, {3, 3}, {INT64_MAX, INT64_MAX}, 0));
  EXPECT_ERROR(Value, "split: the sizes do not add up", split(x, Dims{1, 1}, 1));
  EXPECT_ERROR(Index, "select: a tensor without dimensions", select(make({1}, Dims{}), 0, 0));
}

TEST(Join, CatStackPad) {
  const Tensor a = counting({2, 2}), b = make({10, 20}, {2, 1}, DType::float32);
  expect_values(cat({a, b}, 1), {0, 1, 10, 2, 3, 20});
  EXPECT_EQ(cat({a, b}, 1).dtype(), DType::float64);
  expect_values(cat({make({}, Dims{0}), a}, 0), {0, 1, 2, 3});  // 1-D and empty: skipped
  expect_values(stack({a, a}, -1), {0, 0, 1, 1, 2, 2, 3, 3});
  EXPECT_EQ(stack({a, a}, -1).shape(), (Dims{2, 2, 2}));
  expect_values(pad(a, {1, 0}, "constant", 9.0), {9, 0, 1, 9, 2, 3});
  expect_values(pad(a, {0, -1, 1, 0}), {0, 0, 2});
  EXPECT_EQ(pad(a, {0, 0, 0, 0}).shape(), a.shape());
  EXPECT_EQ(cat({zeros({0, 2}), zeros({0, 2})}).shape(), (Dims{0, 2}));
}

TEST(Join, Gradients) {
  const Tensor a = make({0.5, -1, 2, 3}, {2, 2}), b = make({4, 5}, {2, 1});
  check_gradient([](const Tensors& v) { return square(cat({v[0], v[1], v[0]}, 1)); }, {a, b});
  check_gradient([](const Tensors& v) { return square(stack({v[0], mul(v[0], 2.0)}, 1)); }, {a});
  check_gradient([](const Tensors& v) { return square(pad(v[0], {1, 2, -1, 1}, "constant", 3.0)); }, {a});
}

TEST(Join, Errors) {
  const Tensor a = counting({2, 2}), b = counting({3, 1});
  EXPECT_ERROR(Value, "cat: no tensors", cat({}));
  EXPECT_ERROR(Value, "cat: the shapes do not fit; got (2, 2) and (3, 1); expected equal sizes except in dim 0",
               cat({a, b}));
  EXPECT_ERROR(Value, "cat: a tensor without dimensions", cat({make({1}, Dims{})}));
  EXPECT_ERROR(Value, "stack: the shapes differ", stack({a, b}));
  EXPECT_ERROR(Value, "pad: no such mode; got 'mirror'; expected 'constant'", pad(a, {1, 1}, "mirror"));
  EXPECT_ERROR(Value, "pad: cuts off more than there is", pad(a, {-3, 0}));
}

}  // namespace
}  // namespace pyflame
