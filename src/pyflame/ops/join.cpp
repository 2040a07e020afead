// Joining tensors: one output, and one copy into a part of it for each input. The copies are recorded without autograd;
// one node splits the output's gradient again.
#include <algorithm>
#include <string>
#include <vector>

#include "pyflame/ops/helpers.h"
#include "pyflame/record/emit.h"
#include "pyflame/tensor/lasting.h"

namespace pyflame {

using ops::check_defined;

namespace {

Tensor part(const Tensor& out, int dim, int64_t start, int64_t length) {
  Dims shape = out.shape();
  shape[dim] = length;
  return alias(out, shape, out.strides(), out.offset() + start * out.strides()[dim]);
}

// A dim with a border of its own elements: mirrored without the edge, the edge again, or from the other end. Negative padding crops. As in
// PyTorch, a mirror still shows what was cropped from the other end, and a circle closes over what is left.
Tensor border_of_itself(const Tensor& x, int dim, int64_t left, int64_t right, const std::string& mode) {
  const int64_t size = x.shape()[dim], most = std::max(left, right);
  const int64_t first = std::max<int64_t>(-left, 0), kept = size - first - std::max<int64_t>(-right, 0);
  const int64_t allowed = mode == "reflect" ? size - 1 : mode == "circular" ? kept : most;
  PF_CHECK(size > 0 && most <= allowed && size + left + right >= 0 && left >= -size && right >= -size, Value,
           "pad: mode '{}' does not fit; got padding ({}, {}) for dim {} of size {}; expected at most {}", mode, left,
           right, dim, size, std::max<int64_t>(allowed, 0));
  std::vector<int64_t> from;
  for (int64_t i = -left; i < size + right; ++i) {
    if (mode == "reflect") from.push_back(i < 0 ? -i : i < size ? i : 2 * (size - 1) - i);
    else if (mode == "replicate") from.push_back(std::clamp<int64_t>(i, 0, size - 1));
    else from.push_back(first + (i - first + kept) % kept);
  }
  return index_select(x, dim, from_host(from.data(), {static_cast<int64_t>(from.size())}, DType::int64, x.device()));
}

// PyTorch lets 1-D tensors without elements take part in any cat().
bool is_legacy_empty(const Tensor& x) { return x.dim() == 1 && x.shape()[0] == 0; }

// The bytes of joined weights are allocated when the copies run, so that it is known that nothing else is in them: then
// they can be kept (runtime/kept.h).
Tensor buffer_for(const Tensors& xs, const Dims& shape, DType dtype) {
  for (const Tensor& x : xs)
    if (shape.numel() == 0 || is_complex(dtype) || !lasting_mark(*x.storage()))
      return empty(shape, dtype, xs[0].device());
  const int64_t n = checked_numel("cat", shape);
  auto storage = make_ref<Storage>(xs[0].device(), static_cast<size_t>(n * dtype_size(dtype)));
  return Tensor(std::move(storage), shape, contiguous_strides(shape), 0, dtype);
}

}  // namespace

namespace {

// A gradient in the dtype of an input: of a complex one, its real part for a real input.
Tensor in_dtype(const Tensor& g, DType dtype) {
  return cast(is_complex(g.dtype()) && !is_complex(dtype) ? real(g) : g, dtype);
}

}  // namespace

Tensor cat(const Tensors& xs, int64_t dim) {
  PF_CHECK(!xs.empty(), Value, "cat: no tensors; got an empty list; expected at least one tensor");
  const Tensor* first = nullptr;
  for (const Tensor& x : xs) {
    check_defined("cat", x);
    PF_CHECK(x.dim() > 0, Value,
             "cat: a tensor without dimensions cannot be joined; got shape (); expected 1-D or more; hint: stack()");
    PF_CHECK(x.device() == xs[0].device(), Value,
             "cat: tensors are on different devices; got {} and {}; expected one device", xs[0].device().str(),
             x.device().str());
    if (!first && !is_legacy_empty(x)) first = &x;
  }
  if (!first) first = &xs[0];
  const int d = normalize_dim("cat", dim, first->dim());
  DType dtype = xs[0].dtype();
  Dims shape = first->shape();
  shape[d] = 0;
  std::vector<int64_t> lengths;
  for (const Tensor& x : xs) {
    dtype = promote(dtype, x.dtype());
    lengths.push_back(is_legacy_empty(x) ? 0 : x.dim() == first->dim() ? x.shape()[d] : -1);
    if (is_legacy_empty(x)) continue;
    bool fits = x.dim() == first->dim();
    for (int i = 0; fits && i < x.dim(); ++i) fits = i == d || x.shape()[i] == first->shape()[i];
    PF_CHECK(x.dim() == first->dim(), Value,
             "cat: the tensors have different numbers of dims; got {} and {}; expected {} dims each; hint: unsqueeze() "
             "adds a dim",
             first->shape().str(), x.shape().str(), first->dim());
    PF_CHECK(fits, Value, "cat: the shapes do not fit; got {} and {}; expected equal sizes except in dim {}",
             first->shape().str(), x.shape().str(), d);
    shape[d] += x.shape()[d];
  }
  Tensor out = buffer_for(xs, shape, dtype);
  int64_t at = 0;
  for (size_t i = 0; i < xs.size(); ++i) {
    if (lengths[i] > 0) ops::write(part(out, d, at, lengths[i]), xs[i]);
    at += lengths[i];
  }
  bool needed = false;
  for (const Tensor& x : xs) needed = needed || any_requires_grad({x});
  if (!needed || !has_gradient(dtype)) return out;
  auto backward = [d, lengths = std::move(lengths)](GradNode& n, const Tensors& g) -> Tensors {
    Tensors grads;
    int64_t start = 0;
    for (size_t i = 0; i < lengths.size(); ++i) {
      if (!n.needs(i)) grads.emplace_back();
      else if (lengths[i] == 0) grads.push_back(zeros(ops::edge_shape(n, i), ops::edge_dtype(n, i), g[0].device()));
      else grads.push_back(in_dtype(narrow(g[0], d, start, lengths[i]), ops::edge_dtype(n, i)));
      start += lengths[i];
    }
    return grads;
  };
  const std::vector<std::reference_wrapper<const Tensor>> ins(xs.begin(), xs.end()), outs = {out};
  attach_node(Ref<GradNode>(new FnNode<decltype(backward)>("cat", std::move(backward))), ins, outs, {});
  return out;
}

Tensor stack(const Tensors& xs, int64_t dim) {
  PF_CHECK(!xs.empty(), Value, "stack: no tensors; got an empty list; expected at least one tensor");
  Tensors rows;
  for (const Tensor& x : xs) {
    check_defined("stack", x);
    PF_CHECK(x.shape() == xs[0].shape(), Value, "stack: the shapes differ; got {} and {}; expected equal shapes",
             xs[0].shape().str(), x.shape().str());
    rows.push_back(unsqueeze(x, normalize_dim("stack", dim, xs[0].dim() + 1)));
  }
  return cat(rows, normalize_dim("stack", dim, xs[0].dim() + 1));
}

Tensor pad(const Tensor& input, const Dims& padding, const std::string& mode, Scalar value) {
  check_defined("pad", input);
  PF_CHECK(mode == "constant" || mode == "reflect" || mode == "replicate" || mode == "circular", Value,
           "pad: no such mode; got '{}'; expected 'constant', 'reflect', 'replicate' or 'circular'", mode);
  PF_CHECK(padding.size() % 2 == 0 && padding.size() / 2 <= input.dim(), Value,
           "pad: the padding does not fit the shape; got {} for a tensor of shape {}; expected pairs (before, after), "
           "last dim first",
           padding.str(), input.shape().str());
  if (mode != "constant") {
    Tensor out = input;
    bool same = true;
    for (int k = 0; k < padding.size() / 2; ++k) {
      const int64_t left = padding[2 * k], right = padding[2 * k + 1];
      if (left == 0 && right == 0) continue;
      out = border_of_itself(out, input.dim() - 1 - k, left, right, mode);
      same = false;
    }
    return same ? clone(input) : out;
  }
  // Negative padding cuts off.
  Tensor x = input;
  Dims shape = input.shape(), before = Dims::filled(input.dim(), 0);
  for (int k = 0; k < padding.size() / 2; ++k) {
    const int d = input.dim() - 1 - k;
    const int64_t left = padding[2 * k], right = padding[2 * k + 1];
    PF_CHECK(shape[d] + left + right >= 0 && shape[d] + std::min<int64_t>(left, 0) + std::min<int64_t>(right, 0) >= 0,
             Value, "pad: cuts off more than there is; got padding ({}, {}) for dim {} of size {}", left, right, d,
             shape[d]);
    if (left < 0 || right < 0) x = slice(x, d, std::max<int64_t>(-left, 0), shape[d] + std::min<int64_t>(right, 0));
    shape[d] += left + right;
    before[d] = std::max<int64_t>(left, 0);
  }
  if (shape == x.shape()) return clone(x);
  Tensor out = full(shape, value, x.dtype(), x.device());
  Tensor inside = out;
  for (int d = 0; d < x.dim(); ++d) inside = part(inside, d, before[d], x.shape()[d]);
  ops::write(inside, x);
  attach("pad", {out}, {x}, {}, [before](GradNode& n, const Tensors& g) -> Tensors {
    Tensor grad = g[0];
    for (int d = 0; d < before.size(); ++d)
      if (grad.shape()[d] != ops::edge_shape(n, 0)[d]) grad = narrow(grad, d, before[d], ops::edge_shape(n, 0)[d]);
    return {grad};
  });
  return out;
}

}  // namespace pyflame
