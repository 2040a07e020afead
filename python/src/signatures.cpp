// Signatures of compiled functions for inspect.signature(), help() and notebooks, which read `__signature__`. nanobind's types of functions, methods and
// bound methods do not have it and let nobody add attributes later, so it is put into the dicts of the three types here. Only a reader of the
// attribute pays for it: a call does not look anything up in the type. The module has a domain of its own (NB_DOMAIN), so the types are not shared with the
// modules of other packages.
#include "casters.h"

namespace pyflame::python {

namespace {

PyObject* signature_of(PyObject* function, void*) noexcept {
  try {
    return nb::module_::import_("pyflame._signatures").attr("of_compiled")(nb::handle(function)).release().ptr();
  } catch (nb::python_error& e) {
    e.restore();
  } catch (const std::exception& e) {
    PyErr_SetString(PyExc_RuntimeError, e.what());
  }
  return nullptr;
}

PyGetSetDef attribute = {"__signature__", signature_of, nullptr, "The parameters, as inspect.signature() shows them.",
                         nullptr};

void add_signature(PyTypeObject* type) {
  const nb::object descriptor = nb::steal(PyDescr_NewGetSet(type, &attribute));
  if (!descriptor || PyDict_SetItemString(type->tp_dict, attribute.name, descriptor.ptr()) != 0)
    nb::raise_python_error();
  PyType_Modified(type);
}

}  // namespace

void show_signatures(nb::module_& m, TensorClass& c) {
  const nb::object function = m.attr("zeros"), method = c.attr("view");
  PyTypeObject* type_of_methods = Py_TYPE(method.ptr());
  const nb::object bound = nb::steal(type_of_methods->tp_descr_get(method.ptr(), m.ptr(), nullptr));
  for (PyTypeObject* type : {Py_TYPE(function.ptr()), type_of_methods, Py_TYPE(bound.ptr())}) add_signature(type);
}

}  // namespace pyflame::python
