// Layers: names, shapes, initial values, formulas, and what load_state_dict says.
#include "pyflame/nn/layers.h"

#include <gtest/gtest.h>

#include "support/tensor_values.h"

namespace pyflame::nn {
namespace {

using testing::expect_values;
using testing::make;
using testing::values;

template <class M>
std::vector<std::string> names_of(M& m) {
  std::vector<std::string> r;
  for (const auto& [name, t] : state_dict(m)) r.push_back(name);
  return r;
}

TEST(Layers, LinearDrawsWeightThenBias) {
  manual_seed(11);
  Linear l(9, 4);
  manual_seed(11);
  const Tensor w = rand({4, 9}), b = rand({4});
  const double bound = 1.0 / 3;
  expect_values(l.weight, values(add(mul(w, 2 * bound), -bound)));
  expect_values(l.bias, values(add(mul(b, 2 * bound), -bound)));
  EXPECT_TRUE(l.weight.requires_grad() && l.weight.is_leaf());
  EXPECT_EQ(names_of(l), (std::vector<std::string>{"weight", "bias"}));
  Linear without(9, 4, false);
  EXPECT_EQ(names_of(without), (std::vector<std::string>{"weight"}));
}

TEST(Layers, SequentialNamesModesAndCounts) {
  Sequential net(Conv2d(3, 8, 3, 1, 1), BatchNorm2d(8), ReLU{}, MaxPool2d(2), Flatten{}, Dropout(0.5),
                 Linear(8 * 4 * 4, 10));
  EXPECT_EQ(names_of(net), (std::vector<std::string>{"0.weight", "0.bias", "1.weight", "1.bias", "1.running_mean",
                                                     "1.running_var", "1.num_batches_tracked", "6.weight", "6.bias"}));
  EXPECT_EQ(count_parameters(net), 3 * 8 * 9 + 8 + 16 + 128 * 10 + 10);
  EXPECT_EQ(parameters(net).size(), 6u);
  const Tensor x = randn({2, 3, 8, 8});
  EXPECT_EQ(net(x).shape(), (Dims{2, 10}));
  auto& norm = std::get<1>(net.layers);
  EXPECT_EQ(norm.num_batches_tracked.item_i64(), 1);
  train(net, false);
  EXPECT_FALSE(norm.is_training);
  EXPECT_FALSE(std::get<5>(net.layers).is_training);
  expect_values(net(x), values(net(x)), 0);  // no dropout, no moving statistics
  EXPECT_EQ(norm.num_batches_tracked.item_i64(), 1);
}

TEST(Layers, EmbeddingPadding) {
  Embedding e(5, 3, -1);
  expect_values(select(e.weight, 0, 4), {0, 0, 0});
  EXPECT_ERROR(Index, "padding_idx", Embedding(5, 3, 5));
}

// softmax(q k^T / sqrt d) v by hand, from the packed weights.
TEST(Layers, MultiheadAttentionEqualsItsDefinition) {
  manual_seed(2);
  MultiheadAttention m(8, 2, 0.0, true, true);
  EXPECT_EQ(names_of(m),
            (std::vector<std::string>{"in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"}));
  grad_mode::Guard no_grad(false);
  init::normal_(m.in_proj_bias, 0, 1);
  const Tensor x = randn({2, 5, 8}), y = randn({2, 3, 8});
  const auto project = [&](const Tensor& t, int64_t part) {
    const Tensor p = linear(t, narrow(m.in_proj_weight, 0, 8 * part, 8), narrow(m.in_proj_bias, 0, 8 * part, 8));
    return transpose(reshape(p, {t.size(0), t.size(1), 2, 4}), 1, 2);
  };
  const Tensor scores = mul(matmul(project(x, 0), transpose(project(y, 1), 2, 3)), 0.5);
  const Tensor mixed = matmul(softmax(scores, -1), project(y, 2));
  const Tensor expected = linear(reshape(transpose(mixed, 1, 2), {2, 5, 8}), m.out_proj.weight, m.out_proj.bias);
  expect_values(m(x, y, y), values(expected), 1e-5);
  // Time first is the same with the first two dims exchanged.
  MultiheadAttention t = m;
  t.batch_first = false;
  const Tensor xt = transpose(x, 0, 1), yt = transpose(y, 0, 1);
  expect_values(transpose(t(xt, yt, yt), 0, 1), values(expected), 1e-5);
  expect_values(m(x, x, x), values(transpose(t(xt, xt, xt), 0, 1)), 1e-5);
  EXPECT_ERROR(Value, "must divide", MultiheadAttention(8, 3));
}

TEST(Layers, LoadStateDictListsEverything) {
  Linear l(3, 2);
  const std::vector<double> before = values(l.weight);
  try {
    load_state_dict(l, {{"weight", ones({3, 2})}, {"extra", ones({1})}});
    FAIL() << "no error";
  } catch (const Error& e) {
    const std::string m = e.what();
    EXPECT_EQ(e.kind(), ErrorKind::Value);
    EXPECT_NE(m.find("missing: bias"), std::string::npos) << m;
    EXPECT_NE(m.find("unexpected: extra"), std::string::npos) << m;
    EXPECT_NE(m.find("misshapen: weight; got (3, 2); expected (2, 3)"), std::string::npos) << m;
  }
  expect_values(l.weight, before, 0);
  load_state_dict(l, {{"weight", ones({2, 3})}, {"extra", ones({1})}}, false);
  expect_values(l.weight, std::vector<double>(6, 1.0), 0);
  EXPECT_TRUE(l.weight.requires_grad());
}

}  // namespace
}  // namespace pyflame::nn
