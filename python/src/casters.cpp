// The conversions that the casters share.
#include "casters.h"

#include <fmt/format.h>

#include <cstring>
#include <mutex>

#include "pyflame/base/fork.h"
#include "pyflame/runtime/device.h"

namespace pyflame::python {

PyTypeObject* tensor_type = nullptr;

namespace {
PyObject* g_dtypes[kNumDTypes] = {};  // immortal

bool from_text(std::string_view s, DType* out) {
  for (int i = 0; i < kNumDTypes; ++i) {
    if (dtype_name(static_cast<DType>(i)) == s) {
      *out = static_cast<DType>(i);
      return true;
    }
  }
  return false;
}

bool number_from(PyObject* o, Scalar* out) noexcept {
  if (PyBool_Check(o)) {
    *out = Scalar(o == Py_True);
    return true;
  }
  if (PyLong_Check(o)) {
    int overflow = 0;
    const long long v = PyLong_AsLongLongAndOverflow(o, &overflow);
    if (overflow != 0) return false;
    *out = Scalar(static_cast<int64_t>(v));
    return true;
  }
  if (PyFloat_Check(o)) {
    *out = Scalar(PyFloat_AS_DOUBLE(o));
    return true;
  }
  if (PyComplex_Check(o)) {
    *out = Scalar::complex(PyComplex_RealAsDouble(o), PyComplex_ImagAsDouble(o));
    return true;
  }
  return false;
}
}  // namespace

std::string kind_name(nb::handle h) { return Py_TYPE(h.ptr())->tp_name; }

std::string short_repr(nb::handle h) {
  std::string s;
  try {
    s = nb::cast<std::string>(nb::repr(h));
  } catch (const std::exception&) {
    s = kind_name(h);
  }
  return s.size() > 80 ? s.substr(0, 77) + "..." : s;
}

bool is_numpy_array(nb::handle h) noexcept {
  const PyTypeObject* type = Py_TYPE(h.ptr());
  while (type && std::strcmp(type->tp_name, "numpy.ndarray") != 0) type = type->tp_base;  // memmap is a subclass
  return type != nullptr;
}

nb::object dtype_object(DType d) {
  PyObject*& o = g_dtypes[static_cast<size_t>(d)];
  if (!o) o = nb::cast(PyDType{d}).release().ptr();
  return nb::borrow(o);
}

bool dtype_from(nb::handle h, DType* out) noexcept {
  PyObject* o = h.ptr();
  if (nb::isinstance<PyDType>(h)) {
    *out = nb::inst_ptr<PyDType>(h)->value;
    return true;
  }
  if (o == reinterpret_cast<PyObject*>(&PyFloat_Type)) return from_text("float64", out);  // as in PyTorch
  if (o == reinterpret_cast<PyObject*>(&PyLong_Type)) return from_text("int64", out);
  if (o == reinterpret_cast<PyObject*>(&PyBool_Type)) return from_text("bool", out);
  if (o == reinterpret_cast<PyObject*>(&PyComplex_Type)) return from_text("complex128", out);
  auto text_of = [&](PyObject* s) {
    Py_ssize_t n = 0;
    const char* p = PyUnicode_AsUTF8AndSize(s, &n);
    if (!p) {
      PyErr_Clear();
      return false;
    }
    std::string_view v(p, static_cast<size_t>(n));
    if (v.starts_with("pyflame.")) v.remove_prefix(8);
    if (v == "bool_") v = "bool";
    return from_text(v, out);
  };
  if (PyUnicode_Check(o)) return text_of(o);
  // numpy.dtype('float32') has .name; numpy.float32 is a type of that name.
  const bool numpy_dtype = std::strncmp(Py_TYPE(o)->tp_name, "numpy.", 6) == 0;
  const bool numpy_type =
      PyType_Check(o) && std::strncmp(reinterpret_cast<PyTypeObject*>(o)->tp_name, "numpy.", 6) == 0;
  if (!numpy_dtype && !numpy_type) return false;
  PyObject* name = PyObject_GetAttrString(o, numpy_type ? "__name__" : "name");
  if (!name) {
    PyErr_Clear();
    return false;
  }
  const bool ok = PyUnicode_Check(name) && text_of(name);
  Py_DECREF(name);
  return ok;
}

void DTypeArg::refuse() const {
  PF_FAIL(Type,
          "dtype: not a dtype of PyFlame; got {}; expected float64, float32, float16, bfloat16, int64, int32, int16, "
          "int8, uint8, bool, complex64, complex128, float8_e4m3fn, float8_e5m2, float8_e4m3fnuz or float8_e5m2fnuz",
          short_repr(raw));
}

bool scalar_from(nb::handle h, Scalar* out) noexcept {
  PyObject* o = h.ptr();
  if (number_from(o, out)) return true;
  if (PyLong_Check(o) || std::strncmp(Py_TYPE(o)->tp_name, "numpy.", 6) != 0 || is_numpy_array(h)) return false;
  // A NumPy scalar: item() gives the Python number.
  PyObject* item = PyObject_CallMethod(o, "item", nullptr);
  if (!item) {
    PyErr_Clear();
    return false;
  }
  const bool ok = number_from(item, out);
  Py_DECREF(item);
  return ok;
}

NumberArg::operator Scalar() const {
  Scalar s{0};
  const nb::object number = as_tensor(raw) ? nb::object(raw.attr("item")()) : nb::borrow(raw);
  PF_CHECK(scalar_from(number, &s), Type, "number: not a number; got {}; expected one", short_repr(number));
  return s;
}

namespace {
// Both under Python's lock.
bool g_cuda_names_any_gpu = false;
int g_selected_gpu = 0;  // the GPU that a name without a number means

// The type of the GPU that a number names: the current device's, or the one that is there.
std::string_view the_gpu() {
  if (current_device().type == DeviceType::cuda) return "cuda";
  return device_available(DeviceType::rocm) || !device_available(DeviceType::cuda) ? "rocm" : "cuda";
}
}  // namespace

bool cuda_names_any_gpu() { return g_cuda_names_any_gpu; }

Device device_from_text(std::string text) {
  if (g_cuda_names_any_gpu && text.starts_with("cuda") && the_gpu() == "rocm" && device_available(DeviceType::rocm))
    text.replace(0, 4, "rocm");
  if (g_selected_gpu > 0 && (text == "rocm" || text == "cuda")) text += fmt::format(":{}", g_selected_gpu);
  return parse_device(text);
}

void bind_settings(nb::module_& m) {
  m.def(
      "_cuda_names_any_gpu", [](bool on) { g_cuda_names_any_gpu = on; }, "on"_a);
  m.def(
      "_select_gpu", [](int index) { g_selected_gpu = index; }, "index"_a);
  m.def("_selected_gpu", [] { return g_selected_gpu; });
}

Device device_from(nb::handle h) {
  if (nb::isinstance<Device>(h)) return nb::cast<Device>(h);
  if (PyLong_Check(h.ptr()) && !PyBool_Check(h.ptr()))
    return device_from_text(fmt::format("{}:{}", the_gpu(), nb::cast<std::string>(nb::str(h))));
  PF_CHECK(PyUnicode_Check(h.ptr()), Type, "device: not a device; got {}; expected a string such as 'cpu' or 'rocm:0'",
           short_repr(h));
  return device_from_text(nb::cast<std::string>(h));
}

std::optional<MemoryFormat> FormatArg::get(const char* op) const {
  if (!raw || raw.is_none()) return {};
  PF_CHECK(nb::isinstance<MemoryFormat>(raw), Type,
           "{}: not a memory format; got {}; expected pyflame.channels_last, "
           "contiguous_format or preserve_format",
           op, short_repr(raw));
  const auto format = nb::cast<MemoryFormat>(raw);
  if (format == kPreserveFormat) return {};
  PF_CHECK(format != kChannelsLast3d, NotImplemented,
           "{}: channels_last_3d is not available; volumes lie in row-major order; expected contiguous_format", op);
  return format;
}

Device usable_device(nb::handle h) {
  const Device d = device_from(h);
  if (d.type != DeviceType::rocm && d.type != DeviceType::cuda) return d;
  check_device("device", d);
  return d;
}

static bool index_from(PyObject* o, int64_t* out) noexcept {
  if (PyFloat_Check(o) || PyBool_Check(o)) return false;
  if (!PyIndex_Check(o)) return false;
  const Py_ssize_t v = PyNumber_AsSsize_t(o, PyExc_OverflowError);
  if (v == -1 && PyErr_Occurred()) {
    PyErr_Clear();
    return false;
  }
  *out = v;
  return true;
}

bool dims_from(nb::handle h, DimsArg* out) noexcept {
  PyObject* o = h.ptr();
  *out = DimsArg{};
  if (o == Py_None) return true;
  out->given = true;
  int64_t v = 0;
  if (PyLong_Check(o)) {
    if (!index_from(o, &v)) return false;
    out->dims.push_back(v);
    return true;
  }
  const bool tuple = PyTuple_Check(o);
  if (!tuple && !PyList_Check(o)) {
    if (as_tensor(h) || !index_from(o, &v)) return false;
    out->dims.push_back(v);
    return true;
  }
  const Py_ssize_t n = tuple ? PyTuple_GET_SIZE(o) : PyList_GET_SIZE(o);
  if (n > kMaxDims) {
    out->too_many = true;
    return true;
  }
  for (Py_ssize_t i = 0; i < n; ++i) {
    if (!index_from(tuple ? PyTuple_GET_ITEM(o, i) : PyList_GET_ITEM(o, i), &v)) return false;
    out->dims.push_back(v);
  }
  return true;
}

Dims dims_from_args(const char* op, const nb::args& args) {
  DimsArg d;
  const bool one = args.size() == 1 && !PyLong_Check(args[0].ptr()) && !as_tensor(args[0]);
  const bool ok = one ? dims_from(args[0], &d) && d.given : dims_from(args, &d);
  PF_CHECK(ok, Type, "{}: not sizes; got {}; expected integers, or one sequence of integers", op, short_repr(args));
  return d.get();
}

nb::tuple dims_tuple(const Dims& d) {
  nb::object t = nb::steal(PyTuple_New(d.size()));
  for (int i = 0; i < d.size(); ++i) PyTuple_SET_ITEM(t.ptr(), i, PyLong_FromLongLong(d[i]));
  return nb::borrow<nb::tuple>(t);
}

// A thread with a lock of the core must never wait for the GIL, because the thread with the GIL may wait for that lock.
// So references that are released without the GIL are queued for the next thread that has it.
namespace {
std::mutex g_drop_mutex;
auto& g_dropped = *new std::vector<PyObject*>;  // leaked: threads outlive static destruction
const AtFork g_at_fork{ForkOrder::Python, [] { g_drop_mutex.lock(); }, [](bool) { g_drop_mutex.unlock(); }};
int drain_pending(void*) {
  drain_dropped();
  return 0;
}
}  // namespace

void drop_reference(PyObject* o) noexcept {
  if (!o || !nb::is_alive()) return;
  if (PyGILState_Check()) {
    Py_DECREF(o);
    return;
  }
  {
    std::lock_guard lock(g_drop_mutex);
    g_dropped.push_back(o);
  }
  Py_AddPendingCall(drain_pending, nullptr);  // if that queue is full, its next run drains ours as well
}

void drain_dropped() noexcept {
  std::vector<PyObject*> mine;
  {
    std::lock_guard lock(g_drop_mutex);
    mine.swap(g_dropped);
  }
  for (PyObject* o : mine) Py_DECREF(o);
}

}  // namespace pyflame::python
