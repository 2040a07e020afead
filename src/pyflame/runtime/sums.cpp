// Bounds on the differences of right results of sums of products.
#include "pyflame/runtime/sums.h"

#include <algorithm>
#include <cmath>

#include "pyflame/ops/attrs.h"
#include "pyflame/ops/helpers.h"

namespace pyflame {

namespace {

// A type of floats: the bits of the significand, with the hidden one, and the exponent of the least normal number.
struct Format {
  int digits, least;
};

Format format_of(DType d) {
  switch (d) {
    case DType::bfloat16: return {8, -126};
    case DType::float16: return {11, -14};
    default: return {53, -1022};
  }
}

// The distance from x to the next number of the type.
double unit_in_last_place(double x, Format f) {
  const int exponent = x == 0 ? f.least : std::max(std::ilogb(x), f.least);
  return std::ldexp(1.0, exponent - (f.digits - 1));
}

// What adding in another order can make of a sum, as a part of the sum of the terms' absolute values.
double reordered(const SumOfProducts& sum) {
  constexpr double kFloat32 = 0x1p-23, kFloat64 = 0x1p-52;
  return static_cast<double>(sum.terms) * (sum.dtype == DType::float64 ? 2 * kFloat64 : kFloat32);
}

// The same of partial sums that libraries round to 16 bits. If the terms have either sign, a partial sum is about sqrt(terms) of one term, of which so
// many are allowed.
double rounded_parts(const SumOfProducts& sum) {
  constexpr double kDeviations = 8;
  if (sum.dtype == DType::float64) return 0;
  return std::min(1.0, kDeviations / std::sqrt(static_cast<double>(sum.terms))) *
         std::ldexp(1.0, -format_of(sum.dtype).digits);
}

int64_t terms_of(const Node& n) {
  const Dims &a = n.ins[0].shape, &b = n.ins[1].shape, &made = n.outs[0].shape;
  switch (n.op) {
    case OpId::matmul: return a.back();
    case OpId::conv2d: return b.numel() / std::max<int64_t>(1, b[0]);
    case OpId::conv2d_grad_input: return b.numel() / std::max<int64_t>(1, b[1]) / n.attr<ConvAttrs>().groups;
    case OpId::conv2d_grad_weight: return a.numel() / std::max<int64_t>(1, made[0]);
    default: return 0;
  }
}

template <class T>
double wide(T x) {
  if constexpr (std::is_same_v<T, double>) return x;
  else return static_cast<double>(static_cast<float>(x));
}

template <class T>
std::optional<double> largest(const SumOfProducts& sum, std::span<const char> expected, std::span<const char> got,
                              std::span<const char> magnitudes) {
  const auto values = [](std::span<const char> bytes) { return reinterpret_cast<const T*>(bytes.data()); };
  const Format format = format_of(sum.dtype);
  const double order = reordered(sum), part = order + rounded_parts(sum);
  double worst = 0, greatest = 0;
  for (size_t i = 0; i < expected.size() / sizeof(T) && sum.mixes; ++i)
    if (const double terms = wide(values(magnitudes)[i]); std::isfinite(terms)) greatest = std::max(greatest, terms);
  for (size_t i = 0; i < expected.size() / sizeof(T); ++i) {
    const double p = wide(values(expected)[i]), q = wide(values(got)[i]), terms = wide(values(magnitudes)[i]);
    if (!std::isfinite(terms)) {
      if (std::isfinite(p)) return std::nullopt;
      if (std::isnan(p) != std::isnan(q) || (std::isinf(p) && p != q)) return INFINITY;
      continue;
    }
    const double allowed =
        2 * unit_in_last_place(std::max(std::fabs(p), std::fabs(q)), format) + part * terms + order * greatest;
    if (!std::isfinite(p) || !std::isfinite(q)) {
      if (!(p == q || (std::isnan(p) && std::isnan(q)))) return INFINITY;
    } else {
      worst = std::max(worst, std::fabs(p - q) / allowed);
    }
  }
  return worst;
}

}  // namespace

std::optional<SumOfProducts> sum_of_products(const Problem& p) {
  if (p.size() != 1) return std::nullopt;
  const Node& n = p.node(0);
  if (n.ins.size() != 2 || n.outs.size() != 1) return std::nullopt;
  const DType dtype = n.outs[0].dtype;
  if (dtype != DType::float64 && dtype != DType::float16 && dtype != DType::bfloat16) return std::nullopt;
  for (const Operand& o : n.ins)
    if (o.is_param || o.dtype != dtype) return std::nullopt;
  const int64_t terms = terms_of(n);
  return terms > 0 ? std::optional<SumOfProducts>({dtype, terms, n.op != OpId::matmul}) : std::nullopt;
}

std::optional<double> distance_of_sums(const SumOfProducts& sum, std::span<const char> expected,
                                       std::span<const char> got, std::span<const char> magnitudes) {
  switch (sum.dtype) {
    case DType::bfloat16: return largest<bfloat16>(sum, expected, got, magnitudes);
    case DType::float16: return largest<float16>(sum, expected, got, magnitudes);
    default: return largest<double>(sum, expected, got, magnitudes);
  }
}

}  // namespace pyflame
