// Bounds of sums of products: right results in any order and rounding pass; a product that is doubled or lacks a term does not.
#include "pyflame/runtime/sums.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>

#include "pyflame/base/half.h"

namespace pyflame {
namespace {

template <class T>
constexpr DType dtype_of = DType::float64;
template <>
constexpr DType dtype_of<bfloat16> = DType::bfloat16;
template <>
constexpr DType dtype_of<float16> = DType::float16;

template <>
constexpr DType dtype_of<float> = DType::float32;

template <class T>
constexpr bool is_16_bits = std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>;

template <class T>
double wide(T x) {
  if constexpr (std::is_same_v<T, double>) return x;
  else return static_cast<double>(static_cast<float>(x));
}
template <class T>
T narrow(double x) {
  if constexpr (std::is_same_v<T, double>) return x;
  else return T(static_cast<float>(x));
}
template <class T>
T truncated(double x) {
  const T nearest = narrow<T>(x);
  if constexpr (!is_16_bits<T>) return nearest;
  else {
    T next = nearest;
    if (std::fabs(wide(nearest)) > std::fabs(x)) --next.bits;
    return next;
  }
}

template <class T>
class Sums : public ::testing::Test {
 protected:
  static constexpr int kSums = 64;
  // kSums sums of so many products. `shift` is added to the operands: with 0 most of the terms cancel.
  void make(int terms, double shift = 0) {
    terms_ = terms;
    std::mt19937 random(7);
    std::normal_distribution<double> normal(shift);
    products_.assign(kSums, std::vector<double>(static_cast<size_t>(terms)));
    for (auto& sum : products_)
      for (double& product : sum) product = wide(narrow<T>(normal(random))) * wide(narrow<T>(normal(random)));
  }
  using Add = std::function<T(const std::vector<double>&)>;
  static double exact(const std::vector<double>& products) {
    long double sum = 0;
    for (const double p : products) sum += p;
    return static_cast<double>(sum);
  }
  double distance(const Add& got) {
    std::vector<T> values(kSums), right(kSums), magnitudes(kSums);
    for (size_t i = 0; i < kSums; ++i) {
      double magnitude = 0;
      for (const double p : products_[i]) magnitude += std::fabs(p);
      values[i] = got(products_[i]), right[i] = narrow<T>(exact(products_[i])), magnitudes[i] = narrow<T>(magnitude);
    }
    return *distance_of_sums({dtype_of<T>, terms_, false}, bytes(right), bytes(values), bytes(magnitudes));
  }
  static std::span<const char> bytes(const std::vector<T>& v) {
    return {reinterpret_cast<const char*>(v.data()), v.size() * sizeof(T)};
  }
  int64_t terms_ = 0;
  std::vector<std::vector<double>> products_;
};

using Types = ::testing::Types<bfloat16, float16, float, double>;
TYPED_TEST_SUITE(Sums, Types);

// The type in which the terms are added.
template <class T>
using Accumulator = std::conditional_t<std::is_same_v<T, double>, double, float>;

TYPED_TEST(Sums, RightResultsPass) {
  for (const int terms : {1, 16, 256, 4096})
    for (const double shift : {0.0, 1.0}) {
      SCOPED_TRACE(fmt::format("{} terms, shifted by {}", terms, shift));
      this->make(terms, shift);
      const auto add = [](auto from, auto to) {
        Accumulator<TypeParam> sum = 0;
        for (; from != to; ++from) sum += static_cast<Accumulator<TypeParam>>(*from);
        return static_cast<double>(sum);
      };
      EXPECT_EQ(this->distance([&](const auto& p) { return narrow<TypeParam>(TestFixture::exact(p)); }), 0);
      EXPECT_LE(this->distance([&](const auto& p) { return narrow<TypeParam>(add(p.begin(), p.end())); }), 1);
      EXPECT_LE(this->distance([&](const auto& p) { return narrow<TypeParam>(add(p.rbegin(), p.rend())); }), 1);
      EXPECT_LE(this->distance([&](const auto& p) { return truncated<TypeParam>(add(p.begin(), p.end())); }), 1);
      // Four parts, each rounded to the result's type.
      EXPECT_LE(this->distance([&](const auto& p) {
        double sum = 0;
        for (size_t part = 0; part < 4; ++part) {
          const auto at = [&](size_t i) { return p.begin() + static_cast<std::ptrdiff_t>(i * p.size() / 4); };
          sum += wide(narrow<TypeParam>(add(at(part), at(part + 1))));
        }
        return narrow<TypeParam>(sum);
      }),
                1);
    }
}

TYPED_TEST(Sums, WrongResultsDoNot) {
  for (const int terms : {16, 256, 1024}) {
    SCOPED_TRACE(terms);
    this->make(terms);
    const auto last = [](const auto& p) { return p.back(); };
    EXPECT_GT(this->distance([&](const auto& p) { return narrow<TypeParam>(2 * TestFixture::exact(p)); }), 10);
    EXPECT_GT(this->distance([&](const auto& p) { return narrow<TypeParam>(TestFixture::exact(p) - last(p)); }), 1);
    EXPECT_GT(this->distance([&](const auto& p) { return narrow<TypeParam>(TestFixture::exact(p) + last(p)); }), 1);
    EXPECT_GT(this->distance([&](const auto& p) { return narrow<TypeParam>(-TestFixture::exact(p)); }), 10);
    EXPECT_GT(this->distance([&](const auto&) { return narrow<TypeParam>(0); }), 1);
  }
}

TYPED_TEST(Sums, ValuesThatAreNotFinite) {
  const TypeParam one = narrow<TypeParam>(1), inf = narrow<TypeParam>(INFINITY), nan = narrow<TypeParam>(NAN);
  const auto distance = [](TypeParam right, TypeParam got, TypeParam magnitude) {
    const std::vector<TypeParam> a{right}, b{got}, m{magnitude};
    return distance_of_sums({dtype_of<TypeParam>, 4, false}, TestFixture::bytes(a), TestFixture::bytes(b),
                            TestFixture::bytes(m));
  };
  EXPECT_EQ(distance(inf, inf, inf), 0);
  EXPECT_EQ(distance(nan, nan, nan), 0);
  EXPECT_EQ(distance(inf, one, inf), INFINITY);
  EXPECT_EQ(distance(nan, one, nan), INFINITY);
  EXPECT_EQ(distance(one, nan, one), INFINITY);
  EXPECT_EQ(distance(one, inf, one), INFINITY);
  EXPECT_EQ(distance(one, one, inf), std::nullopt) << "the magnitude overflows, so there is no bound";
}

TYPED_TEST(Sums, ElementsThatAreComputedTogether) {
  const auto distance = [](bool mixes, double noise) {
    const auto two = [](double a, double b) {
      return std::vector<TypeParam>{narrow<TypeParam>(a), narrow<TypeParam>(b)};
    };
    const auto right = two(0, 8), got = two(noise, 8), magnitudes = two(0, 64);
    return distance_of_sums({dtype_of<TypeParam>, 256, mixes}, TestFixture::bytes(right), TestFixture::bytes(got),
                            TestFixture::bytes(magnitudes));
  };
  const double noise =
      std::is_same_v<TypeParam, double> ? 1e-13 : 1e-5;  // Winograd's, where all of this element's terms are 0
  EXPECT_LE(distance(true, noise), 1);
  EXPECT_GT(distance(false, noise), 1);
  EXPECT_GT(distance(true, 0.25), 1) << "a term too many";
}

// A sum as matrix cores may make it of 8-bit floats: of parts with so many terms, in which each addition keeps 13 bits of fraction.
float coarse_sum(const std::vector<double>& products, size_t part) {
  float sum = 0;
  for (size_t first = 0; first < products.size(); first += part) {
    double partial = 0;
    for (size_t i = first; i < std::min(first + part, products.size()); ++i) {
      const double most = std::max(std::fabs(partial), std::fabs(products[i]));
      const auto cut = [unit = most == 0 ? 1 : std::ldexp(1.0, std::ilogb(most) - 13)](double x) {
        return std::trunc(x / unit) * unit;
      };
      partial = cut(partial) + cut(products[i]);
    }
    sum += static_cast<float>(partial);
  }
  return sum;
}

TEST(CoarseSums, RightOnesPassAndTheLastTermsAreMissed) {
  constexpr size_t kParts = 128;
  std::mt19937 random(7);
  std::normal_distribution<double> normal;
  for (const bool one_sign : {false, true})
    for (const size_t terms : {1, 64, 200, 1024, 8192}) {
      SCOPED_TRACE(fmt::format("{} terms of {}", terms, one_sign ? "one sign" : "both signs"));
      double right = 0, fast = 0, missing = 0;
      for (int sum = 0; sum < 64; ++sum) {
        std::vector<double> products(terms);
        for (double& p : products) p = normal(random) * normal(random);
        if (one_sign)
          for (double& p : products) p = std::fabs(p);
        double exact = 0, magnitude = 0, last = 0;
        for (size_t i = 0; i < terms; ++i) {
          exact += products[i], magnitude += std::fabs(products[i]);
          if (i + kParts >= terms) last += products[i];
        }
        const auto difference = [&](double got, bool is_fast) {
          const auto n = static_cast<int64_t>(terms);
          const SumOfProducts s{
              .dtype = DType::float32, .terms = n, .mixes = false, .coarse = coarse_terms(n, is_fast)};
          return std::fabs(got - exact) /
                 allowed_difference(s, std::max(std::fabs(got), std::fabs(exact)), magnitude, 0);
        };
        right = std::max(right, difference(static_cast<double>(coarse_sum(products, kParts)), false));
        fast = std::max(fast, difference(static_cast<double>(coarse_sum(products, terms)), true));
        missing = std::max(missing, difference(exact - last, false));
      }
      EXPECT_LE(right, 1);
      EXPECT_LE(fast, 1);
      EXPECT_GT(missing, 1);
    }
}

}  // namespace
}  // namespace pyflame
