// Reductions. They are recorded with the reduced dims kept at size 1; without keepdim, the returned handle omits those
// dims.
// Reductions over no elements are computed here and never reach a backend.
#include <cmath>
#include <limits>

#include "pyflame/ops/autocast.h"
#include "pyflame/ops/complex.h"
#include "pyflame/ops/complex_scans.h"
#include "pyflame/ops/helpers.h"
#include "pyflame/record/emit.h"

namespace pyflame {

using ops::as_float;
using ops::check_defined;
using ops::edge_shape;

int64_t ops::reduced_axes(const char* op, const Dims& dims, int rank) {
  if (dims.empty()) return (int64_t{1} << rank) - 1;
  int64_t mask = 0;
  for (int64_t dim : dims) {
    const int d = normalize_dim(op, dim, rank);
    if (rank == 0) continue;
    PF_CHECK(!(mask >> d & 1), Value, "{}: a dim appears twice; got dims {}; expected each at most once", op,
             dims.str());
    mask |= int64_t{1} << d;
  }
  return mask;
}

namespace {

Dims kept_shape(const Dims& shape, int64_t axes) {
  Dims out = shape;
  for (int i = 0; i < shape.size(); ++i)
    if (axes >> i & 1) out[i] = 1;
  return out;
}

int64_t reduced_count(const Dims& shape, int64_t axes) {
  int64_t n = 1;
  for (int i = 0; i < shape.size(); ++i)
    if (axes >> i & 1) n *= shape[i];
  return n;
}

Dims axes_of(int64_t axes, int rank) {
  Dims dims;
  for (int i = 0; i < rank; ++i)
    if (axes >> i & 1) dims.push_back(i);
  return dims;
}

// The handle that the caller gets.
Tensor finish(const Tensor& kept, int64_t axes, bool keepdim) {
  if (keepdim || axes == 0) return kept;
  Dims shape;
  for (int i = 0; i < kept.dim(); ++i)
    if (!(axes >> i & 1)) shape.push_back(kept.shape()[i]);
  return alias(kept, shape, contiguous_strides(shape), kept.offset());
}

// Records the reduction, with the dims kept. `empty` is its value over no elements.
Tensor reduce(OpId op, const Tensor& x, int64_t axes, DType dtype, Scalar empty) {
  const Dims shape = kept_shape(x.shape(), axes);
  if (x.numel() == 0) return full(shape, empty, dtype, x.device());
  if (axes == 0) return emit(OpId::cast, {x}, shape, dtype);
  if (op == OpId::sum && is_complex(x.dtype())) return ops::complex_sum(x, shape, ReduceAttrs{axes});
  return emit(op, {x}, shape, dtype, ReduceAttrs{axes});
}

// A gradient or result with the reduced dims as dims of size 1.
Tensor restore(const Tensor& t, const Dims& full_shape, int64_t axes) {
  return reshape(t, kept_shape(full_shape, axes));
}

DType float_dtype(const char* op, const Tensor& x, DTypeOpt dtype) {
  const DType d = dtype.value_or(x.dtype());
  PF_CHECK(is_float(d), Type, "{}: needs a float dtype; got {}; expected a float; hint: cast the tensor{}", op,
           dtype_name(d), std::string_view(op) == "mean" ? " or give dtype" : "");
  return d;
}

void check_not_empty(const char* op, const Tensor& x, int64_t axes) {
  PF_CHECK(reduced_count(x.shape(), axes) > 0, Index,
           "{}: no elements to choose from; got shape {}; expected the reduced dims to be > 0", op, x.shape().str());
}

}  // namespace

Tensor sum(const Tensor& input, const Dims& dims, bool keepdim, DTypeOpt dtype) {
  check_defined("sum", input);
  const int64_t axes = ops::reduced_axes("sum", dims, input.dim());
  const Tensor x = dtype ? cast(input, *dtype) : autocast::input<OpId::sum>(input);
  const bool floats = has_gradient(x.dtype());
  const Tensor kept = reduce(OpId::sum, x, axes, floats ? x.dtype() : DType::int64, 0);
  Tensor out = finish(dtype ? cast(kept, *dtype) : kept, axes, keepdim);
  if (floats)
    attach("sum", {out}, {x}, {}, [axes](GradNode& n, const Tensors& g) -> Tensors {
      const Dims& shape = edge_shape(n, 0);
      return {expand(restore(g[0], shape, axes), shape)};
    });
  return out;
}

namespace {

// A scan of x along `dim`, which may have none: a number is its own sum, product and maximum.
Tensor scanned(OpId op, const Tensor& x, int dim, bool reverse, DType out) {
  if (x.dim() == 0) return reshape(scanned(op, reshape(x, {1}), 0, reverse, out), {});
  return emit(op, {x}, x.shape(), out, ScanAttrs{dim, reverse});
}
DType summed(DType d) { return has_gradient(d) ? d : DType::int64; }

// The gradient of a sum is the scan in the other direction.
Tensor running_sum(const Tensor& x, int dim, bool reverse) {
  Tensor out = scanned(OpId::cumsum, x, dim, reverse, summed(x.dtype()));
  if (has_gradient(x.dtype()))
    attach("cumsum", {out}, {x}, {},
           [dim, reverse](GradNode&, const Tensors& g) -> Tensors { return {running_sum(g[0], dim, !reverse)}; });
  return out;
}

// Before the first zero, the sum of g * out from there on, over x. At the first zero, the same sum of the products with a 1 in its place.
// After it, all products have the zero as a factor; they are 0, but not the derivative of that.
Tensor cumprod_backward(const Tensor& g, const Tensor& x, const Tensor& out, int dim) {
  const Tensor zero = eq(x, 0.0), zeros_so_far = running_sum(zero, dim, false);
  const Tensor before = eq(zeros_so_far, 0), first = logical_and(zero, eq(zeros_so_far, 1));
  const Tensor others = cumprod(where(first, 1.0, x), dim, {});
  const Tensor from_here = running_sum(mul(g, others), dim, true);
  const Tensor the_zero = x.dim() ? sum(where(first, x, 0.0), {dim}, true) : where(first, x, 0.0);
  const Tensor divisor = where(zero, 1.0, x);
  const Tensor after = mul(div(from_here, divisor), the_zero);
  return where(before, div(running_sum(mul(g, out), dim, true), divisor), where(first, from_here, after));
}

Tensor logcumsumexp_scan(const Tensor& x, int dim, bool reverse);

// exp(x) times the sum of g exp(-out) from there on, in logarithms, separately for positive and negative g.
Tensor logcumsumexp_backward(const Tensor& g, const Tensor& x, const Tensor& out, int dim, bool reverse) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const auto part = [&](const Tensor& size) {
    const Tensor positive = gt(size, 0.0);
    const Tensor logs = where(positive, sub(log(where(positive, size, 1.0)), out), -kInf);
    return exp(add(logcumsumexp_scan(logs, dim, !reverse), x));
  };
  return sub(part(g), part(neg(g)));
}

Tensor logcumsumexp_scan(const Tensor& x, int dim, bool reverse) {
  Tensor out = scanned(OpId::logcumsumexp, x, dim, reverse, x.dtype());
  attach("logcumsumexp", {out}, {x}, {x, out}, [dim, reverse](GradNode& n, const Tensors& g) -> Tensors {
    return {logcumsumexp_backward(g[0], n.saved(0), n.saved(1), dim, reverse)};
  });
  return out;
}

std::pair<Tensor, Tensor> running_extremum(const char* name, OpId op, const Tensor& x, int64_t dim) {
  check_defined(name, x);
  const int d = normalize_dim(name, dim, x.dim());
  if (x.dtype() == DType::bool_) {
    auto [values, index] = running_extremum(name, op, cast(x, DType::uint8), d);
    return {cast(values, DType::bool_), index};
  }
  if (x.dim() == 0) return {clone(x), zeros({}, DType::int64, x.device())};
  const Arg in[] = {x};
  const OutSpec specs[] = {{x.shape(), x.dtype()}, {x.shape(), DType::int64}};
  const Tensors outs = emit_many(op, in, specs, ScanAttrs{d, false});
  attach(name, {outs[0], outs[1]}, {x}, {outs[1]}, [d](GradNode& n, const Tensors& g) -> Tensors {
    return {scatter_add(zeros(edge_shape(n, 0), g[0].dtype(), g[0].device()), d, n.saved(0), g[0])};
  });
  return {outs[0], outs[1]};
}

}  // namespace

