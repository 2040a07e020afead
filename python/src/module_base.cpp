// The parts of pyflame.nn.Module that every forward pass uses, in C: the call, which without hooks is only forward(),
// and the attributes that are parameters, children or buffers. The rest of Module is Python.
//
// If a class inherits __getattr__, Python calls it only after the normal look-up has failed, which is slow. So a class
// whose __getattr__ is ours gets a single look-up that does both; a class with its own __getattr__ or __getattribute__
// keeps Python's.
#include "casters.h"
#include "pyflame/base/markers.h"

#include <array>

namespace pyflame::python {

namespace {

PyTypeObject* g_base = nullptr;
bool g_calls_in_python = false;  // some hook is one that only Module._call_in_python knows

struct Names {
  PyObject* text(const char* s) { return PyUnicode_InternFromString(s); }
  PyObject *parameters = text("_parameters"), *modules = text("_modules"), *buffers = text("_buffers");
  PyObject *pre_hooks = text("_forward_pre_hooks"), *hooks = text("_forward_hooks"), *forward = text("forward");
  PyObject *with_kwargs = text("_hooks_with_kwargs"), *in_python = text("_call_in_python");
  PyObject *getattr = text("__getattr__"), *getattribute = text("__getattribute__"),
           *init_subclass = text("__init_subclass__");
};
const Names& names() {
  static const Names* n = new Names;  // lives as long as the interpreter
  return *n;
}

PyObject* new_reference(PyObject* o) {
  Py_INCREF(o);
  return o;
}

// ---- attributes

// Borrowed; null without an error if there is none.
PyObject* find_member(PyObject* dict, PyObject* name) {
  for (PyObject* kind : {names().parameters, names().modules, names().buffers}) {
    PyObject* group = PyDict_GetItemWithError(dict, kind);
    if (!group && PyErr_Occurred()) return nullptr;
    if (!group || !PyDict_Check(group)) continue;
    PyObject* found = PyDict_GetItemWithError(group, name);
    if (found || PyErr_Occurred()) return found;
  }
  return nullptr;
}

PyObject* not_found(PyObject* self, PyObject* name) {
  if (!PyErr_Occurred())
    PyErr_Format(PyExc_AttributeError, "'%.200s' object has no attribute '%U'", Py_TYPE(self)->tp_name, name);
  return nullptr;
}

// Module.__getattr__, for classes with their own one that call it by super().
PyObject* member(PyObject* self, PyObject* name) {
  const nb::object dict = nb::steal(PyObject_GenericGetDict(self, nullptr));
  if (!dict) return nullptr;
  PyObject* found = find_member(dict.ptr(), name);
  if (!found) return not_found(self, name);
  return new_reference(found);
}

// Python's order: data descriptors of the class, the instance, other attributes of the class; then parameters, buffers
// and children.
PyObject* attribute(PyObject* self, PyObject* name) {
  PyTypeObject* type = Py_TYPE(self);
  const nb::object of_class = nb::borrow(_PyType_Lookup(type, name));
  const descrgetfunc get = of_class ? Py_TYPE(of_class.ptr())->tp_descr_get : nullptr;
  if (get && PyDescr_IsData(of_class.ptr())) return get(of_class.ptr(), self, reinterpret_cast<PyObject*>(type));
  const nb::object dict = nb::steal(PyObject_GenericGetDict(self, nullptr));
  if (!dict) return nullptr;
  PyObject* found = PyDict_GetItemWithError(dict.ptr(), name);
  if (found) return new_reference(found);
  if (PyErr_Occurred()) return nullptr;
  if (get) return get(of_class.ptr(), self, reinterpret_cast<PyObject*>(type));
  if (of_class) return new_reference(of_class.ptr());
  found = find_member(dict.ptr(), name);
  return found ? new_reference(found) : not_found(self, name);
}

PyObject* init_subclass(PyObject* cls, PyObject* args, PyObject* kwargs) {
  const nb::object super =
      nb::steal(PyObject_CallFunctionObjArgs(reinterpret_cast<PyObject*>(&PySuper_Type), g_base, cls, nullptr));
  if (!super) return nullptr;
  const nb::object next = nb::steal(PyObject_GetAttr(super.ptr(), names().init_subclass));
  if (!next) return nullptr;
  const nb::object done = nb::steal(PyObject_Call(next.ptr(), args, kwargs));
  if (!done) return nullptr;
  auto* type = reinterpret_cast<PyTypeObject*>(cls);
  if (_PyType_Lookup(type, names().getattr) == _PyType_Lookup(g_base, names().getattr) &&
      _PyType_Lookup(type, names().getattribute) == _PyType_Lookup(&PyBaseObject_Type, names().getattribute))
    type->tp_getattro = &attribute;
  Py_RETURN_NONE;
}

// ---- the call

struct Call {
  PyObject* self;
  nb::object args, kwargs;  // kwargs is null where there are none
  nb::object result = {};

