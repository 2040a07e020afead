// Reductions, and ops with two results, (values, indices), which are returned as named tuples.
#include <string_view>

#include "casters.h"
#include "pyflame/ops/complex_scans.h"

namespace pyflame::python {

namespace {

struct PairType {
  const char* name;
  PyTypeObject* type;
};

// A named tuple made in C, so that collections need not be imported.
PyTypeObject* pair_type(const char* qualified) {
  static PyStructSequence_Field fields[] = {
      {"values", "The values."}, {"indices", "Where they were, int64."}, {nullptr, nullptr}};
  PyStructSequence_Desc desc{qualified, "values and indices", fields, 2};
  PyTypeObject* t = PyStructSequence_NewType(&desc);
  if (!t) throw nb::python_error();
  return t;
}

nb::object named(PyTypeObject* type, std::pair<Tensor, Tensor> p) {
  nb::object o = nb::steal(PyStructSequence_New(type));
  PyStructSequence_SetItem(o.ptr(), 0, nb::cast(std::move(p.first)).release().ptr());
  PyStructSequence_SetItem(o.ptr(), 1, nb::cast(std::move(p.second)).release().ptr());
  return o;
}

PyTypeObject *g_max, *g_min, *g_topk, *g_sort, *g_cummax, *g_cummin;

#define DIM "dim"_a.none() = nb::none()
#define KEEP "keepdim"_a = false
#define DTYPE nb::kw_only(), "dtype"_a.none() = nb::none()
#define OVER "\nOver the given dims (an int or a tuple; all without `dim`); keepdim keeps them with size 1. "

using Typed = Tensor (*)(const Tensor&, const Dims&, bool, DTypeOpt);
using Plain = Tensor (*)(const Tensor&, const Dims&, bool);

void bind_plain(nb::module_& m, TensorClass& c) {
  auto typed = [&](const char* name, Typed fn, const char* text) {
    both(
        m, c, name,
        [fn](const Tensor& x, const DimsArg& dim, bool keepdim, DTypeArg dtype) { return fn(x, dim, keepdim, dtype); },
        DIM, KEEP, DTYPE, text);
  };
  auto plain = [&](const char* name, Plain fn, const char* text) {
    both(
        m, c, name, [fn](const Tensor& x, const DimsArg& dim, bool keepdim) { return fn(x, dim, keepdim); }, DIM, KEEP,
        text);
  };
#define OP(...)
#define ALONG(name, attributes, text, ...)                                                                             \
  both(                                                                                                                \
      m, c, #name, [](const Tensor& x, int64_t dim, DTypeArg dtype) { return pyflame::name(x, dim, dtype); }, "dim"_a, \
      "dtype"_a.none() = nb::none(),                                                                                   \
      op_info(OpId::name).floats_only ? text                                                                           \
          "\nThe shape is that of input. Floating dtypes, or dtype, which casts first; TypeError otherwise."           \
                                      : text " IndexError for a dim that is not there.");
#include "pyflame/ops/ops.def"
  typed("sum", &sum,
        "The sum of input." OVER
        "Integers and bools sum to int64; dtype casts first. "
        "IndexError for a dim that is not there, ValueError for one that "
        "appears twice.");
  typed("mean", &mean,
        "The arithmetic mean of input." OVER
        "Floating dtypes (or give dtype). "
        "TypeError for integers and bools without dtype. "
        "IndexError for a dim that is not there, ValueError for "
        "one that appears twice.");
  typed("prod", &prod,
        "The product of input." OVER
        "Integers and bools multiply to int64. "
        "IndexError for a dim that is not there, ValueError for one "
        "that appears twice.");
  plain("amax", &amax, "The maximum; NaN wins." OVER "ValueError over nothing.");
  plain("amin", &amin, "The minimum; NaN wins." OVER "ValueError over nothing.");
  plain("any", &any, "Whether any element is not zero, as bool." OVER);
  plain("all", &all, "Whether all elements are not zero, as bool." OVER);
  both(
      m, c, "logsumexp", [](const Tensor& x, const DimsArg& dim, bool keepdim) { return logsumexp(x, dim, keepdim); },
      "dim"_a, KEEP,
      "log(sum(exp(x))) without overflow.\n"
      "Over the given dims (an int or a tuple); keepdim keeps them with size 1. "
      "Integers and bools become the default dtype. "
      "IndexError for a dim that is not there, ValueError for one that appears twice.");
  auto moment = [&](const char* name, Tensor (*fn)(const Tensor&, const Dims&, double, bool), const char* text) {
    both(
        m, c, name,
        [fn](const Tensor& x, const DimsArg& dim, std::optional<bool> unbiased, std::optional<double> correction,
             bool keepdim) {
          return fn(x, dim, correction ? *correction : unbiased.value_or(true) ? 1.0 : 0.0, keepdim);
        },
        DIM, "unbiased"_a.none() = nb::none(), nb::kw_only(), "correction"_a.none() = nb::none(), KEEP, text);
    both(
        m, c, name,
        [fn](const Tensor& x, const DimsArg& dim, bool unbiased, bool keepdim) {
          return fn(x, dim, unbiased ? 1.0 : 0.0, keepdim);
        },
        "dim"_a.none(), "unbiased"_a, "keepdim"_a, "With PyTorch's older order of arguments.");
    both(
        m, c, name, [fn](const Tensor& x, bool unbiased) { return fn(x, {}, unbiased ? 1.0 : 0.0, false); },
        "unbiased"_a, "Over all elements.");
  };
  moment("var", &var,
         "The variance: squared deviations over n - correction (1 unless given; unbiased=False is 0)." OVER);
  moment("std", &std_dev, "The standard deviation: the root of var." OVER);
  both(
      m, c, "norm", [](const Tensor& x) { return norm(x); }, "The 2-norm of all elements.\nReturns a 0-d tensor.");
}

// In PyTorch, max(x), max(x, dim, keepdim) and max(x, other) have the same name.
template <auto All, auto Along, auto Elementwise>
void bind_extreme(nb::module_& m, TensorClass& c, const char* name, PyTypeObject** type, const char* text) {
  auto fn = [type, name](const Tensor& x, nb::handle dim, bool keepdim) -> nb::object {
    if (dim.is_none()) {
      PF_CHECK(!keepdim, Type, "{}: keepdim needs a dim", name);
      return nb::cast(All(x));
    }
    if (const Tensor* other = as_tensor(dim)) return nb::cast(Elementwise(Value(x), Value(*other)));
    DimsArg d;
    PF_CHECK(dims_from(dim, &d) && d.dims.size() == 1 && PyIndex_Check(dim.ptr()), Type,
             "{}: not a dim; got {}; expected an integer, or a tensor to compare with; hint: a{} takes several dims",
             name, short_repr(dim), name);
    return named(*type, Along(x, d.dims[0], keepdim));
  };
  m.def(name, fn, "input"_a, "dim"_a.none() = nb::none(), KEEP, text);
  c.def(name, fn, "dim"_a.none() = nb::none(), KEEP, text);
  m.def(
      name, [fn](const Tensor& x, const Tensor& other) { return fn(x, nb::cast(other), false); }, "input"_a, "other"_a,
      text);
  c.def(
      name, [fn](const Tensor& x, const Tensor& other) { return fn(x, nb::cast(other), false); }, "other"_a, text);
}

template <class F>
void bind_arg(nb::module_& m, TensorClass& c, const char* name, F fn, const char* text) {
  both(
      m, c, name, [fn](const Tensor& x, std::optional<int64_t> dim, bool keepdim) { return fn(x, dim, keepdim); }, DIM,
      KEEP, text);
}

}  // namespace

void bind_reductions(nb::module_& m, TensorClass& c) {
  g_max = pair_type("pyflame.return_types.max");
  g_min = pair_type("pyflame.return_types.min");
  g_topk = pair_type("pyflame.return_types.topk");
  g_sort = pair_type("pyflame.return_types.sort");
  bind_plain(m, c);
  using One = Tensor (*)(const Tensor&);
  using Two = std::pair<Tensor, Tensor> (*)(const Tensor&, int64_t, bool);
  bind_extreme<static_cast<One>(&pyflame::max), static_cast<Two>(&pyflame::max), &pyflame::maximum>(
      m, c, "max", &g_max,
      "max(input): the maximum of all. max(input, dim, keepdim): (values, indices) along a dim. max(input, other): "
      "maximum().");
  bind_extreme<static_cast<One>(&pyflame::min), static_cast<Two>(&pyflame::min), &pyflame::minimum>(
      m, c, "min", &g_min,
      "min(input): the minimum of all. min(input, dim, keepdim): (values, indices) along a dim. min(input, other): "
      "minimum().");
  bind_arg(m, c, "argmax", &argmax,
           "Where the maximum is, int64: along a dim, or in the flattened input. The first of equals; NaN wins. "
           "TypeError for complex tensors, IndexError for a dim that is not there and for no elements.");
  bind_arg(m, c, "argmin", &argmin,
           "Where the minimum is, int64: along a dim, or in the flattened input. The first of equals; NaN wins. "
           "TypeError for complex tensors, IndexError for a dim that is not there and for no elements.");
  g_cummax = pair_type("pyflame.return_types.cummax");
  g_cummin = pair_type("pyflame.return_types.cummin");
  constexpr const char* so_far =
      "along a dim, and where it was, int64: (values, indices). The last of equals; NaN wins. "
      "TypeError for complex tensors, IndexError for a dim that is not there.";
  both(
      m, c, "cummax", [](const Tensor& x, int64_t dim) { return named(g_cummax, cummax(x, dim)); }, "dim"_a,
      (std::string("The largest element so far ") + so_far).c_str());
  both(
      m, c, "cummin", [](const Tensor& x, int64_t dim) { return named(g_cummin, cummin(x, dim)); }, "dim"_a,
      (std::string("The smallest element so far ") + so_far).c_str());
  both(m, c, "logcumsumexp", &logcumsumexp, "dim"_a,
       "The logarithm of the sum of the exponentials so far, along a dim, without overflow. Floating and complex "
       "dtypes. "
       "TypeError for others, IndexError for a dim that is not there.");
  m.def("_complex_logaddexp", &complex_logaddexp, "a"_a, "b"_a);
  both(
      m, c, "topk",
      [](const Tensor& x, int64_t k, int64_t dim, bool largest, bool) {
        return named(g_topk, topk(x, k, dim, largest));
      },
      "k"_a, "dim"_a = -1, "largest"_a = true, "sorted"_a = true,
      "The k largest entries of input along a dim (largest=False: the smallest): (values, indices), in order whatever "
      "sorted says. ValueError when k is too large.");
  auto sort_fn = [](const Tensor& x, int64_t dim, bool descending, bool) {
    return named(g_sort, sort(x, dim, descending));
  };
  both(m, c, "sort", sort_fn, "dim"_a = -1, "descending"_a = false, "stable"_a = true,
       "The entries of input along a dim in order, with descending the largest first: (values, indices). Equal entries "
       "stay in their order, whatever stable says. "
       "TypeError for complex tensors, IndexError for a dim that is not there.");
  both(
      m, c, "argsort",
      [](const Tensor& x, int64_t dim, bool descending, bool) { return sort(x, dim, descending).second; }, "dim"_a = -1,
      "descending"_a = false, "stable"_a = true,
      "The indices that sort along a dim: int64, of the input's shape.\ndescending: the largest comes first. Equal "
      "elements stay in order, whatever stable says. "
      "TypeError for complex tensors, IndexError for a dim that is not there.");
  both(
      m, c, "sum_to_size",
      [](const Tensor& x, nb::args size) {
        const Tensor y = sum_to(x, dims_from_args("sum_to_size", size));
        return x.dim() == 0 && y.dtype() == DType::bool_ ? cast(y, DType::int64) : y;  // a sum of one number
      },
      "size"_a,
      "The sum over the dimensions that broadcasting from `size` to the shape would repeat; the result has the shape "
      "`size`. ValueError when `size` does not broadcast to the shape.");
}

}  // namespace pyflame::python
