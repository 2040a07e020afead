// Copies and new tensors that lie in memory as another tensor: PyTorch's preserve_format.
#include <algorithm>
#include <numeric>

#include "pyflame/ops/helpers.h"
#include "pyflame/record/emit.h"

namespace pyflame {

namespace {

// Strides without gaps, with the dims in the order in which x has them. Nothing where that is row-major order: x lies so, the engine may still lay it
// out so, or several of its elements are one (stride 0).
std::optional<Dims> preserved_strides(const Tensor& x) {
  if (x.is_contiguous() || x.impl()->free_layout || x.numel() == 0) return {};
  Dims order = x.shape(), strides = x.strides();
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return strides[a] > strides[b]; });
  bool dense = true;
  int64_t next = 1;
  for (int i = x.dim() - 1; i >= 0; --i) {
    const int64_t d = order[i], size = x.shape()[d];
    if (size > 1 && strides[d] == 0) return {};
    dense &= size == 1 || strides[d] == next;
    strides[d] = next;
    next *= size;
  }
  return dense ? x.strides() : strides;
}

}  // namespace

Tensor clone_preserving(const Tensor& x) {
  ops::check_defined("clone", x);
  const auto strides = preserved_strides(x);
  if (!strides) return clone(x);
  Tensor out = emit(OpId::cast, {x}, OutSpec{x.shape(), x.dtype(), *strides});
  attach("clone", {out}, {x}, {}, [](GradNode&, const Tensors& g) -> Tensors { return {g[0]}; });
  return out;
}

Tensor lying_as(const Tensor& fresh, const Tensor& x) {
  const auto strides = preserved_strides(x);
  return strides ? Tensor(fresh.storage(), fresh.shape(), *strides, fresh.offset(), fresh.dtype()) : fresh;
}

}  // namespace pyflame
