// What `where` records about a number that it fills in. Numbers are params, whose values the compiler does not know; this attribute is in the
// key, so that a rewrite can tell a mask of scores from other choices (compile/attention_patterns.cpp). No kernel reads it.
#pragma once
#include <cmath>

#include "pyflame/ops/attrs.h"
#include "pyflame/tensor/dtype.h"

namespace pyflame {

struct HidesAttrs {
  int64_t hides;  // the number is -inf: softmax gives such elements the weight 0
  PF_FIELDS("hides")
};

inline bool hides(const Scalar& number, DType dtype) {
  return is_float(dtype) && number.kind == Category::Float && std::isinf(number.f) && number.f < 0;
}

}  // namespace pyflame
