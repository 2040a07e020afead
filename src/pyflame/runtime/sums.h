// How far two results of a matrix product, a convolution or one of its gradients may be apart where both are right. Each element is a sum of
// products, so this follows from the terms: what it takes to drop one of them or to count it twice is known. Tuning compares with it what the
// reference implementation and others compute (runtime/choose.h).
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
};

// What a problem computes, if it is one such op alone with tensors of float64, float16 or bfloat16. float32 is none of them: the reference computes it
// in float64, and what the inputs' last bits change tells what is allowed (Oracle::nearby).
std::optional<SumOfProducts> sum_of_products(const Problem& p);

// The largest difference between an element of `expected` and of `got`, as a part of what is allowed: two units in the last place of the element, and
// what rounding can make of the terms. `magnitudes` are the same sums of the terms' absolute values. 16-bit results: the terms may be added in float32 in
// any order, and partial sums of terms with either sign may be rounded to 16 bits once. float64: both may be added in any order. Infinity if one of two values is NaN or infinite
// and the other is not. Nothing if a magnitude overflows where the element does not: then there is no bound.
std::optional<double> distance_of_sums(const SumOfProducts& sum, std::span<const char> expected,
                                       std::span<const char> got, std::span<const char> magnitudes);

}  // namespace pyflame
