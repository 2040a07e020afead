// Conversions between the ten dtypes and the two computation types. Every conversion is defined for every value and
// rounds at most once. A double on its way to a 16-bit type, and an int64 on its way to a float type, go through an
// intermediate that is rounded to odd; a later rounding to nearest then gives the same result as for the exact value.
#include "pyflame/backends/reference/access.h"

#include <bit>
#include <cmath>
#include <limits>

namespace pyflame::reference {
namespace {

// Nearest float, but with the last bit set when inexact.
float round_to_odd(double v) {
  const float f = static_cast<float>(v);
  if (static_cast<double>(f) == v || v != v) return f;
  if (std::isinf(f)) return std::copysign(std::numeric_limits<float>::max(), f);  // odd already
  const uint32_t bits = std::bit_cast<uint32_t>(f);
  if (bits & 1u) return f;
  // f is even and may be on either side of v; the odd neighbour in the direction of v is the result.
  const bool away = (std::fabs(v) > std::fabs(static_cast<double>(f)));
  return std::bit_cast<float>(away ? bits + 1 : bits - 1);
}

// Exact as a double; the lowest bit is set if digits were lost.
double int_for_rounding(int64_t v) {
  constexpr int64_t exact = int64_t{1} << 53;
  if (v >= -exact && v <= exact) return static_cast<double>(v);
  return static_cast<double>((v & ~int64_t{0xfff}) | ((v & 0xfff) != 0 ? 0x800 : 0));
}

template <class T>
T saturate(double v) {
  if (v != v) return 0;
  constexpr double low = static_cast<double>(std::numeric_limits<T>::min());
  constexpr double past = 2.0 * static_cast<double>(std::numeric_limits<T>::max() / 2 + 1);
  if (v < low) return std::numeric_limits<T>::min();
  return v >= past ? std::numeric_limits<T>::max() : static_cast<T>(v);
}

template <class T>
constexpr bool kIsHalf = std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>;

template <class To, class T>
To from_memory(T v) {
  if constexpr (kIsHalf<T>) {
    return from_memory<To>(static_cast<float>(v));
  } else if constexpr (std::is_same_v<To, int64_t> && std::is_floating_point_v<T>) {
    return saturate<int64_t>(static_cast<double>(v));
  } else {
    return static_cast<To>(v);
  }
}

template <class T, class From>
T to_memory(From v) {
  if constexpr (std::is_same_v<T, bool>) {
    return v != 0;
  } else if constexpr (std::is_same_v<From, int64_t>) {
    if constexpr (std::is_same_v<T, double>) return static_cast<double>(v);
    else if constexpr (kIsHalf<T> || std::is_same_v<T, float>) return to_memory<T>(int_for_rounding(v));
    else return static_cast<T>(v);
  } else if constexpr (kIsHalf<T>) {
    return T(round_to_odd(v));
  } else if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(v);
  } else {
    return saturate<T>(v);
  }
}

template <class C>
void load_any(const View& v, int64_t offset, int64_t stride, int64_t n, C* to) {
  dispatch(v.dtype, [&]<class T>() {
    const T* p = reinterpret_cast<const T*>(v.data) + offset;
    for (int64_t i = 0; i < n; ++i) to[i] = from_memory<C>(p[i * stride]);
  });
}

template <class C>
void store_any(const View& v, int64_t offset, int64_t stride, int64_t n, const C* from) {
  dispatch(v.dtype, [&]<class T>() {
    T* p = reinterpret_cast<T*>(v.data) + offset;
    for (int64_t i = 0; i < n; ++i) p[i * stride] = to_memory<T>(from[i]);
  });
}

}  // namespace

void load(const View& v, int64_t offset, int64_t stride, int64_t n, double* to) { load_any(v, offset, stride, n, to); }
void load(const View& v, int64_t offset, int64_t stride, int64_t n, int64_t* to) { load_any(v, offset, stride, n, to); }
void store(const View& v, int64_t offset, int64_t stride, int64_t n, const double* from) {
  store_any(v, offset, stride, n, from);
}
void store(const View& v, int64_t offset, int64_t stride, int64_t n, const int64_t* from) {
  store_any(v, offset, stride, n, from);
}

double param_as_f64(const Param& p, DType dtype) {
  return dispatch(dtype, [&]<class T>() {
    return p.kind == Category::Float ? from_memory<double>(to_memory<T>(p.f)) : from_memory<double>(to_memory<T>(p.i));
  });
}

int64_t param_as_i64(const Param& p, DType dtype) {
  return dispatch(dtype, [&]<class T>() {
    return p.kind == Category::Float ? from_memory<int64_t>(to_memory<T>(p.f))
                                     : from_memory<int64_t>(to_memory<T>(p.i));
  });
}

}  // namespace pyflame::reference
