// Conversions of values: pf.tensor copies; from_numpy, frombuffer and DLPack share memory. Storage::exports counts the
// outside users of our bytes (a buffer view, a DLPack capsule, or the array whose bytes we borrowed); while there are
// any, the recorder runs ops on them at once.
#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "casters.h"
#include "dlpack.h"
#include "pyflame/record/cut_cause.h"
#include "pyflame/tensor/default_dtype.h"
#include "pyflame/tensor/grad_node.h"
#include "pyflame/tensor/lasting.h"

namespace pyflame::python {

namespace {

std::optional<DType> dtype_of_format(const char* f, Py_ssize_t itemsize) {
  if (!f) return itemsize == 1 ? std::optional(DType::uint8) : std::nullopt;
  if (*f == '@' || *f == '=' || *f == '<' || *f == '|') ++f;
  if (std::strcmp(f, "Zf") == 0) return DType::complex64;
  if (std::strcmp(f, "Zd") == 0) return DType::complex128;
  if (f[0] == '\0' || f[1] != '\0') return {};
  switch (*f) {
    case 'd': return DType::float64;
    case 'f': return DType::float32;
    case 'e': return DType::float16;
    case 'q': return DType::int64;
    case 'l': return itemsize == 8 ? DType::int64 : DType::int32;
    case 'i': return DType::int32;
    case 'h': return DType::int16;
    case 'b': return DType::int8;
    case 'B': return DType::uint8;
    case '?': return DType::bool_;
    default: return {};
  }
}

const char* format_of(DType d) {
  switch (d) {
    case DType::float64: return "d";
    case DType::float32: return "f";
    case DType::float16: return "e";
    case DType::int64: return "q";
    case DType::int32: return "i";
    case DType::int16: return "h";
    case DType::int8: return "b";
    case DType::uint8: return "B";
    case DType::bool_: return "?";
    case DType::complex64: return "Zf";
    case DType::complex128: return "Zd";
    default: break;
  }
  return nullptr;
}

// A buffer that another object exports to us.
struct View {
  Py_buffer b{};
  bool held = false;
  View() = default;
  View(const View&) = delete;
  View& operator=(const View&) = delete;
  bool open(nb::handle h, int flags) {
    if (PyObject_GetBuffer(h.ptr(), &b, flags) != 0) {
      PyErr_Clear();
      return false;
    }
    held = true;
    return true;
  }
  ~View() {
    if (held) PyBuffer_Release(&b);
  }
  DType dtype(const char* op) const {
    const std::optional<DType> d = dtype_of_format(b.format, b.itemsize);
    PF_CHECK(d, Type,
             "{}: unsupported element type; got format '{}' with {} bytes; expected float64/32/16, complex128/64, "
             "int64/32/16/8, uint8 or bool in "
             "native byte order; hint: convert with .astype()",
             op, b.format ? b.format : "", b.itemsize);
    return *d;
  }
  Dims shape() const {
    return Dims(std::span<const int64_t>(reinterpret_cast<const int64_t*>(b.shape), static_cast<size_t>(b.ndim)));
  }
};
static_assert(sizeof(Py_ssize_t) == sizeof(int64_t));

Tensor from_buffer_copy(const char* op, const View& v, DTypeOpt dtype, DeviceOpt device) {
  const DType d = v.dtype(op);
  std::vector<char> bytes(static_cast<size_t>(v.b.len) + 1);
  PF_CHECK(PyBuffer_ToContiguous(bytes.data(), const_cast<Py_buffer*>(&v.b), v.b.len, 'C') == 0, Runtime,
           "{}: the buffer cannot be read", op);
  Tensor t = from_host(bytes.data(), v.shape(), d, device);
  return dtype ? cast(t, *dtype) : t;
}

DType dtype_of_numbers(Category kind) {
  if (kind == Category::Complex) return complex_dtype(default_dtype());
  return kind == Category::Float ? default_dtype() : kind == Category::Integer ? DType::int64 : DType::bool_;
}

// The dtype that one element of a sequence asks for: tensors and NumPy's scalars have one of their own.
DType dtype_of_element(nb::handle h, const Scalar& s) {
  if (const Tensor* t = as_tensor(h)) return t->dtype();
  DType own = DType::bool_;
  if (std::strncmp(Py_TYPE(h.ptr())->tp_name, "numpy.", 6) == 0 &&
      dtype_from(nb::handle(reinterpret_cast<PyObject*>(Py_TYPE(h.ptr()))), &own))
    return own;
  return dtype_of_numbers(s.kind);
}

// Nested sequences. Numbers are collected as doubles and as int64s, so a list of large integers is exact.
struct Gather {
  const char* op;
  std::vector<int64_t> shape;
  std::vector<Scalar> values;
  DType dtype = DType::bool_;
  bool any = false;

