// x[i, j, ...] with several index tensors. The indexed dims become one dim, and the indices one vector of positions in it, so that reading is
// index_select and writing is put_slices, with their kernels and gradients.
#include <algorithm>

#include "pyflame/ops/family.h"
#include "pyflame/ops/helpers.h"

namespace pyflame {

namespace {

// An index: of `span` adjacent dims of x from `dim` on, as positions in the product of their sizes.
struct Item {
  Tensor at;
  int dim, span;
  bool checked = false;
};

bool is_mask(const Tensor& t) { return t.dtype() == DType::bool_ || t.dtype() == DType::uint8; }

Item item_of(const char* op, const Tensor& x, const Tensor& given, int dim) {
  if (!is_mask(given)) {
    PF_CHECK(given.dtype() == DType::int64 || given.dtype() == DType::int32, Index,
             "{}: indices must be integers or bools; got dtype {}; expected int64, int32, uint8 or bool", op,
             dtype_name(given.dtype()));
    PF_CHECK(dim < x.dim(), Index, "{}: too many indices; got more than {} for shape {}", op, x.dim(), x.shape().str());
    return {given, dim, 1};
  }
  PF_CHECK(dim + given.dim() <= x.dim(), Index, "{}: too many indices; got a mask of shape {} at dim {} of shape {}",
           op, given.shape().str(), dim, x.shape().str());
  for (int d = 0; d < given.dim(); ++d)
    PF_CHECK(given.size(d) == x.size(dim + d), Index,
             "{}: the mask does not fit; got mask shape {} at dim {}; expected the sizes of {}", op,
             given.shape().str(), dim, x.shape().str());
  return {true_positions(given), dim, given.dim(), true};
}

// Negative entries count from the end. Entries that are out of range are refused at the call if they are at hand; else they become -1 or
// stay, and the kernel refuses them.
Tensor wrapped(const char* op, const Tensor& at, int64_t size) {
  Tensor t = cast(at, DType::int64);
  if (t.numel() == 0) return t;
  constexpr int64_t kMost = 65536;
  const auto* v = t.numel() <= kMost ? static_cast<const int64_t*>(values_at_hand(t)) : nullptr;
  bool negative = v == nullptr;
  for (int64_t i = 0; v && i < t.numel(); ++i) {
    PF_CHECK(v[i] >= -size && v[i] < size, Index,
             "{}: index out of range; got {} at position {}; expected {} <= index < {}", op, v[i], i, -size, size);
    negative |= v[i] < 0;
  }
  return negative ? where(lt(t, Scalar(0)), add(t, Scalar(size)), t) : t;
}

// x seen as [before, indexed dims, after] with the indexed dims adjacent, and where its result goes.
struct Plan {
  std::vector<int> order;  // the permutation that makes the indexed dims adjacent; empty: they are
  Dims before, after, common;
  int64_t size = 1;  // of the indexed dims
  Tensor at;         // flat, with the shape `common` before that
};

bool any_index(const Tensors& indices) {
  return std::any_of(indices.begin(), indices.end(), [](const Tensor& t) { return static_cast<bool>(t); });
}

Plan plan_of(const char* op, const Tensor& x, const Tensors& indices) {
  PF_CHECK(any_index(indices), Index,
           "{}: no index; got none; expected one tensor or more; hint: copy_ writes to all elements", op);
  std::vector<Item> items;
  int dim = 0;
  for (const Tensor& t : indices) {
    if (!t) {
      ++dim;
      continue;
    }
    check_same_device(op, {x, t});
    items.push_back(item_of(op, x, t, dim));
    dim += items.back().span;
  }
  Plan p;
  bool adjacent = true;
  std::vector<bool> indexed(static_cast<size_t>(x.dim()));
  for (size_t i = 0; i < items.size(); ++i) {
    const Item& item = items[i];
    if (i > 0) adjacent &= items[i - 1].dim + items[i - 1].span == item.dim;
    for (int d = 0; d < item.span; ++d) indexed[static_cast<size_t>(item.dim + d)] = true;
    const Dims& shape = item.at.shape();
    bool fits = true;
    for (int a = shape.size() - 1, b = p.common.size() - 1; a >= 0 && b >= 0; --a, --b)
      fits &= shape[a] == p.common[b] || shape[a] == 1 || p.common[b] == 1;
    PF_CHECK(fits, Index,
             "{}: the indices do not broadcast; got shapes {} and {}; expected equal sizes or 1, from the right", op,
             p.common.str(), shape.str());
    p.common = i == 0 ? shape : broadcast_shapes(op, p.common, shape);
  }
  const int first = items.empty() ? 0 : items[0].dim;
  for (int d = 0; d < x.dim(); ++d)
    if (!indexed[static_cast<size_t>(d)]) (adjacent && d < first ? p.before : p.after).push_back(x.size(d));
  if (!adjacent) {
    for (const bool wanted : {true, false})
      for (int d = 0; d < x.dim(); ++d)
        if (indexed[static_cast<size_t>(d)] == wanted) p.order.push_back(d);
  }
  // Positions in row-major order of the indexed dims. One that is out of range makes the whole position -1.
  Tensor bad;
  for (const Item& item : items) {
    int64_t size = 1;
    for (int d = 0; d < item.span; ++d) size *= x.size(item.dim + d);
    const Tensor here = item.checked ? item.at : wrapped(op, item.at, size);
    if (items.size() > 1 && !item.checked && !values_at_hand(item.at)) {
      const Tensor out = logical_or(lt(here, Scalar(0)), ge(here, Scalar(size)));
      bad = bad ? logical_or(bad, out) : out;
    }
    p.at = p.at ? add(mul(p.at, Scalar(size)), here) : here;
    p.size *= size;
  }
  if (bad) p.at = where(bad, Scalar(int64_t{-1}), p.at);
  if (p.at.shape() != p.common) p.at = expand(p.at, p.common);
  p.at = reshape(p.at, {p.common.numel()});
  return p;
}

Dims joined(const Dims& a, const Dims& b, const Dims& c) {
  Dims all = a;
  for (const Dims* more : {&b, &c})
    for (int64_t v : *more) all.push_back(v);
  return all;
}

Tensor arranged(const Tensor& x, const Plan& p) {
  if (p.order.empty()) return x;
  Dims order;
  for (int d : p.order) order.push_back(d);
  return permute(x, order);
}
Dims flat_shape(const Plan& p) { return joined(p.before, {p.size}, p.after); }

// The value, in the shape of the slices.
Value slices(const char* op, const Tensor& x, const Plan& p, const Value& value) {
  if (!value.is_tensor) return value;
  PF_CHECK(value.tensor.dtype() == x.dtype(), Runtime,
           "{}: dtypes differ; got {} for a tensor of {}; expected equal dtypes; hint: cast the value", op,
           dtype_name(value.tensor.dtype()), dtype_name(x.dtype()));
  const Dims whole = joined(p.before, p.common, p.after);
  const Dims& given = value.tensor.shape();
  Tensor v = value.tensor;
  int extra = 0;  // leading dims of size 1 do not count
  while (v.dim() - extra > whole.size() && given[extra] == 1) ++extra;
  for (; extra > 0; --extra) v = select(v, 0, 0);
  bool fits = v.dim() <= whole.size();
  for (int a = v.dim() - 1, b = whole.size() - 1; fits && a >= 0; --a, --b)
    fits = v.size(a) == whole[b] || v.size(a) == 1;
  PF_CHECK(fits, Value,
           "{}: the value does not broadcast to what is indexed; got {}; expected a shape that broadcasts to {}", op,
           given.str(), whole.str());
  return reshape(v.shape() == whole ? v : expand(v, whole), joined(p.before, {p.at.size(0)}, p.after));
}

Combine how(bool accumulate) { return accumulate ? Combine::Sum : Combine::Replace; }

Tensor put_copy(const char* op, const Tensor& x, const Plan& p, const Value& value, bool accumulate) {
  const Tensor from = arranged(x, p);
  Tensor y = put_slices(reshape(from, flat_shape(p)), p.before.size(), p.at, slices(op, x, p, value), how(accumulate));
  y = reshape(y, from.shape());
  if (p.order.empty()) return y;
  Dims back = Dims::filled(x.dim(), 0);
  for (int d = 0; d < x.dim(); ++d) back[p.order[static_cast<size_t>(d)]] = d;
  return permute(y, back);
}

}  // namespace

Tensor index(const Tensor& x, const Tensors& indices) {
  if (!any_index(indices)) return x;
  const Plan p = plan_of("index", x, indices);
  const Dims whole = joined(p.before, p.common, p.after);
  const Tensor y = index_select(reshape(arranged(x, p), flat_shape(p)), p.before.size(), p.at);
  return y.shape() == whole ? y : reshape(y, whole);
}

Tensor index_put(const Tensor& x, const Tensors& indices, const Value& value, bool accumulate) {
  return put_copy("index_put", x, plan_of("index_put", x, indices), value, accumulate);
}

Tensor index_put_(const Tensor& x, const Tensors& indices, const Value& value, bool accumulate) {
  ops::check_target("index_put_", x);
  fix_layout(x);
  const Plan p = plan_of("index_put_", x, indices);
  if (!any_requires_grad({x, value.tensor}) && p.order.empty()) {
    const Dims shape = flat_shape(p);
    if (const auto strides = ops::view_strides(x.shape(), x.strides(), shape)) {
      const Tensor flat = alias(x, shape, *strides, x.offset());
      put_slices_(flat, p.before.size(), p.at, slices("index_put_", x, p, value), how(accumulate));
      return x;
    }
  }
  return ops::assign("index_put_", x, put_copy("index_put_", ops::before_write(x, value.tensor), p, value, accumulate));
}

}  // namespace pyflame
