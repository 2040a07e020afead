// pyflame.Size, the type of Tensor.shape: a tuple with numel(). Slices and sums of sizes are sizes.
#include "casters.h"

namespace pyflame::python {

namespace {

PyTypeObject* g_size = nullptr;

PyObject* as_size(PyObject* tuple) {
  if (!tuple || !PyTuple_CheckExact(tuple)) return tuple;
  const nb::object owned = nb::steal(tuple);
  const Py_ssize_t n = PyTuple_GET_SIZE(tuple);
  PyObject* size = g_size->tp_alloc(g_size, n);
  if (!size) return nullptr;
  for (Py_ssize_t i = 0; i < n; ++i) {
    PyObject* entry = PyTuple_GET_ITEM(tuple, i);
    Py_INCREF(entry);
    PyTuple_SET_ITEM(size, i, entry);
  }
  return size;
}

// The tuple of an iterable of integers, and of what stands for one, such as a tensor with one integer.
PyObject* make_size(PyTypeObject* type, PyObject* args, PyObject* keywords) {
  PyObject* size = PyTuple_Type.tp_new(type, args, keywords);
  for (Py_ssize_t i = 0; size && i < PyTuple_GET_SIZE(size); ++i) {
    PyObject* entry = PyTuple_GET_ITEM(size, i);
    if (PyLong_CheckExact(entry)) continue;
    PyObject* number = PyNumber_Index(entry);
    if (!number) {
      PyErr_Format(PyExc_TypeError, "Size: not a size; got %R at place %zd; expected integers", entry, i);
      Py_DECREF(size);
      return nullptr;
    }
    PyTuple_SET_ITEM(size, i, number);
    Py_DECREF(entry);
  }
  return size;
}

PyObject* numel(PyObject* self, PyObject*) {
  nb::object product = nb::int_(1);
  for (nb::handle entry : nb::borrow<nb::tuple>(self)) product = product * entry;
  return product.release().ptr();
}

PyObject* sum(PyObject* a, PyObject* b) { return as_size(PyTuple_Type.tp_as_sequence->sq_concat(a, b)); }

PyObject* repeated(PyObject* self, Py_ssize_t n) { return as_size(PyTuple_Type.tp_as_sequence->sq_repeat(self, n)); }

PyObject* item(PyObject* self, PyObject* key) { return as_size(PyTuple_Type.tp_as_mapping->mp_subscript(self, key)); }

}  // namespace

nb::object size_object(const Dims& d) {
  PyObject* size = g_size->tp_alloc(g_size, d.size());
  if (!size) throw nb::python_error();
  for (int i = 0; i < d.size(); ++i) PyTuple_SET_ITEM(size, i, PyLong_FromLongLong(d[i]));
  return nb::steal(size);
}

bool is_size(nb::handle h) noexcept { return Py_TYPE(h.ptr()) == g_size; }

void bind_size(nb::module_& m) {
  static PyMethodDef methods[] = {{"numel", &numel, METH_NOARGS, "The product of the sizes."},
                                  {nullptr, nullptr, 0, nullptr}};
  static PyType_Slot slots[] = {
      {Py_tp_new, reinterpret_cast<void*>(&make_size)},
      {Py_tp_methods, methods},
      {Py_sq_concat, reinterpret_cast<void*>(&sum)},
      {Py_sq_repeat, reinterpret_cast<void*>(&repeated)},
      {Py_mp_subscript, reinterpret_cast<void*>(&item)},
      {Py_tp_doc,
       const_cast<char*>("The sizes of a tensor, a tuple of ints with numel(). Slices and sums of it are sizes, too. "
                         "TypeError for what is no sequence of integers.")},
      {0, nullptr}};
  static PyType_Spec spec{"pyflame._C.Size", 0, 0, Py_TPFLAGS_DEFAULT, slots};
  const nb::object type = nb::steal(
      PyType_FromSpecWithBases(&spec, nb::make_tuple(nb::borrow(reinterpret_cast<PyObject*>(&PyTuple_Type))).ptr()));
  if (!type) throw nb::python_error();
  g_size = reinterpret_cast<PyTypeObject*>(type.inc_ref().ptr());
  m.attr("Size") = type;
}

}  // namespace pyflame::python