  static bool is_sequence(nb::handle h) {
    PyObject* p = h.ptr();
    return PyList_Check(p) || PyTuple_Check(p) || PyRange_Check(p) ||
           std::strcmp(Py_TYPE(p)->tp_name, "collections.deque") == 0;
  }
  void add(nb::handle h, size_t depth) {
    if (is_sequence(h)) {
      const Py_ssize_t n = PySequence_Size(h.ptr());
      if (n < 0) throw nb::python_error();
      if (depth == shape.size()) {
        PF_CHECK(!any, Value,
                 "{}: ragged data; a sequence of length {} stands where a number was before; expected nested sequences "
                 "of equal lengths",
                 op, n);
        shape.push_back(n);
      }
      PF_CHECK(shape[depth] == n, Value, "{}: ragged data; got a sequence of length {} at depth {}; expected length {}",
               op, n, depth, shape[depth]);
      for (Py_ssize_t i = 0; i < n; ++i) {
        nb::object e = nb::steal(PySequence_GetItem(h.ptr(), i));
        add(e, depth + 1);
      }
      return;
    }
    Scalar s{0};
    if (!scalar_from(h, &s)) {
      const Tensor* t = as_tensor(h);
      if (t && t->dim() == 0) {
        const Category c = dtype_category(t->dtype());
        const Unlocked u;  // it waits for the device
        s = c == Category::Complex ? Scalar::complex(real(*t).item_f64(), imag(*t).item_f64())
            : c == Category::Float ? Scalar(t->item_f64())
            : c == Category::Bool  ? Scalar(t->item_i64() != 0)
                                   : Scalar(t->item_i64());
      } else {
        PF_CHECK(!PyLong_Check(h.ptr()), Value, "{}: integer out of range; got {}; expected a 64-bit integer", op,
                 short_repr(h));
        PF_FAIL(Type, "{}: not a number; got {} ({}); expected numbers, nested sequences, arrays or tensors", op,
                short_repr(h), kind_name(h));
      }
    }
    PF_CHECK(depth == shape.size(), Value,
             "{}: ragged data; a number stands at depth {}; expected a sequence of length {}", op, depth, shape[depth]);
    dtype = any ? promote(dtype, dtype_of_element(h, s)) : dtype_of_element(h, s);
    any = true;
    values.push_back(s);
  }
};

template <class T>
T element(const char* op, const Scalar& s, DType d) {
  if constexpr (std::is_same_v<T, bool>) {
    return s.kind == Category::Float ? s.f != 0 : s.i != 0;
  } else if constexpr (std::is_integral_v<T>) {
    if (s.kind == Category::Float) {
      PF_CHECK(std::isfinite(s.f) && s.f >= -0x1p63 && s.f < 0x1p63, Value, "{}: {} does not fit into {}", op, s.f,
               dtype_name(d));
    }
    const int64_t v = s.kind == Category::Float ? static_cast<int64_t>(s.f) : s.i;
    PF_CHECK(static_cast<int64_t>(static_cast<T>(v)) == v, Value, "{}: {} does not fit into {}", op, v, dtype_name(d));
    return static_cast<T>(v);
  } else {
    const double v = s.kind == Category::Float ? s.f : static_cast<double>(s.i);
    if constexpr (std::is_same_v<T, double>) return v;
    else return T(static_cast<float>(v));
  }
}

Tensor from_values(const char* op, const std::vector<Scalar>& values, const Dims& shape, DType d, DeviceOpt device) {
  if (is_complex(d)) {
    std::vector<double> host;
    for (const Scalar& s : values)
      host.push_back(s.kind >= Category::Float ? s.f : static_cast<double>(s.i)), host.push_back(s.imag);
    Dims pairs = shape;
    pairs.push_back(2);
    host.push_back(0);
    return view_as_complex(cast(from_host(host.data(), pairs, DType::float64, device), part_dtype(d))).detach();
  }
  for (const Scalar& s : values)
    PF_CHECK(s.kind != Category::Complex, Type,
             "{}: a complex number for a real dtype; got dtype {}; expected complex64 or complex128", op,
             dtype_name(d));
  if (is_float8(d)) return cast(from_values(op, values, shape, DType::float32, device), d).detach();
  return dispatch(d, [&]<class T>() {
    std::unique_ptr<T[]> host(new T[values.size() + 1]);
    for (size_t i = 0; i < values.size(); ++i) host[i] = element<T>(op, values[i], d);
    return from_host(host.get(), shape, d, device);
  });
}

bool is_array_like(nb::handle h) { return as_tensor(h) || is_numpy_array(h); }

// Dates are an array without a buffer; tables of pandas and others have their numbers in to_numpy().
[[noreturn]] void refuse_data(const char* op, nb::handle data) {
  std::string got = kind_name(data), hint;
  if (is_numpy_array(data)) {
    const nb::object dtype = data.attr("dtype");
    got += fmt::format(" of {}", nb::str(dtype).c_str());
    hint = "; hint: convert with .astype()";
  } else if (nb::hasattr(data, "to_numpy")) {
    hint = "; hint: .to_numpy()";
  }
  PF_FAIL(Type, "{}: cannot make a tensor of this; got {}; expected numbers, nested sequences, arrays or tensors{}", op,
          got, hint);
}

}  // namespace

Tensor make_tensor(const char* op, nb::handle data, DTypeOpt dtype, DeviceOpt device) {
  if (const Tensor* t = as_tensor(data)) {
    grad_mode::Guard off(false);
    Tensor x = clone(t->detach());
    if (device) x = to_device(x, *device);
    return dtype ? cast(x, *dtype) : x;
  }
  Scalar s{0};
  const bool numpy = std::strncmp(Py_TYPE(data.ptr())->tp_name, "numpy.", 6) == 0;
  if (!numpy && scalar_from(data, &s))
    return from_values(op, {s}, {}, dtype.value_or(dtype_of_numbers(s.kind)), device);
  if (Gather::is_sequence(data)) {
    const Py_ssize_t n = PySequence_Size(data.ptr());
    nb::object first = n > 0 ? nb::steal(PySequence_GetItem(data.ptr(), 0)) : nb::none();
    // A list of arrays becomes one stack.
    if (is_array_like(first) && !(as_tensor(first) && as_tensor(first)->dim() == 0)) {
      Tensors parts;
      for (nb::handle e : data) parts.push_back(make_tensor(op, e, dtype, device));
      return stack(parts, 0);
    }
    Gather g{op, {}, {}, DType::bool_, false};
    g.add(data, 0);
    const Dims shape{std::span<const int64_t>(g.shape)};
    const DType d = dtype.value_or(g.any ? g.dtype : default_dtype());
    return from_values(op, g.values, shape, d, device);
  }
  PF_CHECK(!PyLong_Check(data.ptr()), Value, "{}: integer out of range; got {}; expected a 64-bit integer", op,
           short_repr(data));
  View v;
  if (PyUnicode_Check(data.ptr()) || !v.open(data, PyBUF_FULL_RO)) refuse_data(op, data);
  PF_CHECK(v.b.ndim <= kMaxDims, Value, "{}: too many dimensions; got {}; expected at most {}", op, v.b.ndim, kMaxDims);
  return from_buffer_copy(op, v, dtype, device);
}

Value make_value(const char* op, nb::handle data, const Tensor& like) {
  if (const Tensor* t = as_tensor(data)) return *t;
  Scalar s{0};
  if (scalar_from(data, &s)) return s;
  return make_tensor(op, data, {}, like.device());
}

namespace {

// Shares bytes that `owner` keeps alive. The storage is escaped for all its life, because the array may be read at any
// time.
Tensor share(void* data, Dims shape, Dims strides, DType d, std::function<void()> deleter) {
  const auto bytes = static_cast<size_t>(extent(shape, strides) * dtype_size(d));
  Ref<Storage> s = make_ref<Storage>(Device{}, bytes);
  s->set_data(data, std::move(deleter));
  s->foreign = true;
  s->exports.store(1);
  return Tensor(std::move(s), shape, strides, 0, d);
}

// memoryview(array), kept: releasing it returns the array's buffer.
Tensor share_buffer(const char* op, nb::handle array) {
  View v;
  nb::object view = nb::steal(PyMemoryView_FromObject(array.ptr()));
  if (!view.is_valid()) {
    PyErr_Clear();
    refuse_data(op, array);
  }
  const bool writable = v.open(array, PyBUF_FULL);
  PF_CHECK(writable || v.open(array, PyBUF_FULL_RO), Type, "{}: not a buffer; got {}", op, kind_name(array));
  PF_CHECK(writable, Value,
           "{}: the array is read-only and a tensor is not; hint: use pyflame.tensor(array), which copies", op);
  PF_CHECK(v.b.ndim <= kMaxDims, Value, "{}: too many dimensions; got {}; expected at most {}", op, v.b.ndim, kMaxDims);
  const DType d = v.dtype(op);
  Dims shape = v.shape(), strides;
  for (int i = 0; i < shape.size(); ++i) {
    const int64_t bytes = v.b.strides ? v.b.strides[i] : 0;
    PF_CHECK(shape[i] <= 1 || bytes >= 0, Value,
             "{}: negative strides are not supported; got {} bytes along dim {}; hint: use array.copy()", op, bytes, i);
    PF_CHECK(shape[i] <= 1 || bytes % dtype_size(d) == 0, Value,
             "{}: strides are no multiple of the element size; hint: use array.copy()", op);
    strides.push_back(shape[i] <= 1 ? 1 : bytes / dtype_size(d));
  }
  if (shape.numel() == 0) strides = contiguous_strides(shape);
  else if (is_contiguous(shape, strides)) strides = contiguous_strides(shape);
  PF_CHECK(reinterpret_cast<uintptr_t>(v.b.buf) % static_cast<uintptr_t>(dtype_size(d)) == 0, Value,
           "{}: the data is not aligned to its elements; hint: use array.copy()", op);
  auto held = std::make_shared<Held>(view);
  return share(v.b.buf, shape, strides, d, [held] {});
}

Tensor from_numpy(nb::handle array) {
  PF_CHECK(is_numpy_array(array), Type, "from_numpy: not an array; got {}; expected a numpy.ndarray", kind_name(array));
  return share_buffer("from_numpy", array);
}

Tensor frombuffer(nb::handle buffer, DTypeArg dtype, int64_t count, int64_t offset, bool requires_grad) {
  const DType d = dtype.require("frombuffer");
  View v;
  const bool writable = v.open(buffer, PyBUF_WRITABLE);
  PF_CHECK(writable || v.open(buffer, PyBUF_SIMPLE), Type, "frombuffer: not a buffer; got {}", kind_name(buffer));
  const int64_t size = dtype_size(d), len = v.b.len;
  PF_CHECK(offset >= 0 && offset <= len, Value, "frombuffer: offset out of range; got {}; expected 0 to {}", offset,
           len);
  if (count < 0) {
    PF_CHECK((len - offset) % size == 0, Value, "frombuffer: {} bytes are no whole number of {} elements", len - offset,
             dtype_name(d));
    count = (len - offset) / size;
  }
  PF_CHECK(count <= (len - offset) / size, Value,
           "frombuffer: too few bytes; got {} after the offset; expected {} for {} elements", len - offset,
           count * size, count);
  char* p = static_cast<char*>(v.b.buf) + offset;
  if (!writable) return leaf(from_host(p, {count}, d, Device{}), requires_grad);
  PF_CHECK(reinterpret_cast<uintptr_t>(p) % static_cast<uintptr_t>(size) == 0, Value,
           "frombuffer: the offset is not aligned to the elements; got {}", offset);
  auto held = std::make_shared<Held>(nb::steal(PyMemoryView_FromObject(buffer.ptr())));
  return leaf(share(p, {count}, {1}, d, [held] {}), requires_grad);
}

// Who gets the memory, and how a tensor that requires a gradient is given to it.
struct Reader {
  const char *name, *hint;
};
constexpr Reader kNumPy{"NumPy", "use tensor.detach().numpy()"};
constexpr Reader kDLPack{"DLPack", "use tensor.detach()"};
constexpr Reader kBuffer{"the buffer protocol", "use tensor.detach()"};

void check_exportable(const char* op, const Tensor& x, const Reader& reader) {
  PF_CHECK(!x.requires_grad(), Runtime,
           "{}: the tensor requires a gradient, which {} cannot track; got requires_grad=True; expected a tensor "
           "without a gradient; hint: {}",
           op, reader.name, reader.hint);
  PF_CHECK(x.device().type == DeviceType::cpu || x.device().type == DeviceType::reference, Type,
           "{}: the tensor is on device '{}'; expected 'cpu'; hint: use tensor.cpu()", op, x.device().str());
}

// ---- buffer protocol

struct BufferState {
  Tensor tensor;
  std::vector<Py_ssize_t> shape, strides;
};

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  view->obj = nullptr;
  try {
    Tensor* x = as_tensor(self);
    PF_CHECK(x, Runtime, "buffer: not initialised");
    check_exportable("buffer", *x, kBuffer);
    fix_layout(*x);
    const char* format = format_of(x->dtype());
    PF_CHECK(format, Type, "buffer: there is no buffer format for {}; hint: use .float()", dtype_name(x->dtype()));
    const bool strided = (flags & PyBUF_STRIDES) == PyBUF_STRIDES;
    PF_CHECK(x->is_contiguous() || strided, Value, "buffer: the tensor is not contiguous; hint: use .contiguous()");
    const bool fortran = (flags & PyBUF_F_CONTIGUOUS) == PyBUF_F_CONTIGUOUS,
               c_order = (flags & PyBUF_C_CONTIGUOUS) == PyBUF_C_CONTIGUOUS;
    PF_CHECK(!c_order || x->is_contiguous(), Value, "buffer: the tensor is not contiguous; hint: use .contiguous()");
    PF_CHECK(!fortran || x->dim() <= 1, Value, "buffer: the tensor is not in column-major order");
    void* data = nullptr;
    {
      const CutCause why("NumPy, or another reader of Python's buffer protocol");
      Unlocked u;
      data = const_cast<void*>(x->data());
    }
    auto state = std::make_unique<BufferState>();
    state->tensor = *x;
    for (int i = 0; i < x->dim(); ++i) {
      state->shape.push_back(x->shape()[i]);
      state->strides.push_back(x->strides()[i] * x->itemsize());
    }
    x->storage()->exports.fetch_add(1);
    note_exposed(*x->storage(), false);
    static char nothing[16];
    view->buf = data ? data : nothing;
    view->len = x->nbytes();
    view->itemsize = x->itemsize();
    view->readonly = 0;
    view->ndim = x->dim();
    view->format = (flags & PyBUF_FORMAT) ? const_cast<char*>(format) : nullptr;
    view->shape = (flags & PyBUF_ND) == PyBUF_ND ? state->shape.data() : nullptr;
    view->strides = strided ? state->strides.data() : nullptr;
    view->suboffsets = nullptr;
    view->internal = state.release();
    view->obj = nb::handle(self).inc_ref().ptr();
    return 0;
  } catch (const std::exception& e) {
    PyErr_SetString(PyExc_BufferError, e.what());
    return -1;
  }
}

void release_buffer(PyObject*, Py_buffer* view) {
  auto* state = static_cast<BufferState*>(view->internal);
  state->tensor.storage()->exports.fetch_sub(1);
  delete state;
}

// By the identity of the Python object, because == compares elements: two tensors must never be compared in a dict's
// equality test.
Py_hash_t hash_of(PyObject* self) { return static_cast<Py_hash_t>(reinterpret_cast<uintptr_t>(self) >> 4); }

PyType_Slot g_slots[] = {{Py_tp_hash, reinterpret_cast<void*>(&hash_of)},
                         {Py_bf_getbuffer, reinterpret_cast<void*>(&get_buffer)},
                         {Py_bf_releasebuffer, reinterpret_cast<void*>(&release_buffer)},
                         {0, nullptr}};

nb::object numpy(nb::handle self, bool force) {
  Tensor* x = as_tensor(self);
  PF_CHECK(x, Type, "numpy: not a tensor");
  const CutCause why("numpy()");
  if (force) return numpy(nb::cast(to_device(x->detach(), Device{})), false);
  // For a GPU, the values are a copy; all other properties of the tensor are unchanged.
  if (has_own_memory(x->device().type) && !x->requires_grad()) {
    Tensor host;
    {
      Unlocked u;
      host = x->on_host();
    }
    return numpy(nb::cast(host), false);
  }
  check_exportable("numpy", *x, kNumPy);
  PF_CHECK(x->dtype() != DType::bfloat16, Type, "numpy: NumPy has no bfloat16; hint: use tensor.float().numpy()");
  {
    Unlocked u;
    x->data();  // raises an earlier failure with its own type; the buffer protocol would make a BufferError of it
  }
  nb::object view = nb::steal(PyMemoryView_FromObject(self.ptr()));
  if (!view.is_valid()) throw nb::python_error();
  return nb::module_::import_("numpy").attr("asarray")(view);
}

nb::object array_protocol(nb::handle_t<Tensor> self, nb::handle dtype, nb::handle copy) {
  nb::object a = numpy(self, false);
  if (!dtype.is_none()) {
    nb::object want = nb::module_::import_("numpy").attr("dtype")(dtype);
    if (!want.equal(a.attr("dtype"))) {
      PF_CHECK(copy.ptr() != Py_False, Value, "array: a conversion to {} needs a copy and copy=False was asked",
               short_repr(want));
      return a.attr("astype")(want);
    }
  }
  return copy.ptr() == Py_True ? a.attr("copy")() : a;
}

// ---- DLPack

struct Exported {
  DLManagedTensor managed{};
  Tensor tensor;
  std::vector<int64_t> shape, strides;
};

void delete_exported(DLManagedTensor* m) {
  auto* e = static_cast<Exported*>(m->manager_ctx);
  e->tensor.storage()->exports.fetch_sub(1);
  delete e;
}

DLDataType dl_type(DType d) {
  const auto bits = static_cast<uint8_t>(dtype_size(d) * 8);
  switch (d) {
    case DType::bfloat16: return {kDLBfloat, bits, 1};
    case DType::bool_: return {kDLBool, bits, 1};
    case DType::uint8: return {kDLUInt, bits, 1};
    case DType::complex64:
    case DType::complex128: return {kDLComplex, bits, 1};
    case DType::float8_e4m3fn: return {kDLFloat8_e4m3fn, bits, 1};
    case DType::float8_e5m2: return {kDLFloat8_e5m2, bits, 1};
    case DType::float8_e4m3fnuz: return {kDLFloat8_e4m3fnuz, bits, 1};
    case DType::float8_e5m2fnuz: return {kDLFloat8_e5m2fnuz, bits, 1};
    default: return {is_float(d) ? kDLFloat : kDLInt, bits, 1};
  }
}

nb::object to_dlpack(const Tensor& self, nb::handle, nb::handle, nb::handle, nb::handle copy) {
  Tensor x = copy.ptr() == Py_True ? clone(self.detach()) : self;
  check_exportable("__dlpack__", x, kDLPack);
  const CutCause why("DLPack");
  void* data = nullptr;
  {
    Unlocked u;
    data = const_cast<void*>(x.data());
  }
  auto e = std::make_unique<Exported>();
  e->tensor = x;
  e->shape.assign(x.shape().begin(), x.shape().end());
  e->strides.assign(x.strides().begin(), x.strides().end());
  e->managed.dl_tensor = {data, {kDLCPU, 0}, x.dim(), dl_type(x.dtype()), e->shape.data(), e->strides.data(), 0};
  e->managed.manager_ctx = e.get();
  e->managed.deleter = &delete_exported;
  x.storage()->exports.fetch_add(1);
  note_exposed(*x.storage(), false);
  DLManagedTensor* managed = &e.release()->managed;
  PyObject* capsule = PyCapsule_New(managed, "dltensor", [](PyObject* c) {
    if (!PyCapsule_IsValid(c, "dltensor")) return;  // another consumer has taken the capsule
    auto* t = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(c, "dltensor"));
    t->deleter(t);
  });
  return nb::steal(capsule);
}

