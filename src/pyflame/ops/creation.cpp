// Makes tensors from values or from host memory. Ops with values are recorded; empty() and from_host() allocate at
// once.
#include <cmath>

#include "pyflame/ops/complex.h"
#include "pyflame/ops/helpers.h"
#include "pyflame/record/cut_cause.h"
#include "pyflame/record/emit.h"
#include "pyflame/tensor/default_dtype.h"
#include "pyflame/tensor/runtime_hooks.h"

namespace pyflame {

using ops::check_defined;

namespace {

DType number_dtype(const Scalar& s) { return promote(DType::bool_, s); }

Tensor allocated(const char* op, const Dims& shape, DType dtype, DeviceOpt device) {
  const int64_t n = checked_numel(op, shape);
  return Tensor(
      runtime_hooks.allocate_storage(device.value_or(current_device()), static_cast<size_t>(n * dtype_size(dtype))),
      shape, contiguous_strides(shape), 0, dtype);
}

}  // namespace

Tensor empty(const Dims& shape, DTypeOpt dtype, DeviceOpt device) {
  return allocated("empty", shape, dtype.value_or(default_dtype()), device);
}

void ops::check_fits(const char* op, const Scalar& value, DType dtype) {
  PF_CHECK(value.kind != Category::Complex || is_complex(dtype), Type,
           "{}: a complex number for a real dtype; got {}; expected complex64 or complex128", op, dtype_name(dtype));
  if (dtype_category(dtype) != Category::Integer || dtype == DType::int64) {
    PF_CHECK(dtype != DType::int64 || value.kind != Category::Float || (value.f >= -0x1p63 && value.f < 0x1p63), Value,
             "{}: the number does not fit the dtype; got {}; expected a number that int64 can hold", op, value.f);
    return;
  }
  const int bits = static_cast<int>(dtype_size(dtype)) * 8;
  const bool is_unsigned = dtype == DType::uint8;
  const double low = is_unsigned ? 0 : -std::ldexp(1.0, bits - 1),
               high = std::ldexp(1.0, is_unsigned ? bits : bits - 1) - 1;
  const double v = value.kind == Category::Float ? std::trunc(value.f) : static_cast<double>(value.i);
  PF_CHECK(v >= low && v <= high, Value, "{}: the number does not fit the dtype; got {}; expected {} to {} for {}", op,
           value.f, low, high, dtype_name(dtype));
}

Tensor full(const Dims& shape, Scalar value, DTypeOpt dtype, DeviceOpt device) {
  checked_numel("full", shape);
  const DType d = dtype.value_or(number_dtype(value));
  ops::check_fits("full", value, d);
  if (is_complex(d)) return ops::complex_full(shape, value, d, device.value_or(current_device()));
  return emit_on(device.value_or(current_device()), OpId::full, {Arg(value, d)}, shape, d);
}

Tensor zeros(const Dims& shape, DTypeOpt dtype, DeviceOpt device) {
  return full(shape, 0, dtype.value_or(default_dtype()), device);
}
Tensor ones(const Dims& shape, DTypeOpt dtype, DeviceOpt device) {
  return full(shape, 1, dtype.value_or(default_dtype()), device);
}

Tensor empty_like(const Tensor& x, DTypeOpt dtype) {
  check_defined("empty_like", x);
  return empty(x.shape(), dtype.value_or(x.dtype()), x.device());
}
Tensor full_like(const Tensor& x, Scalar value, DTypeOpt dtype) {
  check_defined("full_like", x);
  return full(x.shape(), value, dtype.value_or(x.dtype()), x.device());
}
Tensor zeros_like(const Tensor& x, DTypeOpt dtype) { return full_like(x, 0, dtype); }
Tensor ones_like(const Tensor& x, DTypeOpt dtype) { return full_like(x, 1, dtype); }

Tensor arange(Scalar start, Scalar end, Scalar step, DTypeOpt dtype, DeviceOpt device) {
  const bool whole = start.kind != Category::Float && end.kind != Category::Float && step.kind != Category::Float;
  const DType d = dtype.value_or(whole ? DType::int64 : default_dtype());
  PF_CHECK(d != DType::bool_, Type, "arange: not defined for bool; got dtype bool; expected integers or floats");
  PF_CHECK(step.f != 0, Value, "arange: the step is 0; got step {}; expected a step that is not 0", step.f);
  PF_CHECK(std::isfinite(start.f) && std::isfinite(end.f) && std::isfinite(step.f), Value,
           "arange: not a finite range; got start {}, end {}, step {}; expected finite numbers", start.f, end.f,
           step.f);
  PF_CHECK((end.f >= start.f) == (step.f > 0) || end.f == start.f, Value,
           "arange: the step leads away from the end; got start {}, end {}, step {}; expected a step towards the end",
           start.f, end.f, step.f);
  int64_t n;
  if (whole) {
    __extension__ using Wide = __int128;  // end - start may not fit into 64 bits
    const Wide span = Wide{end.i} - start.i, by = step.i;
    const Wide count = (span + by + (by > 0 ? -1 : 1)) / by;
    n = count > INT64_MAX ? INT64_MAX : static_cast<int64_t>(count);
  } else {
    const double count = std::ceil((end.f - start.f) / step.f);
    n = count < 0x1p62 ? static_cast<int64_t>(count) : INT64_MAX;
  }
  const Dims shape{n};
  checked_numel("arange", shape);
  return emit_on(device.value_or(current_device()), OpId::arange, {Arg(start, d), Arg(step, d)}, shape, d);
}

Tensor linspace(Scalar first, Scalar last, int64_t steps, DTypeOpt dtype, DeviceOpt device) {
  if (first.kind == Category::Complex || last.kind == Category::Complex) {
    const DType d = dtype.value_or(complex_dtype(default_dtype()));
    PF_CHECK(is_complex(d), Type, "linspace: complex ends with a real dtype; got {}; expected a complex dtype",
             dtype_name(d));
    return cast(complex(linspace(first.f, last.f, steps, DType::float64, device),
                        linspace(first.imag, last.imag, steps, DType::float64, device)),
                d);
  }
  double start = first.f, end = last.f;
  PF_CHECK(steps >= 0, Value, "linspace: negative number of steps; got {}; expected >= 0", steps);
  const DType d = dtype.value_or(default_dtype());
  if (!is_float(d) && !is_complex(d)) start = std::trunc(start), end = std::trunc(end);
  if (steps <= 1) return full({steps}, start, d, device);
  // Computed in float64 and from both ends, so that both ends are exact and the values are symmetric.
  const double step = (end - start) / static_cast<double>(steps - 1);
  const Tensor i = arange(0, steps, 1, DType::float64, device);
  const Tensor from_start = add(mul(i, step), start);
  const Tensor from_end = sub(end, mul(sub(static_cast<double>(steps - 1), i), step));
  return cast(where(lt(i, static_cast<double>(steps / 2)), from_start, from_end), d);
}

Tensor eye(int64_t n, std::optional<int64_t> m, DTypeOpt dtype, DeviceOpt device) {
  const int64_t columns = m.value_or(n);
  PF_CHECK(n >= 0 && columns >= 0, Value, "eye: negative size; got {} by {}; expected sizes >= 0", n, columns);
  checked_numel("eye", {n, columns});
  const Tensor rows = reshape(arange(0, n, 1, DType::int64, device), {n, 1});
  return cast(eq(rows, arange(0, columns, 1, DType::int64, device)), dtype.value_or(default_dtype()));
}

Tensor from_host(const void* data, const Dims& shape, DType dtype, DeviceOpt device) {
  Tensor t = allocated("from_host", shape, dtype, device);
  if (t.nbytes() > 0) runtime_hooks.copy_from_host(*t.storage(), data, static_cast<size_t>(t.nbytes()));
  return t;
}

Tensor ops::copied_to(const Tensor& dense, Device device) {
  if (!has_own_memory(dense.device().type)) return from_host(dense.data(), dense.shape(), dense.dtype(), device);
  dense.data();  // starts pending work before the copy is queued
  if (has_own_memory(device.type)) {
    const Tensor out = empty(dense.shape(), dense.dtype(), device);
    if (runtime_hooks.copy_between(*out.storage(), *dense.storage(),
                                   static_cast<size_t>(dense.offset() * dense.itemsize()),
                                   static_cast<size_t>(dense.nbytes())))
      return out;
  }
  const Tensor host = empty(dense.shape(), dense.dtype(), Device{});
  runtime_hooks.copy_to_host(host.storage()->data, *dense.storage(),
                             static_cast<size_t>(dense.offset() * dense.itemsize()),
                             static_cast<size_t>(dense.nbytes()));
  return device == Device{} ? host : copied_to(host, device);
}

Tensor one_hot(const Tensor& index, int64_t num_classes) {
  check_defined("one_hot", index);
  PF_CHECK(index.dtype() == DType::int64, Type, "one_hot: the index is not int64; got {}; expected int64",
           dtype_name(index.dtype()));
  int64_t classes = num_classes;
  if (classes == -1) {
    PF_CHECK(index.numel() > 0, Value,
             "one_hot: the number of classes cannot be read from an empty index; got {}; hint: give num_classes",
             index.shape().str());
    const CutCause why("the number of classes, because the size of the result depends on the data");
    classes = max(index).item_i64() + 1;
    PF_CHECK(classes > 0, Index, "one_hot: index out of range; got {}; expected 0 or more", classes - 1);
  }
  PF_CHECK(classes > 0, Value, "one_hot: the number of classes is not positive; got {}; expected > 0", classes);
  Dims shape = index.shape();
  shape.push_back(classes);
  const Tensor at = unsqueeze(index, -1);
  // An index out of range then raises when it is read, as for every indexing op.
  return scatter_add(zeros(shape, DType::int64, index.device()), -1, at, ones_like(at));
}

}  // namespace pyflame
