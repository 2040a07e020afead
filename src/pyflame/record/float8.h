// Tensors of 8-bit floats in recorded ops. See docs/decisions/0022.
#pragma once
#include "pyflame/record/emit.h"

namespace pyflame {

// The same bytes as uint8, and back.
Tensor as_codes(const Tensor& x);
Tensor from_codes(const Tensor& x, DType dtype);

namespace detail {
// Records an op of which an operand is of 8-bit floats: ops that move elements on their bytes, comparisons on their values as float32, and casts
// as conversions. TypeError for any other op.
void record_float8(OpId op, std::span<const int64_t> attrs, std::span<const Arg> ins, const Tensor& out, bool is_new);
}  // namespace detail

}  // namespace pyflame