DType dtype_of_dl(const DLDataType& t) {
  for (int i = 0; i < kNumDTypes; ++i) {
    const DType d = static_cast<DType>(i);
    const DLDataType u = dl_type(d);
    if (u.code == t.code && u.bits == t.bits && t.lanes == 1) return d;
  }
  PF_FAIL(Type, "from_dlpack: unsupported element type; got DLPack code {} with {} bits and {} lanes", t.code, t.bits,
          t.lanes);
}

Tensor from_dlpack(nb::handle source) {
  nb::object capsule;
  if (PyCapsule_CheckExact(source.ptr())) {
    capsule = nb::borrow(source);
  } else {
    PF_CHECK(nb::hasattr(source, "__dlpack__"), Type, "from_dlpack: no __dlpack__ method; got {}", kind_name(source));
    if (nb::hasattr(source, "__dlpack_device__")) {
      const int where = nb::cast<int>(source.attr("__dlpack_device__")()[nb::int_(0)]);
      PF_CHECK(where == kDLCPU, Device, "from_dlpack: the data is on DLPack device type {}; expected 1 (CPU)", where);
    }
    capsule = source.attr("__dlpack__")();
  }
  PF_CHECK(PyCapsule_IsValid(capsule.ptr(), "dltensor"), Value, "from_dlpack: not an unused DLPack capsule");
  auto* managed = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"));
  const DLTensor& t = managed->dl_tensor;
  PF_CHECK(t.device.device_type == kDLCPU, Device,
           "from_dlpack: the data is on DLPack device type {}; expected 1 (CPU)",
           static_cast<int>(t.device.device_type));
  PF_CHECK(t.ndim <= kMaxDims, Value, "from_dlpack: too many dimensions; got {}; expected at most {}", t.ndim,
           kMaxDims);
  const DType d = dtype_of_dl(t.dtype);
  const Dims shape(std::span<const int64_t>(t.shape, static_cast<size_t>(t.ndim)));
  Dims strides =
      t.strides ? Dims(std::span<const int64_t>(t.strides, static_cast<size_t>(t.ndim))) : contiguous_strides(shape);
  for (int i = 0; i < shape.size(); ++i) {
    if (shape[i] <= 1) strides[i] = 1;
    PF_CHECK(strides[i] >= 0, Value, "from_dlpack: negative strides are not supported; got {} along dim {}", strides[i],
             i);
  }
  if (shape.numel() == 0 || is_contiguous(shape, strides)) strides = contiguous_strides(shape);
  char* p = static_cast<char*>(t.data) + t.byte_offset;
  PF_CHECK(reinterpret_cast<uintptr_t>(p) % static_cast<uintptr_t>(dtype_size(d)) == 0, Value,
           "from_dlpack: the data is not aligned to its elements");
  // The producer's deleter may need the GIL, so it runs in the destructor of a capsule of ours, when its last reference
  // is released.
  PyCapsule_SetName(capsule.ptr(), "used_dltensor");
  nb::object owner = nb::steal(PyCapsule_New(managed, "pyflame_dlpack", [](PyObject* c) {
    auto* m = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(c, "pyflame_dlpack"));
    if (m->deleter) m->deleter(m);
  }));
  auto held = std::make_shared<Held>(owner);
  return share(p, shape, strides, d, [held] {});
}