Tensor cumsum(const Tensor& input, int64_t dim, DTypeOpt dtype) {
  check_defined("cumsum", input);
  const int d = normalize_dim("cumsum", dim, input.dim());
  const Tensor x = dtype ? cast(input, *dtype) : autocast::input<OpId::cumsum>(input);
  const Tensor out = running_sum(x, d, false);
  return dtype ? cast(out, *dtype) : out;
}

Tensor cumprod(const Tensor& input, int64_t dim, DTypeOpt dtype) {
  check_defined("cumprod", input);
  const int d = normalize_dim("cumprod", dim, input.dim());
  const Tensor x = dtype ? cast(input, *dtype) : autocast::input<OpId::cumprod>(input);
  if (is_complex(x.dtype())) return complex_cumprod(x, d);
  Tensor out = scanned(OpId::cumprod, x, d, false, summed(x.dtype()));
  if (is_float(x.dtype()))
    attach("cumprod", {out}, {x}, {x, out}, [d](GradNode& n, const Tensors& g) -> Tensors {
      return {cumprod_backward(g[0], n.saved(0), n.saved(1), d)};
    });
  return dtype ? cast(out, *dtype) : out;
}

Tensor logcumsumexp(const Tensor& input, int64_t dim) {
  check_defined("logcumsumexp", input);
  if (is_complex(input.dtype())) return complex_logcumsumexp(input, normalize_dim("logcumsumexp", dim, input.dim()));
  PF_CHECK(is_float(input.dtype()), Type, "logcumsumexp: not defined for {}; expected a floating dtype",
           dtype_name(input.dtype()));
  return logcumsumexp_scan(input, normalize_dim("logcumsumexp", dim, input.dim()), false);
}

