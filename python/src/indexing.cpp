// x[...] and x[...] = v. Integers, slices, None and Ellipsis make views. Tensors, lists, arrays and bools of the remaining dims go to index()
// and index_put_() (ops/advanced_index.cpp). A number is written through one mask without counting the mask's true elements.
#include "casters.h"

namespace pyflame::python {

namespace {

// The value of an integer tensor without dims.
int64_t number_of(const Tensor& x) {
  const Unlocked u;  // it waits for the device
  return x.item_i64();
}

bool is_bool_index(nb::handle h) {
  if (PyBool_Check(h.ptr())) return true;
  const Tensor* t = as_tensor(h);
  if (t) return t->dtype() == DType::bool_;
  if (!is_numpy_array(h)) return false;
  nb::object dtype = h.attr("dtype");
  DType d;
  return dtype_from(dtype, &d) && d == DType::bool_;
}

// The number of dims of x that an index item uses. A mask uses as many as it has.
int consumed(nb::handle h) {
  if (h.is_none() || h.ptr() == Py_Ellipsis || PyBool_Check(h.ptr())) return 0;
  const Tensor* t = as_tensor(h);
  if (t) return t->dtype() == DType::bool_ || t->dtype() == DType::uint8 ? t->dim() : 1;
  if (is_bool_index(h)) return nb::cast<int>(h.attr("ndim"));
  return 1;
}

std::optional<int64_t> bound(PyObject* o) {
  if (o == Py_None) return {};
  PF_CHECK(PyIndex_Check(o), Type, "index: slice bounds must be integers or None; got {}", short_repr(o));
  const Py_ssize_t v = PyNumber_AsSsize_t(o, nullptr);
  if (v == -1 && PyErr_Occurred()) throw nb::python_error();
  return v;
}

// A tensor of integers or bools from an index that is a list, an array, or a tensor.
Tensor index_tensor(nb::handle h, const Tensor& x) {
  const Tensor* given = as_tensor(h);
  if (given) return *given;
  Tensor t = make_tensor("index", h, {}, x.device());
  if (t.numel() == 0 && !is_numpy_array(h)) return cast(t, DType::int64);
  PF_CHECK(!is_float(t.dtype()), Index, "index: indices must be integers or bools; got dtype {}",
           dtype_name(t.dtype()));
  return t.dtype() == DType::bool_ ? t : cast(t, DType::int64);
}

struct Indexed {
  Tensor view;
  Tensors indices;  // for the dims of the view from the first one on; undefined: all of the dim
  bool advanced = false;
  // The index that is a mask, if it is the only index, and its first dim.
  Tensor mask;
  int masked = -1;