// ---- pickle

nb::object reduce(nb::handle_t<Tensor> self) {
  const Tensor& x = *nb::inst_ptr<Tensor>(self);
  PF_CHECK(x.is_leaf() || !x.requires_grad(), Runtime,
           "pickle: only leaves can be pickled or deep-copied; got a result of {}; hint: use .detach()",
           x.grad_fn() ? x.grad_fn()->name : "an op");
  nb::object data;
  {
    Tensor flat;
    const void* p = nullptr;
    {
      Unlocked u;
      grad_mode::Guard off(false);
      flat = contiguous(to_device(x.detach(), Device{}));
      p = flat.data();
    }
    data = nb::bytes(p ? p : "", static_cast<size_t>(flat.nbytes()));
  }
  return nb::make_tuple(nb::module_::import_("pyflame._functions").attr("_rebuild_tensor"),
                        nb::make_tuple(data, dims_tuple(x.shape()), std::string(dtype_name(x.dtype())),
                                       x.device().str(), x.requires_grad()));
}

Tensor rebuild(nb::bytes data, const DimsArg& shape, const std::string& dtype, const std::string& device,
               bool requires_grad) {
  const DType d = dtype_from_name(dtype);
  const int64_t want = checked_numel("unpickle", shape.get()) * dtype_size(d);
  PF_CHECK(static_cast<int64_t>(data.size()) == want, Value, "unpickle: wrong size; got {} bytes; expected {}",
           data.size(), want);
  return leaf(from_host(data.c_str(), shape.get(), d, parse_device(device)), requires_grad);
}

}  // namespace

