// Weights of 8-bit floats with scales, in the order in which all devices multiply them. A row has its codes, then a float32 scale for each `group`
// elements, the last of which may be fewer, and zeros up to a multiple of 16 bytes. A weight is the value of its code times its scale.
#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "pyflame/tensor/dtype.h"

namespace pyflame {

// Codes that a lane of a GPU reads at once. Rows and groups have a multiple of so many elements.
constexpr int64_t kFloat8Unit = 16;

// A type by its name: 'F8_E4M3' or 'F8_E5M2' with a scale for each row, or with the elements of a group behind a colon, 'F8_E4M3:128'.
struct Float8Type {
  DType dtype = DType::float8_e4m3fn;
  int64_t group = 0;  // 0: the whole row
};
std::optional<Float8Type> float8_type(std::string_view name);
// The names without groups.
std::string float8_type_names();

struct Float8Rows {
  DType dtype = DType::float8_e4m3fn;
  int64_t columns = 0, group = 1;  // elements of a row and of a scale

  Float8Rows(Float8Type type, int64_t columns_)
      : dtype(type.dtype), columns(columns_), group(type.group != 0 ? type.group : std::max<int64_t>(1, columns_)) {}
  // From the number that an op has of its type (BlockAttrs). GGUF's numbers of types are smaller.
  Float8Rows(int64_t number, int64_t columns_)
      : Float8Rows(Float8Type{static_cast<DType>(number % kNumbers), number / kNumbers}, columns_) {}
  int64_t number() const { return group * kNumbers + static_cast<int64_t>(dtype); }
  static bool has(int64_t number) { return number >= kNumbers; }

  int64_t scales() const { return (columns + group - 1) / group; }
  int64_t row_bytes() const { return columns + (4 * scales() + 15) / 16 * 16; }
  void decode(const uint8_t* row, float* to) const;

 private:
  static constexpr int64_t kNumbers = int64_t{1} << 32;
};

// The elements of a row of so many bytes; -1: no row has so many.
int64_t float8_columns(Float8Type type, int64_t row_bytes);

}  // namespace pyflame
