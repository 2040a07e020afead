// How far two results of a matrix product (of 8-bit floats, too), a convolution or one of its gradients may be apart where both are right. Each element is a sum of
// products, so this follows from the terms: what it takes to drop one of them or to count it twice is known. Tuning compares with it what
// implementations compute: with the reference implementation (runtime/oracle.h), and with sums in double (runtime/samples.h).
#pragma once
#include <optional>
#include <span>

#include "pyflame/backends/backend.h"

namespace pyflame {

struct SumOfProducts {
  DType dtype;    // of operands and result
  int64_t terms;  // at most so many for each element
  bool
      mixes;  // implementations may compute elements together, so that one has the rounding of others: Winograd's convolutions
  bool rounds_inputs = false;  // float32 operands may be rounded to 10 bits of fraction: TF32, xf32
  int64_t coarse = 0;          // of 8-bit floats: coarse_terms()
};

// Matrix cores may keep 13 bits of fraction of partial sums of 8-bit floats. How many terms may be cut off at the last bit of a partial sum as large as the
// element: all of them in fast sums. Other ones add 128 terms in this way, and these parts in float32; the partial sum is half of the part on average.
int64_t coarse_terms(int64_t terms, bool fast);

// What a node computes, if it is one such op with tensors of one float dtype, or a product of 8-bit floats.
std::optional<SumOfProducts> sum_of_products(const Node& n);

// Of errors of either sign that are added, so many standard deviations are allowed: the sum of n errors of size e is at most kDeviations sqrt(n) e, or n e.
constexpr double kDeviations = 8;
// The distance from x to the next number of a float dtype.
double unit_in_last_place(double x, DType dtype);
// What rounding to a 16-bit type once makes of a number, as a part of it; 0 for other dtypes.
double rounding_to_16_bits(DType dtype);
// What one addition in the type of the sums makes of them: float32 for float32 and 16-bit types.
double rounding_of_sums(DType dtype);

// By how much a right result may differ from the exact element `value`: two units in the last place, and what rounding can make of the terms. `magnitude` is
// the sum of the terms' absolute values, `greatest` the greatest such sum of the elements that are computed together (sum.mixes).
// 16-bit results: the terms may be added in float32 in any order, and partial sums of terms with either sign may be rounded to 16 bits once. float32 and
// float64: both may be added in any order. Coarse sums: so many terms may be cut off at the last bit of the partial sum to which they are added. Rounded inputs: two of them in each term; with terms of either sign the errors cancel in part.
double allowed_difference(const SumOfProducts& sum, double value, double magnitude, double greatest);

// The part of it that comes from the terms, without the last rounding of the element: what a sum is off that stays in float32 or float64.
double error_of_terms(const SumOfProducts& sum, double magnitude);

// The largest difference between an element of `expected` and of `got`, as a part of what is allowed. `magnitudes` are the same sums of the terms'
// absolute values. Infinity if one of two values is NaN or infinite and the other is not. Nothing if a magnitude overflows where the element
// does not: then there is no bound.
std::optional<double> distance_of_sums(const SumOfProducts& sum, std::span<const char> expected,
                                       std::span<const char> got, std::span<const char> magnitudes);

}  // namespace pyflame
