// How op functions record ops. An op function first checks and infers, then calls emit(); after emit(), nothing may
// fail because of the user's input.
#pragma once
#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <vector>

#include "pyflame/record/ir.h"
#include "pyflame/tensor/tensor.h"

namespace pyflame {

// An input of an op: a tensor, or a number that is passed as a param and used in `dtype`.
struct Arg {
  const Tensor* tensor = nullptr;
  Param param;
  DType dtype = DType::float32;
  Arg(const Tensor& t) : tensor(&t), dtype(t.dtype()) {}
  Arg(const Scalar& s, DType as) : param(s), dtype(as) {}
};

struct OutSpec {
  Dims shape;
  DType dtype;
  std::optional<Dims> strides = {};  // without gaps; none: chosen by the op, its inputs and the backend
};

namespace detail {
Tensor emit(OpId op, std::span<const int64_t> attrs, std::span<const Arg> ins, const OutSpec& out,
            const Device* device);
std::vector<Tensor> emit_many(OpId op, std::span<const int64_t> attrs, std::span<const Arg> ins,
                              std::span<const OutSpec> outs, const Device* device);
void emit_into(OpId op, std::span<const int64_t> attrs, std::span<const Arg> ins, std::span<TensorImpl* const> outs);
template <class A>
std::span<const int64_t> words(const A& a) {
  if constexpr (std::is_empty_v<A>) return {};
  else return {reinterpret_cast<const int64_t*>(&a), sizeof(A) / sizeof(int64_t)};
}
}  // namespace detail

// One output of the given shape and dtype, on the inputs' device (all must agree; checked by check_same_device).
template <class A = NoAttrs>
Tensor emit(OpId op, std::initializer_list<Arg> ins, const Dims& shape, DType dtype, const A& attrs = {}) {
  return detail::emit(op, detail::words(attrs), {ins.begin(), ins.size()}, {shape, dtype}, nullptr);
}
template <class A = NoAttrs>
Tensor emit(OpId op, std::initializer_list<Arg> ins, const OutSpec& out, const A& attrs = {}) {
  return detail::emit(op, detail::words(attrs), {ins.begin(), ins.size()}, out, nullptr);
}
// For ops without tensor inputs.
template <class A = NoAttrs>
Tensor emit_on(Device device, OpId op, std::initializer_list<Arg> ins, const Dims& shape, DType dtype,
               const A& attrs = {}) {
  return detail::emit(op, detail::words(attrs), {ins.begin(), ins.size()}, {shape, dtype}, &device);
}
template <class A>
std::vector<Tensor> emit_many(OpId op, std::span<const Arg> ins, std::span<const OutSpec> outs, const A& attrs) {
  return detail::emit_many(op, detail::words(attrs), ins, outs, nullptr);
}
// Writes existing tensors and increments their versions. An input that overlaps an output must have exactly its geometry.
template <class A>
void emit_into(OpId op, std::span<const Arg> ins, std::span<TensorImpl* const> outs, const A& attrs) {
  detail::emit_into(op, detail::words(attrs), ins, outs);
}
template <class A>
void emit_into(OpId op, std::span<const Arg> ins, std::span<const Tensor> outs, const A& attrs) {
  std::vector<TensorImpl*, Pooled<TensorImpl*>> impls;
  impls.reserve(outs.size());
  for (const Tensor& t : outs) impls.push_back(t.impl());
  emit_into(op, ins, impls, attrs);
}

// Makes a tensor with a free layout row-major, in a new storage (docs/internals/layout.md). Everything that exposes strides or addresses
// calls this first.
void fix_layout(const Tensor& x);

// ValueError that names the op and both devices. Undefined tensors are skipped. (emit() checks as well; this is for earlier checks.)
void check_same_device(const char* op, std::initializer_list<std::reference_wrapper<const Tensor>> tensors);

}  // namespace pyflame
