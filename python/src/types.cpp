// dtype, device and the exceptions.
#include <fmt/format.h>

#include "casters.h"
#include "pyflame/runtime/device.h"
#include "pyflame/tensor/default_dtype.h"

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

// The devices that were current before `with device:`.
thread_local std::vector<Device> g_devices_before;

std::string type_of_device(const Device& d) {
  if (d.type == DeviceType::rocm && cuda_names_any_gpu()) return "cuda";
  const std::string s = d.str();
  return s.substr(0, s.find(':'));
}

// The text of an error with "cell 3" in place of the file names that IPython makes up for a notebook's cells. That runs
// Python code, in which other threads may get the GIL. So it is not done where places are recorded: the recorder holds
// its lock there. No lock of ours is held where an exception becomes Python's.
nb::object with_cells(nb::object text) {
  if (PyDict_GetItemString(PyImport_GetModuleDict(), "IPython") == nullptr) return text;
  try {
    return nb::module_::import_("pyflame._cells").attr("in_text")(text);
  } catch (nb::python_error& e) {
    e.discard_as_unraisable("pyflame: the names of cells in an error's message");
    return text;
  }
}

PyObject* new_exception(nb::module_& m, const char* name, const char* doc, PyObject* base) {
  PyObject* e = PyErr_NewExceptionWithDoc(fmt::format("pyflame.{}", name).c_str(), doc, base, nullptr);
  if (!e) throw nb::python_error();
  m.attr(name) = nb::handle(e);
  return e;
}
}  // namespace

