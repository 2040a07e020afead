// Writing by index: scatter (one index for each element) and put_slices (one for each slice). The ops write in place; the functions that
// are not in place write to a copy. Both kinds share their gradients, which are formulas of "take" (gather, index_select) and "put".
#include "pyflame/ops/family.h"
#include "pyflame/ops/helpers.h"

namespace pyflame {

namespace {

// One of both kinds, and where it writes.
struct Place {
  OpId op;
  int dim;
  const char* name() const { return op == OpId::scatter ? "scatter" : "index_put"; }
  Tensor take(const Tensor& x, const Tensor& index) const {
    return op == OpId::scatter ? gather(x, dim, index) : index_select(x, dim, index);
  }
};

Tensor put(const Place& at, const Tensor& x, const Tensor& index, const Tensor& src, Combine how);

// Shared evenly among the elements that equal the result, x's among them.
Tensors extreme_grad(const Place& at, GradNode& n, const Tensor& g) {
  const Tensor x = n.saved(0), index = n.saved(1), src = n.saved(2), out = n.saved(3);
  const Tensor x_has = cast(eq(x, out), g.dtype()), src_has = cast(eq(src, at.take(out, index)), g.dtype());
  const Tensor share = div(g, maximum(put(at, x_has, index, src_has, Combine::Sum), Scalar(1.0)));
  return {n.needs(0) ? mul(share, x_has) : Tensor(), n.needs(1) ? mul(at.take(share, index), src_has) : Tensor()};
}

// The product of all others: the result over the factor itself, where that is not zero.
Tensors product_grad(const Place& at, GradNode& n, const Tensor& g) {
  const Tensor x = n.saved(0), index = n.saved(1), src = n.saved(2), out = n.saved(3);
  const Tensor one = full({}, 1.0, x.dtype(), x.device());
  Tensors grads(2);
  if (n.needs(0)) {
    const Tensor factor = where(eq(x, Scalar(0)), one, x);
    grads[0] = div(mul(g, put(at, factor, index, src, Combine::Product)), factor);
  }
  if (!n.needs(1)) return grads;
  const Tensor zero = eq(src, Scalar(0));
  const Tensor zeros_at = put(at, zeros_like(x), index, cast(zero, x.dtype()), Combine::Sum);
  const Tensor only = logical_and(zero, eq(at.take(zeros_at, index), Scalar(1)));
  const Tensor others = put(at, x, index, where(only, one, src), Combine::Product);
  grads[1] = where(only, at.take(mul(g, others), index), div(at.take(mul(g, out), index), where(zero, one, src)));
  return grads;
}

void attach_put(const Place& at, const Tensor& out, const Tensor& x, const Tensor& index, const Tensor& src,
                Combine how) {
  switch (how) {
    case Combine::Replace:
      return attach(at.name(), {out}, {x, src}, {index}, [at](GradNode& n, const Tensors& g) -> Tensors {
        const Tensor where_to = n.saved(0);
        Tensors grads(2);
        if (n.needs(1)) grads[1] = at.take(g[0], where_to);
        if (n.needs(0)) {
          const Tensor zero = full({}, 0.0, g[0].dtype(), g[0].device());
          Dims shape = at.op == OpId::scatter ? where_to.shape() : g[0].shape();
          if (at.op != OpId::scatter) shape[at.dim] = where_to.size(0);
          grads[0] = put(at, g[0], where_to, expand(zero, shape), Combine::Replace);
        }
        return grads;
      });
    case Combine::Sum:
      return attach(at.name(), {out}, {x, src}, {index}, [at](GradNode& n, const Tensors& g) -> Tensors {
        return {g[0], n.needs(1) ? at.take(g[0], n.saved(0)) : Tensor()};
      });
    case Combine::Product:
      return attach(at.name(), {out}, {x, src}, {x, index, src, out},
                    [at](GradNode& n, const Tensors& g) -> Tensors { return product_grad(at, n, g[0]); });
    default:
      return attach(at.name(), {out}, {x, src}, {x, index, src, out},
                    [at](GradNode& n, const Tensors& g) -> Tensors { return extreme_grad(at, n, g[0]); });
  }
}

Tensor apart_from(const Tensor& x, const Tensor& written) {
  return x.storage() == written.storage() ? emit(OpId::cast, {x}, x.shape(), x.dtype()) : x;
}

void write_into(const Place& at, const Tensor& x, const Tensor& index, const Tensor& src, Combine how) {
  if (x.numel() == 0 || index.numel() == 0) return;
  const Tensor i = apart_from(index, x), from = apart_from(src, x);
  const Arg ins[] = {x, i, from};
  emit_into(at.op, ins, std::span(&x, 1), ScatterAttrs{at.dim, static_cast<int64_t>(how)});
}

Tensor put(const Place& at, const Tensor& x, const Tensor& index, const Tensor& src, Combine how) {
  const Tensor out = emit(OpId::cast, {x}, x.shape(), x.dtype());
  write_into(at, out, index, src, how);
  attach_put(at, out, x, index, src, how);
  return out;
}

// The checked operands of a call. A 0-d x is one element.
struct Call {
  Place at;
  Tensor x, index, src;
};

Tensor one_dim(const Tensor& x) { return x.dim() == 0 ? view(x, {1}) : x; }

Tensor as_source(const char* name, const Tensor& x, const Value& src, const Dims& shape) {
  if (!src.is_tensor) {
    ops::check_fits(name, src.scalar, x.dtype());
    return expand(full({}, src.scalar, x.dtype(), x.device()), shape);
  }
  check_same_device(name, {x, src.tensor});
  check_same_dtype(name, x, src.tensor);
  return one_dim(src.tensor);
}

Call checked_scatter(const char* name, const Tensor& x, int64_t dim, const Tensor& index, const Value& src) {
  check_same_device(name, {x, index});
  Call c{{OpId::scatter, normalize_dim(name, dim, x.dim())}, one_dim(x), one_dim(as_index(name, index)), {}};
  c.src = as_source(name, x, src, c.index.shape());
  if (c.index.numel() == 0) {  // of src nothing is written
    c.src = reshape(narrow(reshape(c.src, {c.src.numel()}), 0, 0, 0), c.index.shape());
    return c;
  }
  PF_CHECK(c.index.dim() == c.x.dim() && c.src.dim() == c.x.dim(), Value,
           "{}: ranks differ; got input {}, index {} and src {}; expected equal ranks", name, x.shape().str(),
           index.shape().str(), c.src.shape().str());
  for (int d = 0; d < c.x.dim(); ++d) {
    PF_CHECK(d == c.at.dim || c.index.size(d) <= c.x.size(d), Value,
             "{}: the index is larger than the input; got input {} and index {}; expected at most {} in dim {}", name,
             x.shape().str(), index.shape().str(), c.x.size(d), d);
    PF_CHECK(c.index.size(d) <= c.src.size(d), Value,
             "{}: the index is larger than src; got src {} and index {}; expected at most {} in dim {}", name,
             c.src.shape().str(), index.shape().str(), c.src.size(d), d);
    if (c.index.size(d) < c.src.size(d)) c.src = narrow(c.src, d, 0, c.index.size(d));
  }
  check_index_values(name, c.index, c.x.size(c.at.dim));
  return c;
}

Call checked_slices(const char* name, const Tensor& x, int64_t dim, const Tensor& index, const Value& src) {
  check_same_device(name, {x, index});
  PF_CHECK(index.dim() <= 1, Value, "{}: the index is not a vector; got {}; expected one dimension", name,
           index.shape().str());
  Call c{{OpId::index_put, normalize_dim(name, dim, x.dim())}, one_dim(x), one_dim(as_index(name, index)), {}};
  Dims expected = c.x.shape();
  expected[c.at.dim] = c.index.size(0);
  c.src = as_source(name, x, src, expected);
  PF_CHECK(c.src.shape() == expected, Value, "{}: src does not fit; got {} for input {} and {} indices; expected {}",
           name, c.src.shape().str(), x.shape().str(), c.index.size(0), expected.str());
  check_index_values(name, c.index, c.x.size(c.at.dim));
  return c;
}

Tensor put_copy(const Tensor& x, const Call& c, Combine how) {
  const Tensor out = put(c.at, c.x, c.index, c.src, how);
  return x.dim() == 0 ? view(out, {}) : out;
}

using Check = Call (*)(const char*, const Tensor&, int64_t, const Tensor&, const Value&);

Tensor put_in_place(Check check, const char* name, const Tensor& x, int64_t dim, const Tensor& index, const Value& src,
                    Combine how) {
  ops::check_target(name, x);
  fix_layout(x);
  if (!any_requires_grad({x, src.tensor}) && x.is_contiguous()) {
    const Tensor plain = x.dim() == 0 ? alias(x, {1}, {1}, x.offset()) : x;
    const Call c = check(name, plain, dim, index, src);
    write_into(c.at, plain, c.index, c.src, how);
    return x;
  }
  const Tensor old = ops::before_write(x, src.tensor);
  return ops::assign(name, x, put_copy(old, check(name, old, dim, index, src), how));
}

}  // namespace

Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, const Value& src, Combine how) {
  return put_copy(x, checked_scatter("scatter", x, dim, index, src), how);
}
Tensor scatter_(const Tensor& x, int64_t dim, const Tensor& index, const Value& src, Combine how) {
  return put_in_place(checked_scatter, "scatter_", x, dim, index, src, how);
}
Tensor put_slices(const Tensor& x, int64_t dim, const Tensor& index, const Value& src, Combine how) {
  return put_copy(x, checked_slices("index_copy", x, dim, index, src), how);
}
Tensor put_slices_(const Tensor& x, int64_t dim, const Tensor& index, const Value& src, Combine how) {
  return put_in_place(checked_slices, "index_copy_", x, dim, index, src, how);
}

}  // namespace pyflame
