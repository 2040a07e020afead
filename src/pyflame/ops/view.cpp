// Views: a new handle on the same storage; nothing is recorded. A view that was made while gradients were on knows its
// base, so that writing through either is seen by both (inplace.cpp). The gradient of a view of a part is zeros with
// the gradient written into that part.
#include <array>
#include <numeric>

#include "pyflame/ops/helpers.h"
#include "pyflame/ops/view_dtype.h"
#include "pyflame/record/emit.h"
#include "pyflame/record/pairs.h"

namespace pyflame {

using ops::check_defined;
using ops::edge_shape;
using ops::make_view;

namespace ops {

Tensor make_view(const Tensor& x, const Dims& shape, const Dims& strides, int64_t offset) {
  Tensor v = alias(x, shape, strides, offset);
  if (!has_gradient(x.dtype()) || grad_mode::inference()) return v;
  const AutogradMeta* m = x.impl()->autograd.get();
  if (grad_mode::enabled()) {
    AutogradMeta& vm = autograd_meta(v);
    vm.view_base = m && m->view_base ? m->view_base : x;
    const AutogradMeta* base = vm.view_base.impl()->autograd.get();
    vm.view_epoch = m && m->view_base && m->view_epoch == kUntrackedView ? kUntrackedView : base ? base->epoch : 0;
  } else if (m && x.requires_grad()) {
    AutogradMeta& vm = autograd_meta(v);
    vm.view_base = m->view_base ? m->view_base : x;
    vm.view_epoch = kUntrackedView;
  }
  return v;
}

bool may_overlap(const Dims& shape, const Dims& strides) {
  std::array<int, kMaxDims> order;
  int n = 0;
  for (int i = 0; i < shape.size(); ++i) {
    if (shape[i] == 0) return false;
    if (shape[i] > 1) order[static_cast<size_t>(n++)] = i;
  }
  std::sort(order.begin(), order.begin() + n, [&](int a, int b) { return strides[a] < strides[b]; });
  int64_t reach = 0;  // the largest offset that the dims so far reach
  for (int k = 0; k < n; ++k) {
    const int d = order[static_cast<size_t>(k)];
    if (strides[d] <= reach) return true;
    reach += (shape[d] - 1) * strides[d];
  }
  return false;
}

std::optional<Dims> view_strides(const Dims& shape, const Dims& strides, const Dims& to) {
  if (shape == to) return strides;
  if (shape.numel() == 0 || is_contiguous(shape, strides)) return contiguous_strides(to);
  // Runs of dims that are contiguous among themselves are matched, from the right, with runs of new dims of the same
  // size.
  Dims out = Dims::filled(to.size(), 0);
  int v = to.size() - 1;
  int64_t step = strides.back(), have = 1, used = 1;
  for (int d = shape.size() - 1; d >= 0; --d) {
    have *= shape[d];
    if (d > 0 && (shape[d - 1] == 1 || strides[d - 1] == have * step)) continue;
    while (v >= 0 && (used < have || to[v] == 1)) {
      out[v] = used * step;
      used *= to[v];
      --v;
    }
    if (used != have) return std::nullopt;
    if (d > 0) {
      step = strides[d - 1];
      have = used = 1;
    }
  }
  if (v >= 0) return std::nullopt;
  return out;
}

}  // namespace ops

namespace {

struct StridedRegion {
  Dims shape, strides;
  int64_t offset;
};
StridedRegion geometry(const Tensor& t) { return {t.shape(), t.strides(), t.offset()}; }

// The gradient of reading `view` out of the storage that also has `input`. It goes through a buffer that represents the
// storage.
Tensor strided_backward(const Tensor& g, const StridedRegion& input, const StridedRegion& view) {
  PF_CHECK(!ops::may_overlap(input.shape, input.strides), NotImplemented,
           "as_strided: the gradient for an input whose elements share memory is not supported; got strides {} for "
           "shape {}; hint: "
           "clone() the input first",
           input.strides.str(), input.shape.str());
  const int64_t low = std::min(input.offset, view.offset);
  const int64_t length =
      std::max(input.offset + extent(input.shape, input.strides), view.offset + extent(view.shape, view.strides)) - low;
  Tensor buffer = zeros({length}, g.dtype(), g.device());
  if (!ops::may_overlap(view.shape, view.strides)) {
    copy_(as_strided(buffer, view.shape, view.strides, view.offset - low), g);
  } else {
    const Tensor places =
        as_strided(arange(0, length, 1, DType::int64, g.device()), view.shape, view.strides, view.offset - low);
    buffer = index_add(buffer, 0, reshape(places, {-1}), reshape(g, {-1}));
  }
  return as_strided(buffer, input.shape, input.strides, input.offset - low);
}

void attach_strided(const Tensor& out, const Tensor& in) {
  attach("as_strided", {out}, {in}, {},
         [input = geometry(in), view = geometry(out)](GradNode&, const Tensors& g) -> Tensors {
           return {strided_backward(g[0], input, view)};
         });
}

Tensor reshape_to_edge(const Tensor& g, const GradNode& n) { return reshape(g, edge_shape(n, 0)); }

// Computes the size that is given as -1.
Dims infer_shape(const char* op, const Dims& shape, int64_t numel, const Dims& from) {
  Dims out = shape;
  int unknown = -1;
  int64_t known = 1;
  for (int i = 0; i < shape.size(); ++i) {
    if (shape[i] == -1) {
      PF_CHECK(unknown < 0, Value, "{}: more than one size is -1; got {}; expected at most one", op, shape.str());
      unknown = i;
      continue;
    }
    PF_CHECK(shape[i] >= 0, Value, "{}: negative size; got shape {}; expected sizes >= 0 or one -1", op, shape.str());
    PF_CHECK(!__builtin_mul_overflow(known, shape[i], &known), Value, "{}: too many elements; got shape {}", op,
             shape.str());
  }
  if (unknown >= 0) {
    PF_CHECK(known != 0, Value, "{}: -1 is ambiguous next to a size of 0; got {} for a tensor of shape {}", op,
             shape.str(), from.str());
    PF_CHECK(numel % known == 0, Value,
             "{}: the shape does not fit; got {} for a tensor of shape {}; expected {} elements", op, shape.str(),
             from.str(), numel);
    out[unknown] = numel / known;
  } else {
    PF_CHECK(known == numel, Value, "{}: the shape does not fit; got {} for a tensor of shape {}; expected {} elements",
             op, shape.str(), from.str(), numel);
  }
  return out;
}

Tensor view_as(const char* op, const Tensor& x, const Dims& shape, const Dims& strides) {
  Tensor v = make_view(x, shape, strides, x.offset());
  attach(op, {v}, {x}, {}, [](GradNode& n, const Tensors& g) -> Tensors { return {reshape_to_edge(g[0], n)}; });
  return v;
}

int rank_dim(const char* op, const Tensor& x, int64_t dim) {
  check_defined(op, x);
  fix_layout(x);
  PF_CHECK(x.dim() > 0, Index,
           "{}: a tensor without dimensions has none to pick from; got dim {}; expected 1-D or more", op, dim);
  return normalize_dim(op, dim, x.dim());
}

}  // namespace

void ops::remake_view_history(const Tensor& view) {
  AutogradMeta& m = *view.impl()->autograd;
  const Tensor base = m.view_base;
  m.view_epoch = base.impl()->autograd->epoch;
  m.grad_fn.reset();
  grad_mode::Guard on(true);
  if (is_complex(view.dtype()) == is_complex(base.dtype())) {
    attach_strided(view, base);
  } else if (is_complex(base.dtype())) {
    attach("as_strided", {view}, {base}, {},
           [input = geometry(as_pairs(base)), part = geometry(view)](GradNode&, const Tensors& g) -> Tensors {
             return {view_as_complex(strided_backward(g[0], input, part))};
           });
  } else {
    attach("as_strided", {view}, {base}, {},
           [input = geometry(base), pairs = geometry(as_pairs(view))](GradNode&, const Tensors& g) -> Tensors {
             return {strided_backward(view_as_real(g[0]), input, pairs)};
           });
  }
}

Tensor view(const Tensor& x, const Dims& shape) {
  check_defined("view", x);
  fix_layout(x);
  const Dims to = infer_shape("view", shape, x.numel(), x.shape());
  const std::optional<Dims> strides = ops::view_strides(x.shape(), x.strides(), to);
  PF_CHECK(
      strides, Value,
      "view: the strides do not allow this shape; got shape {} with strides {}, asked for {}; hint: reshape() copies",
      x.shape().str(), x.strides().str(), to.str());
  return view_as("view", x, to, *strides);
}

// The result has no gradient: bits of another dtype are no function that has one.
Tensor view_dtype(const Tensor& x, DType dtype) {
  check_defined("view", x);
  if (dtype == x.dtype()) return view(x, x.shape());
  PF_CHECK(dtype != DType::bool_, Type, "view: bytes of {} are no truth values; got dtype bool; hint: x != 0",
           dtype_name(x.dtype()));
  fix_layout(x);
  const int64_t from = dtype_size(x.dtype()), to = dtype_size(dtype);
  Dims shape = x.shape(), strides = x.strides();
  int64_t offset = x.offset();
  if (from != to) {
    PF_CHECK(x.dim() > 0 && strides.back() == 1, Value,
             "view: elements of {} bytes have no view of {} bytes here; got shape {} with strides {}; expected a last "
             "stride of 1; hint: contiguous()",
             from, to, shape.str(), strides.str());
    bool whole = true;
    const auto scale = [&](int64_t& n) {
      whole = whole && n * from % to == 0;
      n = n * from / to;
    };
    scale(shape.back());
    scale(offset);
    for (int d = 0; d + 1 < x.dim(); ++d) scale(strides[d]);
    PF_CHECK(whole, Value,
             "view: the bytes do not divide into elements of {} bytes; got shape {}, strides {} and offset {} of {} "
             "bytes each",
             to, x.shape().str(), x.strides().str(), x.offset(), from);
  }
  Tensor v = alias(x.detach(), shape, strides, offset);
  v.impl()->dtype = dtype;
  return v;
}

Tensor reshape(const Tensor& x, const Dims& shape) {
  check_defined("reshape", x);
  fix_layout(x);
  if (x.shape() == shape) return x;
  const Dims to = infer_shape("reshape", shape, x.numel(), x.shape());
  if (const std::optional<Dims> strides = ops::view_strides(x.shape(), x.strides(), to))
    return view_as("reshape", x, to, *strides);
  return view_as("reshape", clone(x), to, contiguous_strides(to));
}

Tensor flatten(const Tensor& x, int64_t start_dim, int64_t end_dim) {
  check_defined("flatten", x);
  if (x.dim() == 0) return reshape(x, {1});
  const int start = normalize_dim("flatten", start_dim, x.dim()), end = normalize_dim("flatten", end_dim, x.dim());
  PF_CHECK(start <= end, Value, "flatten: start_dim comes after end_dim; got {} and {}; expected start_dim <= end_dim",
           start_dim, end_dim);
  if (start == end) return x;
  Dims to;
  int64_t flat = 1;
  for (int i = 0; i < x.dim(); ++i) {
    if (i >= start && i <= end) flat *= x.shape()[i];
    if (i < start || i > end) to.push_back(x.shape()[i]);
    else if (i == end) to.push_back(flat);
  }
  return reshape(x, to);
}

Tensor transpose(const Tensor& x, int64_t dim0, int64_t dim1) {
  check_defined("transpose", x);
  fix_layout(x);
  const int a = normalize_dim("transpose", dim0, x.dim()), b = normalize_dim("transpose", dim1, x.dim());
  if (a == b) return x;
  Dims shape = x.shape(), strides = x.strides();
  std::swap(shape[a], shape[b]);
  std::swap(strides[a], strides[b]);
  Tensor v = make_view(x, shape, strides, x.offset());
  attach("transpose", {v}, {x}, {}, [a, b](GradNode&, const Tensors& g) -> Tensors { return {transpose(g[0], a, b)}; });
  return v;
}

Tensor permute(const Tensor& x, const Dims& dims) {
  check_defined("permute", x);
  fix_layout(x);
  PF_CHECK(dims.size() == x.dim(), Value,
           "permute: the number of dims differs; got {} for a tensor of shape {}; expected {} dims", dims.str(),
           x.shape().str(), x.dim());
  Dims shape, strides, inverse = Dims::filled(x.dim(), -1);
  for (int i = 0; i < x.dim(); ++i) {
    const int d = normalize_dim("permute", dims[i], x.dim());
    PF_CHECK(inverse[d] < 0, Value, "permute: a dim appears twice; got {}; expected each of {} dims once", dims.str(),
             x.dim());
    inverse[d] = i;
    shape.push_back(x.shape()[d]);
    strides.push_back(x.strides()[d]);
  }
  Tensor v = make_view(x, shape, strides, x.offset());
  attach("permute", {v}, {x}, {},
         [inverse](GradNode&, const Tensors& g) -> Tensors { return {permute(g[0], inverse)}; });
  return v;
}

Tensor expand(const Tensor& x, const Dims& shape) {
  check_defined("expand", x);
  fix_layout(x);
  const int lead = shape.size() - x.dim();
  PF_CHECK(lead >= 0, Value, "expand: too few dims; got {} for a tensor of shape {}; expected at least {} dims",
           shape.str(), x.shape().str(), x.dim());
  Dims to = shape;
  for (int i = 0; i < to.size(); ++i) {
    const int64_t have = i < lead ? -1 : x.shape()[i - lead];
    if (to[i] == -1) {
      PF_CHECK(have >= 0, Value, "expand: -1 for a dim that the tensor does not have; got {} for a tensor of shape {}",
               shape.str(), x.shape().str());
      to[i] = have;
    }
    PF_CHECK(to[i] >= 0 && (i < lead || have == 1 || have == to[i]), Value,
             "expand: a size does not match; got {} for a tensor of shape {}; expected equal sizes where the tensor's "
             "is not 1",
             shape.str(), x.shape().str());
  }
  checked_numel("expand", to);
  if (to == x.shape()) return x;
  Tensor v = make_view(x, to, broadcast_strides(x.shape(), x.strides(), to), x.offset());
  attach("expand", {v}, {x}, {}, [](GradNode& n, const Tensors& g) -> Tensors { return {ops::to_edge(n, 0, g[0])}; });
  return v;
}

Tensor squeeze(const Tensor& x) {
  check_defined("squeeze", x);
  fix_layout(x);
  Dims shape, strides;
  for (int i = 0; i < x.dim(); ++i) {
    if (x.shape()[i] == 1) continue;
    shape.push_back(x.shape()[i]);
    strides.push_back(x.strides()[i]);
  }
  return shape.size() == x.dim() ? x : view_as("squeeze", x, shape, strides);
}

Tensor squeeze(const Tensor& x, int64_t dim) {
  check_defined("squeeze", x);
  fix_layout(x);
  const int d = normalize_dim("squeeze", dim, x.dim());
  if (x.dim() == 0 || x.shape()[d] != 1) return x;
  Dims shape = x.shape(), strides = x.strides();
  shape.erase(d);
  strides.erase(d);
  return view_as("squeeze", x, shape, strides);
}

Tensor unsqueeze(const Tensor& x, int64_t dim) {
  check_defined("unsqueeze", x);
  fix_layout(x);
  const int d = normalize_dim("unsqueeze", dim, x.dim() + 1);
  Dims shape = x.shape(), strides = x.strides();
  strides.insert(d, d < x.dim() ? shape[d] * strides[d] : 1);
  shape.insert(d, 1);
  return view_as("unsqueeze", x, shape, strides);
}

Tensor slice(const Tensor& x, int64_t dim, std::optional<int64_t> start, std::optional<int64_t> end, int64_t step) {
  const int d = rank_dim("slice", x, dim);
  PF_CHECK(step > 0, Value, "slice: the step is not positive; got {}; expected > 0", step);
  const int64_t size = x.shape()[d];
  auto wrap = [size](int64_t i) { return std::clamp<int64_t>(i < 0 ? i + size : i, 0, size); };
  const int64_t from = wrap(start.value_or(0)), to = std::max(wrap(end.value_or(size)), from);
  Dims shape = x.shape(), strides = x.strides();
  shape[d] = to == from ? 0 : (to - from - 1) / step + 1;
  // A single element needs no stride; this also keeps huge steps from overflowing.
  if (shape[d] > 1) strides[d] *= step;
  Tensor v = make_view(x, shape, strides, shape[d] > 0 ? x.offset() + from * x.strides()[d] : x.offset());
  attach("slice", {v}, {x}, {}, [d, from, to, step](GradNode& n, const Tensors& g) -> Tensors {
    Tensor out = zeros(edge_shape(n, 0), g[0].dtype(), g[0].device());
    copy_(slice(out, d, from, to, step), g[0]);
    return {out};
  });
  return v;
}

Tensor narrow(const Tensor& x, int64_t dim, int64_t start, int64_t length) {
  const int d = rank_dim("narrow", x, dim);
  const int64_t size = x.shape()[d];
  PF_CHECK(start >= -size && start <= size, Index, "narrow: start out of range; got {}; expected {} <= start <= {}",
           start, -size, size);
  const int64_t from = start < 0 ? start + size : start;
  PF_CHECK(
      length >= 0 && length <= size - from, Value,
      "narrow: the length does not fit; got start {} and length {}; expected at most {} elements in dim {} of size {}",
      start, length, size - from, d, size);
  return slice(x, d, from, from + length);
}

Tensor select(const Tensor& x, int64_t dim, int64_t index) {
  const int d = rank_dim("select", x, dim);
  const int64_t size = x.shape()[d];
  PF_CHECK(index >= -size && index < size, Index,
           "select: index out of range; got {}; expected {} <= index < {} for dim {} of shape {}", index, -size, size,
           d, x.shape().str());
  const int64_t at = index < 0 ? index + size : index;
  Dims shape = x.shape(), strides = x.strides();
  shape.erase(d);
  strides.erase(d);
  Tensor v = make_view(x, shape, strides, x.offset() + at * x.strides()[d]);
  attach("select", {v}, {x}, {}, [d, at](GradNode& n, const Tensors& g) -> Tensors {
    Tensor out = zeros(edge_shape(n, 0), g[0].dtype(), g[0].device());
    copy_(select(out, d, at), g[0]);
    return {out};
  });
  return v;
}

namespace {

// The tensor whose consecutive parts along d, in one storage, these are; undefined if they are not such parts.
Tensor joined(const Tensors& parts, int d) {
  const Tensor& first = parts[0];
  Dims shape = first.shape();
  shape[d] = 0;
  for (const Tensor& p : parts) {
    if (p.storage() != first.storage() || p.dtype() != first.dtype() || p.strides() != first.strides() ||
        p.offset() != first.offset() + shape[d] * first.strides()[d])
      return Tensor();
    shape[d] += p.shape()[d];
  }
  return alias(first, shape, first.strides(), first.offset());
}

// One node for all parts. The gradient of the whole is written once, whereas one node per part would fill and add it n
// times. If the parts' gradients are already parts of one tensor (as attention's are), nothing is copied.
Tensors parts_of(const Tensor& x, int d, const std::vector<int64_t>& sizes) {
  Tensors parts;
  int64_t at = 0;
  for (int64_t s : sizes) {
    parts.push_back(narrow(x, d, at, s));
    at += s;
  }
  if (!any_requires_grad({x})) return parts;
  auto backward = [d](GradNode& n, const Tensors& g) -> Tensors {
    Tensors all;
    for (size_t i = 0; i < g.size(); ++i)
      all.push_back(g[i] ? g[i] : zeros(n.outputs[i].shape, n.outputs[i].dtype, n.outputs[i].device));
    if (!grad_mode::enabled())
      if (const Tensor whole = joined(all, d)) return {whole};
    return {cat(all, d)};
  };
  const std::vector<std::reference_wrapper<const Tensor>> ins = {x}, outs(parts.begin(), parts.end());
  attach_node(Ref<GradNode>(new FnNode<decltype(backward)>("split", std::move(backward))), ins, outs, {});
  return parts;
}

}  // namespace

Tensors split(const Tensor& x, int64_t size, int64_t dim) {
  const int d = rank_dim("split", x, dim);
  const int64_t total = x.shape()[d];
  PF_CHECK(size > 0 || (size == 0 && total == 0), Value, "split: the size is not positive; got {}; expected > 0", size);
  std::vector<int64_t> sizes;
  for (int64_t at = 0; at < total; at += size) sizes.push_back(std::min(size, total - at));
  if (total == 0) sizes.push_back(0);
  return parts_of(x, d, sizes);
}

Tensors split(const Tensor& x, const Dims& sizes, int64_t dim) {
  const int d = rank_dim("split", x, dim);
  int64_t total = 0;
  for (int64_t s : sizes) {
    PF_CHECK(s >= 0, Value, "split: negative size; got {}; expected sizes >= 0", sizes.str());
    total += s;
  }
  PF_CHECK(total == x.shape()[d], Value,
           "split: the sizes do not add up; got {}; expected a total of {} for dim {} of shape {}", sizes.str(),
           x.shape()[d], d, x.shape().str());
  return parts_of(x, d, {sizes.begin(), sizes.end()});
}

Tensors chunk(const Tensor& x, int64_t chunks, int64_t dim) {
  const int d = rank_dim("chunk", x, dim);
  PF_CHECK(chunks > 0, Value, "chunk: the number of chunks is not positive; got {}; expected > 0", chunks);
  const int64_t total = x.shape()[d];
  if (total == 0) return Tensors(static_cast<size_t>(chunks), narrow(x, d, 0, 0));
  return split(x, (total - 1) / chunks + 1, d);
}

Tensor as_strided(const Tensor& x, const Dims& shape, const Dims& strides, int64_t offset) {
  check_defined("as_strided", x);
  fix_layout(x);
  PF_CHECK(shape.size() == strides.size(), Value, "as_strided: shape and strides differ in length; got {} and {}",
           shape.str(), strides.str());
  const int64_t n = checked_numel("as_strided", shape);
  PF_CHECK(offset >= 0, Value, "as_strided: negative offset; got {}; expected >= 0", offset);
  int64_t last = offset;
  bool overflow = false;
  for (int i = 0; i < shape.size(); ++i) {
    PF_CHECK(strides[i] >= 0, Value, "as_strided: negative stride; got {}; expected strides >= 0", strides.str());
    int64_t reach = 0;
    if (n > 0)
      overflow |=
          __builtin_mul_overflow(shape[i] - 1, strides[i], &reach) || __builtin_add_overflow(last, reach, &last);
  }
  const int64_t limit = static_cast<int64_t>(x.storage()->nbytes) / x.itemsize();
  PF_CHECK(n == 0 || (!overflow && last < limit), Value,
           "as_strided: reaches beyond the storage; got shape {}, strides {}, offset {}; expected to stay within {} "
           "elements",
           shape.str(), strides.str(), offset, limit);
  Tensor v = make_view(x, shape, strides, n == 0 ? 0 : offset);
  attach_strided(v, x);
  return v;
}

}  // namespace pyflame