  void add(int dim, const Tensor& index) {
    const bool is_mask = index.dtype() == DType::bool_;
    mask = !advanced && is_mask ? index : Tensor();
    masked = mask ? dim : -1;
    int at = 0;  // how many dims the indices so far are for
    for (const Tensor& t : indices) at += t && (t.dtype() == DType::bool_ || t.dtype() == DType::uint8) ? t.dim() : 1;
    for (; at < dim; ++at) indices.emplace_back();
    indices.push_back(index);
    advanced = true;
  }
};

bool is_plain_int(nb::handle h) {
  if (PyBool_Check(h.ptr()) || as_tensor(h)) return false;
  if (is_numpy_array(h) && nb::cast<int>(h.attr("ndim")) > 0) return false;
  return PyIndex_Check(h.ptr());
}
// A 0-d tensor of integers selects like a number, so it is read: a sync point.
bool is_number_tensor(nb::handle h) {
  const Tensor* t = as_tensor(h);
  return t && t->dim() == 0 && (t->dtype() == DType::int64 || t->dtype() == DType::int32);
}

void apply_item(nb::handle h, Indexed* at, int* dim) {
  Tensor& x = at->view;
  const Tensor* given = as_tensor(h);
  if (h.is_none()) {
    x = unsqueeze(x, (*dim)++);
  } else if (PyBool_Check(h.ptr()) || (given && given->dim() == 0 && given->dtype() == DType::bool_)) {
    // A bool is a mask of no dims: a new dim of one element, or of none.
    x = unsqueeze(x, *dim);
    const bool set = given ? number_of(*given) != 0 : h.ptr() == Py_True;
    at->add((*dim)++, zeros({set ? 1 : 0}, DType::int64, x.device()));
  } else if (is_plain_int(h) || is_number_tensor(h)) {
    const Py_ssize_t i = given ? number_of(*given) : PyNumber_AsSsize_t(h.ptr(), PyExc_IndexError);
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
  } else if (given || PyList_Check(h.ptr()) || PyTuple_Check(h.ptr()) || is_numpy_array(h) || PyRange_Check(h.ptr())) {
    const Tensor index = index_tensor(h, x);
    const bool is_mask = index.dtype() == DType::bool_ || index.dtype() == DType::uint8;
    PF_CHECK(*dim + (is_mask ? index.dim() : 1) <= x.dim(), Index, "index: too many indices; got shape {}",
             x.shape().str());
    at->add(*dim, index);
    *dim += is_mask ? index.dim() : 1;
  } else {
    PF_FAIL(
        Index,
        "index: not an index; got {} ({}); expected integers, slices, None, Ellipsis, or tensors of integers or bools",
        short_repr(h), kind_name(h));
  }
}

// A list that holds tensors or lists is made into one tensor, as in NumPy (docs/differences.md). One with a slice, None or Ellipsis cannot be, and
// counts as a tuple.
bool is_tuple_like(nb::handle key) {
  if (PyTuple_Check(key.ptr())) return true;
  if (!PyList_Check(key.ptr())) return false;
  for (nb::handle h : nb::borrow<nb::list>(key))
    if (PySlice_Check(h.ptr()) || h.is_none() || h.ptr() == Py_Ellipsis || as_tensor(h)) return true;
  return false;
}

Indexed locate(const Tensor& x, nb::handle key) {
  Indexed at{x, {}, false, {}, -1};
  int dim = 0;
  if (!is_tuple_like(key)) {
    if (key.ptr() == Py_Ellipsis) return at;
    PF_CHECK(consumed(key) == 0 || x.dim() > 0, Index, "index: a 0-d tensor cannot be indexed; hint: use item()");
    apply_item(key, &at, &dim);
    return at;
  }
  int used = 0, ellipses = 0;
  nb::tuple items(key);
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
  if (at.advanced) return index(at.view, at.indices);
  return at.view.same(x) ? view(x, x.shape()) : at.view;
}

// Writes one number through a mask: no element needs to be counted.
void set_masked(const Tensor& x, int dim, Tensor mask, const Value& value) {
  PF_CHECK(std::equal(mask.shape().begin(), mask.shape().end(), x.shape().begin() + dim), Index,
           "index: the mask does not fit; got mask shape {} at dim {}; expected the sizes of {}", mask.shape().str(),
           dim, x.shape().str());
  for (int i = dim + mask.dim(); i < x.dim(); ++i) mask = unsqueeze(mask, mask.dim());
  copy_(x, where(mask,
                 value.is_tensor ? cast(reshape(value.tensor, {}), x.dtype())
                                 : full({}, value.scalar, x.dtype(), x.device()),
                 x));
}

// Leading dims of size 1 broadcast anyway, and as in PyTorch a value may have more of them than the place that it is written to.
void drop_leading_ones(Value* v) {
  int ones = 0;
  while (ones < v->tensor.dim() && v->tensor.size(ones) == 1) ++ones;
  if (ones == 0) return;
  const Dims shape = v->tensor.shape();
  v->tensor = reshape(v->tensor, Dims{std::span<const int64_t>(shape.begin() + ones, shape.end())});
}

void set_item(nb::handle_t<Tensor> self, nb::handle key, nb::handle value) {
  const Tensor& x = self_tensor(self);
  Value v = make_value("index assignment", value, x);
  Indexed at = locate(x, key);
  if (v.is_tensor && (at.advanced || v.tensor.dim() > at.view.dim())) drop_leading_ones(&v);
  if (!at.advanced) {
    copy_(at.view, v);
    return;
  }
  if (at.mask && (!v.is_tensor || v.tensor.dim() == 0)) return set_masked(at.view, at.masked, at.mask, v);
  index_put_(at.view, at.indices, v);
}

}  // namespace

void bind_indexing(TensorClass& c) {
  c.def(
      "__getitem__", [](const Tensor& x, nb::handle key) { return get_item(x, key); }, "key"_a.none());
  c.def("__setitem__", &set_item, "key"_a.none(), "value"_a);
}

}  // namespace pyflame::python
