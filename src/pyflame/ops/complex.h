// Complex numbers in ops: what the other families call where an operand is complex (ops/complex.cpp).
#pragma once
#include "pyflame/ops/op.h"
#include "pyflame/ops/ops.h"

namespace pyflame::ops {

// Values without autograd: the elementwise op on complex operands of one dtype, or on the parts of one operand.
// TypeError if the op has no meaning for complex numbers.
Tensor complex_unary(OpId op, const Tensor& x);
Tensor complex_binary(OpId op, const Value& a, const Value& b);
// A complex tensor in which every element is the number.
Tensor complex_full(const Dims& shape, const Scalar& value, DType dtype, Device device);
void complex_fill(const Tensor& x, const Scalar& value);
// A real tensor as a complex one, or one complex dtype as the other; complex to bool. TypeError: complex to other real dtypes.
Tensor complex_cast(const Tensor& x, DType dtype);
// [.., M, K] x [.., K, N], without autograd.
Tensor complex_product(const Tensor& a, const Tensor& b);
// The products over the axes (a mask), which are kept with size 1. Differentiable.
Tensor complex_prod(const Tensor& x, int64_t axes);
Tensor complex_abs(const Tensor& x);
// The sums over the axes, which are kept with size 1 (shape), without autograd.
Tensor complex_sum(const Tensor& x, const Dims& shape, const ReduceAttrs& axes);

// The conjugate of what a gradient multiplies with: holomorphic functions have the conjugate of their derivative.
inline Value conj(const Value& v) {
  if (v.is_tensor) return Value(pyflame::conj(v.tensor));
  Scalar s = v.scalar;
  s.imag = -s.imag;
  return Value(s);
}

}  // namespace pyflame::ops
