// The ops with their own kernels or libraries. Each has a function that returns its implementations for a type of
// device, best first.
#pragma once
#include <memory>
#include <span>

#include "pyflame/backends/backend.h"
#include "pyflame/backends/gpu/shapes/layout.h"

namespace pyflame::gpu {

// attention_impls(type), sort_impls(type), ... in the file of the op's family.
#define OP(...)
#define KERNEL(name, ...) std::span<const Impl> name##_impls(DeviceType type);
#include "pyflame/ops/ops.def"

// A matmul or convolution with elementwise ops on its output; a matmul with the sum of one of its operands.
std::span<const Impl> epilogue_impls(const Problem& p);

// quantized_linear reads the weights once for each eight rows of the input. A library's product reads and writes them decoded, at 16 bits
// or more, three times. So up to about so many rows the blocks are read directly.
constexpr int64_t kMostRowsOfBlocks = 32;

// The implementations of the problem's one op, best first; empty if there are none.
std::span<const Impl> op_impls(const Problem& p);

// For implementations that accept everything, and for those whose Executable is constructed from the problem alone.
inline Refusal accepts_all(const Problem&) { return std::nullopt; }
template <class E>
std::unique_ptr<Executable> make_of(const Problem& p) {
  return std::make_unique<E>(p);
}

}  // namespace pyflame::gpu
