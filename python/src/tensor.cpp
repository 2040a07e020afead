// The Tensor class: properties, Python's protocols, and everything that is not an op.
#include <fmt/format.h>

#include <cmath>

#include "casters.h"
#include "pyflame/autograd/autograd.h"
#include "pyflame/record/cut_cause.h"
#include "pyflame/record/recorder.h"
#include "pyflame/tensor/default_dtype.h"
#include "pyflame/tensor/float8.h"
#include "pyflame/tensor/lasting.h"
#include "pyflame/tensor/print.h"

namespace pyflame::python {

namespace {

// The value of a one-element tensor as a Python float, int or bool.
nb::object item_object(const Tensor& x) {
  PF_CHECK(
      x.numel() == 1, Value,
      "item: not one element; got a tensor of shape {}; expected exactly one element; hint: use tolist() or numpy()",
      x.shape().str());
  const CutCause why("item()");
  const Category category = dtype_category(x.dtype());
  double number = 0, imaginary = 0;
  int64_t whole = 0;
  {
    Unlocked
        u;  // it waits for the device, and other threads may be needed for that, such as the one that watches collectives
    if (category == Category::Complex) number = real(x.detach()).item_f64(), imaginary = imag(x.detach()).item_f64();
    else if (category == Category::Float) number = x.item_f64();
    else whole = x.item_i64();
  }
  switch (category) {
    case Category::Complex: return nb::steal(PyComplex_FromDoubles(number, imaginary));
    case Category::Float: return nb::float_(number);
    case Category::Bool: return nb::bool_(whole != 0);
    case Category::Integer: break;
  }
  return nb::int_(whole);
}

nb::object element_object(const void* base, int64_t at, DType d) {
  if (is_complex(d)) {
    const auto part = [&](int64_t i) {
      return d == DType::complex64 ? static_cast<double>(static_cast<const float*>(base)[i])
                                   : static_cast<const double*>(base)[i];
    };
    return nb::steal(PyComplex_FromDoubles(part(2 * at), part(2 * at + 1)));
  }
  if (is_float8(d)) return nb::float_(static_cast<double>(float8_value(d, static_cast<const uint8_t*>(base)[at])));
  return dispatch(d, [&]<class T>() -> nb::object {
    const T v = static_cast<const T*>(base)[at];
    if constexpr (std::is_same_v<T, bool>) return nb::bool_(v);
    else if constexpr (std::is_integral_v<T>) return nb::int_(static_cast<int64_t>(v));
    else if constexpr (std::is_same_v<T, double>) return nb::float_(v);
    else return nb::float_(static_cast<double>(static_cast<float>(v)));
  });
}

nb::object list_from(const Tensor& x, const void* base, int dim, int64_t at) {
  if (dim == x.dim()) return element_object(base, at, x.dtype());
  nb::list out;
  for (int64_t i = 0; i < x.shape()[dim]; ++i) out.append(list_from(x, base, dim + 1, at + i * x.strides()[dim]));
  return out;
}

nb::object to_list(const Tensor& x) {
  const CutCause why("tolist()");
  const void* base = nullptr;
  Tensor host;
  {
    Unlocked u;
    host = x.on_host();
    base = host.data();
  }
  return list_from(host, base, 0, 0);
}

// What set_printoptions sets, for all threads. Python's lock guards it.
PrintOptions g_print_options;

std::string repr(const Tensor& x) {
  const CutCause why("the tensor's text (print, repr)");
  std::string out = "tensor(";
  if (x.device().type == DeviceType::null) {
    out += "..., size=" + x.shape().str();  // it has no values
  } else {
    Unlocked u;
    const Tensor host = x.on_host();
    out += format_tensor(host.data(), host.shape(), host.strides(), host.dtype(), 7, g_print_options);
  }
  if (x.numel() == 0 && x.dim() > 1 && x.device().type != DeviceType::null) out += ", shape=" + x.shape().str();
  out += fmt::format(", dtype=pyflame.{}", dtype_name(x.dtype()));
  if (x.device().type != DeviceType::cpu) out += fmt::format(", device='{}'", x.device().str());
  if (Ref<GradNode> fn = x.grad_fn()) out += fmt::format(", grad_fn=<{}>", fn->name);
  else if (x.requires_grad()) out += ", requires_grad=True";
  return out + ")";
}

bool truth(const Tensor& x) {
  PF_CHECK(x.numel() == 1, Runtime,
           "bool: the truth of a tensor with {} elements is ambiguous; got shape {}; expected one element; hint: use "
           "any() or all()",
           x.numel(), x.shape().str());
  const CutCause why("bool() or if");
  Unlocked u;  // it waits for the device
  return is_complex(x.dtype()) ? ne(x, 0).item_i64() != 0 : x.item_f64() != 0;
}

// A cast that was asked for by name. Of complex numbers to real ones it takes the real part, and says so once.
Tensor converted(const Tensor& x, DType dtype) {
  if (!is_complex(x.dtype()) || is_complex(dtype) || dtype == DType::bool_) return cast(x, dtype);
  if (PyErr_WarnEx(PyExc_UserWarning,
                   "to: a cast of complex numbers to a real dtype discards the imaginary part; hint: tensor.real",
                   1) != 0)
    throw nb::python_error();
  return cast(real(x), dtype);
}

// Whether a name that is no dtype was meant as one: names of dtypes end with a number of bits, those of devices do not.
bool is_meant_as_dtype(nb::handle a) {
  if (!PyUnicode_Check(a.ptr())) return false;
  const std::string name = nb::cast<std::string>(a);
  return name.find(':') == std::string::npos &&
         (name.ends_with('8') || name.ends_with("16") || name.ends_with("32") || name.ends_with("64"));
}

// x.to('cpu'), x.to(pf.float16), x.to(other), x.to(device, dtype), and the keywords.
nb::object to(nb::handle_t<Tensor> self, nb::args args, nb::kwargs kwargs) {
  const Tensor& x = *nb::inst_ptr<Tensor>(self);
  DTypeOpt dtype;
  DeviceOpt device;
  int bools = 0;
  bool copy = false;
  std::optional<MemoryFormat> format;
  auto take = [&](nb::handle a) {
    DType d;
    if (a.is_none()) return;
    if (const Tensor* t = as_tensor(a)) {
      dtype = t->dtype();
      device = t->device();
    } else if (dtype_from(a, &d) || is_meant_as_dtype(a)) {
      dtype = static_cast<DTypeOpt>(DTypeArg{a});
    } else if (PyBool_Check(a.ptr())) {
      // The first is non_blocking, which is ignored: copies are in order with ops, so there is nothing to wait for.
      PF_CHECK(bools < 2, Type, "to: too many flags; got {}; expected non_blocking and copy", short_repr(a));
      if (++bools == 2) copy = a.ptr() == Py_True;
    } else if (nb::isinstance<Device>(a) || PyUnicode_Check(a.ptr()) || PyLong_Check(a.ptr())) {
      device = usable_device(a);
    } else {
      PF_FAIL(Type, "to: not a device, dtype or tensor; got {}", short_repr(a));
    }
  };
  for (nb::handle a : args) take(a);
  for (auto [k, v] : kwargs) {
    const std::string key = nb::cast<std::string>(k);
    if (key == "dtype") dtype = static_cast<DTypeOpt>(DTypeArg{v});
    else if (key == "device" || key == "other") take(v);
    else if (key == "copy") copy = nb::cast<bool>(v);
    else if (key == "memory_format") format = FormatArg{v}.get("to");
    else if (key != "non_blocking")
      PF_FAIL(Type, "to: unexpected keyword; got '{}'; expected dtype, device, other, copy or memory_format", key);
  }
  Tensor y = device ? to_device(x, *device) : x;
  if (dtype) y = converted(y, *dtype);
  if (copy && y.same(x)) y = clone_preserving(x);
  if (format) y = contiguous(y, *format);
  return same_or_new(self, x, y);
}

template <DType D>
nb::object to_dtype(nb::handle_t<Tensor> self, FormatArg format) {
  const Tensor& x = *nb::inst_ptr<Tensor>(self);
  const Tensor y = converted(x, D);
  const auto wanted = format.get("to");
  return same_or_new(self, x, wanted ? contiguous(y, *wanted) : y);
}

constexpr const char* kOfComplex = " Of complex numbers, the real parts, with a warning.";

template <DType D>
void bind_cast(TensorClass& c, const char* name, const char* text) {
  static const std::string doc =
      std::string("The tensor converted to ") + text + (is_complex(D) || D == DType::bool_ ? "" : kOfComplex) +
      "\nThe tensor itself when it has that dtype already. memory_format: the order in memory of the result; that of "
      "the tensor unless given.";
  c.def(name, &to_dtype<D>, "memory_format"_a.none() = nb::none(), doc.c_str());
}

void bind_properties(TensorClass& c) {
  c.def_prop_ro(
      "shape", [](const Tensor& x) { return size_object(x.shape()); },
      "The sizes of the dimensions: a pyflame.Size, which is a tuple; () of a 0-d tensor.");
  c.def_prop_ro(
      "dtype", [](const Tensor& x) { return dtype_object(x.dtype()); },
      "The type of the elements, such as pyflame.float32. It does not change; see to().");
  c.def_prop_ro(
      "device", [](const Tensor& x) { return x.device(); },
      "The device on which the elements are: a pyflame.device, which compares equal to its name.");
  c.def_prop_ro(
      "ndim", [](const Tensor& x) { return x.dim(); },
      "The number of dimensions, the length of shape: 0 for a tensor of one number.");
  c.def_prop_ro(
      "nbytes", [](const Tensor& x) { return x.nbytes(); },
      "The number of elements times the bytes of one. A view counts its own elements, not the memory it shares.");
  c.def_prop_ro(
      "itemsize", [](const Tensor& x) { return x.itemsize(); },
      "The bytes of one element, as element_size(): 4 for float32, 8 for complex64.");
  c.def_prop_rw(
      "requires_grad", [](const Tensor& x) { return x.requires_grad(); },
      [](const Tensor& x, bool on) { x.set_requires_grad(on); },
      "Whether gradients are computed for it. It can be set for a leaf of a floating or complex dtype; ValueError for "
      "other dtypes, and where it is switched off for the result of an op.");
  c.def_prop_rw(
      "grad",
      [](const Tensor& x) -> nb::object {
        Tensor g = x.grad();
        return g ? nb::cast(std::move(g)) : nb::none();
      },
      [](const Tensor& x, nb::handle g) {
        if (g.is_none()) return x.set_grad(Tensor());
        const Tensor* t = as_tensor(g);
        PF_CHECK(t, Type, "grad: not a tensor; got {}; expected a tensor or None", kind_name(g));
        PF_CHECK(t->shape() == x.shape() && t->dtype() == x.dtype(), Value,
                 "grad: does not fit; got shape {} and dtype {}; expected {} and {}", t->shape().str(),
                 dtype_name(t->dtype()), x.shape().str(), dtype_name(x.dtype()));
        x.set_grad(*t);
      },
      nb::for_setter("grad"_a.none()),
      "The sum of the gradients that backward() has computed for this tensor, or None. A tensor that is assigned has "
      "its shape and dtype; ValueError otherwise.");
  c.def_prop_ro(
      "is_leaf", [](const Tensor& x) { return x.is_leaf(); },
      "Whether no recorded op made it: backward() stores gradients in such tensors, where requires_grad is set.");
  c.def_prop_ro(
      "grad_fn",
      [](const Tensor& x) -> nb::object {
        Ref<GradNode> fn = x.grad_fn();
        return fn ? nb::cast(fn) : nb::none();
      },
      "The recorded step that made the tensor and that backward() goes back through, a GradFn, or None for a leaf.");
  c.def_prop_rw(
      "data", [](const Tensor& x) { return x.detach(); },
      [](const Tensor& x, const Tensor& value) {
        PF_CHECK(value.shape() == x.shape(), Value, "data: shapes differ; got {}; expected {}", value.shape().str(),
                 x.shape().str());
        grad_mode::Guard off(false);
        copy_(x, value);
      },
      "The same elements in the same memory, without history. Assigning copies into them; ValueError when shapes "
      "differ.");
  c.def_prop_ro(
      "T",
      [](const Tensor& x) {
        PF_CHECK(x.dim() <= 2, Value, "T: only for up to 2 dimensions; got shape {}; hint: use mT or permute",
                 x.shape().str());
        return x.dim() == 2 ? transpose(x, 0, 1) : x;
      },
      "The transpose of a matrix, a view. A tensor of one or no dimension is returned as it is; ValueError for more "
      "than two.");
  c.def_prop_ro(
      "mT",
      [](const Tensor& x) {
        PF_CHECK(x.dim() >= 2, Value, "mT: needs 2 dimensions; got shape {}", x.shape().str());
        return transpose(x, -2, -1);
      },
      "A view with the last two dimensions swapped: [.., M, N] becomes [.., N, M]. ValueError for fewer than two.");
  c.def_prop_ro("_version", [](const Tensor& x) { return x.storage()->version.load(); });
  c.def_prop_ro("_escaped", [](const Tensor& x) { return x.storage()->escaped(); });
}

void bind_queries(TensorClass& c) {
  // For nn.Module.to(): the Python object stays the same (optimizers hold it), but refers to another tensor.
  c.def(
      "_become",
      [](Tensor& x, const Tensor& value, bool requires_grad) {
        x = value.detach();
        mark_lasting(*x.storage());
        if (requires_grad) x.set_requires_grad(true);
      },
      "value"_a, "requires_grad"_a);
  c.def(
      "_lasts", [](const Tensor& x) { mark_lasting(*x.storage()); },
      "A parameter or a buffer: what is computed from it alone may be kept while it does not change.");
  // For transpose_ and its like: the object becomes a view of what it was, with its history.
  c.def(
      "_rebind",
      [](Tensor& x, const Tensor& view) {
        PF_CHECK(
            !grad_mode::enabled() || !x.requires_grad() || !x.is_leaf(), Runtime,
            "in-place view: a leaf tensor that requires grad cannot change its shape; got shape {}; hint: clone() it",
            x.shape().str());
        x = Tensor(view);
      },
      "view"_a);
  c.def(
      "size",
      [](const Tensor& x, std::optional<int64_t> dim) -> nb::object {
        if (dim) return nb::int_(x.size(*dim));
        return size_object(x.shape());
      },
      "dim"_a.none() = nb::none(),
      "All sizes as a pyflame.Size, or with dim the size of one dimension. IndexError when dim is out of range.");
  c.def(
      "stride",
      [](const Tensor& x, std::optional<int64_t> dim) -> nb::object {
        fix_layout(x);
        if (dim) return nb::int_(x.strides()[normalize_dim("stride", *dim, x.dim())]);
        return dims_tuple(x.strides());
      },
      "dim"_a.none() = nb::none(),
      "How many elements of memory lie between neighbours along each dimension, a tuple; with dim the number of one "
      "dimension. IndexError when dim is out of range.");
  c.def("_storage_nbytes", [](const Tensor& x) { return x.storage()->nbytes; });
  c.def("_is_inference", [](const Tensor& x) {
    const AutogradMeta* m = x.impl()->autograd.get();
    return m && m->inference;
  });
  c.def(
      "storage_offset", [](const Tensor& x) { return x.offset(); },
      "Where the first element lies in the memory that the tensor shares with its views, counted in elements.");
  c.def(
      "data_ptr",
      [](const Tensor& x) {
        Unlocked u;
        fix_layout(x);
        note_exposed(*x.storage(), true);  // whoever has the address may write
        return reinterpret_cast<uintptr_t>(x.data());
      },
      "Address of the first element; a sync point. Writing through it is not seen by anything.");
  for (const char* name : {"numel", "nelement"})
    c.def(
        name, [](const Tensor& x) { return x.numel(); },
        "The number of elements, the product of the sizes: 1 for a 0-d tensor.");
  for (const char* name : {"dim", "ndimension"})
    c.def(
        name, [](const Tensor& x) { return x.dim(); },
        "The number of dimensions, the length of shape: 0 for a tensor of one number.");
  c.def(
      "element_size", [](const Tensor& x) { return x.itemsize(); },
      "The bytes of one element, as itemsize: 4 for float32, 8 for complex64.");
  c.def(
      "is_contiguous",
      [](const Tensor& x, FormatArg format) {
        return is_contiguous(x, format.get("is_contiguous").value_or(MemoryFormat::contiguous));
      },
      "memory_format"_a.none() = nb::none(),
      "Whether it lies in memory in row-major order, or as channels_last has it.");
  c.def("is_complex", [](const Tensor& x) { return is_complex(x.dtype()); });
  c.def(
      "is_floating_point", [](const Tensor& x) { return x.is_floating_point(); },
      "Whether the dtype is one of floating-point numbers, such as float32 or bfloat16. False for complex dtypes.");
  c.def(
      "is_same", [](const Tensor& x, const Tensor& other) { return x.same(other); }, "other"_a,
      "Whether both names mean the same tensor. A view of a tensor is another one, although it shares the memory.");
  c.def("item", &item_object, "The only element as a Python number; ValueError when there is not exactly one.");
  c.def(
      "tolist", &to_list,
      "The elements as nested lists of Python numbers; for a 0-d tensor a number. The call waits for the result of the "
      "recorded ops.");
}

// Integers and a Size are sizes, no argument is size 0, and everything else is data: PyTorch's old constructors.
Tensor sizes_or_data(const char* op, const nb::args& args, DType dtype, DeviceOpt device) {
  if (args.size() == 0) return empty(Dims{0}, dtype, device);
  const nb::handle first = args[0];
  if (args.size() > 1 || is_size(first) || (PyIndex_Check(first.ptr()) && !as_tensor(first) && !is_numpy_array(first)))
    return empty(dims_from_args(op, args), dtype, device);
  Scalar s{0};
  PF_CHECK(as_tensor(first) || !scalar_from(first, &s), Type,
           "{}: not sizes and not data; got {}; expected integers, a sequence or an array; hint: pyflame.tensor()", op,
           short_repr(first));
  return make_tensor(op, first, dtype, device);
}

constexpr std::pair<std::string_view, DType> kTypeNames[] = {{"Double", DType::float64},
                                                             {"Float", DType::float32},
                                                             {"Half", DType::float16},
                                                             {"BFloat16", DType::bfloat16},
                                                             {"Long", DType::int64},
                                                             {"Int", DType::int32},
                                                             {"Short", DType::int16},
                                                             {"Char", DType::int8},
                                                             {"Byte", DType::uint8},
                                                             {"Bool", DType::bool_},
                                                             {"ComplexFloat", DType::complex64},
                                                             {"ComplexDouble", DType::complex128}};

// The name that PyTorch has for the tensors of a dtype on a device. Programs compare it.
std::string type_name(const Tensor& x) {
  const bool gpu = x.device().type == DeviceType::rocm || x.device().type == DeviceType::cuda;
  for (const auto& [name, dtype] : kTypeNames)
    if (dtype == x.dtype()) return fmt::format("torch.{}{}Tensor", gpu ? "cuda." : "", name);
  return fmt::format("pyflame.{}", dtype_name(x.dtype()));
}

// The dtype of such a name.
std::optional<DType> dtype_of_type_name(std::string_view name) {
  if (!name.ends_with("Tensor")) return {};
  name = name.substr(name.rfind('.') + 1);
  name.remove_suffix(std::string_view("Tensor").size());
  for (const auto& [text, dtype] : kTypeNames)
    if (text == name) return dtype;
  return {};
}

void bind_protocols(TensorClass& c) {
  c.def(
      "__init__",
      [](Tensor* self, nb::args args) {
        const Tensor* t = args.size() == 1 ? as_tensor(args[0]) : nullptr;
        new (self) Tensor(t ? *t : sizes_or_data("Tensor", args, default_dtype(), {}));
      },
      "args"_a,
      "Of sizes: a tensor of the default dtype with arbitrary contents. Of a sequence or array: a copy. Of a tensor: a "
      "further name for it. Use pyflame.tensor() and pyflame.empty().");
  c.def(
      "new", [](const Tensor& x, nb::args args) { return sizes_or_data("new", args, x.dtype(), x.device()); }, "args"_a,
      "A tensor of these sizes with arbitrary contents, or a copy of data, of self's dtype and on its device.");
  c.def("__len__", [](const Tensor& x) {
    PF_CHECK(x.dim() > 0, Type, "len: a 0-d tensor has no length");
    return x.shape()[0];
  });
  c.def("__iter__", [](const Tensor& x) {
    PF_CHECK(x.dim() > 0, Type, "iter: a 0-d tensor cannot be iterated; hint: use item()");
    nb::list rows;
    for (int64_t i = 0; i < x.shape()[0]; ++i) rows.append(select(x, 0, i));
    return nb::iter(rows);
  });
  c.def("__bool__", &truth);
  c.def("__float__", [](const Tensor& x) { return nb::cast<double>(nb::float_(item_object(x))); });
  c.def("__complex__",
        [](const Tensor& x) { return nb::module_::import_("builtins").attr("complex")(item_object(x)); });
  c.def("__int__", [](const Tensor& x) { return nb::int_(item_object(x)); });
  c.def("__index__", [](const Tensor& x) {
    PF_CHECK(!has_gradient(x.dtype()) && x.numel() == 1, Type,
             "index: only integer tensors of one element are indices; got dtype {} and shape {}", dtype_name(x.dtype()),
             x.shape().str());
    return nb::int_(item_object(x));
  });
  c.def("__repr__", &repr);
  c.def("__format__", [](const Tensor& x, nb::str spec) -> nb::object {
    if (x.dim() == 0) return nb::module_::import_("builtins").attr("format")(item_object(x), spec);
    PF_CHECK(nb::len(spec) == 0, Type, "format: only a 0-d tensor takes a format; got shape {}", x.shape().str());
    return nb::str(repr(x).c_str());
  });
  c.def("__contains__", [](const Tensor& x, const Value& v) {
    Tensor found = any(eq(x, v));
    return truth(found);
  });
}

void bind_conversions(nb::module_& m, TensorClass& c) {
  c.def(
      "to", &to,
      "A tensor of another dtype, on another device, or both; itself when nothing changes.\n"
      "\n"
      "The forms of call:\n"
      "\n"
      "    x.to(dtype)             pf.float16, or its name 'float16'; float is float64, int is int64\n"
      "    x.to(device)            'cpu', 'rocm', 'rocm:1', 'cuda', 'reference', 'null'; a number is that of a GPU\n"
      "    x.to(device, dtype)     both, in either order, or as device= and dtype=\n"
      "    x.to(other)             dtype and device of another tensor\n"
      "\n"
      "copy=True gives a tensor of its own also when nothing changes. memory_format: the order of elements in memory.\n"
      "non_blocking changes nothing: copies are in order with ops. To integers, numbers are rounded towards zero; to\n"
      "bool, zero becomes False and anything else True. Gradients have the dtype and device of the tensor.\n"
      "\n"
      "ValueError for a name that is no device; DeviceError for a device that this machine does not have; TypeError\n"
      "for what is no dtype, device or tensor, and for unknown keywords.\n"
      "\n"
      "    >>> pf.tensor([1.7, -1.7]).to(pf.int64)\n"
      "    tensor([ 1, -1], dtype=pyflame.int64)");
  bind_cast<DType::float32>(c, "float", "float32.");
  bind_cast<DType::float64>(c, "double", "float64.");
  bind_cast<DType::float16>(c, "half", "float16.");
  bind_cast<DType::bfloat16>(c, "bfloat16", "bfloat16.");
  bind_cast<DType::int64>(c, "long", "int64, rounded towards zero.");
  bind_cast<DType::int32>(c, "int", "int32, rounded towards zero.");
  bind_cast<DType::int16>(c, "short", "int16, rounded towards zero.");
  bind_cast<DType::int8>(c, "char", "int8, rounded towards zero.");
  bind_cast<DType::uint8>(c, "byte", "uint8, rounded towards zero.");
  bind_cast<DType::bool_>(c, "bool", "bool: False for zero, True for anything else.");
  bind_cast<DType::complex64>(c, "cfloat", "complex64.");
  bind_cast<DType::complex128>(c, "cdouble", "complex128.");
  c.def(
      "type",
      [](nb::handle_t<Tensor> self, DTypeArg dtype) -> nb::object {
        const Tensor& x = *nb::inst_ptr<Tensor>(self);
        if (dtype.raw.is_none()) return nb::str(type_name(x).c_str());
        if (PyUnicode_Check(dtype.raw.ptr()))
          if (const auto d = dtype_of_type_name(nb::cast<std::string>(dtype.raw)))
            return same_or_new(self, x, converted(x, *d));
        return same_or_new(self, x, converted(x, dtype.require("type")));
      },
      "dtype"_a.none() = nb::none(),
      "PyTorch's name for the type, such as 'torch.FloatTensor', or a cast to another dtype.");
  c.def(
      "type_as", [](const Tensor& x, const Tensor& other) { return converted(x, other.dtype()); }, "other"_a,
      "The tensor converted to the dtype of other; the tensor itself when it has that dtype already.");
  c.def(
      "cpu",
      [](nb::handle_t<Tensor> self, FormatArg format) {
        const Tensor& x = *nb::inst_ptr<Tensor>(self);
        const Tensor y = to_device(x, Device{});
        const auto wanted = format.get("cpu");
        return same_or_new(self, x, wanted ? contiguous(y, *wanted) : y);
      },
      "memory_format"_a.none() = nb::none(),
      "A copy of the tensor on the CPU; the tensor itself when it is there already.");
  c.def(
      "contiguous",
      [](nb::handle_t<Tensor> self, FormatArg format) {
        const Tensor& x = *nb::inst_ptr<Tensor>(self);
        return same_or_new(self, x, contiguous(x, format.get("contiguous").value_or(MemoryFormat::contiguous)));
      },
      "memory_format"_a.none() = nb::none(),
      "Itself when it lies in memory in row-major order (or as channels_last has it), otherwise a copy that does.");
  c.def("detach", &Tensor::detach,
        "The same elements in the same memory, but without history: requires_grad is False, and no gradient flows "
        "through. Writes to one of them are seen in the other.");
  m.def(
      "clone",
      [](const Tensor& x, FormatArg format) {
        const auto wanted = format.get("clone");
        return wanted ? contiguous(clone(x), *wanted) : clone_preserving(x);
      },
      "input"_a, nb::kw_only(), "memory_format"_a.none() = nb::none(),
      "A copy, in memory in the order of the input unless memory_format says another; gradients flow through it. "
      "TypeError for what is no memory format, ValueError for channels_last without four dims.");
  c.def(
      "clone",
      [](const Tensor& x, FormatArg format) {
        const auto wanted = format.get("clone");
        return wanted ? contiguous(clone(x), *wanted) : clone_preserving(x);
      },
      nb::kw_only(), "memory_format"_a.none() = nb::none(),
      "A copy, in memory in the order of this tensor unless memory_format says another; gradients flow through it. "
      "TypeError for what is no memory format, ValueError for channels_last without four dims.");
}

}  // namespace

namespace {

void bind_print_options(nb::module_& m) {
  m.def(
      "_set_printoptions",
      [](int precision, int64_t threshold, int64_t edge_items, int line_width, std::optional<bool> scientific) {
        g_print_options = {precision, threshold, edge_items, line_width, scientific};
      },
      "precision"_a, "threshold"_a, "edge_items"_a, "line_width"_a, "scientific"_a.none());
  m.def("_print_options", [] {
    const PrintOptions& o = g_print_options;
    return nb::make_tuple(o.precision, o.threshold, o.edge_items, o.line_width, o.scientific);
  });
}

}  // namespace

void bind_tensor(nb::module_& m, TensorClass& c) {
  bind_print_options(m);
  bind_properties(c);
  bind_queries(c);
  bind_protocols(c);
  bind_conversions(m, c);
}

}  // namespace pyflame::python
