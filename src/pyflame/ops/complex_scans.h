// Running products and logarithms of sums of complex numbers, made of other ops.
#pragma once

#include "pyflame/tensor/tensor.h"

namespace pyflame {

// log(exp(a) + exp(b)), without overflow. Its imaginary part is right up to a multiple of 2 pi.
Tensor complex_logaddexp(const Tensor& a, const Tensor& b);
Tensor complex_cumprod(const Tensor& x, int dim);
Tensor complex_logcumsumexp(const Tensor& x, int dim);

}  // namespace pyflame
