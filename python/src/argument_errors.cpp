// Error messages for arguments of the wrong type. nanobind's own text lists overloads and names no cause, so every
// function of the module is called through a wrapper that converts the message to PyFlame's form, and that begins the
// errors of ops that are computed by others with their own names. A successful call costs one indirect jump.
#include <array>
#include <utility>

#include "casters.h"

namespace pyflame::python {

namespace {

// nanobind sets this bit of the count of arguments where it calls a constructor. PyVectorcall_NARGS leaves it set.
constexpr size_t kConstructs = PY_VECTORCALL_ARGUMENTS_OFFSET >> 1;
constexpr size_t kEntries = 16;  // nanobind enters functions in a few ways; there is one wrapper for each
std::array<vectorcallfunc, kEntries> entries{};

void replace_all(std::string* s, const std::string& from, const std::string& to) {
  for (size_t at = s->find(from); at != std::string::npos; at = s->find(from, at + to.size()))
    s->replace(at, from.size(), to);
}

std::string without_module(std::string s) {
  replace_all(&s, "pyflame._C.", "");
  return s;
}

// `add(input: Tensor, other: Tensor) -> Tensor` for each overload, from nanobind's numbered lines.
std::string signatures(const std::string& text) {
  std::string out;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    const size_t dot = line.find(". ");
    if (dot == std::string::npos) continue;
    out += (out.empty() ? "" : " or ") + line.substr(dot + 2);
  }
  return out;
}

// The message in PyFlame's form; empty if it is another error.
std::string rewritten(const std::string& text) {
  const std::string cut = "(): incompatible function arguments.", invoked = "Invoked with types: ";
  const size_t name = text.find(cut), types = text.find(invoked);
  if (name == std::string::npos || types == std::string::npos) return {};
  const size_t list = text.find('\n', name);
  const std::string got = without_module(text.substr(types + invoked.size()));
  std::string out = (name ? text.substr(0, name) : "attribute") + ": wrong arguments; got (" + got + "); expected " +
                    without_module(signatures(text.substr(list, types - list)));
  if (got.find("ndarray") != std::string::npos || got.find("list") != std::string::npos)
    out += "; hint: pyflame.tensor() makes tensors of arrays and lists";
  if (out.starts_with("tensor: ") && got.starts_with("NoneType"))
    out += "; hint: the data are None, which a function without a return statement returns";
  return out;
}

PyObject* explain_failure() noexcept {
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  try {
    const std::string text = value ? nb::str(nb::handle(value)).c_str() : "";
    const std::string better = rewritten(text);
    if (!better.empty()) {
      PyErr_SetString(PyExc_TypeError, better.c_str());
      Py_XDECREF(type), Py_XDECREF(value), Py_XDECREF(trace);
      return nullptr;
    }
  } catch (...) {
    PyErr_Clear();  // an exception that cannot be printed is left unchanged
  }
  PyErr_Restore(type, value, trace);
  return nullptr;
}

// Whether the pending error says that no overload takes these arguments.
bool no_overload() {
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  const std::string text = value ? nb::str(nb::handle(value)).c_str() : "";
  PyErr_Restore(type, value, trace);
  return text.find("(): incompatible function arguments.") != std::string::npos;
}

// Calls f again with NumPy's keywords translated, with what out= and generator= ask for, and with numbers in place of
// tensors without dims, if there are any of them (_keywords.py). Null without an error if there are none.
PyObject* with_other_keywords(PyObject* f, PyObject* const* args, size_t n, PyObject* names) {
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  PyObject* result = nullptr;
  try {
    const auto count = static_cast<size_t>(PyVectorcall_NARGS(n));
    nb::list positional;
    for (size_t i = 0; i < count; ++i) positional.append(nb::handle(args[i]));
    nb::dict keywords;
    for (size_t i = 0; i < (names ? nb::len(names) : 0); ++i)
      keywords[nb::handle(PyTuple_GET_ITEM(names, static_cast<Py_ssize_t>(i)))] = nb::handle(args[count + i]);
    static const nb::object* retry =
        new nb::object(nb::module_::import_("pyflame._keywords").attr("retry"));  // lives as long as the interpreter
    nb::object r = (*retry)(nb::handle(f), nb::tuple(positional), keywords);
    if (!r.is(nb::ellipsis())) result = r.release().ptr();
  } catch (nb::python_error& e) {
    e.restore();
    Py_XDECREF(type), Py_XDECREF(value), Py_XDECREF(trace);
    return nullptr;
  }
  if (result) Py_XDECREF(type), Py_XDECREF(value), Py_XDECREF(trace);
  else PyErr_Restore(type, value, trace);
  return result;
}

// Begins the pending error with the function's name where others compute it (_error_names.py says of which).
PyObject* with_own_name(PyObject* f, PyObject* const* args, size_t n) noexcept {
  if (n & kConstructs) return nullptr;  // the first argument is no object yet
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  try {
    // They live as long as the interpreter.
    static const nb::object* names =
        new nb::object(nb::module_::import_("pyflame._error_names").attr("of_compiled_functions"));
    static const nb::object* rename = new nb::object(nb::module_::import_("pyflame._error_names").attr("rename"));
    const nb::object own = nb::handle(f).attr("__name__");
    if (PySet_Contains(names->ptr(), own.ptr()) == 1) {
      nb::list given;
      for (Py_ssize_t i = 0; i < PyVectorcall_NARGS(n); ++i) given.append(nb::handle(args[i]));
      (*rename)(own, nb::handle(value), given);
    }
  } catch (...) {
    PyErr_Clear();  // while the interpreter starts or ends: the error is left unchanged
  }
  PyErr_Restore(type, value, trace);
  return nullptr;
}

template <size_t I>
PyObject* enter(PyObject* f, PyObject* const* args, size_t n, PyObject* names) {
  PyObject* result = entries[I](f, args, n, names);
  if (result) return result;
  if (!PyErr_ExceptionMatches(PyExc_TypeError)) return with_own_name(f, args, n);
  if (!(n & kConstructs) && no_overload()) {
    result = with_other_keywords(f, args, n, names);
    if (result) return result;
    if (!PyErr_ExceptionMatches(PyExc_TypeError)) return with_own_name(f, args, n);
  }
  explain_failure();
  return with_own_name(f, args, n);
}

template <size_t... I>
constexpr std::array<vectorcallfunc, kEntries> make_wrappers(std::index_sequence<I...>) {
  return {&enter<I>...};
}
constexpr std::array<vectorcallfunc, kEntries> wrappers = make_wrappers(std::make_index_sequence<kEntries>());

void wrap(nb::handle f) {
  const std::string type = Py_TYPE(f.ptr())->tp_name;
  if (type != "nanobind.nb_func" && type != "nanobind.nb_method") return;
  auto* slot =
      reinterpret_cast<vectorcallfunc*>(reinterpret_cast<char*>(f.ptr()) + Py_TYPE(f.ptr())->tp_vectorcall_offset);
  for (size_t i = 0; i < kEntries; ++i) {
    if (*slot == wrappers[i]) return;  // an alias that is wrapped already
    if (!entries[i]) entries[i] = *slot;
    if (entries[i] != *slot) continue;
    *slot = wrappers[i];
    return;
  }
}

void wrap_all(nb::handle holder) {
  nb::object names = nb::borrow(holder.attr("__dict__")).attr("copy")();
  for (nb::handle f : names.attr("values")()) {
    if (!Py_IS_TYPE(f.ptr(), &PyProperty_Type)) {
      wrap(f);
      continue;
    }
    for (const char* part : {"fget", "fset"}) wrap(nb::object(f.attr(part)));
  }
}

}  // namespace

void explain_argument_errors(nb::module_& m, TensorClass& c) {
  wrap_all(m);
  wrap_all(c);
}

}  // namespace pyflame::python
