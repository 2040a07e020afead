// What the bits of 8-bit floats mean, for values on the host. A value is sign, exponent and fraction as in IEEE 754, with subnormals; the formats
// differ in the codes that are no finite numbers (OCP 8-bit Floating Point Specification 1.0; Noune et al. 2022 for fnuz).
#pragma once
#include <cstdint>

#include "pyflame/tensor/dtype.h"

namespace pyflame {

enum class Float8Codes : uint8_t {
  InfinityAndNan,  // the largest exponent has infinity and NaN
  OneNan,          // all ones are NaN; there is no infinity
  NanAtMinusZero,  // the code of minus zero is NaN; there is no infinity and no minus zero
};

struct Float8Format {
  int fraction, bias;
  Float8Codes codes;
};
constexpr Float8Format float8_format(DType d) {
  switch (d) {
#define X(name, fraction, bias, codes) \
  case DType::name: return {fraction, bias, Float8Codes::codes};
    PF_FLOAT8_DTYPES(X)
#undef X
    default: return {};
  }
}

// The value of a code.
float float8_value(DType dtype, uint8_t bits);
// The code of the nearest value, of two the one with an even fraction. Beyond the largest finite number: infinity, or NaN in formats without it.
uint8_t float8_bits(DType dtype, float value);

}  // namespace pyflame