void bind_types(nb::module_& m) {
  g_out_of_memory =
      new_exception(m, "OutOfMemoryError",
                    "A MemoryError: the memory of a device or of the host is exhausted; the message has the sizes.",
                    PyExc_MemoryError);
  g_device_error = new_exception(
      m, "DeviceError", "A RuntimeError: a device is absent, with the reason, or tensors are on different devices.",
      PyExc_RuntimeError);
  g_argument_error =
      new_exception(m, "ArgumentError",
                    "A wrong shape or value: a ValueError, and a RuntimeError as well, which PyTorch raises for many.",
                    nb::make_tuple(nb::handle(PyExc_ValueError), nb::handle(PyExc_RuntimeError)).ptr());
  nb::register_exception_translator([](const std::exception_ptr& p, void*) {
    try {
      std::rethrow_exception(p);
    } catch (const Error& e) {
      // A text may cite bytes of a file that are no UTF-8.
      const std::string_view text = e.what();
      nb::object said =
          nb::steal(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "backslashreplace"));
      if (said) PyErr_SetObject(python_type(e.kind()), with_cells(std::move(said)).ptr());
    }
  });

  nb::enum_<MemoryFormat>(m, "memory_format",
                          "How the dims of a tensor lie in memory: row-major, or with the channels of an image "
                          "together. ValueError for the number of none of them.")
      .value("contiguous_format", MemoryFormat::contiguous, "Row-major: the last dim is the densest.")
      .value("channels_last", MemoryFormat::channels_last, "Images (N, C, H, W) whose channels lie together.")
      .value("preserve_format", kPreserveFormat, "As the input lies.")
      .value("channels_last_3d", kChannelsLast3d, "Volumes whose channels lie together; a name only.")
      .export_values();

  nb::class_<PyDType>(m, "dtype",
                      "The type of a tensor's elements: pyflame.float32, pyflame.int64 and others. There is one object "
                      "of each; TypeError where one is to be made.")
      .def_prop_ro(
          "name", [](const PyDType& d) { return std::string(dtype_name(d.value)); },
          "The name of the dtype without that of the package: 'float32' for pyflame.float32.")
      .def_prop_ro(
          "itemsize", [](const PyDType& d) { return dtype_size(d.value); },
          "The number of bytes of one element: 4 for float32, 8 for complex64.")
      .def_prop_ro(
          "is_floating_point", [](const PyDType& d) { return is_float(d.value); },
          "Whether the elements are floating-point numbers, such as float16; False for complex dtypes.")
      .def_prop_ro(
          "is_signed", [](const PyDType& d) { return d.value != DType::uint8 && d.value != DType::bool_; },
          "Whether the dtype has numbers below zero: True for all but uint8 and bool.")
      .def_prop_ro(
          "is_complex", [](const PyDType& d) { return is_complex(d.value); },
          "Whether the elements are complex numbers: True for complex64 and complex128 alone.")
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
      "get_default_dtype", [] { return default_dtype(); },
      "The dtype of floating results whose inputs name none; float32 unless set.");
  m.def(
      "set_default_dtype", [](DTypeArg d) { set_default_dtype(d.require("set_default_dtype")); }, "d"_a.none(),
      "The dtype of zeros(), of Python's floats in tensor(), of integers divided, ...: a floating one. For all "
      "threads. "
      "TypeError for a dtype that is not floating and for what is no dtype.");
  m.def(
      "promote_types",
      [](DTypeArg a, DTypeArg b) { return promote(a.require("promote_types"), b.require("promote_types")); }, "type1"_a,
      "type2"_a,
      "The dtype that an operation on tensors of these two dtypes has. "
      "Either may be the name of a dtype; TypeError for anything else.");

  nb::class_<Device>(m, "device",
                     "Where a tensor lives: 'cpu', 'rocm:0', ... Compares equal to its name. ValueError for the name "
                     "of no device, TypeError for what is no name or number.")
      .def(
          "__init__",
          [](Device* self, nb::handle device, std::optional<int> index, std::optional<std::string> type) {
            PF_CHECK(device.is_none() != !type, Type, "device: no device, or two; expected a name or type=");
            const std::string name = type                              ? *type
                                     : nb::isinstance<nb::str>(device) ? nb::cast<std::string>(device)
                                                                       : "";
            PF_CHECK(!index || (!name.empty() && name.find(':') == std::string::npos), Value,
                     "device: an index beside it; got {}; expected a type such as 'rocm'", short_repr(device));
            if (index && !has_own_memory(device_from_text(name).type)) index.reset();  // there is one CPU: cpu:0
            if (name.empty()) new (self) Device(device_from(device));
            else new (self) Device(device_from_text(index ? fmt::format("{}:{}", name, *index) : name));
          },
          "device"_a.none() = nb::none(), "index"_a.none() = nb::none(), nb::kw_only(), "type"_a.none() = nb::none())
      .def_prop_ro("type", &type_of_device,
                   "The kind of the device, without its number: 'cpu', 'rocm', 'cuda' or another.")
      .def_prop_ro(
          "index",
          [](const Device& d) -> nb::object {
            return has_own_memory(d.type) ? nb::object(nb::int_(static_cast<int>(d.index))) : nb::none();
          },
          "The number of a GPU; None for a device of which there is one.")
      .def("__enter__",
           [](nb::handle self) {
             g_devices_before.push_back(current_device());
             set_current_device(nb::cast<Device>(self));
             return nb::borrow(self);
           })
      .def("__exit__",
           [](nb::handle, nb::args) {
             set_current_device(g_devices_before.back());
             g_devices_before.pop_back();
             return false;
           })
      .def("__str__", [](const Device& d) { return d.str(); })
      .def("__repr__", [](const Device& d) { return fmt::format("device('{}')", d.str()); })
      .def("__hash__", [](const Device& d) { return nb::hash(nb::str(d.str().c_str())); })
      .def(
          "__eq__",
          [](const Device& a, nb::handle b) {
            if (nb::isinstance<Device>(b)) return nb::cast<Device>(b) == a;
            if (!PyUnicode_Check(b.ptr())) return false;
            std::string name = nb::cast<std::string>(b);
            if (cuda_names_any_gpu() && a.type == DeviceType::rocm && name.starts_with("cuda"))
              name.replace(0, 4, "rocm");
            return name == a.str() || name + ":0" == a.str();
          },
          "other"_a.none())
      .def("__reduce__", [](const Device& d) {
        return nb::make_tuple(nb::module_::import_("pyflame._C").attr("device"), nb::make_tuple(d.str()));
      });
}

}  // namespace pyflame::python