PyType_Slot* tensor_slots() { return g_slots; }

void bind_convert(nb::module_& m, TensorClass& c) {
  m.def(
      "tensor",
      [](nb::handle data, DTypeArg dtype, DeviceArg device, bool requires_grad) {
        return leaf(make_tensor("tensor", data, dtype, device), requires_grad);
      },
      "data"_a, nb::kw_only(), "dtype"_a.none() = nb::none(), "device"_a.none() = nb::none(), "requires_grad"_a = false,
      "A new tensor with a copy of data (numbers, nested sequences, arrays, tensors). Python floats become the default "
      "dtype, "
      "ints int64, bools bool;\n"
      "arrays keep their dtype. ValueError for ragged sequences, TypeError for what is not a number.");
  auto as = [](nb::handle data, DTypeArg dtype, DeviceArg device) -> nb::object {
    const DTypeOpt d = dtype;
    const DeviceOpt where = device;
    if (const Tensor* t = as_tensor(data)) {
      Tensor y = where ? to_device(*t, *where) : *t;
      if (d) y = cast(y, *d);
      return same_or_new(data, *t, y);
    }
    if (is_numpy_array(data) && nb::cast<bool>(data.attr("flags").attr("writeable"))) {
      Tensor y = share_buffer("as_tensor", data);
      if (where) y = to_device(y, *where);
      return nb::cast(d ? cast(y, *d) : y);
    }
    return nb::cast(make_tensor("as_tensor", data, d, where));
  };
  m.def("as_tensor", as, "data"_a, "dtype"_a.none() = nb::none(), "device"_a.none() = nb::none(),
        "data as a tensor: a tensor or writable NumPy array is shared when dtype and device allow, anything else is "
        "copied. "
        "TypeError for what no tensor can be made of, and for complex numbers with a real dtype. ValueError for "
        "sequences of different lengths.");
  m.def(
      "asarray", as, "obj"_a, nb::kw_only(), "dtype"_a.none() = nb::none(), "device"_a.none() = nb::none(),
      "The same as as_tensor: a tensor or writable NumPy array is shared when dtype and device allow, anything else is "
      "copied. "
      "TypeError for what no tensor can be made of, and for complex numbers with a real dtype. ValueError for "
      "sequences of different lengths.");
  m.def("from_numpy", &from_numpy, "ndarray"_a,
        "A tensor that shares a NumPy array's memory: writes on either side are seen on the other. ValueError for "
        "read-only arrays\n"
        "and negative strides.");
  m.def("frombuffer", &frombuffer, "buffer"_a, nb::kw_only(), "dtype"_a, "count"_a = -1, "offset"_a = 0,
        "requires_grad"_a = false,
        "A 1-D tensor over a buffer's bytes: shared when the buffer is writable, copied when it is read-only (bytes).\n"
        "count: the number of elements; negative: all up to the end of the buffer. offset: the byte at which they "
        "begin; a multiple of the element's size where the memory is shared.\n"
        "ValueError where the bytes do not suffice, or are no whole number of elements; TypeError without a buffer.");
  m.def("from_dlpack", &from_dlpack, "ext_tensor"_a,
        "A tensor that shares memory with a DLPack exporter on the CPU. "
        "TypeError for an object without __dlpack__().");
  m.def("_rebuild_tensor", &rebuild);

  c.def(
      "numpy", [](nb::handle_t<Tensor> self, bool force) { return numpy(self, force); }, nb::kw_only(),
      "force"_a = false,
      "A NumPy array that shares the memory; a sync point. RuntimeError when a gradient is required (use detach()), "
      "TypeError for bfloat16\n"
      "(use float()). force=True detaches and copies to the CPU as needed.");
  c.def("__array__", &array_protocol, "dtype"_a.none() = nb::none(), "copy"_a.none() = nb::none());
  // `numpy_array * tensor` calls our method, which makes a tensor of the array, instead of making an array of objects.
  c.attr("__array_priority__") = 1000;
  c.def("__dlpack__", &to_dlpack, nb::kw_only(), "stream"_a.none() = nb::none(), "max_version"_a.none() = nb::none(),
        "dl_device"_a.none() = nb::none(), "copy"_a.none() = nb::none());
  c.def("__dlpack_device__", [](const Tensor& x) {
    PF_CHECK(x.device().type == DeviceType::cpu || x.device().type == DeviceType::reference, Device,
             "__dlpack_device__: no DLPack export from '{}'", x.device().str());
    return nb::make_tuple(static_cast<int>(kDLCPU), 0);
  });
  c.def("__reduce__", &reduce);
  c.def("__reduce_ex__", [](nb::handle_t<Tensor> self, int) { return self.attr("__reduce__")(); });
  c.def("__copy__", [](const Tensor& x) { return x; });
  c.def("__deepcopy__", [](const Tensor& x, nb::dict memo) -> nb::object {
    PF_CHECK(x.is_leaf() || !x.requires_grad(), Runtime,
             "deepcopy: only leaves can be pickled or deep-copied; got a result of {}; hint: use .detach()",
             x.grad_fn() ? x.grad_fn()->name : "an op");
    grad_mode::Guard off(false);
    Tensor y = clone_preserving(x.detach());
    if (x.requires_grad()) y.set_requires_grad(true);
    if (Tensor g = x.grad()) y.set_grad(clone_preserving(g));
    (void)memo;
    return nb::cast(y);
  });
}

}  // namespace pyflame::python
