// Samples of elements that are computed in double: right results pass, whatever the order and the rounding of an implementation; a result that is wrong
// in the last row, column or batch, that lacks a few terms, or a part of the epilogue, does not.
#include "pyflame/runtime/samples.h"

#include <gtest/gtest.h>

#include <cmath>

#include "pyflame/ops/ops.h"
#include "support/small_step.h"

namespace pyflame {
namespace {

using test::SmallStep;

constexpr DType kFloats[] = {DType::float64, DType::float32, DType::float16, DType::bfloat16};

// Each dim's last place alone is wrong, and so is the first element.
void expect_wrong_places_found(SmallStep& s, const std::vector<SampledElement>& sample) {
  const Dims shape = s.result().shape;
  const auto doubled = [](double x) { return 2 * x + 1; };
  for (int d = 0; d < shape.size(); ++d)
    EXPECT_GT(s.distance_where([&](const Dims& i, double x) { return i[d] == shape[d] - 1 ? doubled(x) : x; }, sample),
              1)
        << "the last place of dim " << d;
  EXPECT_GT(s.distance_where(
                [&](const Dims& i, double x) {
                  return std::all_of(i.begin(), i.end(), [](int64_t at) { return at == 0; }) ? doubled(x) : x;
                },
                sample),
            1);
  EXPECT_GT(s.distance_where([&](const Dims&, double) { return NAN; }, sample), 1);
  EXPECT_LE(s.distance_where([&](const Dims&, double x) { return x; }, sample), 1);
}

SmallStep::Change zero_from(int dim, int64_t first) {
  return [=](const Dims& i, double x) { return i[dim] >= first ? 0 : x; };
}

TEST(Samples, Products) {
  for (const DType d : kFloats)
    for (const bool turned : {false, true}) {
      SCOPED_TRACE(fmt::format("{}{}", dtype_name(d), turned ? ", transposed" : ""));
      SmallStep s;
      const Operand a = s.input(d, {3, 40, 200}), b = s.input(d, {200, 50}, turned ? Dims{1, 200} : Dims{});
      s.node(OpId::matmul, {a, b}, {3, 40, 50}, MatmulAttrs{});
      const auto sample = s.sample();
      EXPECT_EQ(sample.size(), 256U);
      expect_wrong_places_found(s, sample);
      EXPECT_GT(s.distance_with(b, zero_from(0, 192), sample), 1) << "the last terms are missing";
    }
}

TEST(Samples, ProductsOf8BitFloats) {
  constexpr auto kFormat = static_cast<int64_t>(DType::float8_e4m3fn);
  SmallStep s;
  const Operand a = s.codes({40, 200}), b = s.codes({200, 50}, {1, 200}), one = s.input(DType::float32, {1}),
                other = s.input(DType::float32, {1});
  s.node(OpId::scaled_mm, {a, b, one, other}, {40, 50}, ScaledAttrs{kFormat, kFormat, 0});
  const auto sample = s.sample();
  EXPECT_EQ(sample.size(), 256U);
  expect_wrong_places_found(s, sample);
  EXPECT_GT(s.distance_with(
                other, [](const Dims&, double x) { return 2 * x; }, sample),
            1)
      << "another scale";
  EXPECT_GT(s.distance_with(b, zero_from(0, 100), sample), 1) << "a half of the terms is missing";
}

TEST(Samples, TheLastTermsOfLongProductsOf8BitFloats) {
  constexpr auto kFormat = static_cast<int64_t>(DType::float8_e4m3fn);
  for (const bool one_sign : {false, true}) {
    SCOPED_TRACE(one_sign ? "one sign" : "both signs");
    SmallStep s;
    const Operand a = s.codes({20, 8192}), b = s.codes({8192, 20}, {1, 8192}), one = s.input(DType::float32, {1});
    const auto positive = [](const Dims&, double x) { return static_cast<double>(static_cast<int>(x) & 0x7f); };
    if (one_sign) s.change(a, positive), s.change(b, positive);
    s.node(OpId::scaled_mm, {a, b, one, one}, {20, 20}, ScaledAttrs{kFormat, kFormat, 0});
    EXPECT_GT(s.distance_with(b, zero_from(0, 8192 - 128), s.sample()), 1);
  }
}

TEST(Samples, AllElementsOfASmallResult) {
  SmallStep s;
  s.node(OpId::matmul, {s.input(DType::bfloat16, {5, 64}), s.input(DType::bfloat16, {64, 7})}, {5, 7}, MatmulAttrs{});
  const auto sample = s.sample();
  EXPECT_EQ(sample.size(), 35U);
  for (int64_t row = 0; row < 5; ++row)
    for (int64_t column = 0; column < 7; ++column)
      EXPECT_GT(s.distance_where(
                    [&](const Dims& i, double x) {
                      return i == Dims{row, column} ? x + 2 : x;
                    },
                    sample),
                1);
}

TEST(Samples, LongSumsAreFewer) {
  SmallStep s;
  s.node(OpId::matmul, {s.input(DType::float32, {9, 1 << 18}), s.input(DType::float32, {1 << 18, 9})}, {9, 9},
         MatmulAttrs{});
  EXPECT_EQ(s.sample().size(), 64U);
}

// Rounds to so many bits behind the first one.
double rounded_to(double x, int bits, bool truncated) {
  int exponent = 0;
  const double part = std::ldexp(std::frexp(x, &exponent), bits + 1);
  return std::ldexp(truncated ? std::trunc(part) : std::nearbyint(part), exponent - bits - 1);
}

TEST(Samples, InputsThatMayBeRoundedTo10Bits) {
  for (const auto precision : {MatmulPrecision::highest, MatmulPrecision::high})
    for (const int64_t terms : {16, 200, 4000}) {
      SCOPED_TRACE(fmt::format("{} terms", terms));
      SmallStep s;
      const Operand a = s.input(DType::float32, {20, terms}), b = s.input(DType::float32, {terms, 30});
      s.node(OpId::matmul, {a, b}, {20, 30}, MatmulAttrs{static_cast<int64_t>(precision)});
      const auto sample = s.sample();
      const auto with_bits = [&](int bits, bool truncated) {
        const auto round = [=](const Dims&, double x) { return rounded_to(x, bits, truncated); };
        s.change(a, round);
        return s.distance_with(b, round, sample);
      };
      EXPECT_GT(s.distance_with(b, zero_from(0, terms - 8), sample), 1);
      EXPECT_LE(s.distance_with(
                    b, [](const Dims&, double x) { return x; }, sample),
                1);
      if (precision == MatmulPrecision::highest) {
        if (terms <= 200) {
          EXPECT_GT(with_bits(10, false), 1);
        }
      } else {
        EXPECT_LE(with_bits(10, true), 1);
      }
    }
  SmallStep s;  // all terms are the same, so their errors do not cancel
  const Operand a = s.input(DType::float32, {20, 1000}), b = s.input(DType::float32, {1000, 30});
  const auto same = [](const Dims&, double) { return 1.0009; };
  s.change(a, same), s.change(b, same);
  s.node(OpId::matmul, {a, b}, {20, 30}, MatmulAttrs{static_cast<int64_t>(MatmulPrecision::high)});
  const auto sample = s.sample();
  const auto round = [](const Dims&, double x) { return rounded_to(x, 10, true); };
  const auto round_more = [](const Dims&, double x) { return rounded_to(x, 7, true); };
  s.change(a, round);
  EXPECT_LE(s.distance_with(b, round, sample), 1);
  EXPECT_GT(s.distance_with(b, round_more, sample), 0.4);
}

TEST(Samples, ProductsWithAnEpilogue) {
  for (const DType d : kFloats)
    for (const bool kept : {false, true})
      for (const OpId activation : {OpId::relu, OpId::sigmoid, OpId::tanh}) {
        SCOPED_TRACE(fmt::format("{}, {}{}", dtype_name(d), op_name(activation), kept ? ", the product is kept" : ""));
        SmallStep s;
        const Operand a = s.input(d, {40, 64}), b = s.input(d, {64, 50}), bias = s.input(d, {50}),
                      residual = s.input(d, {40, 50}, {1, 40});
        Operand x = s.node(OpId::matmul, {a, b}, {40, 50}, MatmulAttrs{}, !kept);
        x = s.node(OpId::mul, {x, s.number(0.25, d)}, {40, 50}, NoAttrs{}, true);
        x = s.node(OpId::add, {x, bias}, {40, 50}, NoAttrs{}, true);
        x = s.node(activation, {x}, {40, 50}, NoAttrs{}, true);
        s.node(OpId::add, {x, residual}, {40, 50});
        const auto sample = s.sample();
        EXPECT_EQ(sample.size(), kept ? 512U : 256U);
        expect_wrong_places_found(s, sample);
        EXPECT_GT(s.distance_with(bias, zero_from(0, 0), sample), 1) << "without the bias";
        EXPECT_GT(s.distance_with(bias, zero_from(0, 48), sample), 1) << "without the end of the bias";
        EXPECT_GT(s.distance_with(residual, zero_from(1, 49), sample), 1);
        EXPECT_GT(s.distance_with(b, zero_from(0, 48), sample), 1) << "the last terms are missing";
      }
}

// The loops over channels-last images have their dims in the order of memory.
TEST(Samples, ChannelsLastConvolutionsWithAnEpilogue) {
  for (const bool kept : {false, true}) {
    SCOPED_TRACE(kept ? "the convolution's result is kept" : "");
    SmallStep s;
    const DType d = DType::bfloat16;
    const Dims image{2, 16, 9, 7}, made{2, 24, 9, 7}, turned{2, 9, 7, 24};
    const Operand a = s.input(d, image, strides_of(image, MemoryFormat::channels_last)), b = s.input(d, {24, 16, 3, 3}),
                  bias = s.input(d, {1, 1, 1, 24}), residual = s.input(d, turned);
    s.node(OpId::conv2d, {a, b}, made, ConvAttrs{1, 1, 1, 1, 1, 1, 1}, !kept);
    Operand x = s.as_channels_last();
    x = s.node(OpId::add, {x, bias}, turned, NoAttrs{}, true);
    x = s.node(OpId::relu, {x}, turned, NoAttrs{}, true);
    s.node(OpId::add, {x, residual}, turned);
    const auto sample = s.sample();
    EXPECT_EQ(sample.size(), kept ? 512U : 256U);
    for (const SampledElement& e : sample) EXPECT_LT(e.index[3], 7);  // N, C, H, W
    expect_wrong_places_found(s, sample);
    EXPECT_GT(s.distance_with(bias, zero_from(3, 0), sample), 1) << "without the bias";
    EXPECT_GT(s.distance_with(residual, zero_from(1, 8), sample), 1);
    EXPECT_GT(s.distance_with(b, zero_from(1, 15), sample), 1) << "the last terms are missing";
  }
}

TEST(Samples, AnEpilogueThatOverwritesTheProduct) {
  SmallStep s;
  const Operand a = s.input(DType::bfloat16, {40, 64}), b = s.input(DType::bfloat16, {64, 50});
  const Operand product = s.node(OpId::matmul, {a, b}, {40, 50}, MatmulAttrs{}, true);
  s.node(OpId::relu, {product}, {40, 50});
  const auto sample = s.sample();
  for (const SampledElement& e : sample) EXPECT_EQ(e.binding, s.result().binding);
  expect_wrong_places_found(s, sample);
}

// What follows a number there depends on its last bit.
TEST(Samples, FunctionsWithAStepHaveNone) {
  const auto sample_of = [](OpId op, bool product_first) {
    SmallStep s;
    const Operand a = s.input(DType::bfloat16, {40, 64}), b = s.input(DType::bfloat16, {64, 50});
    const Operand product = s.node(OpId::matmul, {a, b}, {40, 50}, MatmulAttrs{}, true);
    std::vector<Operand> ins{product};
    if (op_info(op).arity == 2) ins.insert(product_first ? ins.end() : ins.begin(), s.input(DType::bfloat16, {40, 50}));
    s.node(op, ins, {40, 50});
    return s.sample();
  };
  for (const OpId op : {OpId::nextafter, OpId::floor, OpId::ceil, OpId::round, OpId::sign, OpId::sin, OpId::cos,
                        OpId::remainder, OpId::floor_divide, OpId::atan2})
    EXPECT_TRUE(sample_of(op, true).empty()) << op_name(op);
  EXPECT_TRUE(sample_of(OpId::div, false).empty()) << "a quotient whose divisor is the product";
  EXPECT_FALSE(sample_of(OpId::div, true).empty());
  EXPECT_FALSE(sample_of(OpId::maximum, true).empty());
}

// Each op of the table behind a product that is its input k; a numbered one for each param.
std::vector<SampledElement> sample_behind(OpId op, int k) {
  SmallStep s;
  const OpInfo& info = op_info(op);
  const Operand a = s.input(DType::bfloat16, {40, 64}), b = s.input(DType::bfloat16, {64, 50});
  const Operand product = s.node(OpId::matmul, {a, b}, {40, 50}, MatmulAttrs{}, true);
  std::vector<Operand> ins;
  for (int i = 0; i < info.arity; ++i)
    ins.push_back(i == k ? product : s.input(op == OpId::where && i == 0 ? DType::bool_ : DType::bfloat16, {40, 50}));
  for (int i = 0; i < info.param_count; ++i) ins.push_back(s.number(0.5));
  s.node(op, ins, {40, 50});
  return s.sample();
}

TEST(Samples, EachContinuousOpHasOneAndNoOtherOne) {
  int continuous = 0;
  for (int i = 0; i < kNumOps; ++i) {
    const OpInfo& info = kOps[i];
    if (!is_elementwise(info.cls)) continue;
    for (int k = 0; k < info.arity; ++k) {
      const bool expected = info.is_continuous_in(k);
      EXPECT_EQ(!sample_behind(static_cast<OpId>(i), k).empty(), expected) << info.name << ", input " << k;
      continuous += expected;
    }
  }
  EXPECT_GE(continuous, 20);
}

// The most by which an op's result changes where its input k changes by 1e-9, for numbers from -4 to 4 and whole ones among them.
double largest_step(OpId op, int k) {
  constexpr int64_t kNumbers = 513;
  constexpr double kNear = 1e-9;
  SmallStep s;
  const OpInfo& info = op_info(op);
  std::vector<Operand> ins;
  for (int i = 0; i < info.arity; ++i) {
    const bool condition = op == OpId::where && i == 0;
    ins.push_back(s.input(condition ? DType::bool_ : DType::float64, {3, kNumbers}));
    s.change(ins.back(), [=](const Dims& at, double) {
      if (condition) return static_cast<double>(at[1] % 2);
      return i == k ? static_cast<double>(at[1] - kNumbers / 2) / 64 + static_cast<double>(at[0] - 1) * kNear : 1.5;
    });
  }
  for (int i = 0; i < info.param_count; ++i) ins.push_back(s.number(i == 0 ? 0.5 : 20));
  s.node(op, ins, {3, kNumbers});
  s.run();
  const auto* y = reinterpret_cast<const double*>(s.memory()[s.result().binding.index()].data());
  double most = 0;
  for (int64_t row = 0; row < 2; ++row)
    for (int64_t i = 0; i < kNumbers; ++i)
      most = std::max(most, std::fabs(y[(row + 1) * kNumbers + i] - y[row * kNumbers + i]));
  return most;
}

TEST(Samples, ContinuousOpsHaveNoStep) {
  for (int i = 0; i < kNumOps; ++i)
    for (int k = 0; k < kOps[i].arity; ++k)
      if (kOps[i].is_continuous_in(k)) {
        EXPECT_LT(largest_step(static_cast<OpId>(i), k), 1e-6) << kOps[i].name << ", input " << k;
      }
  for (const OpId op : {OpId::floor, OpId::ceil, OpId::round, OpId::sign})
    EXPECT_GE(largest_step(op, 0), 1) << op_name(op);
  EXPECT_GE(largest_step(OpId::div, 1), 1);
}

// The errors before a function grow by its slope: what an implementation that rounds the argument of an exponential computes is right.
TEST(Samples, ErrorsGrowBySlopes) {
  SmallStep s;
  const Operand a = s.input(DType::float32, {40, 64}), b = s.input(DType::float32, {64, 50});
  Operand x = s.node(OpId::matmul, {a, b}, {40, 50}, MatmulAttrs{}, true);
  x = s.node(OpId::add, {x, s.number(50, DType::float32)}, {40, 50}, NoAttrs{}, true);
  x = s.node(OpId::exp, {x}, {40, 50});
  const auto sample = s.sample();
  EXPECT_FALSE(sample.empty());
  const double rounded = 50 * 0x1p-23;
  EXPECT_LE(s.distance_where([=](const Dims&, double y) { return y * (1 + rounded); }, sample), 1);
  EXPECT_GT(s.distance_where([=](const Dims&, double y) { return y * (1 + 100 * rounded); }, sample), 1);
}

TEST(Samples, ACastToIntegersHasNone) {
  SmallStep s;
  const Operand a = s.input(DType::float32, {40, 64}), b = s.input(DType::float32, {64, 50});
  const Operand product = s.node(OpId::matmul, {a, b}, {40, 50}, MatmulAttrs{}, true);
  s.node(OpId::cast, {product}, {40, 50});
  EXPECT_FALSE(s.sample().empty());
  s.graph().nodes.back().outs[0].dtype = DType::int32;
  EXPECT_TRUE(s.sample().empty());
}

// The gradients of GELU and SiLU are 0 near these numbers, and what an implementation computes there is off by a part of their terms.
TEST(Samples, GradientsOfActivationsNearTheirZeros) {
  for (const DType d : kFloats)
    for (const auto& [op, zero] : {std::pair(OpId::gelu_grad, -0.7517916243632), {OpId::silu_grad, -1.2784645427611}})
      for (const int64_t terms : {1, 16, 200, 4000}) {
        SCOPED_TRACE(fmt::format("{} of {}, {} terms", op_name(op), dtype_name(d), terms));
        SmallStep s;
        const Operand a = s.input(d, {20, terms}), b = s.input(d, {terms, 30}), x = s.input(d, {20, 30});
        s.change(x, [zero = zero](const Dims&, double random) { return zero * (1 + 0x1p-22 * random); });
        s.node(op, {x, s.node(OpId::matmul, {a, b}, {20, 30}, MatmulAttrs{}, true)}, {20, 30});
        const auto sample = s.sample();
        EXPECT_FALSE(sample.empty());
        const double off = d == DType::float64 ? 0x1p-52 : 0x1p-23;
        for (const double by : {-off, 0.0, off})
          EXPECT_LE(s.distance_where([by](const Dims&, double y) { return y + by; }, sample), 1);
        EXPECT_GT(s.distance_with(
                      b, [](const Dims&, double y) { return 100 * y; }, sample),
                  0);
      }
}

TEST(Samples, ActivationsThatNearlyVanish) {
  for (const DType d : {DType::float32, DType::float64})
    for (const OpId op : {OpId::gelu, OpId::gelu_tanh, OpId::silu}) {
      SCOPED_TRACE(fmt::format("{} of {}", op_name(op), dtype_name(d)));
      SmallStep s;
      const Operand a = s.input(d, {20, 1}), b = s.input(d, {1, 30});
      s.change(a, [](const Dims&, double x) { return 5 + 0x1p-6 * x; });
      s.change(b, [](const Dims&, double) { return -1; });
      Operand x = s.node(op, {s.node(OpId::matmul, {a, b}, {20, 30}, MatmulAttrs{}, true)}, {20, 30}, NoAttrs{}, true);
      s.node(OpId::mul, {x, s.number(1000, d)}, {20, 30});
      const auto sample = s.sample();
      const double off = 1000 * (d == DType::float64 ? 0x1p-51 : 0x1p-22);
      EXPECT_LE(s.distance_where([off](const Dims&, double y) { return y + off; }, sample), 1);
      EXPECT_GT(s.distance_where([off](const Dims&, double y) { return y + 100 * off; }, sample), 1);
    }
}

TEST(Samples, ElementsThatAreNotFiniteAreLeftOut) {
  SmallStep s;
  const Operand a = s.input(DType::float16, {40, 64}), b = s.input(DType::float16, {64, 50});
  s.node(OpId::matmul, {a, b}, {40, 50}, MatmulAttrs{});
  s.change(a, [](const Dims& i, double x) { return i[0] == 39 ? 60000 : i[0] == 0 ? INFINITY : x; });
  const auto sample = s.sample();
  EXPECT_FALSE(sample.empty());
  for (const SampledElement& e : sample) EXPECT_TRUE(e.index[0] != 0 && e.index[0] != 39) << e.index.str();
  s.run();
  EXPECT_LE(s.distance(sample), 1);
}

struct ConvCase {
  Dims image, weight, result;
  ConvAttrs attrs;
};
const ConvCase kConvolutions[] = {
    {{2, 6, 17, 13}, {9, 6, 3, 3}, {2, 9, 17, 13}, {1, 1, 1, 1, 1, 1, 1}},
    {{2, 6, 17, 13}, {8, 3, 3, 2}, {2, 8, 8, 14}, {2, 1, 1, 1, 2, 1, 2}},
    {{2, 6, 11, 1, 1}, {4, 6, 3, 1, 1}, {2, 4, 6, 1, 1}, {1, 1, 0, 0, 1, 1, 1, 0, 2, 1, 1}},
};

TEST(Samples, ConvolutionsAndTheirGradients) {
  for (const DType d : kFloats)
    for (const ConvCase& c : kConvolutions)
      for (const OpId op : {OpId::conv2d, OpId::conv2d_grad_input, OpId::conv2d_grad_weight})
        for (const bool channels_last : {false, true}) {
          SCOPED_TRACE(fmt::format("{} of {}, {}", op_name(op), dtype_name(d), c.result.str()));
          SmallStep s;
          const auto made = [&](const Dims& shape) {
            return s.input(
                d, shape, channels_last && shape.size() == 4 ? strides_of(shape, MemoryFormat::channels_last) : Dims{});
          };
          if (op == OpId::conv2d) s.node(op, {made(c.image), made(c.weight)}, c.result, c.attrs);
          if (op == OpId::conv2d_grad_input) s.node(op, {made(c.result), made(c.weight)}, c.image, c.attrs);
          if (op == OpId::conv2d_grad_weight) s.node(op, {made(c.result), made(c.image)}, c.weight, c.attrs);
          expect_wrong_places_found(s, s.sample());
        }
}

TEST(Samples, Attention) {
  for (const DType d : kFloats)
    for (const int64_t causal : {0, 1})
      for (const bool masked : {false, true}) {
        if (causal && masked) continue;
        SCOPED_TRACE(fmt::format("{}{}{}", dtype_name(d), causal ? ", causal" : "", masked ? ", with a mask" : ""));
        SmallStep s;
        const Dims result{2, 4, 33, 16};
        const Operand q = s.input(d, result), k = s.input(d, {2, 2, 40, 16}),
                      v = s.input(d, {2, 2, 40, 16}, {2 * 40 * 16, 16, 2 * 16, 1});
        std::vector<Operand> ins{q, k, v};
        if (masked) ins.push_back(s.input(d, {1, 1, 33, 40}));
        ins.push_back(s.number(0.25)), ins.push_back(s.number(37));
        s.node(OpId::attention, ins, result, AttentionAttrs{causal, masked});
        const auto sample = s.sample();
        EXPECT_EQ(sample.size(), 48 * 17U);
        expect_wrong_places_found(s, sample);
        EXPECT_GT(s.distance_with(k, zero_from(2, 32), sample), 1) << "the last keys";
        EXPECT_GT(s.distance_with(v, zero_from(2, 32), sample), 1) << "the last values";
        if (masked) {
          EXPECT_GT(s.distance_with(ins[3], zero_from(0, 0), sample), 1);
        }
      }
}

// Masks that hide a key with the least number of their dtype instead of an infinite one.
TEST(Samples, AttentionWithMasksOfLeastNumbers) {
  for (const auto& [d, least] :
       {std::pair(DType::float32, -3.4028235e38), {DType::bfloat16, -3.3895314e38}, {DType::float16, -65504.0}}) {
    SCOPED_TRACE(dtype_name(d));
    SmallStep s;
    const Dims shape{2, 2, 33, 16};
    const Operand q = s.input(d, shape), k = s.input(d, shape), v = s.input(d, shape),
                  mask = s.input(d, {1, 1, 33, 33});
    s.change(mask, [least = least](const Dims& i, double) { return i[3] <= i[2] ? 0 : least; });
    s.node(OpId::attention, {q, k, v, mask, s.number(0.25), s.number(33)}, shape, AttentionAttrs{0, 1});
    const auto sample = s.sample();
    EXPECT_EQ(sample.size(), 48 * 17U);
    expect_wrong_places_found(s, sample);
    EXPECT_GT(s.distance_with(mask, zero_from(0, 0), sample), 1);
  }
}

// A probability below half of the least number of float16 may become 0.
TEST(Samples, AttentionWithSmallProbabilitiesOfFloat16) {
  SmallStep s;
  const Dims result{1, 1, 4, 16}, keys{1, 1, 1000, 16};
  const Operand q = s.input(DType::float16, result), k = s.input(DType::float16, keys),
                v = s.input(DType::float16, keys);
  s.change(q, [](const Dims& i, double) { return i[3] == 0 ? 18.015625 : 0; });
  s.change(k, [](const Dims& i, double) { return i[2] == 0; });
  s.change(v, [](const Dims& i, double) { return i[2] != 0; });
  s.node(OpId::attention, {q, k, v, s.number(1), s.number(1000)}, result, AttentionAttrs{0, 0});
  const auto sample = s.sample();
  EXPECT_LE(s.distance_with(v, zero_from(0, 0), sample), 1);
  EXPECT_GT(s.distance_with(
                v, [](const Dims&, double) { return 1e-3; }, sample),
            1);
}

// An empty sequence is between the others; the last one has more keys than queries.
TEST(Samples, AttentionOfPackedSequences) {
  for (const DType d : kFloats)
    for (const int64_t causal : {0, 1}) {
      SCOPED_TRACE(fmt::format("{}{}", dtype_name(d), causal ? ", causal" : ""));
      SmallStep s;
      const Dims result{60, 4, 16};
      const Operand q = s.input(d, result, {16, 60 * 16, 1}), k = s.input(d, {70, 2, 16}), v = s.input(d, {70, 2, 16});
      s.node(
          OpId::varlen_attn,
          {q, k, v, s.numbers({0, 20, 20, 60}), s.numbers({0, 20, 20, 70}), s.number(0.25), s.number(40), s.number(50)},
          result, AttentionAttrs{causal, 0});
      const auto sample = s.sample();
      EXPECT_EQ(sample.size(), 48 * 17U);
      expect_wrong_places_found(s, sample);
      EXPECT_GT(s.distance_with(k, zero_from(0, 66), sample), 1) << "the last keys";
      EXPECT_GT(s.distance_with(v, zero_from(0, 66), sample), 1) << "the last values";
      EXPECT_GT(s.distance_with(
                    k, [](const Dims& i, double x) { return i[0] == 19 ? -x : x; }, sample),
                1)
          << "the last key of the first sequence";
    }
}

TEST(Samples, PackedSequencesWithWrongOffsetsHaveNone) {
  for (const std::vector<int64_t>& wrong : {std::vector<int64_t>{0, 8, 6, 10}, {0, 4, 4, 9}, {1, 4, 4, 10}}) {
    SmallStep s;
    const Dims shape{10, 2, 16};
    const DType d = DType::bfloat16;
    s.node(OpId::varlen_attn,
           {s.input(d, shape), s.input(d, shape), s.input(d, shape), s.numbers(wrong), s.numbers({0, 4, 4, 10}),
            s.number(0.25), s.number(10), s.number(10)},
           shape, AttentionAttrs{0, 0});
    EXPECT_TRUE(s.sample().empty());
  }
}

struct GradientCase {
  const char* name;
  Dims q, k;
  int64_t causal;
  bool masked, padded;
  int64_t keys;
};
const GradientCase kGradients[] = {
    {"whole", {2, 2, 40, 16}, {2, 2, 40, 16}, 0, false, false, 40},
    {"causal", {2, 2, 40, 16}, {2, 2, 40, 16}, 1, false, false, 40},
    {"grouped heads, causal, behind a cache", {1, 6, 20, 32}, {1, 2, 40, 32}, 1, false, false, 37},
    {"a mask", {2, 2, 33, 16}, {2, 1, 40, 16}, 0, true, false, 40},
    {"padding", {2, 2, 40, 16}, {2, 2, 40, 16}, 0, true, true, 40},
};

void gradient(SmallStep& s, DType d, const GradientCase& c) {
  std::vector<Operand> ins{s.input(d, c.q), s.input(d, c.k), s.input(d, c.k)};
  if (c.padded) {
    ins.push_back(s.input(d, {c.q[0], 1, 1, c.k[2]}));
    s.change(ins.back(), [](const Dims& i, double) { return i[0] == 0 && i[3] >= 30 ? -INFINITY : 0; });
  } else if (c.masked) {
    ins.push_back(s.input(d, {1, 1, c.q[2], c.k[2]}));
  }
  ins.push_back(s.number(0.25)), ins.push_back(s.number(static_cast<double>(c.keys)));
  s.attention_gradient(ins, AttentionAttrs{c.causal, c.masked, 0, c.padded});
}

bool has_sample_of(const std::vector<SampledElement>& sample, const Operand& o) {
  return std::any_of(sample.begin(), sample.end(), [&](const SampledElement& e) { return e.binding == o.binding; });
}

TEST(Samples, AttentionsGradient) {
  for (const DType d : kFloats)
    for (const GradientCase& c : kGradients) {
      SCOPED_TRACE(fmt::format("{}, {}", dtype_name(d), c.name));
      SmallStep s;
      gradient(s, d, c);
      const auto sample = s.sample();
      const auto outs = s.outputs();
      for (const Operand& o : outs) {
        SCOPED_TRACE(fmt::format("output of shape {}, {}", o.shape.str(), o.binding.index()));
        EXPECT_TRUE(has_sample_of(sample, o));
        EXPECT_LE(s.distance_where(
                      o, [](const Dims&, double x) { return x; }, sample),
                  1);
        EXPECT_GT(s.distance_where(
                      o, [](const Dims&, double x) { return 2 * x; }, sample),
                  1);
        EXPECT_GT(s.distance_where(
                      o, [](const Dims&, double) { return 0; }, sample),
                  1);
        EXPECT_GT(s.distance_where(
                      o, [](const Dims&, double) { return NAN; }, sample),
                  1);
      }
      if (c.padded) continue;
      const auto& ins = s.graph().nodes.back().ins;
      EXPECT_GT(s.distance_with(ins[3], zero_from(2, 32), sample), 1) << "the last values";
      EXPECT_GT(s.distance_with(ins[0], zero_from(2, c.q[2] - 4), sample), 1) << "the last queries";
    }
}

// Dividing by the forward pass's logsumexp and taking delta from its output, in 16 bits, is right, and so is computing both anew.
TEST(Samples, AttentionsGradientFromTheStoredOutput) {
  for (const DType d : {DType::float32, DType::float16, DType::bfloat16}) {
    SCOPED_TRACE(dtype_name(d));
    SmallStep s;
    const Dims shape{1, 1, 24, 16};
    const int64_t t = shape[2], dim = shape[3];
    s.attention_gradient({s.input(d, shape), s.input(d, shape), s.input(d, shape), s.number(0.25), s.number(24)},
                         AttentionAttrs{0, 0});
    const auto sample = s.sample();
    const Node& n = s.graph().nodes.back();
    const auto at = [&](const Operand& o, int64_t row, int64_t i) {
      return test::read_element(o.dtype, s.memory()[o.binding.index()].data() + (row * dim + i) * dtype_size(o.dtype));
    };
    const auto rounded = [&](double x) {
      char bytes[8];
      test::write_element(d, bytes, x);
      return test::read_element(d, bytes);
    };
    std::vector<std::vector<double>> results(3, std::vector<double>(static_cast<size_t>(t * dim)));
    for (int64_t r = 0; r < t; ++r) {
      double delta = 0;
      for (int64_t i = 0; i < dim; ++i) delta += at(n.ins[0], r, i) * at(n.ins[4], r, i);
      const double lse = test::read_element(DType::float32, s.memory()[n.ins[5].binding.index()].data() + r * 4);
      for (int64_t key = 0; key < t; ++key) {
        double score = 0, dot = 0;
        for (int64_t i = 0; i < dim; ++i)
          score += rounded(at(n.ins[1], r, i) * 0.25) * at(n.ins[2], key, i),
              dot += at(n.ins[0], r, i) * at(n.ins[3], key, i);
        const double weight = rounded(std::exp(score - lse)), slope = rounded(weight * (dot - delta));
        for (int64_t i = 0; i < dim; ++i) {
          results[0][static_cast<size_t>(r * dim + i)] += slope * at(n.ins[2], key, i) * 0.25;
          results[1][static_cast<size_t>(key * dim + i)] += slope * rounded(at(n.ins[1], r, i) * 0.25);
          results[2][static_cast<size_t>(key * dim + i)] += weight * at(n.ins[0], r, i);
        }
      }
    }
    const auto outs = s.outputs();
    for (size_t o = 0; o < 3; ++o)
      s.change(outs[o], [&](const Dims& i, double) { return results[o][static_cast<size_t>(i[2] * dim + i[3])]; });
    EXPECT_LE(s.distance(sample), 1);
    EXPECT_GT(s.distance(sample), 0);
  }
}

TEST(Samples, AttentionsGradientWithSomethingNotFiniteHasNoBoundThere) {
  SmallStep s;
  const Dims shape{2, 2, 40, 16};
  const Operand q = s.input(DType::bfloat16, shape), k = s.input(DType::bfloat16, shape),
                v = s.input(DType::bfloat16, shape);
  s.change(v, [](const Dims& i, double x) { return i[0] == 1 && i[1] == 0 && i[2] == 3 ? INFINITY : x; });
  s.attention_gradient({q, k, v, s.number(0.25), s.number(40)}, AttentionAttrs{0, 0});
  const auto sample = s.sample();
  EXPECT_FALSE(sample.empty());
  for (const SampledElement& e : sample) EXPECT_FALSE(e.index[0] == 1 && e.index[1] == 0) << e.index.str();
}

// A query that is padding need not be computed, so what it adds to dK and dV is open unless it is 0.
TEST(Samples, GradientsOfKeysThatPaddingSees) {
  for (const bool zero : {false, true}) {
    SmallStep s;
    gradient(s, DType::bfloat16, kGradients[4]);
    const Node& n = s.graph().nodes.back();
    if (zero) s.change(n.ins[0], [](const Dims& i, double x) { return i[0] == 0 && i[2] >= 30 ? 0 : x; });
    bool first = false;
    for (const SampledElement& e : s.sample()) {
      if (e.binding == n.outs[0].binding) EXPECT_FALSE(e.index[0] == 0 && e.index[2] >= 30) << e.index.str();
      else first = first || e.index[0] == 0;
    }
    EXPECT_EQ(first, zero);
  }
}

// The bound follows from the stored output, so there is none where that is not the attention's.
TEST(Samples, GradientsOfAWrongAttentionHaveNone) {
  for (const size_t input : {4, 5}) {
    SmallStep s;
    gradient(s, DType::bfloat16, kGradients[0]);
    const auto& ins = s.graph().nodes.back().ins;
    s.change(ins[0], [](const Dims&, double x) { return std::fabs(x) + 0.5; });  // nothing cancels
    s.change(ins[input], [](const Dims& i, double x) { return i[1] == 0 ? x + 10 : x; });
    const auto sample = s.sample();
    EXPECT_FALSE(sample.empty());
    for (const SampledElement& e : sample) EXPECT_EQ(e.index[1], 1) << e.index.str();
  }
}

// The pages of a sequence lie anywhere, and its last one is not full.
TEST(Samples, AttentionToPages) {
  for (const DType d : kFloats)
    for (const int64_t window : {0, 11}) {
      SCOPED_TRACE(fmt::format("{}, window {}", dtype_name(d), window));
      SmallStep s;
      const Operand q = s.input(d, {3, 4, 16}), k = s.input(d, {9, 8, 2, 16}), v = s.input(d, {9, 8, 2, 16}),
                    table = s.input(DType::int32, {3, 3});
      s.change(table, [](const Dims& i, double) { return static_cast<double>(8 - 3 * i[0] - i[1]); });
      s.node(OpId::paged_attention,
             {q, k, v, table, s.numbers({20, 3, 24}), s.number(0.25), s.number(window), s.number(0)}, {3, 4, 16},
             PagedAttrs{static_cast<int64_t>(d)});
      const auto sample = s.sample();
      EXPECT_EQ(sample.size(), 3U * 4 * 16);
      expect_wrong_places_found(s, sample);
      const auto last_key = [](const Dims& i, double x) { return i[0] == 6 && i[1] == 3 ? -x : x; };
      EXPECT_GT(s.distance_with(v, last_key, sample), 1);
      const auto behind_it = [](const Dims& i, double x) { return i[0] == 6 && i[1] > 3 ? -x : x; };
      EXPECT_LE(s.distance_with(v, behind_it, sample), 1);
    }
}

// A page that does not exist is an error of the op.
TEST(Samples, AttentionToPagesWithoutABound) {
  for (const double page : {8.0, 1.0}) {
    SmallStep s;
    const DType d = DType::bfloat16;
    const Operand q = s.input(d, {1, 2, 16}), k = s.input(d, {2, 8, 2, 16}), v = s.input(d, {2, 8, 2, 16}),
                  table = s.input(DType::int32, {1, 1});
    s.change(table, [&](const Dims&, double) { return page; });
    s.node(OpId::paged_attention, {q, k, v, table, s.numbers({5}), s.number(0.25), s.number(0), s.number(0)},
           {1, 2, 16}, PagedAttrs{static_cast<int64_t>(d)});
    EXPECT_EQ(s.sample().empty(), page > 1);
  }
}

// Three sequences with keys and values of the stored dtype, which have scales where these have 8 bits. The inputs are the same whatever the cap is.
struct PagesOf {
  SmallStep s;
  std::vector<Operand> scales;
  PagesOf(DType d, DType stored, double cap) {
    const Dims pages{9, 8, 2, 16};
    const auto cache = [&] {
      if (is_float8(stored)) {
        const Operand o = s.codes(pages);
        const int most = stored == DType::float8_e5m2 ? 0x50 : 0x77;  // larger ones make all weights 0 or 1
        s.change(o, [&](const Dims&, double x) {
          const int code = static_cast<int>(x);
          return static_cast<double>((code & 0x80) | (code & 0x7f) % (most + 1));
        });
        return o;
      }
      const Operand o = s.input(stored, pages);
      int64_t at = 0;
      if (stored == DType::int8)
        s.change(o, [&](const Dims&, double) { return static_cast<double>(at++ * 37 % 255 - 127); });
      return o;
    };
    const Operand q = s.input(d, {3, 4, 16}), k = cache(), v = cache(), table = s.input(DType::int32, {3, 3});
    s.change(table, [](const Dims& i, double) { return static_cast<double>(8 - 3 * i[0] - i[1]); });
    std::vector<Operand> ins{q, k, v, table, s.numbers({20, 3, 24})};
    if (dtype_size(stored) == 1)
      for (const size_t i : {0U, 1U}) {
        ins.push_back(s.input(DType::float32, {9, 8, 2}));
        scales.push_back(ins.back());
        s.change(scales[i], [&](const Dims&, double x) { return (1.25 + x) * (stored == DType::int8 ? 0.01 : 0.02); });
      }
    for (const double x : {0.75, 0.0, cap}) ins.push_back(s.number(x));
    s.node(OpId::paged_attention, ins, {3, 4, 16}, PagedAttrs{static_cast<int64_t>(stored)});
  }
};

TEST(Samples, AttentionToPagesOf8Bits) {
  for (const DType d : kFloats)
    for (const DType stored : {DType::int8, DType::float8_e4m3fn, DType::float8_e5m2}) {
      SCOPED_TRACE(fmt::format("{}, {} pages", dtype_name(d), dtype_name(stored)));
      PagesOf p(d, stored, 0);
      const auto sample = p.s.sample();
      EXPECT_EQ(sample.size(), 3U * 4 * 16);
      expect_wrong_places_found(p.s, sample);
      for (const Operand& scale : p.scales) {
        const auto last_key = [](const Dims& i, double x) { return i[0] == 6 && i[1] == 3 ? 2 * x : x; };
        EXPECT_GT(p.s.distance_with(scale, last_key, sample), 1);
        const auto behind_it = [](const Dims& i, double x) { return i[0] == 6 && i[1] > 3 ? 2 * x : x; };
        EXPECT_LE(p.s.distance_with(scale, behind_it, sample), 1);
      }
    }
}

TEST(Samples, AttentionToPagesWithASoftCap) {
  for (const DType d : kFloats)
    for (const DType stored : {d, DType::float8_e4m3fn})
      for (const double cap : {0.5, 2.0}) {
        SCOPED_TRACE(fmt::format("{}, {} pages, cap {}", dtype_name(d), dtype_name(stored), cap));
        PagesOf p(d, stored, cap);
        const auto sample = p.s.sample();
        EXPECT_EQ(sample.size(), 3U * 4 * 16);
        expect_wrong_places_found(p.s, sample);
        for (const double other : {0.0, 1.5 * cap}) {
          PagesOf wrong(d, stored, other);
          wrong.s.run();
          EXPECT_GT(wrong.s.distance(sample), 1) << "computed with cap " << other;
        }
      }
}

// Each sequence is a batch of its own; one is empty.
TEST(Samples, GradientsOfPackedSequences) {
  for (const DType d : kFloats)
    for (const int64_t causal : {0, 1}) {
      SCOPED_TRACE(fmt::format("{}{}", dtype_name(d), causal ? ", causal" : ""));
      SmallStep s;
      const Dims shape{50, 4, 16}, keys{60, 2, 16};
      const Operand q = s.input(d, shape), k = s.input(d, keys), v = s.input(d, keys);
      s.attention_gradient(
          {q, k, v, s.numbers({0, 20, 20, 50}), s.numbers({0, 25, 25, 60}), s.number(0.25), s.number(30), s.number(35)},
          AttentionAttrs{causal, 0});
      const auto sample = s.sample();
      const auto outs = s.outputs();
      for (const Operand& o : outs) {
        EXPECT_TRUE(has_sample_of(sample, o));
        EXPECT_LE(s.distance_where(
                      o, [](const Dims&, double x) { return x; }, sample),
                  1);
        for (const int64_t row : {int64_t{0}, o.shape[0] - 1}) {
          const auto wrong = [&](const Dims& i, double x) { return i[0] == row ? 2 * x + 1 : x; };
          EXPECT_GT(s.distance_where(o, wrong, sample), 1) << "row " << row;
        }
      }
    }
}

TEST(Samples, GradientsOfPackedSequencesWithWrongOffsetsHaveNone) {
  SmallStep s;
  const Dims shape{50, 2, 16};
  const DType d = DType::bfloat16;
  const Operand q = s.input(d, shape), k = s.input(d, shape), v = s.input(d, shape), from = s.numbers({0, 20, 50});
  s.attention_gradient({q, k, v, from, from, s.number(0.25), s.number(30), s.number(30)}, AttentionAttrs{1, 0});
  s.change(from, [](const Dims& i, double x) { return i[0] == 1 ? 60 : x; });
  EXPECT_TRUE(s.sample().empty());
}

// What all queries see takes too long; the last key of a causal one does not.
TEST(Samples, GradientsOfKeysThatTakeTooLongHaveNone) {
  for (const int64_t causal : {0, 1}) {
    SmallStep s;
    const Dims shape{1, 1, 1200, 16};
    const DType d = DType::bfloat16;
    s.attention_gradient({s.input(d, shape), s.input(d, shape), s.input(d, shape), s.number(0.25), s.number(1200)},
                         AttentionAttrs{causal, 0});
    const auto sample = s.sample();
    const auto outs = s.outputs();
    EXPECT_TRUE(has_sample_of(sample, outs[0]));
    EXPECT_EQ(has_sample_of(sample, outs[1]), causal != 0);
    for (const SampledElement& e : sample)
      if (e.binding != outs[0].binding) {
        EXPECT_GT(e.index[2], 600);
      }
  }
}

// The cost of an element is that of its sum, so a few of them can be computed, however long they are.
TEST(Samples, VeryLongSumsHaveAFew) {
  SmallStep s;
  s.node(OpId::matmul, {s.input(DType::bfloat16, {9, 1 << 21}, {0, 1}), s.input(DType::bfloat16, {1 << 21, 9}, {1, 0})},
         {9, 9}, MatmulAttrs{});
  EXPECT_EQ(s.sample().size(), 32U);
}

TEST(Samples, VeryLongRowsOfAttentionAreAFew) {
  SmallStep s;
  const Dims query{1, 1, 20, 64}, keys{1, 1, 1 << 17, 64}, nothing{0, 0, 0, 1};  // all keys are the same one
  s.node(OpId::attention,
         {s.input(DType::bfloat16, query), s.input(DType::bfloat16, keys, nothing),
          s.input(DType::bfloat16, keys, nothing), s.number(0.125), s.number(1 << 17)},
         query, AttentionAttrs{0, 0});
  EXPECT_EQ(s.sample().size(), 4 * 65U);
}

}  // namespace
}  // namespace pyflame
