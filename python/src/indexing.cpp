// x[...] and x[...] = v. Integers, slices, None and Ellipsis make views. One integer tensor (or list) selects entries
// of one dim. The result of a bool mask would have a size that depends on the data, so reading with a mask is refused;
// writing with a mask is a masked assignment.
#include "casters.h"

namespace pyflame::python {

namespace {

bool is_bool_index(nb::handle h) {
  if (PyBool_Check(h.ptr())) return true;
  const Tensor* t = as_tensor(h);
  if (t) return t->dtype() == DType::bool_;
  if (!is_numpy_array(h)) return false;
  nb::object dtype = h.attr("dtype");
  DType d;
  return dtype_from(dtype, &d) && d == DType::bool_;
}

// The number of dims of x that an index item uses.
int consumed(nb::handle h) {
  if (h.is_none() || h.ptr() == Py_Ellipsis) return 0;
  return 1;
}

std::optional<int64_t> bound(PyObject* o) {
  if (o == Py_None) return {};
  PF_CHECK(PyIndex_Check(o), Type, "index: slice bounds must be integers or None; got {}", short_repr(o));
  const Py_ssize_t v = PyNumber_AsSsize_t(o, nullptr);
  if (v == -1 && PyErr_Occurred()) throw nb::python_error();
  return v;
}

// An int64 tensor from an index that is a list, an array, or a tensor of integers.
Tensor index_tensor(nb::handle h, const Tensor& x, int dim) {
  Tensor t;
  if (const Tensor* given = as_tensor(h)) t = *given;
  else t = make_tensor("index", h, {}, x.device());
  if (t.numel() == 0 && !as_tensor(h)) t = cast(t, DType::int64);
  PF_CHECK(!is_float(t.dtype()), Index, "index: indices must be integers; got dtype {}", dtype_name(t.dtype()));
  PF_CHECK(t.dtype() != DType::bool_, NotImplemented,
           "index: a list of bools is a mask; hint: use where() or masked_fill()");
  t = cast(t, DType::int64);
  if (t.numel() == 0) return t;
  // Negative entries count from the end. Entries that are still out of range are refused by the op, which names their
  // position.
  return where(lt(t, Scalar(0)), add(t, Scalar(x.size(dim))), t);
}

struct Indexed {
  Tensor view;
  Tensor index;  // for dim `dim` of the view, if defined
  int dim = -1;
};

bool is_plain_int(nb::handle h) {
  if (PyBool_Check(h.ptr()) || as_tensor(h) || is_numpy_array(h)) return false;
  return PyIndex_Check(h.ptr());
}

void apply_item(nb::handle h, Indexed* at, int* dim) {
  Tensor& x = at->view;
  if (h.is_none()) {
    x = unsqueeze(x, (*dim)++);
  } else if (is_plain_int(h)) {
    const Py_ssize_t i = PyNumber_AsSsize_t(h.ptr(), PyExc_IndexError);
    if (i == -1 && PyErr_Occurred()) throw nb::python_error();
    PF_CHECK(*dim < x.dim(), Index, "index: too many indices; got shape {}", x.shape().str());
    x = select(x, *dim, i);
  } else if (PySlice_Check(h.ptr())) {
    auto* s = reinterpret_cast<PySliceObject*>(h.ptr());
    const int64_t step = bound(s->step).value_or(1);
    PF_CHECK(step > 0, Value, "index: the step of a slice must be positive; got {}", step);
    const std::optional<int64_t> start = bound(s->start), stop = bound(s->stop);
    if (start || stop || step != 1) x = slice(x, *dim, start, stop, step);
    ++*dim;
  } else if (is_bool_index(h)) {
    PF_FAIL(NotImplemented,
            "index: a bool mask gives a result whose size depends on the data, which is not available; hint: use "
            "where(mask, x, other), "
            "masked_fill(x, mask, value) or (x * mask).sum()");
  } else if (as_tensor(h) || PyList_Check(h.ptr()) || is_numpy_array(h) || PyRange_Check(h.ptr())) {
    PF_CHECK(at->dim < 0, NotImplemented,
             "index: only one tensor index is available; hint: use gather() or take_along_dim()");
    PF_CHECK(*dim < x.dim(), Index, "index: too many indices; got shape {}", x.shape().str());
    at->index = index_tensor(h, x, *dim);
    at->dim = (*dim)++;
  } else {
    PF_FAIL(Type, "index: not an index; got {} ({}); expected integers, slices, None, Ellipsis or integer tensors",
            short_repr(h), kind_name(h));
  }
}

Indexed locate(const Tensor& x, nb::handle key) {
  Indexed at{x, {}, -1};
  int dim = 0;
  if (!PyTuple_Check(key.ptr())) {
    if (key.ptr() == Py_Ellipsis) return at;
    PF_CHECK(key.is_none() || x.dim() > 0 || is_bool_index(key), Index,
             "index: a 0-d tensor cannot be indexed; hint: use item()");
    apply_item(key, &at, &dim);
    return at;
  }
  int used = 0, ellipses = 0;
  nb::tuple items = nb::borrow<nb::tuple>(key);
  for (nb::handle h : items) {
    used += consumed(h);
    ellipses += h.ptr() == Py_Ellipsis;
  }
  PF_CHECK(ellipses <= 1, Index, "index: only one Ellipsis is allowed; got {}", ellipses);
  PF_CHECK(used <= x.dim(), Index, "index: too many indices; got {} for a tensor of shape {}; expected at most {}",
           used, x.shape().str(), x.dim());
  for (nb::handle h : items) {
    if (h.ptr() == Py_Ellipsis) dim += x.dim() - used;
    else apply_item(h, &at, &dim);
  }
  return at;
}

Tensor get_item(const Tensor& x, nb::handle key) {
  if (PyLong_CheckExact(key.ptr()) && x.dim() > 0) {  // the common case
    const Py_ssize_t i = PyLong_AsSsize_t(key.ptr());
    if (i == -1 && PyErr_Occurred()) throw nb::python_error();
    return select(x, 0, i);
  }
  Indexed at = locate(x, key);
  if (at.dim < 0) return at.view.same(x) ? view(x, x.shape()) : at.view;
  const Dims ishape = at.index.shape();
  Tensor y = index_select(at.view, at.dim, ishape.size() == 1 ? at.index : reshape(at.index, Dims{at.index.numel()}));
  if (ishape.size() == 1) return y;
  Dims shape;
  for (int i = 0; i < at.dim; ++i) shape.push_back(y.shape()[i]);
  for (int64_t v : ishape) shape.push_back(v);
  for (int i = at.dim + 1; i < y.dim(); ++i) shape.push_back(y.shape()[i]);
  return reshape(y, shape);
}

void set_masked(const Tensor& x, nb::handle key, const Value& value) {
  const Tensor* given = as_tensor(key);
  Tensor mask = given ? *given : make_tensor("index", key, DType::bool_, x.device());
  PF_CHECK(mask.dim() <= x.dim() && std::equal(mask.shape().begin(), mask.shape().end(), x.shape().begin()), Index,
           "index: the mask does not fit; got mask shape {}; expected the leading sizes of {}", mask.shape().str(),
           x.shape().str());
  for (int i = mask.dim(); i < x.dim(); ++i) mask = unsqueeze(mask, i);
  PF_CHECK(!value.is_tensor || value.tensor.numel() == 1, NotImplemented,
           "index: assigning a tensor through a mask is not available; got shape {}; expected a number; hint: "
           "x.copy_(where(mask, value, x))",
           value.tensor.shape().str());
  copy_(x, value.is_tensor ? where(mask, value, x) : masked_fill(x, mask, value.scalar));
}

void set_item(nb::handle_t<Tensor> self, nb::handle key, nb::handle value) {
  const Tensor& x = self_tensor(self);
  const Value v = make_value("index assignment", value, x);
  if (!PyTuple_Check(key.ptr()) && !PyBool_Check(key.ptr()) && is_bool_index(key)) return set_masked(x, key, v);
  Indexed at = locate(x, key);
  PF_CHECK(at.dim < 0, NotImplemented,
           "index: assignment through a tensor index is not available; hint: use index_add or scatter_add, or assign "
           "slices");
  copy_(at.view, v);
}

}  // namespace

void bind_indexing(TensorClass& c) {
  c.def(
      "__getitem__", [](const Tensor& x, nb::handle key) { return get_item(x, key); }, "key"_a.none());
  c.def("__setitem__", &set_item, "key"_a.none(), "value"_a);
}

}  // namespace pyflame::python
