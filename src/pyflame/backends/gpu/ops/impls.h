// Families of ops with their own kernels or libraries. Each returns the implementations of its ops, best first, or an
// empty list. The device type is that of the problem (p.graph.device.type).
#pragma once
#include <memory>
#include <span>

#include "pyflame/backends/backend.h"
#include "pyflame/backends/gpu/shapes/layout.h"

namespace pyflame::gpu {

std::span<const Impl> attention_impls(OpId op);
std::span<const Impl> batch_norm_impls(OpId op);
std::span<const Impl> conv_impls(OpId op);
std::span<const Impl> index_impls(OpId op);
std::span<const Impl> loss_impls(OpId op);
std::span<const Impl> matmul_impls(const Problem& p);
std::span<const Impl> norm_impls(OpId op);
std::span<const Impl> optim_impls(OpId op);
std::span<const Impl> order_impls(OpId op);  // sort, topk, argmax, randperm
std::span<const Impl> pool_impls(OpId op);
std::span<const Impl> rows_impls(OpId op);  // softmax

// A matmul or convolution with elementwise ops on its output; a matmul with the sum of one of its operands.
std::span<const Impl> epilogue_impls(const Problem& p);

// The implementations of the problem's one op, best first; empty if there are none.
std::span<const Impl> op_impls(const Problem& p);

// For implementations that accept everything, and for those whose Executable is constructed from the problem alone.
inline Refusal accepts_all(const Problem&) { return std::nullopt; }
template <class E>
std::unique_ptr<Executable> make_of(const Problem& p) {
  return std::make_unique<E>(p);
}

}  // namespace pyflame::gpu
