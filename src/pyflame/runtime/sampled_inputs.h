// Single elements of a step's operands in double, from the host's memory.
#pragma once
#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <vector>

#include "pyflame/base/philox.h"
#include "pyflame/record/ir.h"
#include "pyflame/tensor/dtype.h"
#include "pyflame/tensor/float8.h"

namespace pyflame::sampled {

// The element at an address. Floats and bool; integers as far as double holds them.
inline double element(DType dtype, const char* from) {
  switch (dtype) {
    case DType::bfloat16: return static_cast<double>(static_cast<float>(*reinterpret_cast<const bfloat16*>(from)));
    case DType::float16: return static_cast<double>(static_cast<float>(*reinterpret_cast<const float16*>(from)));
    case DType::float32: return static_cast<double>(*reinterpret_cast<const float*>(from));
    default:
      return dispatch(dtype, [&]<class T>() {
        if constexpr (std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>) return 0.0;  // above
        else return static_cast<double>(*reinterpret_cast<const T*>(from));
      });
  }
}

// Copies bytes of a device's memory to the host.
using Fetch = std::function<void(void* to, const void* from, size_t nbytes)>;

class Elements {
 public:
  // `codes`: the operand has codes of this format of 8-bit floats.
  Elements(const Operand& o, const void* at, std::optional<DType> codes = {})
      : operand_(&o), at_(static_cast<const char*>(at)), codes_(codes) {}
  const Dims& shape() const { return operand_->shape; }
  int64_t stride(int d) const { return operand_->strides[d]; }
  // The element at an offset.
  double operator[](int64_t offset) const { return value(at_ + offset * dtype_size(operand_->dtype)); }
  // So many elements, `step` apart. `fetch`: they are a device's, and beside each other; none: the host's.
  std::vector<double> line(int64_t offset, int64_t step, int64_t count, const Fetch& fetch) const {
    const int64_t size = dtype_size(operand_->dtype);
    const char* from = at_ + offset * size;
    std::vector<char> copy(fetch ? static_cast<size_t>(count * size) : 0);
    if (fetch) fetch(copy.data(), from, copy.size()), from = copy.data(), step = 1;
    std::vector<double> all(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) all[static_cast<size_t>(i)] = value(from + i * step * size);
    return all;
  }

 private:
  double value(const char* from) const {
    if (codes_) return static_cast<double>(float8_value(*codes_, static_cast<uint8_t>(*from)));
    return element(operand_->dtype, from);
  }

  const Operand* operand_;
  const char* at_;
  std::optional<DType> codes_;
};

// The offset of an index.
inline int64_t offset_of(const Dims& index, const Dims& strides) {
  int64_t at = 0;
  for (int d = 0; d < index.size(); ++d) at += index[d] * strides[d];
  return at;
}

// Calls f(index) for each index of a shape.
template <class F>
void for_indices(const Dims& shape, F&& f) {
  Dims index = Dims::filled(shape.size(), 0);
  const int64_t all = shape.numel();
  for (int64_t i = 0; i < all; ++i) {
    f(index);
    for (int d = shape.size() - 1; d >= 0 && ++index[d] == shape[d]; --d) index[d] = 0;
  }
}

// A spread that includes a difference; infinite where the difference is no number.
inline double wider(double spread, double difference) {
  return std::isfinite(difference) ? std::max(spread, std::fabs(difference)) : INFINITY;
}

}  // namespace pyflame::sampled