std::pair<Tensor, Tensor> cummax(const Tensor& x, int64_t dim) {
  return running_extremum("cummax", OpId::cummax, x, dim);
}
std::pair<Tensor, Tensor> cummin(const Tensor& x, int64_t dim) {
  return running_extremum("cummin", OpId::cummin, x, dim);
}

Tensor mean(const Tensor& input, const Dims& dims, bool keepdim, DTypeOpt dtype) {
  check_defined("mean", input);
  if (is_complex(dtype.value_or(input.dtype()))) {
    const Tensor x = cast(input, dtype.value_or(input.dtype()));
    return div(sum(x, dims, keepdim),
               static_cast<double>(reduced_count(x.shape(), ops::reduced_axes("mean", dims, x.dim()))));
  }
  const DType d = float_dtype("mean", input, dtype);
  const int64_t axes = ops::reduced_axes("mean", dims, input.dim());
  const Tensor x = cast(input, d);
  const auto n = static_cast<double>(reduced_count(x.shape(), axes));
  // The sum of 16-bit numbers may overflow although their mean does not.
  const DType wide = is_half(d) ? DType::float32 : d;
  const Tensor wide_x = is_half(d) ? emit(OpId::cast, {x}, x.shape(), wide) : x;
  const Tensor total = reduce(OpId::sum, wide_x, axes, wide, 0);
  Tensor kept = emit(OpId::div, {total, Arg(n, wide)}, total.shape(), wide);
  if (is_half(d)) kept = emit(OpId::cast, {kept}, kept.shape(), d);
  Tensor out = finish(kept, axes, keepdim);
  attach("mean", {out}, {x}, {}, [axes, n](GradNode& node, const Tensors& g) -> Tensors {
    const Dims& shape = edge_shape(node, 0);
    return {expand(restore(div(g[0], n), shape, axes), shape)};
  });
  return out;
}