  // The keywords as a dict, for a hook that asked for them.
  bool fill_kwargs() {
    if (!kwargs) kwargs = nb::steal(PyDict_New());
    return bool(kwargs);
  }

  bool pre_hook(PyObject* hook, bool keywords) {
    if (keywords && !fill_kwargs()) return false;
    nb::object r =
        nb::steal(PyObject_CallFunctionObjArgs(hook, self, args.ptr(), keywords ? kwargs.ptr() : nullptr, nullptr));
    if (!r || r.is_none()) return bool(r);
    if (!keywords) {
      args = PyTuple_Check(r.ptr()) ? std::move(r) : nb::steal(PyTuple_Pack(1, r.ptr()));
      return bool(args);
    }
    if (!PyTuple_Check(r.ptr()) || PyTuple_GET_SIZE(r.ptr()) != 2 || !PyTuple_Check(PyTuple_GET_ITEM(r.ptr(), 0)) ||
        !PyDict_Check(PyTuple_GET_ITEM(r.ptr(), 1))) {
      PyErr_SetString(PyExc_RuntimeError, "forward pre-hook: expected None or a tuple of (args, kwargs)");
      return false;
    }
    args = nb::borrow(PyTuple_GET_ITEM(r.ptr(), 0));
    kwargs = nb::borrow(PyTuple_GET_ITEM(r.ptr(), 1));
    return true;
  }

  bool post_hook(PyObject* hook, bool keywords) {
    if (keywords && !fill_kwargs()) return false;
    nb::object r =
        nb::steal(keywords ? PyObject_CallFunctionObjArgs(hook, self, args.ptr(), kwargs.ptr(), result.ptr(), nullptr)
                           : PyObject_CallFunctionObjArgs(hook, self, args.ptr(), result.ptr(), nullptr));
    if (r && !r.is_none()) result = r;
    return bool(r);
  }

  // Calls each hook; a result that is not None replaces what it is about. False with an error.
  bool run(PyObject* hooks, PyObject* with_kwargs, bool (Call::*one)(PyObject*, bool)) {
    const ModuleCode here;
    const nb::object all = nb::steal(PyDict_Items(hooks));  // a hook may remove itself
    if (!all) return false;
    for (nb::handle item : nb::borrow<nb::list>(all)) {
      const int keywords = with_kwargs ? PySet_Contains(with_kwargs, PyTuple_GET_ITEM(item.ptr(), 0)) : 0;
      if (keywords < 0 || !(this->*one)(PyTuple_GET_ITEM(item.ptr(), 1), keywords > 0)) return false;
    }
    return true;
  }
};

PyObject* forward(PyObject* self, PyObject* dict, PyObject* args, PyObject* kwargs) {
  PyObject* own = PyDict_GetItemWithError(dict, names().forward);
  if (!own && PyErr_Occurred()) return nullptr;
  const nb::object function = nb::borrow(own ? nullptr : _PyType_Lookup(Py_TYPE(self), names().forward));
  if (!function || !PyFunction_Check(function.ptr())) {
    const ModuleCode here;
    const nb::object bound = nb::steal(PyObject_GetAttr(self, names().forward));
    return bound ? PyObject_Call(bound.ptr(), args, kwargs) : nullptr;
  }
  const ModuleCode here(reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function.ptr())));
  constexpr size_t kFew = 8;
  const auto n = static_cast<size_t>(PyTuple_GET_SIZE(args));
  if (n > kFew) {
    const nb::object bound = nb::steal(PyMethod_New(function.ptr(), self));
    return bound ? PyObject_Call(bound.ptr(), args, kwargs) : nullptr;
  }
  std::array<PyObject*, kFew + 1> stack;
  stack[0] = self;
  for (size_t i = 0; i < n; ++i) stack[i + 1] = PyTuple_GET_ITEM(args, static_cast<Py_ssize_t>(i));
  return PyObject_VectorcallDict(function.ptr(), stack.data(), n + 1, kwargs);
}

