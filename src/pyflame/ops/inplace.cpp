// In-place ops: the value is computed out of place and then assigned. Autograd treats an assignment as new history:
//   to a tensor that is not a view  it takes over the value's history
//   to a view                      the base gets the node "copy_slices" (the old base outside the region, the value inside), and
//                                  other views of that base notice it by the base's epoch (tensor.cpp)
#include "pyflame/ops/complex.h"
#include "pyflame/ops/helpers.h"
#include "pyflame/record/emit.h"

namespace pyflame {

using ops::assign;
using ops::before_write;
using ops::check_defined;
using ops::check_target;
using ops::edge_dtype;
using ops::edge_shape;

namespace {

bool same_geometry(const Tensor& a, const Tensor& b) {
  return a.offset() == b.offset() && a.dtype() == b.dtype() && a.shape() == b.shape() && a.strides() == b.strides();
}

void check_fits(const char* op, const Tensor& x, const Dims& value) {
  if (x.shape() == value) return;
  PF_CHECK(broadcast_shapes(op, x.shape(), value) == x.shape(), Value,
           "{}: the value has a larger shape than the tensor; got {} for a tensor of shape {}; expected a shape that "
           "broadcasts to it",
           op, value.str(), x.shape().str());
}

void adopt_history(const Tensor& x, const Tensor& from) {
  AutogradMeta& m = autograd_meta(x);
  const AutogradMeta& f = *from.impl()->autograd;
  m.grad_fn = f.grad_fn;
  m.output_nr = f.output_nr;
  m.requires_grad = false;
  ++m.epoch;
}

struct WrittenRegion {
  Dims shape, strides;
  int64_t offset;  // relative to the base
  bool base_contiguous;
  Dims base_strides;
};

// The gradients of [old base, value] from the gradient of the new base. The gradient gets the base's layout, so that
// the region is a view of it.
Tensors copy_slices_backward(GradNode& n, const Tensor& g, const WrittenRegion& at) {
  Tensor whole;
  if (at.base_contiguous) {
    whole = clone(g);
  } else {
    const Tensor buffer = empty({extent(g.shape(), at.base_strides)}, g.dtype(), g.device());
    whole = as_strided(buffer, g.shape(), at.base_strides, 0);
    copy_(whole, g);
  }
  const Tensor region = as_strided(whole, at.shape, at.strides, at.offset);
  Tensor to_value;
  if (n.needs(1)) to_value = sum_to(cast(n.needs(0) ? clone(region) : region, edge_dtype(n, 1)), edge_shape(n, 1));
  if (n.needs(0)) fill_(region, 0.0);
  return {n.needs(0) ? whole : Tensor(), to_value};
}

// Records for autograd that `value` (undefined: a number) was written to x, broadcast and cast.
void record_write(const char* op, const Tensor& x, const Tensor& value) {
  if (!has_gradient(x.dtype())) return;
  const AutogradMeta* m = x.impl()->autograd.get();
  if (m && m->view_base) {
    const Tensor base = m->view_base;
    if (!any_requires_grad({base, value})) return;
    PF_CHECK(is_complex(base.dtype()) == is_complex(x.dtype()), NotImplemented,
             "{}: the gradient of writing one part of a complex tensor is not supported; got a view of {}; hint: "
             "complex(re, im) makes a new one",
             op, dtype_name(base.dtype()));
    const WrittenRegion at{x.shape(), x.strides(), x.offset() - base.offset(), base.is_contiguous(), base.strides()};
    PF_CHECK(x.numel() == 0 ||
                 (at.offset >= 0 && at.offset + extent(at.shape, at.strides) <= extent(base.shape(), base.strides())),
             NotImplemented,
             "{}: the gradient of writing through an as_strided view that reaches beyond its base is not supported; "
             "got a view of shape {} and strides {}; expected one within its base of shape {}",
             op, x.shape().str(), x.strides().str(), base.shape().str());
    PF_CHECK(!ops::may_overlap(base.shape(), base.strides()), NotImplemented,
             "{}: the gradient of writing into a base whose elements share memory is not supported; got strides {} for "
             "shape {}; hint: clone() the base first",
             op, base.strides().str(), base.shape().str());
    const Tensor out = alias(base, base.shape(), base.strides(), base.offset());
    attach("copy_slices", {out}, {base, value}, {},
           [at](GradNode& n, const Tensors& g) -> Tensors { return copy_slices_backward(n, g[0], at); });
    adopt_history(base, out);
    return;
  }
  if (!any_requires_grad({x, value})) return;
  const Tensor out = alias(x, x.shape(), x.strides(), x.offset());
  attach(op, {out}, {x, value}, {}, [](GradNode& n, const Tensors& g) -> Tensors {
    return {n.needs(0) ? zeros_like(g[0]) : Tensor(),
            n.needs(1) ? sum_to(cast(g[0], edge_dtype(n, 1)), edge_shape(n, 1)) : Tensor()};
  });
  adopt_history(x, out);
}

}  // namespace

void ops::check_target(const char* op, const Tensor& x) {
  check_defined(op, x);
  const AutogradMeta* m = x.impl()->autograd.get();
  if (m) {
    PF_CHECK(
        !m->inference || grad_mode::inference(), Runtime,
        "{}: a tensor made under inference_mode cannot be changed in place outside it; got shape {}; hint: clone() it",
        op, x.shape().str());
    if (grad_mode::enabled()) {
      PF_CHECK(!m->requires_grad || !x.is_leaf(), Runtime,
               "{}: a leaf tensor that requires grad is being used in an in-place operation; got a leaf of shape {}; "
               "expected a tensor "
               "that is computed, or no_grad(); hint: clone() it, or wrap the update in no_grad()",
               op, x.shape().str());
      if (m->view_base) {
        PF_CHECK(
            !m->view_base.requires_grad() || !m->view_base.is_leaf(), Runtime,
            "{}: a view of a leaf tensor that requires grad is being used in an in-place operation; got a view of a "
            "leaf of shape "
            "{}; expected a tensor that is computed, or no_grad(); hint: clone() it, or wrap the update in no_grad()",
            op, m->view_base.shape().str());
        PF_CHECK(m->view_epoch != kUntrackedView, Runtime,
                 "{}: a view made under no_grad() is being changed in place where gradients are recorded; got a view "
                 "of shape {}; hint: make the view outside no_grad(), or write under no_grad() as well",
                 op, x.shape().str());
      }
    }
  }
  if (x.is_contiguous()) return;
  for (int i = 0; i < x.dim(); ++i)
    PF_CHECK(x.shape()[i] <= 1 || x.strides()[i] != 0 || x.numel() == 0, Runtime,
             "{}: several elements of the written tensor share one memory location; got strides {} for shape {}; hint: "
             "clone() it first",
             op, x.strides().str(), x.shape().str());
}

Tensor ops::before_write(const Tensor& x, const Tensor& other) { return any_requires_grad({x, other}) ? clone(x) : x; }

Tensor ops::assign(const char* name, const Tensor& x, const Tensor& result) {
  PF_CHECK(result.shape() == x.shape(), Value,
           "{}: the result has a larger shape than the tensor; got {} for a tensor of shape {}; expected operands that "
           "broadcast to it",
           name, result.shape().str(), x.shape().str());
  PF_CHECK(dtype_category(result.dtype()) <= dtype_category(x.dtype()), Runtime,
           "{}: result type {} can't be cast to {}; got a result of a higher kind than the tensor's; hint: use the op "
           "that is not in place",
           name, dtype_name(result.dtype()), dtype_name(x.dtype()));
  const Tensor value = cast(result, x.dtype());
  ops::write(x, value);
  const AutogradMeta* m = x.impl()->autograd.get();
  if (grad_mode::enabled() && value.requires_grad() && !(m && m->view_base) && !value.same(x)) adopt_history(x, value);
  else record_write(name, x, value);
  return x;
}

void ops::write(const Tensor& x, const Tensor& src) {
  if (x.numel() == 0) return;
  Tensor from = is_complex(x.dtype()) == is_complex(src.dtype()) ? src : cast(src.detach(), x.dtype());
  if (src.storage() == x.storage() && !same_geometry(src, x)) from = emit(OpId::cast, {src}, src.shape(), src.dtype());
  const Arg in[] = {Arg(from)};
  emit_into(OpId::cast, in, std::span(&x, 1), NoAttrs{});
}

Tensor copy_(const Tensor& x, const Value& value) {
  if (!value.is_tensor) return fill_(x, value.scalar);
  check_target("copy_", x);
  check_defined("copy_", value.tensor);
  check_fits("copy_", x, value.tensor.shape());
  const Tensor src = to_device(value.tensor, x.device());
  ops::write(x, src);
  if (grad_mode::enabled()) record_write("copy_", x, src);
  return x;
}

Tensor fill_(const Tensor& x, Scalar value) {
  check_target("fill_", x);
  ops::check_fits("fill_", value, x.dtype());
  if (is_complex(x.dtype())) {
    ops::complex_fill(x, value);
  } else if (x.numel() > 0) {
    const Arg in[] = {Arg(value, x.dtype())};
    emit_into(OpId::full, in, std::span(&x, 1), NoAttrs{});
  }
  if (grad_mode::enabled()) record_write("fill_", x, Tensor());
  return x;
}

Tensor binary_(Tensor (*op)(const Value&, const Value&), const char* name, const Tensor& x, const Value& b) {
  check_target(name, x);
  const Tensor self = before_write(x, b.is_tensor ? b.tensor : Tensor());
  const bool with_itself = b.is_tensor && b.tensor.same(x);
  return assign(name, x, op(self, with_itself ? Value(self) : b));
}

Tensor unary_(Tensor (*op)(const Tensor&), const char* name, const Tensor& x) {
  check_target(name, x);
  return assign(name, x, op(before_write(x, Tensor())));
}

}  // namespace pyflame
