// float16 and bfloat16 as storage types: arithmetic happens in float32, rounding is to nearest even, NaN stays NaN.
#pragma once
#include <bit>
#include <cstdint>

namespace pyflame {

struct bfloat16 {
  uint16_t bits = 0;
  bfloat16() = default;
  explicit bfloat16(float f) {
    uint32_t u = std::bit_cast<uint32_t>(f);
    if ((u & 0x7fffffffu) > 0x7f800000u) {
      bits = static_cast<uint16_t>((u >> 16) | 0x40u);
    } else {
      bits = static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
    }
  }
  explicit operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};

struct float16 {
  uint16_t bits = 0;
  float16() = default;
  explicit float16(float f) {
    const uint32_t u = std::bit_cast<uint32_t>(f);
    const uint32_t sign = (u >> 16) & 0x8000u;
    const uint32_t mag = u & 0x7fffffffu;
    if (mag > 0x7f800000u) {
      bits = static_cast<uint16_t>(sign | 0x7e00u | ((mag >> 13) & 0x3ffu));
    } else if (mag >= 0x477ff000u) {  // rounds to infinity
      bits = static_cast<uint16_t>(sign | 0x7c00u);
    } else if (mag < 0x38800000u) {  // subnormal or zero: adding 0.5 lets the FPU round at the right bit
      const float shifted = std::bit_cast<float>(mag) + 0.5f;
      bits = static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
    } else {
      const uint32_t rounded = mag + 0xfffu + ((mag >> 13) & 1u);
      bits = static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
    }
  }
  explicit operator float() const {
    const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
    const uint32_t exp = (bits >> 10) & 0x1fu;
    const uint32_t man = bits & 0x3ffu;
    if (exp == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | (man << 13));
    if (exp == 0) {
      const float f = static_cast<float>(man) * 0x1p-24f;
      return std::bit_cast<float>(std::bit_cast<uint32_t>(f) | sign);
    }
    return std::bit_cast<float>(sign | ((exp + 112u) << 23) | (man << 13));
  }
};

}  // namespace pyflame
