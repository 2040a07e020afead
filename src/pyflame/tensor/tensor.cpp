// The Tensor handle: sizes, and the autograd state. A view that was made while gradients were on remembers its base. If
// the base was written in place since, the view's history is made anew when somebody next asks for it, not at the
// write.
#include "pyflame/tensor/tensor.h"

#include "pyflame/tensor/alias.h"
#include "pyflame/tensor/grad_node.h"
#include "pyflame/tensor/runtime_hooks.h"

namespace pyflame {

TensorImpl::TensorImpl(Ref<Storage> s, const Dims& shape_in, const Dims& strides_in, int64_t offset_in, DType dtype_in)
    : storage(std::move(s)),
      shape(shape_in),
      strides(strides_in),
      offset(offset_in),
      dtype(dtype_in),
      contiguous(is_contiguous(shape, strides)) {
  if (grad_mode::inference()) [[unlikely]] {
    autograd = std::make_unique<AutogradMeta>();
    autograd->inference = true;
  }
}

TensorImpl::~TensorImpl() = default;

int64_t Tensor::size(int64_t d) const {
  PF_CHECK(dim() > 0, Index, "size: dim out of range; got {}; expected a tensor with dimensions, this one has none", d);
  return shape()[normalize_dim("size", d, dim())];
}

namespace {

// The current autograd state; null if there is none.
AutogradMeta* current_meta(const Tensor& t) {
  AutogradMeta* m = t.impl()->autograd.get();
  if (m && m->view_base && m->view_epoch != kUntrackedView) {
    const AutogradMeta* base = m->view_base.impl()->autograd.get();
    if (base && base->epoch != m->view_epoch) runtime_hooks.remake_view_history(t);
  }
  return m;
}

}  // namespace

bool Tensor::requires_grad() const {
  const AutogradMeta* m = current_meta(*this);
  return m && (m->requires_grad || m->grad_fn);
}

const Tensor& Tensor::set_requires_grad(bool on) const {
  const AutogradMeta* m = current_meta(*this);
  if (!m && !on) return *this;
  PF_CHECK(!m || !m->grad_fn || on, Value,
           "requires_grad: cannot be switched off for the result of an op ({}); expected a leaf; hint: detach() it",
           m->grad_fn->name);
  if (m && m->grad_fn) return *this;
  PF_CHECK(
      !on || has_gradient(dtype()), Value,
      "requires_grad: only floating point and complex tensors can require gradients; got {}; expected such a dtype",
      dtype_name(dtype()));
  PF_CHECK(!on || !m || !m->inference || grad_mode::inference(), Runtime,
           "requires_grad: this tensor was made under inference_mode and can never be part of a tape; hint: clone() it "
           "outside");
  autograd_meta(*this).requires_grad = on;
  return *this;
}

bool Tensor::is_leaf() const {
  const AutogradMeta* m = current_meta(*this);
  return !m || !m->grad_fn;
}

Tensor Tensor::grad() const {
  const AutogradMeta* m = impl_->autograd.get();
  if (m && m->retained_grad) return *m->retained_grad;
  return m ? m->grad : Tensor();
}

void Tensor::set_grad(const Tensor& g) const {
  if (!g) {
    if (impl_->autograd) impl_->autograd->grad = Tensor();
    if (impl_->autograd && impl_->autograd->retained_grad) *impl_->autograd->retained_grad = Tensor();
    return;
  }
  PF_CHECK(!g.same(*this), Value, "grad: a tensor cannot be its own gradient");
  PF_CHECK(g.shape() == shape(), Value, "grad: the shape is not the tensor's; got {}; expected {}", g.shape().str(),
           shape().str());
  PF_CHECK(g.dtype() == dtype(), Value, "grad: the dtype is not the tensor's; got {}; expected {}",
           dtype_name(g.dtype()), dtype_name(dtype()));
  PF_CHECK(g.device() == device(), Value, "grad: the device is not the tensor's; got {}; expected {}", g.device().str(),
           device().str());
  AutogradMeta& m = autograd_meta(*this);
  (m.retained_grad ? *m.retained_grad : m.grad) = g;
}

Ref<GradNode> Tensor::grad_fn() const {
  const AutogradMeta* m = current_meta(*this);
  return m ? m->grad_fn : Ref<GradNode>();
}

Tensor Tensor::detach() const {
  runtime_hooks.fix_layout(*this);
  return alias(*this, shape(), strides(), offset());
}

Tensor borrow(const Tensor& x) {
  Tensor t = alias(x, x.shape(), x.strides(), x.offset());
  t.impl()->free_layout = x.impl()->free_layout;
  return t;
}

Tensor alias(const Tensor& x, const Dims& shape, const Dims& strides, int64_t offset) {
  Tensor t(x.storage(), shape, strides, offset, x.dtype());
  const AutogradMeta* m = x.impl()->autograd.get();
  if (m && m->inference) autograd_meta(t).inference = true;
  return t;
}

Tensor alias_as(const Tensor& x, DType dtype) {
  Tensor t = alias(x, x.shape(), x.strides(), x.offset());
  t.impl()->dtype = dtype;
  return t;
}

}  // namespace pyflame
