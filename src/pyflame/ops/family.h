// What several op families share: checks with common messages, and those indexing ops that exist only as gradients of
// others.
#pragma once
#include <optional>
#include <span>

#include "pyflame/ops/ops.h"
#include "pyflame/record/emit.h"
#include "pyflame/tensor/grad_node.h"

namespace pyflame {

inline void check_same_dtype(const char* op, const Tensor& a, const Tensor& b) {
  PF_CHECK(a.dtype() == b.dtype(), Type, "{}: dtypes differ; got {} and {}; expected equal dtypes; hint: cast one", op,
           dtype_name(a.dtype()), dtype_name(b.dtype()));
}
inline void check_float(const char* op, const Tensor& x) {
  PF_CHECK(x.is_floating_point(), Type,
           "{}: needs a floating dtype; got {}; expected a float dtype; hint: cast the input", op,
           dtype_name(x.dtype()));
}

// Gradients and losses of 16-bit types are computed in a wider type, so that only the result is rounded.
inline DType accumulation_dtype(DType d) { return is_half(d) ? DType::float32 : d; }
inline Tensor widen(const Tensor& x) { return cast(x, accumulation_dtype(x.dtype())); }

// A zero that does not change the dtype of a result with a tensor of this dtype.
inline Scalar zero_of(DType d) {
  if (is_float(d)) return Scalar(0.0);
  return dtype_category(d) == Category::Integer ? Scalar(0) : Scalar(false);
}

// The attribute any_order of an op on this device: 1 on a GPU while deterministic algorithms are off.
// (deterministic.cpp)
int64_t any_order(Device device);

// The index as int64. int32 is cast; other dtypes are a TypeError.
Tensor as_index(const char* op, const Tensor& index);
// The first element of a contiguous tensor whose values the host can read now; null if it would have to wait or to copy.
const void* values_at_hand(const Tensor& x);
// IndexError at the caller's line if a value is outside [0, size) and is not `ignore`. It checks only values that are
// already computed (a host tensor without pending writes), and not too many. The kernels check all values.
void check_index_values(const char* op, const Tensor& index, int64_t size, std::optional<int64_t> ignore = {});
// Zeros of `shape` plus src at index along dim; the adjoint of gather. index and src have the same shape.
// Differentiable.
Tensor scatter_add_zeros(const Tensor& index, const Tensor& src, const Dims& shape, int dim);
// Zeros of `shape` plus the slices of src; the adjoint of index_select. Differentiable.
Tensor index_add_zeros(const Tensor& index, const Tensor& src, const Dims& shape, int dim);

}  // namespace pyflame
