// How the elements of a tensor are laid out in memory: strides from shapes, and what given strides amount to. Only this file knows what
// channels-last means; which results are laid out so is the backends' to say (Backend::preferred_format).
#pragma once
#include "pyflame/tensor/dims.h"

namespace pyflame {

// contiguous: row-major, the last dim is the densest. channels_last: images (N, C, H, W) whose elements are in the order N, H, W, C.
enum class MemoryFormat : uint8_t { contiguous, channels_last };

Dims contiguous_strides(const Dims& shape);
Dims strides_of(const Dims& shape, MemoryFormat format);  // dense; channels_last needs four dims

// The stride of a dim of size 1 does not matter, nor does any of a tensor without elements.
bool is_contiguous(const Dims& shape, const Dims& strides);
bool has_format(const Dims& shape, const Dims& strides, MemoryFormat format);

// The sizes or strides of images (N, C, H, W) in the order N, H, W, C.
inline Dims nhwc(const Dims& v) { return {v[0], v[2], v[3], v[1]}; }

// Largest element offset + 1 that a view reaches (0 when empty); used for bounds checks.
int64_t extent(const Dims& shape, const Dims& strides);
// Strides that read `shape` as `to` (0 where broadcast). `to` must be a valid broadcast target.
Dims broadcast_strides(const Dims& shape, const Dims& strides, const Dims& to);

}  // namespace pyflame
