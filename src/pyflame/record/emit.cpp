// Outputs are made here, on the inputs' device and in the layout that suits the op, and then recorded.
#include "pyflame/record/emit.h"

#include "pyflame/backends/backend.h"
#include "pyflame/record/float8.h"
#include "pyflame/record/pairs.h"
#include "pyflame/record/recorder.h"

namespace pyflame {

namespace detail {

namespace {
Device device_of(OpId op, std::span<const Arg> ins, const Device* given) {
  if (given) return *given;
  const Tensor* first = nullptr;
  for (const Arg& a : ins) {
    if (!a.tensor) continue;
    if (!first) {
      first = a.tensor;
    } else {
      PF_CHECK(first->device() == a.tensor->device(), Value,
               "{}: tensors are on different devices; got {} and {}; expected one device; hint: move one with .to()",
               op_name(op), first->device().str(), a.tensor->device().str());
    }
  }
  return first ? first->device() : current_device();
}

// Ops over images whose result has the image's layout. clone() is a cast to the same dtype, and makes contiguous.
bool keeps_layout(OpId op, std::span<const Arg> ins, DType out) {
  return op == OpId::cast ? ins[0].dtype != out : op_info(op).layout_kept;
}

// Results are contiguous unless the backend prefers another memory format. The layout is free if no input is channels-last because a user
// asked for it.
struct Layout {
  Dims strides;
  bool free = false;
};
Layout layout_of(OpId op, Device device, std::span<const Arg> ins, const OutSpec& out) {
  if (out.strides) return {*out.strides};
  if (!has_kernels(out.dtype)) return {contiguous_strides(out.shape)};
  if (out.shape.size() != 4 || !keeps_layout(op, ins, out.dtype)) return {contiguous_strides(out.shape)};
  ImageResult result{op, out.dtype, out.shape, {}, MemoryFormat::contiguous};
  bool free = true;
  for (size_t i = 0; i < ins.size(); ++i) {
    const Tensor* t = ins[i].tensor;
    if (!t) continue;
    if (i < result.ins.size()) result.ins[i] = &t->shape();
    if (!t->is_channels_last()) continue;
    result.given = MemoryFormat::channels_last;
    free &= t->impl()->free_layout;
  }
  const Backend* backend = find_backend(device.type);
  const MemoryFormat format = backend ? backend->preferred_format(result) : MemoryFormat::contiguous;
  return {strides_of(out.shape, format), free && format != MemoryFormat::contiguous};
}

Tensor promise(OpId op, Device device, std::span<const Arg> ins, const OutSpec& out) {
  const int64_t n = checked_numel("empty", out.shape);
  auto storage = make_ref<Storage>(device, static_cast<size_t>(n * dtype_size(out.dtype)));
  const Layout layout = layout_of(op, device, ins, out);
  Tensor t(std::move(storage), out.shape, layout.strides, 0, out.dtype);
  t.impl()->free_layout = layout.free && !t.is_contiguous();
  return t;
}
// Whether an op on complex numbers or 8-bit floats is recorded as another one.
bool is_recorded_as_another(OpId op, DType out, std::span<const Arg> ins) {
  bool all = has_kernels(out);
  for (const Arg& a : ins) all &= has_kernels(a.dtype);
  return !all && !takes_complex(op);
}

// An op on complex numbers or 8-bit floats.
void record_as_others(OpId op, std::span<const int64_t> attrs, std::span<const Arg> ins, const Tensor& out,
                      bool is_new) {
  bool float8 = is_float8(out.dtype()), complex = is_complex(out.dtype());
  for (const Arg& a : ins) float8 |= is_float8(a.dtype), complex |= is_complex(a.dtype);
  PF_CHECK(!float8 || !complex, Type, "{}: complex numbers and 8-bit floats; got both; expected one of them",
           op_name(op));
  (float8 ? record_float8 : record_complex)(op, attrs, ins, out, is_new);
}
}  // namespace

Tensor emit(OpId op, std::span<const int64_t> attrs, std::span<const Arg> ins, const OutSpec& out,
            const Device* device) {
  Tensor t = promise(op, device_of(op, ins, device), ins, out);
  if (is_recorded_as_another(op, out.dtype, ins)) {
    record_as_others(op, attrs, ins, t, true);
    return t;
  }
  TensorImpl* impl = t.impl();
  Recorder::current().record(op, attrs, ins, {&impl, 1}, true);
  return t;
}

std::vector<Tensor> emit_many(OpId op, std::span<const int64_t> attrs, std::span<const Arg> ins,
                              std::span<const OutSpec> outs, const Device* device) {
  const Device d = device_of(op, ins, device);
  if (is_recorded_as_another(op, outs[0].dtype, ins))
    record_as_others(op, attrs, ins, promise(op, d, ins, outs[0]), true);  // refuses
  std::vector<Tensor> ts;
  std::vector<TensorImpl*, Pooled<TensorImpl*>> impls;
  ts.reserve(outs.size());
  impls.reserve(outs.size());
  for (const OutSpec& o : outs) {
    ts.push_back(promise(op, d, ins, o));
    impls.push_back(ts.back().impl());
  }
  Recorder::current().record(op, attrs, ins, impls, true);
  return ts;
}

void emit_into(OpId op, std::span<const int64_t> attrs, std::span<const Arg> ins, std::span<TensorImpl* const> outs) {
  const Device d = outs[0]->storage->device;
  for (const TensorImpl* t : outs)
    PF_CHECK(t->storage->device == d, Value, "{}: tensors are on different devices; got {} and {}; expected one device",
             op_name(op), d.str(), t->storage->device.str());
  for (const Arg& a : ins)
    PF_CHECK(!a.tensor || a.tensor->device() == d, Value,
             "{}: tensors are on different devices; got {} and {}; expected one device; hint: move one with .to()",
             op_name(op), d.str(), a.tensor->device().str());
  if (is_recorded_as_another(op, outs[0]->dtype, ins)) {
    const Tensor whole = Tensor(outs[0]->storage, outs[0]->shape, outs[0]->strides, outs[0]->offset, outs[0]->dtype);
    record_as_others(op, attrs, ins, whole, false);
    return;
  }
  Recorder::current().record(op, attrs, ins, outs, false);
}

}  // namespace detail

void fix_layout(const Tensor& x) {
  TensorImpl* t = x.impl();
  if (!t || !t->free_layout) return;
  const Tensor dense = emit(OpId::cast, {x}, x.shape(), x.dtype());
  // What was written to x so far is known to those who saved it.
  dense.storage()->version.store(t->storage->version.load(std::memory_order_relaxed), std::memory_order_relaxed);
  t->storage = dense.storage();
  t->strides = dense.strides();
  t->contiguous = true;
  t->free_layout = false;
}

void check_same_device(const char* op, std::initializer_list<std::reference_wrapper<const Tensor>> tensors) {
  const Tensor* first = nullptr;
  for (const Tensor& t : tensors) {
    if (!t) continue;
    if (!first) first = &t;
    PF_CHECK(t.device() == first->device(), Value,
             "{}: tensors are on different devices; got {} and {}; expected one device; hint: move one with .to()", op,
             first->device().str(), t.device().str());
  }
}

}  // namespace pyflame
