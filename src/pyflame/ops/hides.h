// What `where` records about a number that it fills in. Numbers are params, whose values the compiler does not know; this attribute is in the
// key, so that a rewrite can tell a mask of scores from other choices (compile/attention_patterns.cpp). No kernel reads it.
#pragma once
#include <cmath>

#include "pyflame/ops/attrs.h"
#include "pyflame/tensor/dtype.h"

namespace pyflame {

// The number is -inf, so softmax gives such elements the weight 0; or it is the 0 in the gradient of such a `where`.
constexpr int64_t kHidden = 1, kZeroForHidden = 2;
struct HidesAttrs {
  int64_t hides;  // kHidden, kZeroForHidden, or 0 for other numbers, which are recorded without the attribute
  PF_FIELDS("hides")
};

inline bool hides(const Scalar& number, DType dtype) {
  return is_float(dtype) && number.kind == Category::Float && std::isinf(number.f) && number.f < 0;
}

}  // namespace pyflame
