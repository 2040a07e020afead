// Signatures of compiled functions for inspect.signature(), help() and notebooks, which read `__signature__`. The types
// of nanobind for functions, methods and bound methods do not have it and let nobody add attributes later, so it is put
// into the dicts of these types here. Only a reader of the attribute pays for it: a call does not look anything up in
// the type. The module has a domain of its own (NB_DOMAIN), so it shares the types with no module of another package.
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

PyGetSetDef signature_attribute = {"__signature__", signature_of, nullptr,
                                   "The parameters, as inspect.signature() shows them.", nullptr};

// nanobind's way to an attribute of a method.
getattrofunc attribute_by_nanobind = nullptr;

// The docstring of a method of one form, without the signature that nanobind puts before it: help() shows that already.
// Those of functions and bound methods begin with it: help() takes them for data and shows the docstring alone.
PyObject* doc_of_method(PyObject* method, void*) noexcept {
  try {
    const nb::object forms = nb::handle(method).attr("__nb_signature__");
    if (nb::len(forms) == 1) return nb::object(forms[0][1]).release().ptr();
    return attribute_by_nanobind(method, nb::str("__doc__").ptr());
  } catch (nb::python_error& e) {
    e.restore();
  }
  return nullptr;
}

PyGetSetDef doc_attribute = {"__doc__", doc_of_method, nullptr, nullptr, nullptr};

// nanobind's own way does not look for a docstring in the type.
PyObject* attribute_of_method(PyObject* method, PyObject* name) {
  const bool of_type = PyUnicode_CompareWithASCIIString(name, "__doc__") == 0;
  return of_type ? PyObject_GenericGetAttr(method, name) : attribute_by_nanobind(method, name);
}

void add(PyTypeObject* type, PyGetSetDef* attribute) {
  const nb::object descriptor = nb::steal(PyDescr_NewGetSet(type, attribute));
  if (!descriptor || PyDict_SetItemString(type->tp_dict, attribute->name, descriptor.ptr()) != 0)
    nb::raise_python_error();
  PyType_Modified(type);
}

}  // namespace

void show_signatures(nb::module_& m, TensorClass& c) {
  const nb::object function = m.attr("zeros"), method = c.attr("view");
  PyTypeObject* type_of_methods = Py_TYPE(method.ptr());
  const nb::object bound = nb::steal(type_of_methods->tp_descr_get(method.ptr(), m.ptr(), nullptr));
  for (PyTypeObject* type : {Py_TYPE(function.ptr()), type_of_methods, Py_TYPE(bound.ptr())})
    add(type, &signature_attribute);
  if (type_of_methods->tp_getattro == attribute_of_method) return;  // the module is initialised a second time
  add(type_of_methods, &doc_attribute);
  attribute_by_nanobind = type_of_methods->tp_getattro;
  type_of_methods->tp_getattro = attribute_of_method;
}

}  // namespace pyflame::python
