// What `where` records about a number that it fills in. Numbers are params, whose values the compiler does not know; this attribute is in the
// key, so that a rewrite can tell a mask of scores from other choices (compile/attention_patterns.cpp). No kernel reads it.
#pragma once
#include <cmath>

#include "pyflame/ops/attrs.h"
#include "pyflame/tensor/dtype.h"

namespace pyflame {

// The number is -inf, so softmax gives such elements the weight 0; or it is the 0 in the gradient of such a `where`.
// A finite number of at most -1e4 is far below scores: the weight is 0 as well, if a row has a score that is larger by 104.
constexpr int64_t kHidden = 1, kZeroForHidden = 2, kFarBelow = 3;
struct HidesAttrs {
  int64_t
      hides;  // kHidden, kZeroForHidden, kFarBelow, or 0 for other numbers, which are recorded without the attribute
  PF_FIELDS("hides")
};

inline bool hides(const Scalar& number, DType dtype) {
  return is_float(dtype) && number.kind == Category::Float && std::isinf(number.f) && number.f < 0;
}

// kHidden, kFarBelow or 0. float16 has no number beside which every score vanishes, so none is far below there.
inline int64_t hiding(const Scalar& number, DType dtype) {
  if (hides(number, dtype)) return kHidden;
  const bool wide = dtype == DType::float32 || dtype == DType::bfloat16 || dtype == DType::float64;
  const double lowest = dtype == DType::bfloat16  ? -0x1.fep127
                        : dtype == DType::float32 ? -0x1.fffffep127
                                                  : -0x1.fffffffffffffp1023;
  const double value = number.kind == Category::Float ? number.f : static_cast<double>(number.i);
  return wide && number.kind != Category::Complex && value <= -1e4 && value >= lowest ? kFarBelow : 0;
}

}  // namespace pyflame
