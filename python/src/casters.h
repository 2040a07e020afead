// Conversions of Python values to those of the core. If a caster fails, nanobind reports "incompatible function
// arguments", which does not help a user who misspelled a dtype. So arguments with a small vocabulary (dtype, device,
// shapes) are taken as objects and report errors themselves.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>

#include "pyflame/ops/ops.h"
#include "pyflame/record/emit.h"
#include "pyflame/tensor/device.h"
#include "pyflame/tensor/tensor.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace pyflame::python {

// The Python object of a dtype. Each is made once.
struct PyDType {
  DType value;
};

extern PyTypeObject* tensor_type;  // set when the class is bound

// The tensor inside a Python object; null if it has none (or is of a subclass that never called Tensor.__init__).
inline Tensor* as_tensor(nb::handle h) {
  if (!PyObject_TypeCheck(h.ptr(), tensor_type) || !nb::inst_ready(h)) return nullptr;
  Tensor* t = nb::inst_ptr<Tensor>(h);
  return *t ? t : nullptr;
}

// The tensor of a method's self, which is one.
inline const Tensor& self_tensor(nb::handle h) { return *nb::inst_ptr<Tensor>(h); }

nb::object dtype_object(DType d);
// Accepts pf.float32, 'float32', numpy.float32, numpy.dtype('float32'), float, int, bool. False if it is none of these.
bool dtype_from(nb::handle h, DType* out) noexcept;
// A Python, NumPy or 0-d number.
bool scalar_from(nb::handle h, Scalar* out) noexcept;
bool is_numpy_array(nb::handle h) noexcept;
std::string kind_name(nb::handle h);
std::string short_repr(nb::handle h);

// A number, or a tensor of one element, which is read: that waits for it.
struct NumberArg {
  nb::handle raw;
  operator Scalar() const;
};

struct DTypeArg {
  nb::handle raw;
  operator DTypeOpt() const {
    DType d;
    if (!raw || raw.is_none()) return {};
    if (!dtype_from(raw, &d)) refuse();
    return d;
  }
  DType require(const char* op) const {
    const DTypeOpt d = *this;
    PF_CHECK(d, Type, "{}: no dtype; got None; expected a dtype such as pyflame.float32", op);
    return *d;
  }
  [[noreturn]] void refuse() const;
};

Device device_from(nb::handle h);  // a str, a device object or the number of a GPU; TypeError, ValueError
Device device_from_text(std::string text);
// While programs of PyTorch run, 'cuda' names the GPU there is, of any vendor.
bool cuda_names_any_gpu();
Device usable_device(nb::handle h);  // also DeviceError with the reason if it is not available
struct DeviceArg {
  nb::handle raw;
  operator DeviceOpt() const {
    if (!raw || raw.is_none()) return {};
    return usable_device(raw);
  }
};

// Sizes or dims: an int, or a sequence of ints.
struct DimsArg {
  Dims dims;
  bool given = false;
  bool too_many = false;
  operator const Dims&() const { return get(); }
  const Dims& get() const {
    PF_CHECK(!too_many, Value, "shape: too many dimensions; got more than {}; expected at most {}", kMaxDims, kMaxDims);
    return dims;
  }
};
bool dims_from(nb::handle h, DimsArg* out) noexcept;
// *sizes: either all of them as arguments, or one sequence.
Dims dims_from_args(const char* op, const nb::args& args);

// A memory format. preserve_format and None mean: as it lies.
struct FormatArg {
  nb::handle raw;
  std::optional<MemoryFormat> get(const char* op) const;
};
constexpr MemoryFormat kPreserveFormat{2}, kChannelsLast3d{3};  // names that Python has besides the core's

struct PairArg {
  int64_t h = 0, w = 0;
  operator Pair() const { return {h, w}; }
};

nb::tuple dims_tuple(const Dims& d);
// The same as pyflame.Size, a tuple that knows the product of its entries.
nb::object size_object(const Dims& d);
bool is_size(nb::handle h) noexcept;
void bind_size(nb::module_& m);
// Python references that the core may release at any time, on any thread, without the GIL: the release is then
// deferred.
void drop_reference(PyObject* o) noexcept;
void drain_dropped() noexcept;
struct Held {
  PyObject* object;
  explicit Held(nb::handle h) : object(h.inc_ref().ptr()) {}
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held() { drop_reference(object); }
  nb::handle handle() const { return object; }
};

// Holds the GIL for a scope. A thread that asks for it after the interpreter was taken down waits for ever: Python would unwind its stack,
// and C++ ends the process when that meets a function that may not throw.
struct Locked {
  Locked();
  ~Locked();
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  PyGILState_STATE state_;
};

