// The reference backend against literals that were computed elsewhere. All other tests trust this backend, so
// nothing of it may be checked against itself.
#include "pyflame/backends/reference/reference.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "pyflame/base/philox.h"
#include "support/graph_builder.h"

namespace pyflame::test {
namespace {

using enum DType;
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

template <class A = NoAttrs>
void run(OpId op, const std::vector<HostArg>& ins, const std::vector<HostTensor>& outs, const A& attrs = {}) {
  run_op(kReferenceImpl, op, ins, outs, attrs);
}

template <class A = NoAttrs>
std::vector<double> one(OpId op, const std::vector<HostArg>& ins, DType dtype, const Dims& shape, const A& attrs = {}) {
  const HostTensor out = host_zeros(dtype, shape);
  run(op, ins, {out}, attrs);
  return values(out);
}

void expect_near(const std::vector<double>& got, const std::vector<double>& want, double tolerance = 1e-12) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(want[i])) EXPECT_TRUE(std::isnan(got[i])) << "at " << i;
    else if (std::isinf(want[i])) EXPECT_EQ(got[i], want[i]) << "at " << i;
    else EXPECT_NEAR(got[i], want[i], tolerance * std::max(1.0, std::fabs(want[i]))) << "at " << i;
  }
}

// Kind and text of the error that `f` raises.
template <class F>
void expect_error(ErrorKind kind, const std::string& text, F&& f) {
  try {
    f();
    FAIL() << "no error; expected: " << text;
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), kind) << e.what();
    EXPECT_NE(std::string(e.what()).find(text), std::string::npos) << e.what();
  }
}

