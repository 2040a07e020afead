// Written by the definition, with the functions of the C library; the kernels have their own arithmetic on bits (kernels/device/scalar.h), and
// tests compare the two.
#include "pyflame/tensor/float8.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace pyflame {

namespace {

constexpr int kSign = 0x80;

// The code of the largest finite number.
int largest(const Float8Format& f) {
  switch (f.codes) {
    case Float8Codes::InfinityAndNan: return (0x7f >> f.fraction << f.fraction) - 1;
    case Float8Codes::OneNan: return 0x7e;
    case Float8Codes::NanAtMinusZero: break;
  }
  return 0x7f;
}

}  // namespace

float float8_value(DType dtype, uint8_t bits) {
  const Float8Format f = float8_format(dtype);
  const float sign = bits & kSign ? -1.0F : 1.0F;
  const int magnitude = bits & ~kSign, exponent = magnitude >> f.fraction;
  if (f.codes == Float8Codes::NanAtMinusZero && bits == kSign) return std::numeric_limits<float>::quiet_NaN();
  if (magnitude > largest(f)) {
    const bool infinite = f.codes == Float8Codes::InfinityAndNan && magnitude == largest(f) + 1;
    return infinite ? sign * std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
  }
  const int digits = magnitude & ((1 << f.fraction) - 1);
  const int whole = exponent == 0 ? digits : digits + (1 << f.fraction);
  return sign * std::ldexp(static_cast<float>(whole), std::max(exponent, 1) - f.bias - f.fraction);
}

uint8_t float8_bits(DType dtype, float value) {
  const Float8Format f = float8_format(dtype);
  const int nan = f.codes == Float8Codes::NanAtMinusZero ? kSign : 0x7f;
  if (std::isnan(value)) return static_cast<uint8_t>(nan);
  const int sign = std::signbit(value) ? kSign : 0;
  const float size = std::fabs(value);
  int code = largest(f) + 1;
  if (std::isfinite(size)) {
    const int exponent = std::max(size > 0 ? std::ilogb(size) : 1 - f.bias, 1 - f.bias);
    const double whole = std::nearbyint(std::ldexp(static_cast<double>(size), f.fraction - exponent));
    // A number that is rounded up to the next power of two carries into the exponent.
    const double wanted = std::ldexp(exponent + f.bias - 1, f.fraction) + whole;
    code = static_cast<int>(std::min<double>(wanted, code));
  }
  if (code > largest(f)) {
    if (f.codes == Float8Codes::NanAtMinusZero) return static_cast<uint8_t>(nan);
    return static_cast<uint8_t>(sign | (largest(f) + 1));
  }
  if (f.codes == Float8Codes::NanAtMinusZero && code == 0) return 0;
  return static_cast<uint8_t>(sign | code);
}

}  // namespace pyflame