// Releases the GIL for a scope. The Python line that waits is kept as the source location of ops that are recorded
// meanwhile.
struct Unlocked {
  Unlocked();
  ~Unlocked();
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  PyThreadState* state_;
  SourceLoc before_;
  bool had_;
};

// Marks calls of a Module. In our own code (a layer's forward), the source location of every op is the call of the
// outermost of our modules, so that frames need not be searched. In the user's code, it is the op's own line.
struct ModuleCode {
  explicit ModuleCode(PyCodeObject* code = nullptr);  // null: the user's code
  ~ModuleCode();
  ModuleCode(const ModuleCode&) = delete;
  ModuleCode& operator=(const ModuleCode&) = delete;

 private:
  SourceLoc site_;
  bool before_;
};

// Makes a tensor from any Python value (numbers, lists, arrays, tensors), as a copy.
Tensor make_tensor(const char* op, nb::handle data, DTypeOpt dtype, DeviceOpt device);
// Returns a tensor or number unchanged, and anything else through make_tensor.
Value make_value(const char* op, nb::handle data, const Tensor& like);
// What an operator takes on its right side: a tensor, a number or a NumPy array, which becomes a tensor on the device of
// the left side.
struct Operand {
  Value value{Scalar(0)};
  nb::handle array = {};
  const Value& with(const Tensor& left) const {
    if (array.is_valid()) converted = make_value("operator", array, left);
    return array.is_valid() ? converted : value;
  }
  mutable Value converted{Scalar(0)};
};
// Sets requires_grad on the result of a creation function.
inline Tensor leaf(Tensor t, bool requires_grad) {
  if (requires_grad) t.set_requires_grad(true);
  return t;
}
// Returns `self` again if the op returned the same handle, so that `x.contiguous() is x`.
inline nb::object same_or_new(nb::handle self, const Tensor& in, Tensor out) {
  return out.same(in) ? nb::borrow(self) : nb::cast(std::move(out));
}
inline const Tensor& or_undefined(const Tensor* t) {
  static const Tensor none;
  return t ? *t : none;
}

using TensorClass = nb::class_<Tensor>;
void bind_types(nb::module_& m);  // dtype, device, errors
void bind_tensor(nb::module_& m, TensorClass& c);
void bind_convert(nb::module_& m, TensorClass& c);
void bind_indexing(TensorClass& c);
void bind_elementwise(nb::module_& m, TensorClass& c);
void bind_complex(nb::module_& m, TensorClass& c);
void bind_shape_ops(nb::module_& m, TensorClass& c);
void bind_reductions(nb::module_& m, TensorClass& c);
void bind_layers(nb::module_& m, TensorClass& c);
void bind_creation(nb::module_& m, TensorClass& c);
void bind_linalg(nb::module_& m);
void bind_kernels(nb::module_& m);
void bind_autograd(nb::module_& m, TensorClass& c);
void bind_runtime(nb::module_& m);
void bind_io(nb::module_& m);
void bind_model_files(nb::module_& m);
void bind_module_base(nb::module_& m);
void bind_optimizers(nb::module_& m);
void bind_profiler(nb::module_& m);
void bind_explain(nb::module_& m);
void install_location_provider();
void bind_settings(nb::module_& m);
void explain_argument_errors(nb::module_& m, TensorClass& c);  // call it after everything is bound
void show_signatures(nb::module_& m, TensorClass& c);          // the same
PyType_Slot* tensor_slots();
SourceLoc current_python_location() noexcept;

// Binds one implementation as pf.name(input, …) and as x.name(…).
template <class F, class... Extra>
void both(nb::module_& m, TensorClass& c, const char* name, F f, const Extra&... extra) {
  m.def(name, f, "input"_a, extra...);
  c.def(name, f, extra...);
}

}  // namespace pyflame::python