TEST(Philox, KnownAnswers) {
  // From the authors' kat_vectors for philox4x32-10.
  EXPECT_EQ(philox_rounds({0, 0, 0, 0}, 0, 0), (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox_rounds({~0u, ~0u, ~0u, ~0u}, ~0u, ~0u),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox_rounds({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0xa4093822, 0x299f31d0),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(ReferenceElementwise, FloatActivations) {
  // Literals from mpmath with 40 digits.
  const HostTensor x = host(float64, {5}, {-2, -0.5, 0, 1, 3}), g = host(float64, {1}, {1});
  expect_near(one(OpId::gelu, {x}, float64, {5}),
              {-0.045500263896358417, -0.15426876936299344, 0, 0.84134474606854293, 2.9959503059051098});
  expect_near(one(OpId::gelu_tanh, {x}, float64, {5}),
              {-0.04540230591222498, -0.15428599017485609, 0, 0.84119199060827665, 2.9963626079182268});
  expect_near(one(OpId::silu, {x}, float64, {5}),
              {-0.23840584404423512, -0.18877033439907273, 0, 0.7310585786300049, 2.8577223804672998});
  expect_near(one(OpId::softplus, {x, HostParam{2.0}, HostParam{1.5}}, float64, {5}),
              {0.0090749639589048706, 0.1566308437591114, 0.34657359027997264, 1, 3});
  expect_near(one(OpId::gelu_grad, {x, host(float64, {1}, {2})}, float64, {5}),
              {-0.17046360215639381, 0.26500975068767429, 1, 2.1666309411753728, 2.0238912944083678});
  expect_near(one(OpId::gelu_tanh_grad, {x, g}, float64, {5}),
              {-0.086099256623618378, 0.1326300964653577, 0.5, 1.0829640838457826, 1.0115841666309697});
  expect_near(one(OpId::silu_grad, {x, g}, float64, {5}),
              {-0.09078424878489548, 0.26003881269734819, 0.5, 0.92767051187148675, 1.0881041060151697});
  const HostTensor edge = host(float32, {4}, {-kInf, kInf, kNan, -100});
  expect_near(one(OpId::gelu, {edge}, float32, {4}), {0, kInf, kNan, 0});
  expect_near(one(OpId::gelu_tanh, {edge}, float32, {4}), {0, kInf, kNan, 0});
  expect_near(one(OpId::relu, {edge}, float32, {4}), {0, kInf, kNan, 0});
}

TEST(ReferenceElementwise, BroadcastOverStridedAndOffsetViews) {
  const HostTensor base = host(int32, {3, 4}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  const HostTensor columns = base.view({4, 2}, {1, 4}, 4);  // rows 1 and 2, transposed
  const HostTensor out_base = host_ints(int32, {4, 3}, std::vector<int64_t>(12, -1));
  run(OpId::sub, {columns, host(int32, {2}, {100, 200})}, {out_base.view({4, 2}, {3, 1}, 1)});
  EXPECT_EQ(ints(out_base), (std::vector<int64_t>{-1, -96, -192, -1, -95, -191, -1, -94, -190, -1, -93, -189}));
}

TEST(ReferenceElementwise, IntegersWrapAndDivideLikePython) {
  EXPECT_EQ(one(OpId::add, {host(int8, {2}, {127, -128}), host(int8, {2}, {1, -1})}, int8, {2}),
            (std::vector<double>{-128, 127}));
  const HostTensor a = host(int64, {4}, {7, -7, 7, -7}), b = host(int64, {4}, {2, 2, -2, -2});
  EXPECT_EQ(one(OpId::floor_divide, {a, b}, int64, {4}), (std::vector<double>{3, -4, -4, 3}));
  EXPECT_EQ(one(OpId::remainder, {a, b}, int64, {4}), (std::vector<double>{1, 1, -1, -1}));
  const HostTensor lowest = host_ints(int64, {1}, {std::numeric_limits<int64_t>::min()});
  const HostTensor quotient = host_zeros(int64, {1});
  run(OpId::floor_divide, {lowest, host(int64, {1}, {-1})}, {quotient});
  EXPECT_EQ(ints(quotient)[0], std::numeric_limits<int64_t>::min());
  EXPECT_EQ(one(OpId::pow, {host(uint8, {3}, {2, 3, 0}), host(uint8, {3}, {8, 5, 0})}, uint8, {3}),
            (std::vector<double>{0, 243, 1}));
  EXPECT_EQ(one(OpId::remainder, {host(float32, {3}, {5.5, -5.5, -1}), host(float32, {3}, {2, 2, kInf})}, float32, {3}),
            (std::vector<double>{1.5, 0.5, kInf}));
  expect_error(ErrorKind::Runtime, "remainder: division by zero", [&] {
    one(OpId::remainder, {a, host(int64, {1}, {0})}, int64, {4});
  });
  expect_error(ErrorKind::Value, "negative power", [&] { one(OpId::pow, {a, host(int64, {1}, {-1})}, int64, {4}); });
}

TEST(ReferenceElementwise, CastsAreDefinedForEveryValue) {
  const HostTensor x = host(float64, {7}, {-1.9, 300, -1e30, 1e30, kNan, 0.3, 0});
  EXPECT_EQ(one(OpId::cast, {x}, uint8, {7}), (std::vector<double>{0, 255, 0, 255, 0, 0, 0}));
  EXPECT_EQ(one(OpId::cast, {x}, int8, {7}), (std::vector<double>{-1, 127, -128, 127, 0, 0, 0}));
  EXPECT_EQ(one(OpId::cast, {x}, bool_, {7}), (std::vector<double>{1, 1, 1, 1, 1, 1, 0}));
  const HostTensor wide = host_zeros(int64, {1});
  run(OpId::cast, {host(float64, {1}, {1e30})}, {wide});
  EXPECT_EQ(ints(wide)[0], std::numeric_limits<int64_t>::max());
  EXPECT_EQ(one(OpId::cast, {host_ints(int64, {2}, {257, -129})}, int8, {2}), (std::vector<double>{1, 127}));
}

TEST(ReferenceElementwise, RoundsOnceToNarrowTypes) {
  // 1 + 2^-11 is half way between two float16; 2^-40 more must round up, though a float32 in between would lose it.
  EXPECT_EQ(one(OpId::cast, {host(float64, {2}, {1 + 0x1p-11, 1 + 0x1p-11 + 0x1p-40})}, float16, {2}),
            (std::vector<double>{1, 1 + 0x1p-10}));
  EXPECT_EQ(one(OpId::cast, {host(float64, {2}, {-1 - 0x1p-8, -1 - 0x1p-8 - 0x1p-40})}, bfloat16, {2}),
            (std::vector<double>{-1, -1 - 0x1p-7}));
  EXPECT_EQ(one(OpId::cast, {host(float64, {3}, {65519.999, 65520, -1e300})}, float16, {3}),
            (std::vector<double>{65504, kInf, -kInf}));
  // 2^54 + 2^30 + 1: half way between two float32 but for the last bit, which a double cannot hold.
  constexpr int64_t half_way = (int64_t{1} << 54) + (int64_t{1} << 30);
  EXPECT_EQ(one(OpId::cast, {host_ints(int64, {2}, {half_way, half_way + 1})}, float32, {2}),
            (std::vector<double>{0x1p54, 0x1p54 + 0x1p31}));
  // A param is used in its dtype.
  EXPECT_EQ(one(OpId::add, {host(float64, {1}, {0}), HostParam{0.1, float32}}, float64, {1})[0],
            static_cast<double>(0.1f));
}

TEST(ReferenceElementwise, NanAndLogic) {
  const HostTensor a = host(float32, {4}, {kNan, 1, kNan, 2}), b = host(float32, {4}, {1, kNan, kNan, 3});
  expect_near(one(OpId::maximum, {a, b}, float32, {4}), {kNan, kNan, kNan, 3});
  expect_near(one(OpId::minimum, {a, b}, float32, {4}), {kNan, kNan, kNan, 2});
  EXPECT_EQ(one(OpId::ne, {a, b}, bool_, {4}), (std::vector<double>{1, 1, 1, 1}));
  EXPECT_EQ(one(OpId::logical_xor, {a, host(float32, {1}, {0})}, bool_, {4}), (std::vector<double>{1, 1, 1, 1}));
  EXPECT_EQ(one(OpId::add, {host(bool_, {2}, {1, 0}), host(bool_, {2}, {1, 0})}, bool_, {2}),
            (std::vector<double>{1, 0}));
  EXPECT_EQ(one(OpId::round, {host(float32, {4}, {0.5, 1.5, -2.5, 2.4})}, float32, {4}),
            (std::vector<double>{0, 2, -2, 2}));
  EXPECT_EQ(one(OpId::where, {host(bool_, {2}, {1, 0}), host(int64, {2}, {1, 2}), HostParam{9, int64}}, int64, {2}),
            (std::vector<double>{1, 9}));
}

TEST(ReferenceReduce, AxesDtypesAndEmpties) {
  const HostTensor x = host(int8, {2, 3}, {100, 100, 100, -1, 2, 3});
  EXPECT_EQ(one(OpId::sum, {x}, int64, {2, 1}, ReduceAttrs{0b10}), (std::vector<double>{300, 4}));
  EXPECT_EQ(one(OpId::sum, {x}, int64, {1, 3}, ReduceAttrs{0b01}), (std::vector<double>{99, 102, 103}));
  EXPECT_EQ(one(OpId::prod, {x}, int64, {1, 1}, ReduceAttrs{0b11}), (std::vector<double>{-6000000}));
  EXPECT_EQ(one(OpId::amin, {x.view({3, 2}, {1, 3})}, int8, {3, 1}, ReduceAttrs{0b10}),
            (std::vector<double>{-1, 2, 3}));
  expect_near(one(OpId::amax, {host(float32, {3}, {1, kNan, 5})}, float32, {1}, ReduceAttrs{1}), {kNan});
  const HostTensor empty = host_zeros(float32, {2, 0});
  EXPECT_EQ(one(OpId::sum, {empty}, float32, {2, 1}, ReduceAttrs{0b10}), (std::vector<double>{0, 0}));
  EXPECT_EQ(one(OpId::prod, {empty}, float32, {2, 1}, ReduceAttrs{0b10}), (std::vector<double>{1, 1}));
  EXPECT_EQ(one(OpId::all, {host_zeros(bool_, {0})}, bool_, {1}, ReduceAttrs{1}), (std::vector<double>{1}));
  EXPECT_EQ(one(OpId::sum, {host(float16, {}, {3})}, float16, {}, ReduceAttrs{0}), (std::vector<double>{3}));
  expect_error(ErrorKind::Value, "amax: reduction over no elements", [&] {
    one(OpId::amax, {empty}, float32, {2, 1}, ReduceAttrs{0b10});
  });
  // 1e8 + 1 - 1e8 is 0 in float32.
  EXPECT_EQ(one(OpId::sum, {host(float32, {3}, {1e8, 1, -1e8})}, float32, {1}, ReduceAttrs{1}),
            (std::vector<double>{1}));
}

TEST(ReferenceReduce, ArgMaxTakesTheFirst) {
  const HostTensor x = host(float32, {2, 3}, {1, 5, 5, kNan, 9, kNan});
  EXPECT_EQ(one(OpId::argmax, {x}, int64, {2}, ArgAttrs{1}), (std::vector<double>{1, 0}));
  EXPECT_EQ(one(OpId::argmax, {x}, int64, {2, 1}, ArgAttrs{1}), (std::vector<double>{1, 0}));
  EXPECT_EQ(one(OpId::argmin, {x}, int64, {3}, ArgAttrs{0}), (std::vector<double>{1, 0, 1}));
  EXPECT_EQ(one(OpId::argmax, {x}, int64, {}, ArgAttrs{-1}), (std::vector<double>{3}));
}

TEST(ReferenceMatmul, BatchedBroadcastAndTransposed) {
  const HostTensor a = host(float32, {2, 2}, {1, 2, 3, 4});
  const HostTensor b = host(float32, {2, 2, 2}, {1, 0, 0, 1, 2, 0, 0, 2});
  EXPECT_EQ(one(OpId::matmul, {a.view({2, 2, 2}, {0, 1, 2}), b}, float32, {2, 2, 2}),
            (std::vector<double>{1, 3, 2, 4, 2, 6, 4, 8}));
  EXPECT_EQ(one(OpId::matmul, {host_zeros(float32, {2, 0}), host_zeros(float32, {0, 1})}, float32, {2, 1}),
            (std::vector<double>{0, 0}));
  const HostTensor big = host_ints(int64, {1, 1}, {(int64_t{1} << 53) + 1}), out = host_zeros(int64, {1, 1});
  run(OpId::matmul, {big, host(int64, {1, 1}, {1})}, {out});
  EXPECT_EQ(ints(out)[0], (int64_t{1} << 53) + 1);
}

TEST(ReferenceConv, ForwardAndGradientsAgreeWithHandCounting) {
  // 3x3 input 1..9, 2x2 kernel, stride 2, padding 1.
  const ConvAttrs attrs{2, 2, 1, 1, 1, 1, 1};
  const HostTensor x = host(float32, {1, 1, 3, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9});
  const HostTensor w = host(float32, {1, 1, 2, 2}, {1, 10, 100, 1000});
  EXPECT_EQ(one(OpId::conv2d, {x, w}, float32, {1, 1, 2, 2}, attrs), (std::vector<double>{1000, 3200, 7040, 9865}));
  const HostTensor g = host(float32, {1, 1, 2, 2}, {1, 2, 3, 4});
  EXPECT_EQ(one(OpId::conv2d_grad_input, {g, w}, float32, {1, 1, 3, 3}, attrs),
            (std::vector<double>{1000, 200, 2000, 30, 4, 40, 3000, 400, 4000}));
  EXPECT_EQ(one(OpId::conv2d_grad_weight, {g, x}, float32, {1, 1, 2, 2}, attrs), (std::vector<double>{20, 36, 36, 64}));
  // Two groups of one input and two output channels, kernel 1x2 with dilation 2.
  const HostTensor x2 = host(float32, {1, 2, 1, 3}, {1, 2, 3, 4, 5, 6});
  const HostTensor w2 = host(float32, {4, 1, 1, 2}, {1, 10, 2, 20, 3, 30, 4, 40});
  EXPECT_EQ(one(OpId::conv2d, {x2, w2}, float32, {1, 4, 1, 1}, ConvAttrs{1, 1, 0, 0, 1, 2, 2}),
            (std::vector<double>{31, 62, 192, 256}));
}

TEST(ReferencePool, MaxWithPaddingAndAverages) {
  const HostTensor x = host(float32, {1, 1, 3, 3}, {-1, -2, -2, -4, -4, kNan, -7, -8, -9});
  const PoolAttrs attrs{2, 2, 2, 2, 1, 1, 1, 1, 0};
  const HostTensor y = host_zeros(float32, {1, 1, 2, 2}), index = host_zeros(int64, {1, 1, 2, 2});
  run(OpId::max_pool2d, {x}, {y, index}, attrs);
  expect_near(values(y), {-1, -2, -4, kNan});
  EXPECT_EQ(ints(index), (std::vector<int64_t>{0, 1, 3, 5}));
  const HostTensor z = host(float32, {1, 1, 2, 2}, {4, 8, 12, 16});
  EXPECT_EQ(one(OpId::avg_pool2d, {z}, float32, {1, 1, 2, 2}, attrs), (std::vector<double>{4, 8, 12, 16}));
  PoolAttrs padded = attrs;
  padded.count_include_pad = 1;
  EXPECT_EQ(one(OpId::avg_pool2d, {z}, float32, {1, 1, 2, 2}, padded), (std::vector<double>{1, 2, 3, 4}));
  EXPECT_EQ(one(OpId::avg_pool2d_grad, {z}, float32, {1, 1, 2, 2}, padded), (std::vector<double>{1, 2, 3, 4}));
}

TEST(ReferenceNorm, RowsAndGradients) {
  const HostTensor x = host(float64, {1, 4}, {1, 2, 3, 6}), w = host(float64, {4}, {1, 2, 3, 4});
  const HostTensor b = host(float64, {4}, {0.5, 0, 0, 0});
  const HostTensor y = host_zeros(float64, {1, 4}), mean = host_zeros(float32, {1}), rstd = host_zeros(float64, {1});
  run(OpId::layer_norm, {x, w, b, HostParam{0.5}}, {y, mean, rstd}, NormAttrs{1, 1});  // variance 3.5, so rstd is 1 / 2
  EXPECT_EQ(values(y), (std::vector<double>{-0.5, -1, 0, 6}));
  EXPECT_EQ(values(mean)[0], 3);
  EXPECT_EQ(values(rstd)[0], 0.5);
  const HostTensor g = host(float64, {1, 4}, {1, 0, -1, 2});
  const HostTensor dx = host_zeros(float64, {1, 4}), dw = host_zeros(float64, {4}), db = host_zeros(float64, {4});
  run(OpId::layer_norm_grad, {g, x, mean, rstd, w}, {dx, dw, db}, NormAttrs{1, 1});
  // q = (1, 0, -3, 8), h = (-1, -.5, 0, 1.5): mean q = 1.5, mean qh = 11 / 4.
  expect_near(values(dx), {1.125, -0.0625, -2.25, 1.1875});
  EXPECT_EQ(values(dw), (std::vector<double>{-1, 0, 0, 3}));
  EXPECT_EQ(values(db), (std::vector<double>{1, 0, -1, 2}));
  const HostTensor r = host_zeros(float64, {1});
  run(OpId::rms_norm, {host(float64, {1, 2}, {3, 5}), host(float64, {1, 2}, {3, 5}), HostParam{-1.0}},
      {host_zeros(float64, {1, 2}), r}, NormAttrs{0, 0});  // mean square 17, so rstd is 1 / 4
  EXPECT_EQ(values(r)[0], 0.25);
  expect_near(one(OpId::log_softmax, {host(float32, {2, 2}, {0, 0, 1000, 0})}, float64, {2, 2}),
              {-0.693147180559945, -0.693147180559945, 0, -1000});
}

TEST(ReferenceAttention, CausalGroupedMaskedAndEmptyRows) {
  // All scores 0: the output is the mean of the visible values. Two heads share one key/value head.
  const HostTensor q = host_zeros(float32, {1, 2, 2, 1}), k = host_zeros(float32, {1, 1, 3, 1});
  const HostTensor v = host(float32, {1, 1, 3, 1}, {3, 5, 10});
  const HostTensor out = host_zeros(float32, {1, 2, 2, 1}), lse = host_zeros(float32, {1, 2, 2});
  run(OpId::attention, {q, k, v, HostParam{1.0}, HostParam{3}}, {out, lse}, AttentionAttrs{1, 0});
  expect_near(values(out), {4, 6, 4, 6}, 1e-6);
  expect_near(values(lse), {std::log(2), std::log(3), std::log(2), std::log(3)}, 1e-6);
  run(OpId::attention, {q, k, v, HostParam{1.0}, HostParam{1}}, {out, lse}, AttentionAttrs{1, 0});
  expect_near(values(out), {0, 3, 0, 3});  // the first query comes before the only key
  expect_near(values(lse), {-kInf, 0, -kInf, 0});
  const HostTensor mask = host(bool_, {2, 1}, {1, 0}).view({1, 2, 2, 3}, {0, 1, 0, 0});  // by head
  run(OpId::attention, {q, k, v, mask, HostParam{1.0}, HostParam{2}}, {out, lse}, AttentionAttrs{0, 1});
  expect_near(values(out), {4, 4, 0, 0});
  const HostTensor bias = host(float32, {1, 1, 1, 3}, {0, std::log(3), -kInf}).view({1, 2, 2, 3}, {0, 0, 0, 1});
  run(OpId::attention, {q, k, v, bias, HostParam{1.0}, HostParam{3}}, {out, lse}, AttentionAttrs{0, 1});
  expect_near(values(out), {4.5, 4.5, 4.5, 4.5}, 1e-6);
}

TEST(ReferenceAttention, NeighbouringHeadsShareAKeyHead) {
  const HostTensor q = host_zeros(float32, {1, 4, 1, 1}), k = host_zeros(float32, {1, 2, 1, 1});
  const HostTensor v = host(float32, {1, 2, 1, 1}, {3, 5}), out = host_zeros(float32, {1, 4, 1, 1});
  run(OpId::attention, {q, k, v, HostParam{1.0}, HostParam{1}}, {out, host_zeros(float32, {1, 4, 1})},
      AttentionAttrs{0, 0});
  EXPECT_EQ(values(out), (std::vector<double>{3, 3, 5, 5}));
}

TEST(ReferenceAttention, GradientIsTheDerivative) {
  // Finite differences of the forward pass, T = S = 2, D = 2, two heads on one key/value head.
  const std::vector<double> qs{0.3, -0.2, 0.5, 0.1, -0.4, 0.7, 0.2, 0.2}, ks{0.1, 0.9, -0.3, 0.4}, vs{1, -2, 0.5, 3};
  const std::vector<double> gs{1, 0.5, -1, 2, 0.3, 0.7, -0.2, 1.1};
  const auto loss = [&](const std::vector<double>& q, const std::vector<double>& k, const std::vector<double>& v) {
    const HostTensor out = host_zeros(float64, {1, 2, 2, 2}), lse = host_zeros(float64, {1, 2, 2});
    run(OpId::attention,
        {host(float64, {1, 2, 2, 2}, q), host(float64, {1, 1, 2, 2}, k), host(float64, {1, 1, 2, 2}, v), HostParam{0.7},
         HostParam{2}},
        {out, lse}, AttentionAttrs{1, 0});
    double sum = 0;
    for (size_t i = 0; i < gs.size(); ++i) sum += gs[i] * values(out)[i];
    return sum;
  };
  const HostTensor q = host(float64, {1, 2, 2, 2}, qs), k = host(float64, {1, 1, 2, 2}, ks),
                   v = host(float64, {1, 1, 2, 2}, vs);
  const HostTensor out = host_zeros(float64, {1, 2, 2, 2}), lse = host_zeros(float64, {1, 2, 2});
  run(OpId::attention, {q, k, v, HostParam{0.7}, HostParam{2}}, {out, lse}, AttentionAttrs{1, 0});
  const HostTensor dq = host_zeros(float64, {1, 2, 2, 2}), dk = host_zeros(float64, {1, 1, 2, 2}),
                   dv = host_zeros(float64, {1, 1, 2, 2});
  run(OpId::attention_grad, {host(float64, {1, 2, 2, 2}, gs), q, k, v, out, lse, HostParam{0.7}, HostParam{2}},
      {dq, dk, dv}, AttentionAttrs{1, 0});
  const auto difference = [](std::vector<double> at, size_t i, const auto& f) {
    const double h = 1e-5;
    at[i] += h;
    const double up = f(at);
    at[i] -= 2 * h;
    return (up - f(at)) / (2 * h);
  };
  for (size_t i = 0; i < 8; ++i)
    EXPECT_NEAR(values(dq)[i], difference(qs, i, [&](const auto& p) { return loss(p, ks, vs); }), 1e-8);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(values(dk)[i], difference(ks, i, [&](const auto& p) { return loss(qs, p, vs); }), 1e-8);
    EXPECT_NEAR(values(dv)[i], difference(vs, i, [&](const auto& p) { return loss(qs, ks, p); }), 1e-8);
  }
}

TEST(ReferenceIndex, TakePutAndErrors) {
  const HostTensor x = host(float32, {3, 2}, {0, 1, 10, 11, 20, 21});
  EXPECT_EQ(one(OpId::gather, {x, host(int64, {2, 2}, {2, 0, 1, 2})}, float32, {2, 2}, DimAttrs{0}),
            (std::vector<double>{20, 1, 10, 21}));
  EXPECT_EQ(one(OpId::index_select, {x, host(int64, {3}, {1, 1, 0})}, float32, {3, 3}, DimAttrs{1}),
            (std::vector<double>{1, 1, 0, 11, 11, 10, 21, 21, 20}));
  EXPECT_EQ(one(OpId::scatter_add, {host(int64, {2, 2}, {0, 0, 0, 2}), x}, float32, {3, 2}, DimAttrs{0}),
            (std::vector<double>{10, 1, 0, 0, 0, 11}));
  EXPECT_EQ(one(OpId::index_add, {host(int64, {3}, {1, 1, 0}), x}, float32, {2, 2}, DimAttrs{0}),
            (std::vector<double>{20, 21, 10, 12}));
  const HostTensor untouched = host(float32, {2, 2}, {7, 7, 7, 7});
  expect_error(ErrorKind::Index, "gather: index out of range; got 3; expected 0 <= index < 3", [&] {
    run(OpId::gather, {x, host(int64, {2, 2}, {0, 0, 3, 0})}, {untouched}, DimAttrs{0});
  });
  expect_error(ErrorKind::Index, "got -1", [&] {
    run(OpId::index_select, {x, host(int64, {1}, {-1})}, {untouched.view({1, 2}, {2, 1})}, DimAttrs{0});
  });
  EXPECT_EQ(values(untouched), (std::vector<double>{7, 7, 7, 7}));
}

TEST(ReferenceIndex, SortAndTopkAreStableWithNanLargest) {
  const HostTensor x = host(float32, {5}, {2, kNan, 1, 2, 3}), v = host_zeros(float32, {5}), i = host_zeros(int64, {5});
  run(OpId::sort, {x}, {v, i}, SortAttrs{0});
  EXPECT_EQ(ints(i), (std::vector<int64_t>{2, 0, 3, 4, 1}));
  run(OpId::sort, {x}, {v, i}, SortAttrs{1});
  EXPECT_EQ(ints(i), (std::vector<int64_t>{1, 4, 0, 3, 2}));
  const HostTensor top = host_zeros(int64, {1, 2}), at = host_zeros(int64, {1, 2});
  constexpr int64_t big = int64_t{1} << 53;
  run(OpId::topk, {host_ints(int64, {1, 3}, {big, big + 1, big})}, {top, at}, TopkAttrs{1});
  EXPECT_EQ(ints(top), (std::vector<int64_t>{big + 1, big}));
  EXPECT_EQ(ints(at), (std::vector<int64_t>{1, 0}));
}

TEST(ReferenceLoss, SmoothingIgnoreAndErrors) {
  const HostTensor lp = host(float64, {3, 2}, {-1, -2, -3, -4, -kInf, 0}), target = host(int64, {3}, {1, -100, 1});
  EXPECT_EQ(one(OpId::nll_loss, {lp, target, HostParam{0.0}}, float64, {3}, NllAttrs{-100}),
            (std::vector<double>{2, 0, 0}));
  expect_near(one(OpId::nll_loss, {lp, target, HostParam{0.2}}, float64, {3}, NllAttrs{-100}), {1.9, 0, kInf});
  expect_near(one(OpId::nll_loss_grad, {host(float64, {3}, {10, 1, 1}), lp, target, HostParam{0.2}}, float64, {3, 2},
                  NllAttrs{-100}),
              {-1, -9, 0, 0, -0.1, -0.9});
  expect_error(ErrorKind::Index, "nll_loss: target out of range; got 2", [&] {
    one(OpId::nll_loss, {lp, host(int64, {3}, {0, 2, 0}), HostParam{0.0}}, float64, {3}, NllAttrs{-100});
  });
}

TEST(ReferenceLoss, CrossEntropyAndWhatItsGradientNeeds) {
  const HostTensor x = host(float64, {2, 2}, {1000, 1000, 5, kNan}), target = host(int64, {2}, {1, -100});
  const HostTensor loss = host_zeros(float64, {2}), top = host_zeros(float64, {2}), sum = host_zeros(float64, {2});
  run(OpId::cross_entropy, {x, target, HostParam{0.0}}, {loss, top, sum}, NllAttrs{-100});
  expect_near(values(loss), {std::log(2.0), 0});
  expect_near(values(top), {1000, 0});
  expect_near(values(sum), {std::log(2.0), 0});
  expect_near(one(OpId::cross_entropy_grad, {host(float64, {2}, {10, 1}), x, target, top, sum, HostParam{0.2}}, float64,
                  {2, 2}, NllAttrs{-100}),
              {4, -4, 0, 0});
}

TEST(ReferenceOptim, SgdAndAdamInPlace) {
  const HostTensor p = host(float64, {1}, {1}), g = host(float64, {1}, {0.5}), m = host(float64, {1}, {7});
  const auto sgd = [&](double first) {
    run(OpId::sgd_step, {p, g, m, HostParam{0.1}, HostParam{0.9}, HostParam{0.0}, HostParam{0.2}, HostParam{first}},
        {p, m}, OptimAttrs{1, 1, 0, 0});
  };
  sgd(1);  // g = 0.7, buffer 0.7, step 0.7 + 0.63
  expect_near(values(p), {0.867});
  sgd(0);  // g = 0.6734, buffer 1.3034, step 0.6734 + 1.17306
  expect_near(values(p), {0.682354});
  expect_near(values(m), {1.3034});
  const HostTensor w = host(bfloat16, {1}, {2}), am = host_zeros(float32, {1}), av = host_zeros(float32, {1});
  run(OpId::adam_step,
      {w, host(bfloat16, {1}, {-4}), am, av, HostParam{0.5}, HostParam{0.5}, HostParam{0.75}, HostParam{0.0},
       HostParam{0.5}, HostParam{0.5}, HostParam{0.25}},
      {w, am, av}, OptimAttrs{1, 0, 1, 0});
  EXPECT_EQ(values(w)[0], 2.0);  // 2 * (1 - 0.25) + 0.5
  EXPECT_EQ(values(am)[0], -2);
  EXPECT_EQ(values(av)[0], 4);
  const HostTensor total = host_zeros(float32, {});
  run(OpId::sum_squares, {host(float32, {2}, {3, 4}), host(float16, {1}, {12})}, {total});
  EXPECT_EQ(values(total)[0], 169);
  run(OpId::scale_all, {p, host(float32, {}, {0})}, {p});
  EXPECT_EQ(values(p)[0], 0);
}

TEST(ReferenceRandom, FollowsTheMapping) {
  const std::vector<HostArg> zero{HostParam{0, int64}, HostParam{0, int64}};
  const std::vector<double> u = one(OpId::rand_uniform, zero, float32, {2, 2});
  EXPECT_EQ(u, (std::vector<double>{0x6627e8 * 0x1p-24, 0xe169c5 * 0x1p-24, 0xbc57ac * 0x1p-24, 0x9b00db * 0x1p-24}));
  EXPECT_EQ(one(OpId::rand_uniform, zero, float16, {1})[0], (0x6627e8d5u >> 21) * 0x1p-11);
  EXPECT_EQ(one(OpId::rand_uniform, zero, float64, {1})[0], static_cast<double>(0xe169c58d6627e8d5u >> 11) * 0x1p-53);
  const double r = std::sqrt(-2 * std::log(0x6627e9 * 0x1p-24)), t = 2 * std::acos(-1.0) * 0xe169c5 * 0x1p-24;
  expect_near(one(OpId::rand_normal, zero, float32, {2}), {r * std::cos(t), r * std::sin(t)}, 1e-6);
  std::vector<HostArg> range = zero;
  range.push_back(HostParam{-5, int64});
  range.push_back(HostParam{5, int64});
  EXPECT_EQ(one(OpId::rand_int, range, int64, {1})[0], -5 + static_cast<double>(0xe169c58d6627e8d5u % 10));
  // Keys e169.., 9b00..: the second comes first.
  EXPECT_EQ(one(OpId::randperm, zero, int64, {2}), (std::vector<double>{1, 0}));
  EXPECT_NE(one(OpId::rand_uniform, {HostParam{0, int64}, HostParam{1, int64}}, float32, {2, 2}), u);
  EXPECT_EQ(one(OpId::arange, {HostParam{5, int64}, HostParam{-2, int64}}, int32, {3}), (std::vector<double>{5, 3, 1}));
}

TEST(ReferenceGroups, ElidedValuesLiveInTheWorkspace) {
  GraphBuilder g(GroupKind::Epilogue);
  const HostTensor a = host(float32, {1, 2}, {1, 2}), b = host(float32, {2, 1}, {3, -10}),
                   y = host_zeros(float32, {1, 1});
  const Operand product = g.elided(float32, {1, 1}), sum = g.elided(float32, {1, 1});
  g.node(OpId::matmul, {g.bind(a), g.bind(b)}, {product});
  g.node(OpId::add, {product, g.param(1.0, float32)}, {sum});
  g.node(OpId::mul, {sum, product}, {g.bind(y)});
  g.run(kReferenceImpl);
  EXPECT_EQ(values(y)[0], 272);  // (-17 + 1) * -17
}

TEST(ReferenceGroups, OutputThatTookOverAnInputsBytes) {
  // The planner may give y the bytes of x, because one fused loop would read x[i] before it writes y[i].
  GraphBuilder g(GroupKind::Loop);
  const HostTensor x = host(float32, {3}, {1, 2, 3}), z = host_zeros(float32, {3});
  const Operand xo = g.bind(x), yo = g.bind_reusing(x), zo = g.bind(z);
  g.space({3}, 1);
  g.node(OpId::neg, {xo}, {yo});
  g.node(OpId::add, {xo, yo}, {zo});
  g.run(kReferenceImpl);
  EXPECT_EQ(values(x), (std::vector<double>{-1, -2, -3}));
  EXPECT_EQ(values(z), (std::vector<double>{0, 0, 0}));
}

TEST(ReferenceGroups, OverlappingInPlaceWritesReadOldValues) {
  constexpr int64_t n = 1000;  // longer than any block that a kernel may load ahead
  const HostTensor x = host_zeros(float32, {n});
  run(OpId::add, {x.view({n - 1}, {1}), HostParam{1.0}}, {x.view({n - 1}, {1}, 1)});  // x[1:] = x[:-1] + 1
  std::vector<double> want(n, 1.0);
  want[0] = 0;
  EXPECT_EQ(values(x), want);
  const HostTensor y = host(float32, {2}, {1, 2});
  run(OpId::neg, {y}, {y});
  EXPECT_EQ(values(y), (std::vector<double>{-1, -2}));
  const HostTensor w = host(float32, {2, 2}, {1, 1, 0, 1});
  run(OpId::matmul, {w, w}, {w});
  EXPECT_EQ(values(w), (std::vector<double>{1, 2, 0, 1}));
}

TEST(ReferenceBackend, RefusesWhatHasNoMeaning) {
  EXPECT_EQ(std::string(reference_backend().name()), "reference");
  EXPECT_FALSE(reference_backend().fuses());
  GraphBuilder g(GroupKind::Loop);
  g.node(OpId::exp, {g.bind(host_zeros(int32, {1}))}, {g.bind(host_zeros(int32, {1}))});
  const Refusal why = kReferenceImpl.accepts(g.problem());
  ASSERT_TRUE(why.has_value());
  EXPECT_NE(why->find("exp"), std::string::npos);
  EXPECT_NE(why->find("int32"), std::string::npos);
}

}  // namespace
}  // namespace pyflame::test
