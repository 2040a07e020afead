// The dtypes and PyTorch's promotion rules.
#pragma once
#include <cstdint>
#include <string_view>

#include "pyflame/base/error.h"
#include "pyflame/base/half.h"

namespace pyflame {

// The dtypes that kernels see: name, C++ type, category: bool 0, integer 1, float 2. The order is part of file and cache
// formats: only append, and after the complex dtypes.
// clang-format off
#define PF_DTYPES(X)          \
  X(float64, double, 2)       \
  X(float32, float, 2)        \
  X(float16, ::pyflame::float16, 2)    \
  X(bfloat16, ::pyflame::bfloat16, 2)  \
  X(int64, int64_t, 1)        \
  X(int32, int32_t, 1)        \
  X(int16, int16_t, 1)        \
  X(int8, int8_t, 1)          \
  X(uint8, uint8_t, 1)        \
  X(bool_, bool, 0)
// Complex dtypes, with the dtype of their parts. An element is the real part followed by the imaginary one. Ops on them
// are recorded as ops on the parts (docs/decisions/0016), so that no kernel has them.
#define PF_COMPLEX_DTYPES(X) \
  X(complex64, float32)      \
  X(complex128, float64)
// 8-bit floats: bits of the fraction, bias of the exponent, and which codes are no finite numbers (tensor/float8.h). They store values;
// an op on them is recorded on their bytes or on float32 (docs/decisions/0022), so that no kernel has them either.
#define PF_FLOAT8_DTYPES(X)                \
  X(float8_e4m3fn, 3, 7, OneNan)           \
  X(float8_e5m2, 2, 15, InfinityAndNan)    \
  X(float8_e4m3fnuz, 3, 8, NanAtMinusZero) \
  X(float8_e5m2fnuz, 2, 16, NanAtMinusZero)
// clang-format on

// All dtypes: DType::float32, DType::bool_, ...
enum class DType : uint8_t {
#define X(name, ...) name,
  PF_DTYPES(X) PF_COMPLEX_DTYPES(X) PF_FLOAT8_DTYPES(X)
#undef X
};
// The number of dtypes.
constexpr int kNumDTypes = 16;

// The kinds of dtypes; promotion goes to the higher one.
enum class Category : uint8_t { Bool = 0, Integer = 1, Float = 2, Complex = 3 };

std::string_view dtype_name(DType d);          // "float32"; bool_ is "bool"
DType dtype_from_name(std::string_view name);  // ValueError lists the names

// Bytes of one element.
constexpr int64_t dtype_size(DType d) {
  using float32_part = float;
  using float64_part = double;
  constexpr int64_t sizes[] = {
#define X(name, type, category) sizeof(type),
      PF_DTYPES(X)
#undef X
#define X(name, part) 2 * sizeof(part##_part),
          PF_COMPLEX_DTYPES(X)
#undef X
#define X(...) 1,
              PF_FLOAT8_DTYPES(X)
#undef X
  };
  return sizes[static_cast<int>(d)];
}
// The kind of a dtype; 8-bit floats are Float.
constexpr Category dtype_category(DType d) {
  constexpr int categories[] = {
#define X(name, type, category) category,
      PF_DTYPES(X)
#undef X
#define X(name, part) 3,
          PF_COMPLEX_DTYPES(X)
#undef X
#define X(...) 2,
              PF_FLOAT8_DTYPES(X)
#undef X
  };
  return static_cast<Category>(categories[static_cast<int>(d)]);
}
// Whether the dtype is a real floating one, 16-bit and 8-bit ones included.
constexpr bool is_float(DType d) { return dtype_category(d) == Category::Float; }
// Whether the dtype is one of the 8-bit floats.
constexpr bool is_float8(DType d) { return d >= DType::float8_e4m3fn; }
// Whether kernels see the dtype. Operands of other dtypes are recorded as others (record/pairs.h, record/float8.h).
constexpr bool has_kernels(DType d) { return d <= DType::bool_; }
constexpr bool is_complex(DType d) { return dtype_category(d) == Category::Complex; }
// Whether tensors of this dtype may require a gradient.
constexpr bool has_gradient(DType d) { return is_float(d) || is_complex(d); }
// The dtype of the real and imaginary part; a dtype that is not complex is its own.
constexpr DType part_dtype(DType d) {
  return d == DType::complex64 ? DType::float32 : d == DType::complex128 ? DType::float64 : d;
}
// The complex dtype that can hold this one.
constexpr DType complex_dtype(DType d) {
  return d == DType::float64 || d == DType::complex128 ? DType::complex128 : DType::complex64;
}
constexpr bool is_half(DType d) { return d == DType::float16 || d == DType::bfloat16; }

// Result dtype of two tensors of equal standing (PyTorch's table). TypeError: a float8 dtype and another one.
DType promote(DType a, DType b);

// Raises the TypeError of dispatch().
[[noreturn]] void refuse_dispatch(DType d);

// Calls fn.template operator()<T>() with T the C++ type of d. TypeError for a dtype that kernels do not see.
template <class Fn>
decltype(auto) dispatch(DType d, Fn&& fn) {
  switch (d) {
#define X(name, type, category) \
  case DType::name: return fn.template operator()<type>();
    PF_DTYPES(X)
#undef X
    default: refuse_dispatch(d);
  }
}

// A Python number: its kind takes part in promotion. Its value is never part of a cache key.
struct Scalar {
  Category kind = Category::Float;
  double f = 0;  // the real part
  int64_t i = 0;
  double imag = 0;
  Scalar(double v) : kind(Category::Float), f(v), i(static_cast<int64_t>(v)) {}
  Scalar(float v) : Scalar(static_cast<double>(v)) {}
  Scalar(int64_t v) : kind(Category::Integer), f(static_cast<double>(v)), i(v) {}
  Scalar(int v) : Scalar(static_cast<int64_t>(v)) {}
  Scalar(bool v) : kind(Category::Bool), f(v ? 1 : 0), i(v ? 1 : 0) {}
  static Scalar complex(double re, double im) {
    Scalar s(re);
    s.kind = Category::Complex;
    s.imag = im;
    return s;
  }
};

// Result dtype of a tensor and a Python number. The number changes it only if its category is higher; a float then
// gives the default dtype, float32.
DType promote(DType tensor, const Scalar& number);

}  // namespace pyflame