namespace {

// The products of all other elements, along a last dim of the reduced ones, with ones on the diagonal. This takes n^2
// work and memory, but it can be differentiated again and is right with any number of zeros.
Tensor products_of_others(const Tensor& x, int64_t axes) {
  Dims order, outer, inverse = Dims::filled(x.dim(), 0), moved;
  for (int pass = 0; pass < 2; ++pass)
    for (int i = 0; i < x.dim(); ++i)
      if ((axes >> i & 1) == pass) {
        inverse[i] = order.size();
        order.push_back(i);
        moved.push_back(x.shape()[i]);
        if (pass == 0) outer.push_back(x.shape()[i]);
      }
  const int64_t n = reduced_count(x.shape(), axes);
  Dims rows = outer, square_shape = outer;
  for (int64_t v : {int64_t{1}, n}) rows.push_back(v);
  for (int64_t v : {n, n}) square_shape.push_back(v);
  const Tensor spread = expand(reshape(permute(x, order), rows), square_shape);
  const Tensor others = prod(where(eye(n, n, DType::bool_, x.device()), 1.0, spread), {-1});
  return permute(reshape(others, moved), inverse);
}

Tensor prod_backward(const Tensor& g, const Tensor& x, const Tensor& out, int64_t axes) {
  if (x.numel() == 0) return zeros_like(x);
  const Tensor gk = restore(g, x.shape(), axes);
  if (grad_mode::enabled()) return mul(gk, products_of_others(x, axes));
  const Dims dims = axes_of(axes, x.dim());
  const Tensor zero = eq(x, 0.0), zero_count = sum(zero, dims, true);
  const Tensor without_zeros = prod(where(zero, 1.0, x), dims, true);
  const Tensor at_zero = where(logical_and(zero, eq(zero_count, 1)), without_zeros, 0.0);
  return mul(gk, where(eq(zero_count, 0), div(restore(out, x.shape(), axes), x), at_zero));
}

}  // namespace

Tensor prod(const Tensor& input, const Dims& dims, bool keepdim, DTypeOpt dtype) {
  check_defined("prod", input);
  const int64_t axes = ops::reduced_axes("prod", dims, input.dim());
  const Tensor x = dtype ? cast(input, *dtype) : autocast::input<OpId::prod>(input);
  const bool floats = has_gradient(x.dtype());
  if (is_complex(x.dtype())) {
    const Tensor product = ops::complex_prod(x, axes);
    if (keepdim) return product;
    Dims shape;
    for (int i = 0; i < x.dim(); ++i)
      if (!(axes >> i & 1)) shape.push_back(x.shape()[i]);
    return reshape(product, shape);
  }
  const Tensor kept = reduce(OpId::prod, x, axes, floats ? x.dtype() : DType::int64, 1);
  Tensor out = finish(dtype ? cast(kept, *dtype) : kept, axes, keepdim);
  if (floats)
    attach("prod", {out}, {x}, {x, out}, [axes](GradNode& n, const Tensors& g) -> Tensors {
      return {prod_backward(g[0], n.saved(0), n.saved(1), axes)};
    });
  return out;
}

namespace {

Tensor extremum(const char* name, OpId op, OpId bool_op, const Tensor& x, const Dims& dims, bool keepdim) {
  check_defined(name, x);
  const int64_t axes = ops::reduced_axes(name, dims, x.dim());
  check_not_empty(name, x, axes);
  Tensor out = finish(reduce(x.dtype() == DType::bool_ ? bool_op : op, x, axes, x.dtype(), 0), axes, keepdim);
  attach(name, {out}, {x}, {x, out}, [axes](GradNode& n, const Tensors& g) -> Tensors {
    const Tensor saved = n.saved(0);
    const Tensor ties = cast(eq(saved, restore(n.saved(1), saved.shape(), axes)), saved.dtype());
    const Tensor share = div(restore(g[0], saved.shape(), axes), sum(ties, axes_of(axes, saved.dim()), true));
    return {mul(ties, share)};
  });
  return out;
}

Tensor truth(const char* name, OpId op, const Tensor& x, const Dims& dims, bool keepdim, bool empty) {
  check_defined(name, x);
  const int64_t axes = ops::reduced_axes(name, dims, x.dim());
  const Tensor flags = x.dtype() == DType::bool_ ? x : ne(x, 0);
  return finish(reduce(op, flags, axes, DType::bool_, empty), axes, keepdim);
}

}  // namespace