PyObject* call(PyObject* self, PyObject* args, PyObject* kwargs) {
  const nb::object dict = nb::steal(PyObject_GenericGetDict(self, nullptr));
  if (!dict) return nullptr;
  const nb::object pre = nb::borrow(PyDict_GetItemWithError(dict.ptr(), names().pre_hooks)),
                   post = nb::borrow(PyDict_GetItemWithError(dict.ptr(), names().hooks));
  if (!pre || !post || !PyDict_Check(pre.ptr()) || !PyDict_Check(post.ptr())) {
    if (!PyErr_Occurred())
      PyErr_Format(PyExc_RuntimeError, "%.200s: super().__init__() was not called", Py_TYPE(self)->tp_name);
    return nullptr;
  }
  const markers::Scope marker(Py_TYPE(self)->tp_name);
  if (g_calls_in_python) {
    const ModuleCode here;
    const nb::object bound = nb::steal(PyObject_GetAttr(self, names().in_python));
    return bound ? PyObject_Call(bound.ptr(), args, kwargs) : nullptr;
  }
  if (PyDict_GET_SIZE(pre.ptr()) == 0 && PyDict_GET_SIZE(post.ptr()) == 0)
    return forward(self, dict.ptr(), args, kwargs);
  const nb::object with_kwargs = nb::borrow(PyDict_GetItemWithError(dict.ptr(), names().with_kwargs));
  Call c{self, nb::borrow(args), nb::borrow(kwargs)};
  if (!c.run(pre.ptr(), with_kwargs.ptr(), &Call::pre_hook)) return nullptr;
  c.result = nb::steal(forward(self, dict.ptr(), c.args.ptr(), c.kwargs.ptr()));
  if (!c.result || !c.run(post.ptr(), with_kwargs.ptr(), &Call::post_hook)) return nullptr;
  return c.result.release().ptr();
}

// Module._run_forward: forward without hooks.
PyObject* run_forward(PyObject* self, PyObject* args, PyObject* kwargs) {
  const nb::object dict = nb::steal(PyObject_GenericGetDict(self, nullptr));
  return dict ? forward(self, dict.ptr(), args, kwargs) : nullptr;
}

}  // namespace

void bind_module_base(nb::module_& m) {
  static PyMethodDef methods[] = {
      {"__getattr__", &member, METH_O, nullptr},
      {"__init_subclass__", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&init_subclass)),
       METH_VARARGS | METH_KEYWORDS | METH_CLASS, nullptr},
      {"_run_forward", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&run_forward)),
       METH_VARARGS | METH_KEYWORDS, nullptr},
      {nullptr, nullptr, 0, nullptr}};
  static PyType_Slot slots[] = {{Py_tp_call, reinterpret_cast<void*>(&call)}, {Py_tp_methods, methods}, {0, nullptr}};
  static PyType_Spec spec{"pyflame._C._ModuleBase", sizeof(PyObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                          slots};
  const nb::object type = nb::steal(PyType_FromSpec(&spec));
  if (!type) throw nb::python_error();
  g_base = reinterpret_cast<PyTypeObject*>(type.inc_ref().ptr());
  m.attr("_ModuleBase") = type;
  m.def("_module_calls_in_python", [](bool on) { g_calls_in_python = on; });
}

}  // namespace pyflame::python
