#include "pyflame/distributed/reduce.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "pyflame/base/error.h"
#include "pyflame/base/half.h"

namespace pyflame::distributed {

namespace {

constexpr size_t kBlock = 1024;  // elements that are accumulated at a time; they stay in the first-level cache

// What values of a dtype are added up in. Integers wrap around, which only unsigned ones do in C++.
template <class T>
struct Accumulator {
  using type = T;
};
template <>
struct Accumulator<float16> {
  using type = float;
};
template <>
struct Accumulator<bfloat16> {
  using type = float;
};

template <class A>
A combined(Reduction op, A a, A b) {
  if constexpr (std::is_same_v<A, bool>) {
    return op == Reduction::product || op == Reduction::min ? a && b : a || b;
  } else if constexpr (std::is_integral_v<A>) {
    using U = std::common_type_t<std::make_unsigned_t<A>, unsigned>;  // small types would be promoted to a signed int
    switch (op) {
      case Reduction::product: return static_cast<A>(static_cast<U>(a) * static_cast<U>(b));
      case Reduction::min: return std::min(a, b);
      case Reduction::max: return std::max(a, b);
      default: return static_cast<A>(static_cast<U>(a) + static_cast<U>(b));
    }
  } else {
    switch (op) {
      case Reduction::product: return a * b;
      case Reduction::min: return a < b || a != a ? a : b;
      case Reduction::max: return a > b || a != a ? a : b;
      default: return a + b;
    }
  }
}

// The usual case in one pass. A step reads what it needs before it writes, so `out` may be one of the two.
template <Reduction op, class T>
void reduce_two(T* out, const T* first, const T* second, size_t count) {
  constexpr size_t kStep = 64 / sizeof(T);
  size_t i = 0;
  for (; i + kStep <= count; i += kStep) {
    std::array<T, kStep> sums;
    for (size_t j = 0; j < kStep; ++j) sums[j] = combined<T>(op, first[i + j], second[i + j]);
    for (size_t j = 0; j < kStep; ++j) out[i + j] = sums[j];
  }
  for (; i < count; ++i) out[i] = combined<T>(op, first[i], second[i]);
}

template <Reduction op, class T>
void reduce_as(T* out, const std::vector<const void*>& sources, size_t count) {
  using A = typename Accumulator<T>::type;
  if constexpr (op != Reduction::avg && std::is_same_v<A, T>)
    if (sources.size() == 2)
      return reduce_two<op>(out, static_cast<const T*>(sources[0]), static_cast<const T*>(sources[1]), count);
  std::array<A, kBlock> sums;
  for (size_t begin = 0; begin < count; begin += kBlock) {
    const size_t n = std::min(kBlock, count - begin);
    const T* first = static_cast<const T*>(sources[0]) + begin;
    for (size_t i = 0; i < n; ++i) sums[i] = static_cast<A>(first[i]);
    for (size_t s = 1; s < sources.size(); ++s) {
      const T* next = static_cast<const T*>(sources[s]) + begin;
      for (size_t i = 0; i < n; ++i) sums[i] = combined<A>(op, sums[i], static_cast<A>(next[i]));
    }
    if constexpr (op == Reduction::avg && std::is_floating_point_v<A>) {
      const A ranks = static_cast<A>(sources.size());
      for (size_t i = 0; i < n; ++i) sums[i] /= ranks;
    }
    for (size_t i = 0; i < n; ++i) out[begin + i] = static_cast<T>(sums[i]);
  }
}

template <class T>
void reduce_typed(Reduction op, void* out, const std::vector<const void*>& sources, size_t count) {
  T* to = static_cast<T*>(out);
  switch (op) {
    case Reduction::sum: return reduce_as<Reduction::sum>(to, sources, count);
    case Reduction::avg: return reduce_as<Reduction::avg>(to, sources, count);
    case Reduction::product: return reduce_as<Reduction::product>(to, sources, count);
    case Reduction::min: return reduce_as<Reduction::min>(to, sources, count);
    case Reduction::max: return reduce_as<Reduction::max>(to, sources, count);
  }
}

}  // namespace

void check_reduction(const char* where, Reduction op, DType dtype) {
  const Category category = dtype_category(dtype);
  PF_CHECK(category != Category::Complex || op == Reduction::sum || op == Reduction::avg, Type,
           "{}: complex numbers have no such reduction; got {}; expected ReduceOp.SUM or ReduceOp.AVG", where,
           dtype_name(dtype));
  PF_CHECK(!is_float8(dtype), Type,
           "{}: 8-bit floats are not added; got {}; expected another dtype; hint: .to(pf.bfloat16)", where,
           dtype_name(dtype));
  PF_CHECK(op != Reduction::avg || category == Category::Float || category == Category::Complex, Type,
           "{}: the average of integers is not an integer; got {}; expected a floating-point dtype; hint: ReduceOp.SUM",
           where, dtype_name(dtype));
}

void reduce(Reduction op, DType dtype, void* out, const std::vector<const void*>& sources, size_t count) {
  check_reduction("reduce", op, dtype);
  switch (dtype) {
#define X(name, T, category) \
  case DType::name: return reduce_typed<T>(op, out, sources, count);
    PF_DTYPES(X)
#undef X
    case DType::complex64: return reduce_typed<float>(op, out, sources, 2 * count);
    case DType::complex128: return reduce_typed<double>(op, out, sources, 2 * count);
    default: break;  // check_reduction has refused it
  }
}

}  // namespace pyflame::distributed