Tensor amax(const Tensor& x, const Dims& dims, bool keepdim) {
  return extremum("amax", OpId::amax, OpId::any, x, dims, keepdim);
}
Tensor amin(const Tensor& x, const Dims& dims, bool keepdim) {
  return extremum("amin", OpId::amin, OpId::all, x, dims, keepdim);
}
Tensor max(const Tensor& x) { return extremum("max", OpId::amax, OpId::any, x, {}, false); }
Tensor min(const Tensor& x) { return extremum("min", OpId::amin, OpId::all, x, {}, false); }
Tensor any(const Tensor& x, const Dims& dims, bool keepdim) { return truth("any", OpId::any, x, dims, keepdim, false); }
Tensor all(const Tensor& x, const Dims& dims, bool keepdim) { return truth("all", OpId::all, x, dims, keepdim, true); }

Tensor var(const Tensor& x, const Dims& dims, double correction, bool keepdim) {
  check_defined("var", x);
  if (is_complex(x.dtype()))
    return add(var(real(x), dims, correction, keepdim), var(imag(x), dims, correction, keepdim));
  float_dtype("var", x, {});
  const int64_t axes = ops::reduced_axes("var", dims, x.dim());
  const auto count = static_cast<double>(reduced_count(x.shape(), axes));
  const double divisor = std::max(0.0, count - correction);
  Tensor out;
  {
    grad_mode::Guard off(false, grad_mode::inference());
    const Dims over = axes_of(axes, x.dim());
    const Tensor wide = is_half(x.dtype()) ? cast(x, DType::float32) : x;
    const Tensor deviation = sub(wide, mean(wide, over, true));
    const Tensor kept = cast(div(sum(square(deviation), over, true), divisor), x.dtype());
    out = finish(kept, axes, keepdim);
  }
  attach("var", {out}, {x}, {x}, [axes, divisor](GradNode& n, const Tensors& g) -> Tensors {
    const Tensor saved = n.saved(0);
    const Tensor deviation = sub(saved, mean(saved, axes_of(axes, saved.dim()), true));
    return {mul(mul(restore(g[0], saved.shape(), axes), 2 / divisor), deviation)};
  });
  return out;
}

namespace {

// A square root whose gradient is 0 where the root is 0.
Tensor safe_sqrt(const char* name, const Tensor& x) {
  Tensor out = emit(OpId::sqrt, {x}, x.shape(), x.dtype());
  attach(name, {out}, {x}, {out}, [](GradNode& n, const Tensors& g) -> Tensors {
    const Tensor root = n.saved(0);
    return {where(eq(root, 0.0), 0.0, div(g[0], mul(root, 2.0)))};
  });
  return out;
}

}  // namespace

Tensor std_dev(const Tensor& x, const Dims& dims, double correction, bool keepdim) {
  check_defined("std", x);
  if (!is_complex(x.dtype())) float_dtype("std", x, {});
  return safe_sqrt("std", var(x, dims, correction, keepdim));
}

Tensor norm(const Tensor& x) {
  check_defined("norm", x);
  if (is_complex(x.dtype())) return norm(view_as_real(x));
  float_dtype("norm", x, {});
  if (!is_half(x.dtype())) return safe_sqrt("norm", sum(square(x)));
  return cast(safe_sqrt("norm", sum(square(cast(x, DType::float32)))), x.dtype());
}

Tensor logsumexp(const Tensor& input, const Dims& dims, bool keepdim) {
  check_defined("logsumexp", input);
  const Tensor x = as_float(input);
  const int64_t axes = ops::reduced_axes("logsumexp", dims, x.dim());
  constexpr double kInf = std::numeric_limits<double>::infinity();
  Tensor out;
  {
    grad_mode::Guard off(false, grad_mode::inference());
    Tensor kept;
    if (x.numel() == 0) {
      kept = full(kept_shape(x.shape(), axes), -kInf, x.dtype(), x.device());
    } else {
      const Dims over = axes_of(axes, x.dim());
      // Of complex numbers the real part decides how large exp() is.
      const Tensor top = is_complex(x.dtype()) ? amax(real(x), over, true) : reduce(OpId::amax, x, axes, x.dtype(), 0);
      const Tensor shift = where(isinf(top), 0.0, top);
      kept = add(log(sum(exp(sub(x, shift)), over, true)), shift);
    }
    out = finish(kept, axes, keepdim);
  }
  attach("logsumexp", {out}, {x}, {x, out}, [axes](GradNode& n, const Tensors& g) -> Tensors {
    const Tensor saved = n.saved(0);
    const Tensor total = restore(n.saved(1), saved.shape(), axes);
    // If all are -inf, the shift does not matter.
    const Tensor weights = exp(sub(saved, where(eq(real(total), -kInf), 0.0, total)));
    return {mul(restore(g[0], saved.shape(), axes), conj(weights))};
  });
  return out;
}

