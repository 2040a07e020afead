// Complex tensors in recorded ops. A complex tensor is recorded as one of two views of its bytes: as pairs of its parts, with one more
// dim of size 2, or (complex64) as int64 with the bits of an element. Only linear algebra, which LAPACK computes, has complex operands as they
// are. See docs/decisions/0016.
#pragma once
#include "pyflame/record/emit.h"

namespace pyflame {

// The same bytes as real and imaginary parts: shape [.., 2].
Tensor as_pairs(const Tensor& x);
// The same bytes of a complex64 tensor as int64.
Tensor as_bits(const Tensor& x);
// Pairs [.., 2] (the last stride is 1, the others and the offset are even), or int64, as complex numbers.
Tensor from_pairs(const Tensor& x);
Tensor from_bits(const Tensor& x);

namespace detail {
// Whether the op is recorded with complex operands as they are.
bool takes_complex(OpId op);
// Records an op that has the same meaning for pairs or bits. TypeError for any other op.
void record_complex(OpId op, std::span<const int64_t> attrs, std::span<const Arg> ins, const Tensor& out, bool is_new);
}  // namespace detail

}  // namespace pyflame
