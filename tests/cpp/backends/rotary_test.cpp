// Rotary embedding of one head, in the versions for each instruction set of this processor: the bits are those of products and sums that are
// rounded one after the other.
#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "pyflame/backends/cpu/vec_rotary.h"

namespace pyflame {
namespace {

// float for the half types, or the type itself.
inline float wide(float16 x) { return static_cast<float>(x); }
inline float wide(bfloat16 x) { return static_cast<float>(x); }
template <class T>
T wide(T x) {
  return x;
}

template <class S>
using Wide = decltype(wide(S()));

template <class S>
std::vector<S> numbers(int64_t n, uint32_t state) {
  std::vector<S> x;
  for (int64_t i = 0; i < n; ++i) {
    state = state * 1664525U + 1013904223U;
    x.push_back(S(static_cast<Wide<S>>(static_cast<int32_t>(state)) / Wide<S>(1 << 30)));
  }
  return x;
}

template <class S>
void expect_rotated(int64_t n, bool special) {
  std::vector<S> x = numbers<S>(n, 1), cos = numbers<S>(n, 2), sin = numbers<S>(n, 3), y(static_cast<size_t>(n));
  if (special) {
    using L = std::numeric_limits<Wide<S>>;
    const Wide<S> found[] = {L::infinity(), -L::infinity(), Wide<S>(1e-7), Wide<S>(-0.0), Wide<S>(60000)};
    for (size_t i = 0; i < x.size(); ++i) x[i] = S(found[i % 5]);
    cos[0] = S(L::quiet_NaN());
  }
  cpu::vec::rotate(x.data(), cos.data(), sin.data(), y.data(), n);
  const auto half = static_cast<size_t>(n) / 2;
  for (size_t i = 0; i < x.size(); ++i) {
    const Wide<S> turned = i < half ? -wide(x[i + half]) : wide(x[i - half]);
    const S a(wide(x[i]) * wide(cos[i])), b(turned * wide(sin[i])), want(wide(a) + wide(b));
    if (std::isnan(wide(want))) EXPECT_TRUE(std::isnan(wide(y[i]))) << i << " of " << n;
    else
      EXPECT_EQ(std::memcmp(&y[i], &want, sizeof want), 0)
          << i << " of " << n << ": " << wide(y[i]) << ", not " << wide(want);
  }
}

template <class S>
void expect_all() {
  for (const bool special : {false, true})
    for (const int64_t n : {2, 6, 8, 20, 32, 64, 80, 130}) expect_rotated<S>(n, special);
}

TEST(Rotary, EachInstructionSetRoundsAsTheElementwiseOpsDo) {
  for (int64_t left = hwy::SupportedTargets(), target; left != 0; left &= left - 1) {
    target = left & -left;
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().DeInit();
    expect_all<float>();
    expect_all<double>();
    expect_all<bfloat16>();
    expect_all<float16>();
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().DeInit();
  }
}

}  // namespace
}  // namespace pyflame
