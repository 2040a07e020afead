// Tensor: a handle to (storage, shape, strides, offset, dtype) and the autograd state. Copying a Tensor copies the
// handle. A view is another handle on the same storage; making one records nothing.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "pyflame/base/ref.h"
#include "pyflame/tensor/dims.h"
#include "pyflame/tensor/dtype.h"
#include "pyflame/tensor/layout.h"
#include "pyflame/tensor/storage.h"

namespace pyflame {

class GradNode;
struct AutogradMeta;  // tensor/grad_node.h

class Tensor;

// What the handles of one tensor share. Programs use Tensor.
class TensorImpl : public RefCounted {
 public:
  TensorImpl(Ref<Storage> storage, const Dims& shape, const Dims& strides, int64_t offset, DType dtype);
  ~TensorImpl() override;
  Ref<Storage> storage;
  Dims shape, strides;  // in elements
  int64_t offset;       // in elements
  DType dtype;
  bool contiguous;
  bool free_layout = false;                // chosen by the engine, until fix_layout() (record/emit.h)
  std::unique_ptr<AutogradMeta> autograd;  // null until gradients are needed
};

// A handle to a tensor. A default-made one is undefined: false as a bool, and only to be assigned to.
class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(Ref<TensorImpl> impl) : impl_(std::move(impl)) {}
  // A new handle on existing bytes, without autograd.
  Tensor(Ref<Storage> storage, const Dims& shape, const Dims& strides, int64_t offset, DType dtype)
      : impl_(make_ref<TensorImpl>(std::move(storage), shape, strides, offset, dtype)) {}

  explicit operator bool() const { return static_cast<bool>(impl_); }
  TensorImpl* impl() const { return impl_.get(); }
  const Ref<Storage>& storage() const { return impl_->storage; }

  const Dims& shape() const { return impl_->shape; }
  const Dims& strides() const { return impl_->strides; }
  int64_t offset() const { return impl_->offset; }
  DType dtype() const { return impl_->dtype; }
  Device device() const { return impl_->storage->device; }
  int dim() const { return impl_->shape.size(); }
  int64_t size(int64_t d) const;  // negative dims count from the end; IndexError
  int64_t numel() const { return impl_->shape.numel(); }
  int64_t itemsize() const { return dtype_size(dtype()); }
  int64_t nbytes() const { return numel() * itemsize(); }
  bool is_contiguous() const { return impl_->contiguous; }
  bool is_channels_last() const {  // and not contiguous as well
    return !impl_->contiguous && has_format(shape(), strides(), MemoryFormat::channels_last);
  }
  bool is_floating_point() const { return is_float(dtype()); }
  bool same(const Tensor& o) const { return impl_.get() == o.impl_.get(); }

  // Autograd (tensor/grad_node.cpp)
  bool requires_grad() const;                      // leaf flag or has a grad_fn
  const Tensor& set_requires_grad(bool on) const;  // ValueError on non-leaf or non-float
  bool is_leaf() const;
  Tensor grad() const;  // undefined Tensor when there is none
  void set_grad(const Tensor& g) const;
  Ref<GradNode> grad_fn() const;
  Tensor detach() const;  // shares storage and version, has no history; makes a free layout row-major

  // Synchronisation points (tensor/read.cpp): complete all pending work on this tensor, raise if it is poisoned.
  // Address of the first element, on the tensor's device; a sync point.
  const void* data() const;
  Tensor on_host() const;      // itself if the host can read it, otherwise a copy on the CPU
  void* mutable_data() const;  // also increments the version
  template <class T>
  T item() const;  // ValueError when numel() != 1; converts the dtype
  double item_f64() const;
  int64_t item_i64() const;
  std::string str() const;  // readable printing, NumPy style

 private:
  Ref<TensorImpl> impl_;
};

}  // namespace pyflame