namespace {

Tensor arg_extremum(const char* name, OpId op, const Tensor& input, std::optional<int64_t> dim, bool keepdim) {
  check_defined(name, input);
  const Tensor x = input.dtype() == DType::bool_ ? cast(input, DType::uint8) : input;
  const int d = dim ? normalize_dim(name, *dim, x.dim()) : -1;
  const int64_t axes = dim && x.dim() > 0 ? int64_t{1} << d : (int64_t{1} << x.dim()) - 1;
  check_not_empty(name, x, axes);
  const Dims shape = kept_shape(x.shape(), axes);
  if (x.numel() == 0) return finish(zeros(shape, DType::int64, x.device()), axes, keepdim);
  return finish(emit(op, {x}, shape, DType::int64, ArgAttrs{x.dim() > 0 ? d : -1}), axes, keepdim);
}

std::pair<Tensor, Tensor> extremum_along(const char* name, OpId op, OpId bool_op, OpId arg_op, const Tensor& x,
                                         int64_t dim, bool keepdim) {
  check_defined(name, x);
  const int d = normalize_dim(name, dim, x.dim());
  const int64_t axes = x.dim() > 0 ? int64_t{1} << d : 0;
  check_not_empty(name, x, axes);
  Tensor values = finish(reduce(x.dtype() == DType::bool_ ? bool_op : op, x, axes, x.dtype(), 0), axes, keepdim);
  const Tensor index = arg_extremum(name, arg_op, x, d, keepdim);
  attach(name, {values, index}, {x}, {index}, [axes, d](GradNode& n, const Tensors& g) -> Tensors {
    const Dims& shape = edge_shape(n, 0);
    if (shape.empty()) return {g[0]};
    return {scatter_add(zeros(shape, g[0].dtype(), g[0].device()), d, restore(n.saved(0), shape, axes),
                        restore(g[0], shape, axes))};
  });
  return {values, index};
}

}  // namespace

Tensor argmax(const Tensor& x, std::optional<int64_t> dim, bool keepdim) {
  return arg_extremum("argmax", OpId::argmax, x, dim, keepdim);
}
Tensor argmin(const Tensor& x, std::optional<int64_t> dim, bool keepdim) {
  return arg_extremum("argmin", OpId::argmin, x, dim, keepdim);
}

std::pair<Tensor, Tensor> max(const Tensor& x, int64_t dim, bool keepdim) {
  return extremum_along("max", OpId::amax, OpId::any, OpId::argmax, x, dim, keepdim);
}
std::pair<Tensor, Tensor> min(const Tensor& x, int64_t dim, bool keepdim) {
  return extremum_along("min", OpId::amin, OpId::all, OpId::argmin, x, dim, keepdim);
}

Tensor sum_to(const Tensor& x, const Dims& shape) {
  check_defined("sum_to", x);
  if (x.shape() == shape) return x;
  const int lead = x.dim() - shape.size();
  PF_CHECK(lead >= 0, Value, "sum_to: the shape does not broadcast to the tensor's; got {} for {}", shape.str(),
           x.shape().str());
  Dims dims;
  for (int i = 0; i < x.dim(); ++i) {
    const int64_t target = i < lead ? 1 : shape[i - lead];
    PF_CHECK(target == 1 || target == x.shape()[i], Value,
             "sum_to: the shape does not broadcast to the tensor's; got {} for {}", shape.str(), x.shape().str());
    if (i < lead || target != x.shape()[i]) dims.push_back(i);
  }
  return reshape(sum(x, dims, true), shape);
}

}  // namespace pyflame