namespace nanobind::detail {

template <>
struct type_caster<pyflame::Value> {
  static constexpr auto Name = const_name("Tensor | float");
  template <typename T_>
  using Cast = pyflame::Value;
  template <typename T_>
  static constexpr bool can_cast() {
    return true;
  }
  bool from_python(handle src, uint32_t, cleanup_list*) noexcept {
    if (pyflame::Tensor* t = pyflame::python::as_tensor(src)) {
      value.emplace(*t);
      return true;
    }
    pyflame::Scalar s{0};
    if (!pyflame::python::scalar_from(src, &s)) return false;
    value.emplace(s);
    return true;
  }
  explicit operator pyflame::Value() { return *value; }
  std::optional<pyflame::Value> value;
};

template <>
struct type_caster<pyflame::python::Operand> {
  NB_TYPE_CASTER(pyflame::python::Operand, const_name("Tensor | float"))
  bool from_python(handle src, uint32_t, cleanup_list*) noexcept {
    pyflame::Scalar s{0};
    if (pyflame::Tensor* t = pyflame::python::as_tensor(src)) value.value = *t;
    else if (pyflame::python::scalar_from(src, &s)) value.value = s;
    else if (pyflame::python::is_numpy_array(src)) value.array = src;
    else return false;
    return true;
  }
  static handle from_cpp(const pyflame::python::Operand&, rv_policy, cleanup_list*) noexcept {
    return none().release();
  }
};

template <>
struct type_caster<pyflame::Scalar> {
  static constexpr auto Name = const_name("float");
  template <typename T_>
  using Cast = pyflame::Scalar;
  template <typename T_>
  static constexpr bool can_cast() {
    return true;
  }
  bool from_python(handle src, uint32_t, cleanup_list*) noexcept { return pyflame::python::scalar_from(src, &value); }
  explicit operator pyflame::Scalar() { return value; }
  pyflame::Scalar value{0};
};

template <>
struct type_caster<pyflame::python::NumberArg> {
  NB_TYPE_CASTER(pyflame::python::NumberArg, const_name("float"))
  bool from_python(handle src, uint32_t, cleanup_list*) noexcept {
    value.raw = src;
    pyflame::Scalar ignored{0};
    const pyflame::Tensor* t = pyflame::python::as_tensor(src);
    return t ? t->numel() == 1 : pyflame::python::scalar_from(src, &ignored);
  }
  static handle from_cpp(const pyflame::python::NumberArg&, rv_policy, cleanup_list*) noexcept {
    return none().release();
  }
};

template <>
struct type_caster<pyflame::DType> {
  NB_TYPE_CASTER(pyflame::DType, const_name("pyflame.dtype"))
  bool from_python(handle src, uint32_t, cleanup_list*) noexcept { return pyflame::python::dtype_from(src, &value); }
  static handle from_cpp(pyflame::DType d, rv_policy, cleanup_list*) noexcept {
    return pyflame::python::dtype_object(d).release();
  }
};

template <>
struct type_caster<pyflame::python::DTypeArg> {
  NB_TYPE_CASTER(pyflame::python::DTypeArg, const_name("pyflame.dtype | str"))
  bool from_python(handle src, uint32_t, cleanup_list*) noexcept {
    value.raw = src;
    return true;
  }
  static handle from_cpp(const pyflame::python::DTypeArg&, rv_policy, cleanup_list*) noexcept {
    return none().release();
  }
};

template <>
struct type_caster<pyflame::python::DeviceArg> {
  NB_TYPE_CASTER(pyflame::python::DeviceArg, const_name("pyflame.device | str"))
  bool from_python(handle src, uint32_t, cleanup_list*) noexcept {
    value.raw = src;
    return true;
  }
  static handle from_cpp(const pyflame::python::DeviceArg&, rv_policy, cleanup_list*) noexcept {
    return none().release();
  }
};

template <>
struct type_caster<pyflame::python::FormatArg> {
  NB_TYPE_CASTER(pyflame::python::FormatArg, const_name("memory_format"))
  bool from_python(handle src, uint32_t, cleanup_list*) noexcept {
    value.raw = src;
    return true;
  }
  static handle from_cpp(const pyflame::python::FormatArg&, rv_policy, cleanup_list*) noexcept {
    return none().release();
  }
};

template <>
struct type_caster<pyflame::python::DimsArg> {
  NB_TYPE_CASTER(pyflame::python::DimsArg, const_name("int | Sequence[int]"))
  bool from_python(handle src, uint32_t, cleanup_list*) noexcept { return pyflame::python::dims_from(src, &value); }
  static handle from_cpp(const pyflame::python::DimsArg&, rv_policy, cleanup_list*) noexcept {
    return none().release();
  }
};

template <>
struct type_caster<pyflame::python::PairArg> {
  NB_TYPE_CASTER(pyflame::python::PairArg, const_name("int | tuple[int, int]"))
  bool from_python(handle src, uint32_t, cleanup_list*) noexcept {
    pyflame::python::DimsArg d;
    if (src.is_none() || !pyflame::python::dims_from(src, &d) || d.too_many) return false;
    if (d.dims.size() == 1) value = {d.dims[0], d.dims[0]};
    else if (d.dims.size() == 2) value = {d.dims[0], d.dims[1]};
    else return false;
    return true;
  }
  static handle from_cpp(const pyflame::python::PairArg&, rv_policy, cleanup_list*) noexcept {
    return none().release();
  }
};

}  // namespace nanobind::detail
