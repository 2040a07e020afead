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
    case DType::float32: return {24, -126};
    default: return {53, -1022};
  }
}

// What adding in another order can make of a sum, as a part of the sum of the terms' absolute values.
double reordered(const SumOfProducts& sum) { return static_cast<double>(sum.terms) * rounding_of_sums(sum.dtype); }

// The same of elements that are computed together. In float32 the sums of the transformed inputs count, too, where there are few terms.
double mixed(const SumOfProducts& sum) {
  if (!sum.mixes) return 0;
  constexpr double kTransformed = 256 * 0x1p-23;
  return sum.dtype == DType::float32 ? std::max(reordered(sum), kTransformed) : reordered(sum);
}

// If the terms have either sign, the sum of their errors is about sqrt(terms) of one error.
double cancelled(const SumOfProducts& sum) {
  return std::min(1.0, kDeviations / std::sqrt(static_cast<double>(sum.terms)));
}

// The same of partial sums that libraries round to 16 bits.
double rounded_parts(const SumOfProducts& sum) { return cancelled(sum) * rounding_to_16_bits(sum.dtype); }

// What rounding the two operands of a term to 10 bits of fraction makes of it, if it cuts the others off.
constexpr double kRoundedInputs = 2 * 0x1p-10;

// Terms are cut off at the 13th bit of a partial sum behind the first one. Terms of one sign lose in one direction; where they have either sign, partial sums are
// smaller, and what is cut off cancels in part.
double cut_off(const SumOfProducts& sum, double value, double magnitude) {
  if (sum.coarse == 0 || magnitude == 0) return 0;
  const double one_sign = std::max(cancelled(sum), std::fabs(value) / magnitude);
  return one_sign * static_cast<double>(sum.coarse) * 0x1p-13 * (std::fabs(value) + cancelled(sum) * magnitude);
}

int64_t terms_of(const Node& n) {
  const Dims &a = n.ins[0].shape, &b = n.ins[1].shape, &made = n.outs[0].shape;
  switch (n.op) {
    case OpId::matmul:
    case OpId::scaled_mm: return a.back();
    case OpId::conv2d: return b.numel() / std::max<int64_t>(1, b[0]);
    case OpId::conv2d_grad_input: return b.numel() / std::max<int64_t>(1, b[1]) / n.attr<ConvAttrs>().groups;
    case OpId::conv2d_grad_weight: return a.numel() / std::max<int64_t>(1, made[0]);
    default: return 0;
  }
}

bool rounds_inputs(const Node& n) {
  return n.op == OpId::matmul ? n.attr<MatmulAttrs>().precision != static_cast<int64_t>(MatmulPrecision::highest)
                              : n.attr<ConvAttrs>().rounded != 0;
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
    const double allowed = allowed_difference(sum, std::max(std::fabs(p), std::fabs(q)), terms, greatest);
    if (!std::isfinite(p) || !std::isfinite(q)) {
      if (!(p == q || (std::isnan(p) && std::isnan(q)))) return INFINITY;
    } else {
      worst = std::max(worst, std::fabs(p - q) / allowed);
    }
  }
  return worst;
}

}  // namespace

std::optional<SumOfProducts> sum_of_products(const Node& n) {
  if (n.op == OpId::scaled_mm && terms_of(n) > 0)
    return SumOfProducts{.dtype = n.outs[0].dtype,
                         .terms = terms_of(n),
                         .mixes = false,
                         .coarse = coarse_terms(terms_of(n), n.attr<ScaledAttrs>().fast != 0)};
  if (n.ins.size() != 2 || n.outs.size() != 1) return std::nullopt;
  const DType dtype = n.outs[0].dtype;
  if (!is_float(dtype) || !has_kernels(dtype)) return std::nullopt;
  for (const Operand& o : n.ins)
    if (o.is_param || o.dtype != dtype) return std::nullopt;
  const int64_t terms = terms_of(n);
  if (terms <= 0) return std::nullopt;
  return SumOfProducts{dtype, terms, n.op != OpId::matmul, dtype == DType::float32 && rounds_inputs(n)};
}

int64_t coarse_terms(int64_t terms, bool fast) {
  constexpr int64_t kBetweenRoundings = 128;  // terms whose sum is then added in float32
  return fast ? terms : (std::min(terms, kBetweenRoundings) + 1) / 2;
}

double unit_in_last_place(double x, DType dtype) {
  const Format f = format_of(dtype);
  const int exponent = x == 0 ? f.least : std::max(std::ilogb(x), f.least);
  return std::ldexp(1.0, exponent - (f.digits - 1));
}

double rounding_to_16_bits(DType dtype) { return is_half(dtype) ? std::ldexp(1.0, -format_of(dtype).digits) : 0; }

double rounding_of_sums(DType dtype) { return dtype == DType::float64 ? 0x1p-51 : 0x1p-23; }

double error_of_terms(const SumOfProducts& sum, double magnitude) {
  return (reordered(sum) + rounded_parts(sum)) * magnitude;
}

double allowed_difference(const SumOfProducts& sum, double value, double magnitude, double greatest) {
  const double inputs = sum.rounds_inputs ? kRoundedInputs * (std::fabs(value) + cancelled(sum) * magnitude) : 0;
  return 2 * unit_in_last_place(value, sum.dtype) + error_of_terms(sum, magnitude) + mixed(sum) * greatest + inputs +
         cut_off(sum, value, magnitude);
}

std::optional<double> distance_of_sums(const SumOfProducts& sum, std::span<const char> expected,
                                       std::span<const char> got, std::span<const char> magnitudes) {
  switch (sum.dtype) {
    case DType::bfloat16: return largest<bfloat16>(sum, expected, got, magnitudes);
    case DType::float16: return largest<float16>(sum, expected, got, magnitudes);
    case DType::float32: return largest<float>(sum, expected, got, magnitudes);
    default: return largest<double>(sum, expected, got, magnitudes);
  }
}

}  // namespace pyflame
