// dtype, device and the exceptions.
#include <fmt/format.h>

#include "casters.h"

namespace pyflame::python {

namespace {
PyObject* g_out_of_memory = nullptr;
PyObject* g_device_error = nullptr;
PyObject* g_argument_error = nullptr;

PyObject* python_type(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::Value: return g_argument_error;
    case ErrorKind::Type: return PyExc_TypeError;
    case ErrorKind::Index: return PyExc_IndexError;
    case ErrorKind::Key: return PyExc_KeyError;
    case ErrorKind::Runtime: return PyExc_RuntimeError;
    case ErrorKind::NotImplemented: return PyExc_NotImplementedError;
    case ErrorKind::OutOfMemory: return g_out_of_memory;
    case ErrorKind::OS: return PyExc_OSError;
    case ErrorKind::Device: return g_device_error;
  }
  return PyExc_RuntimeError;
}

// Names of the module must not hide Python's types in its stubs, so pyflame.bool, float and int are defined in
// pyflame/__init__.py.
std::string attribute_name(DType d) { return d == DType::bool_ ? "bool_" : std::string(dtype_name(d)); }

PyObject* new_exception(nb::module_& m, const char* name, const char* doc, PyObject* base) {
  PyObject* e = PyErr_NewExceptionWithDoc(fmt::format("pyflame.{}", name).c_str(), doc, base, nullptr);
  if (!e) throw nb::python_error();
  m.attr(name) = nb::handle(e);
  return e;
}
}  // namespace

void bind_types(nb::module_& m) {
  g_out_of_memory =
      new_exception(m, "OutOfMemoryError", "Memory is exhausted; the message has the sizes.", PyExc_MemoryError);
  g_device_error =
      new_exception(m, "DeviceError", "A device is absent, or tensors are on different devices.", PyExc_RuntimeError);
  g_argument_error =
      new_exception(m, "ArgumentError",
                    "A wrong shape or value: a ValueError, and a RuntimeError as well, which PyTorch raises for many.",
                    nb::make_tuple(nb::handle(PyExc_ValueError), nb::handle(PyExc_RuntimeError)).ptr());
  nb::register_exception_translator([](const std::exception_ptr& p, void*) {
    try {
      std::rethrow_exception(p);
    } catch (const Error& e) {
      PyErr_SetString(python_type(e.kind()), e.what());
    }
  });

  nb::enum_<MemoryFormat>(m, "memory_format", "How the dims of a tensor lie in memory.")
      .value("contiguous_format", MemoryFormat::contiguous, "Row-major: the last dim is the densest.")
      .value("channels_last", MemoryFormat::channels_last, "Images (N, C, H, W) whose channels lie together.")
      .export_values();

  nb::class_<PyDType>(m, "dtype", "The type of a tensor's elements: pyflame.float32 and its nine siblings.")
      .def_prop_ro("name", [](const PyDType& d) { return std::string(dtype_name(d.value)); })
      .def_prop_ro(
          "itemsize", [](const PyDType& d) { return dtype_size(d.value); }, "Bytes per element.")
      .def_prop_ro("is_floating_point", [](const PyDType& d) { return is_float(d.value); })
      .def("__repr__", [](const PyDType& d) { return fmt::format("pyflame.{}", dtype_name(d.value)); })
      .def("__hash__", [](const PyDType& d) { return static_cast<int64_t>(d.value) + 1; })
      .def(
          "__eq__",
          [](const PyDType& a, nb::handle b) {
            DType d;
            return dtype_from(b, &d) && d == a.value;
          },
          "other"_a.none())
      .def(
          "__ne__",
          [](const PyDType& a, nb::handle b) {
            DType d;
            return !(dtype_from(b, &d) && d == a.value);
          },
          "other"_a.none())
      .def("__reduce__", [](const PyDType& d) { return attribute_name(d.value); });  // a global of the module
  for (int i = 0; i < kNumDTypes; ++i) {
    const DType d = static_cast<DType>(i);
    m.attr(attribute_name(d).c_str()) = dtype_object(d);
  }
  m.def(
      "promote_types",
      [](DTypeArg a, DTypeArg b) { return promote(a.require("promote_types"), b.require("promote_types")); }, "type1"_a,
      "type2"_a, "The dtype that an operation on tensors of these two dtypes has.");

  nb::class_<Device>(m, "device", "Where a tensor lives: 'cpu', 'rocm:0', ... Compares equal to its name.")
      .def(
          "__init__", [](Device* self, nb::handle text) { new (self) Device(device_from(text)); }, "device"_a)
      .def_prop_ro("type",
                   [](const Device& d) {
                     const std::string s = d.str();
                     return s.substr(0, s.find(':'));
                   })
      .def_prop_ro("index", [](const Device& d) { return static_cast<int>(d.index); })
      .def("__str__", [](const Device& d) { return d.str(); })
      .def("__repr__", [](const Device& d) { return fmt::format("device('{}')", d.str()); })
      .def("__hash__", [](const Device& d) { return nb::hash(nb::str(d.str().c_str())); })
      .def(
          "__eq__",
          [](const Device& a, nb::handle b) {
            if (nb::isinstance<Device>(b)) return nb::cast<Device>(b) == a;
            return PyUnicode_Check(b.ptr()) &&
                   (nb::cast<std::string>(b) == a.str() || nb::cast<std::string>(b) + ":0" == a.str());
          },
          "other"_a.none())
      .def("__reduce__", [](const Device& d) {
        return nb::make_tuple(nb::module_::import_("pyflame._C").attr("device"), nb::make_tuple(d.str()));
      });
}

}  // namespace pyflame::python
