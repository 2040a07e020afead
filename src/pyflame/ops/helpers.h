// What the op families share: handles on existing bytes, dtype rules for mixed operands, and facts about the input that
// a gradient belongs to (read from the edge, so that closures stay small).
#pragma once
#include <optional>

#include "pyflame/ops/ops.h"
#include "pyflame/tensor/alias.h"
#include "pyflame/tensor/grad_node.h"

namespace pyflame::ops {

inline void check_defined(const char* op, const Tensor& t) {
  PF_CHECK(static_cast<bool>(t), Type, "{}: an undefined tensor; got none; expected a tensor", op);
}

// ValueError if an integer dtype cannot hold the number. (ops/creation.cpp)
void check_fits(const char* op, const Scalar& value, DType dtype);

// Shape and dtype of the input that an edge leads to. Only for inputs that need a gradient.
inline const Dims& edge_shape(const GradNode& n, size_t i) {
  const Edge& e = n.edges[i];
  return e.leaf ? e.leaf.shape() : e.node->outputs[e.index].shape;
}
inline DType edge_dtype(const GradNode& n, size_t i) {
  const Edge& e = n.edges[i];
  return e.leaf ? e.leaf.dtype() : e.node->outputs[e.index].dtype;
}
// The gradient of a broadcast operand: summed to the operand's shape.
inline Tensor to_edge(const GradNode& n, size_t i, const Tensor& g) { return sum_to(g, edge_shape(n, i)); }

// Result dtype of an op on two tensors. A 0-d tensor counts only if its category is higher, as in PyTorch.
DType result_type(const Tensor& a, const Tensor& b);
// The same if either may be a number.
DType result_type(const Value& a, const Value& b);
// x if it is a float tensor, otherwise x cast to float32.
Tensor as_float(const Tensor& x);

// The values of a contiguous tensor on another device, without history.
Tensor copied_to(const Tensor& dense, Device device);
// A view that autograd knows of. The caller attaches the gradient.
Tensor make_view(const Tensor& x, const Dims& shape, const Dims& strides, int64_t offset);
// Gives a view whose base was written in place its new history: a read of the base.
void remake_view_history(const Tensor& view);
// Strides that read the same elements in another shape; none if that needs a copy.
std::optional<Dims> view_strides(const Dims& shape, const Dims& strides, const Dims& to);
// False only if no two elements can share an address.
bool may_overlap(const Dims& shape, const Dims& strides);
// The bit mask of ReduceAttrs. Empty dims: all. Duplicates are an error.
int64_t reduced_axes(const char* op, const Dims& dims, int rank);
// Copies src, broadcast to x's shape, into x, without autograd.
void write(const Tensor& x, const Tensor& src);
// --- in-place ops (inplace.cpp)
// RuntimeError if x may not be written: a leaf that requires grad, or several elements at one address.
void check_target(const char* op, const Tensor& x);
// The operand that an in-place op reads. Its gradient may need the old value, so it is a copy. If nothing saves the
// copy, fusion removes it.
Tensor before_write(const Tensor& x, const Tensor& other);
// Makes `result`, which may have a history, the value of x. Returns x.
Tensor assign(const char* name, const Tensor& x, const Tensor& result);

}  // namespace pyflame::ops
