// Names of dtypes and type promotion. The table is PyTorch's: complex beats float beats integer beats bool. Within a category the
// larger type wins; if neither can hold the other, the result is the smallest type that holds both.
#include "pyflame/tensor/dtype.h"

#include <string>

#include "pyflame/tensor/default_dtype.h"

namespace pyflame {

namespace {
constexpr std::string_view kNames[] = {
#define X(name, ...) #name,
    PF_DTYPES(X) PF_COMPLEX_DTYPES(X) PF_FLOAT8_DTYPES(X)
#undef X
};
static_assert(std::size(kNames) == kNumDTypes);
}  // namespace

std::string_view dtype_name(DType d) { return d == DType::bool_ ? "bool" : kNames[static_cast<size_t>(d)]; }

DType dtype_from_name(std::string_view name) {
  std::string known;
  for (int i = 0; i < kNumDTypes; ++i) {
    const std::string_view candidate = dtype_name(static_cast<DType>(i));
    if (candidate == name) return static_cast<DType>(i);
    known += (i > 0 ? ", " : "") + std::string(candidate);
  }
  PF_FAIL(Value, "dtype: no such dtype; got '{}'; expected one of {}", name, known);
}

void refuse_dispatch(DType d) {
  PF_FAIL(Type, "dtype: no kernel computes in this dtype; got {}; expected another one; hint: .to(pf.float32)",
          dtype_name(d));
}

DType promote(DType a, DType b) {
  if (a == b) return a;
  PF_CHECK(!is_float8(a) && !is_float8(b), Type,
           "dtype: a float8 dtype is not promoted; got {} and {}; expected one dtype; hint: .to(pf.float32)",
           dtype_name(a), dtype_name(b));
  if (is_complex(a) || is_complex(b)) {
    const bool wide = complex_dtype(a) == DType::complex128 || complex_dtype(b) == DType::complex128;
    return wide ? DType::complex128 : DType::complex64;
  }
  if (dtype_category(a) != dtype_category(b)) return dtype_category(a) > dtype_category(b) ? a : b;
  if (is_half(a) && is_half(b)) return DType::float32;
  const bool unsigned_and_signed_byte = dtype_size(a) == 1 && dtype_size(b) == 1;  // bool never gets here
  if (unsigned_and_signed_byte) return DType::int16;
  return dtype_size(a) > dtype_size(b) ? a : b;
}

DType promote(DType tensor, const Scalar& number) {
  PF_CHECK(!is_float8(tensor) || number.kind != Category::Complex, Type,
           "dtype: a float8 dtype is not promoted; got {} and a complex number; expected a real number; hint: "
           ".to(pf.float32)",
           dtype_name(tensor));
  if (dtype_category(tensor) >= number.kind) return tensor;
  if (number.kind == Category::Complex) return complex_dtype(is_float(tensor) ? tensor : default_dtype());
  return number.kind == Category::Float ? default_dtype() : DType::int64;
}

}  // namespace pyflame
