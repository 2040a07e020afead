#include "pyflame/tensor/float8_rows.h"

#include <array>
#include <charconv>
#include <cstring>
#include <limits>

#include "pyflame/tensor/float8.h"

namespace pyflame {

namespace {

struct Float8Name {
  std::string_view name;  // as in safetensors files
  DType dtype;
};
constexpr std::array<Float8Name, 2> kFloat8Names = {
    {{"F8_E4M3", DType::float8_e4m3fn}, {"F8_E5M2", DType::float8_e5m2}}};

}  // namespace

std::optional<Float8Type> float8_type(std::string_view name) {
  const size_t colon = name.find(':');
  for (const Float8Name& n : kFloat8Names) {
    if (name.substr(0, colon) != n.name) continue;
    if (colon == std::string_view::npos) return Float8Type{n.dtype, 0};
    int64_t group = 0;
    const char* end = name.data() + name.size();
    const auto [read, error] = std::from_chars(name.data() + colon + 1, end, group);
    // Float8Rows::number() has 32 bits for the sign and the group.
    const bool in_range = group > 0 && group <= std::numeric_limits<int32_t>::max();
    if (error == std::errc() && read == end && in_range && group % kFloat8Unit == 0) return Float8Type{n.dtype, group};
  }
  return std::nullopt;
}

std::string float8_type_names() {
  std::string names;
  for (const Float8Name& n : kFloat8Names) names += (names.empty() ? "" : ", ") + std::string(n.name);
  return names;
}

int64_t float8_columns(Float8Type type, int64_t row_bytes) {
  if (row_bytes == 0) return 0;
  // A row becomes longer with each unit of its codes, so at most one number of them fits.
  int64_t low = 0, high = row_bytes / kFloat8Unit;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (Float8Rows(type, middle * kFloat8Unit).row_bytes() < row_bytes) low = middle + 1;
    else high = middle;
  }
  return Float8Rows(type, low * kFloat8Unit).row_bytes() == row_bytes ? low * kFloat8Unit : -1;
}

void Float8Rows::decode(const uint8_t* row, float* to) const {
  for (int64_t k = 0; k < columns; ++k) {
    float scale;
    std::memcpy(&scale, row + columns + k / group * 4, sizeof scale);
    to[k] = float8_value(dtype, row[k]) * scale;
  }
}

}  // namespace pyflame
