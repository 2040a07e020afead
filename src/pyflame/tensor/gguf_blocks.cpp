// How the blocks of GGUF's types are decoded to float32. Each comment is the layout of a block, in bytes, and its formula; d and m are float16.
// The layouts are those of ggml: github.com/ggml-org/ggml describes each block type where it declares it.
#include "pyflame/tensor/gguf_blocks.h"

#include <array>
#include <cmath>
#include <cstring>

#include "pyflame/base/half.h"

namespace pyflame::gguf {

ScaleAndMinimum six_bits(const uint8_t* packed, int block) {
  const auto byte = [packed](int i) { return static_cast<int>(packed[i]); };
  const int j = block;
  if (j < 4) return {static_cast<uint8_t>(byte(j) & 63), static_cast<uint8_t>(byte(j + 4) & 63)};
  return {static_cast<uint8_t>((byte(j + 4) & 15) | (byte(j - 4) >> 6) << 4),
          static_cast<uint8_t>((byte(j + 4) >> 4) | (byte(j) >> 6) << 4)};
}

int8_t scale_of_q3_k(const uint8_t* packed, int part) {
  const int low = part < 8 ? packed[part] & 15 : packed[part - 8] >> 4;
  return static_cast<int8_t>((low | (packed[8 + part % 4] >> (part / 4 * 2) & 3) << 4) - 32);
}
int8_t scale_of_iq4_xs(const uint8_t* packed, int block) {
  const int low = packed[2 + block / 2] >> (block % 2 * 4) & 15, high = packed[block / 4] >> (block % 4 * 2) & 3;
  return static_cast<int8_t>((low | high << 4) - 32);
}

namespace {

constexpr int kSmall = 32, kLarge = 256;

float half_at(const uint8_t* p) {
  float16 h;
  std::memcpy(&h, p, sizeof h);
  return static_cast<float>(h);
}
template <class T>
T number_at(const uint8_t* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

// Two elements of 4 bits in a byte: the low one is element j, the high one element j + 16.
template <class Low, class High>
void nibbles(const uint8_t* q, float* out, Low low, High high) {
  for (int j = 0; j < kSmall / 2; ++j) {
    out[j] = low(j, q[j] & 15);
    out[j + kSmall / 2] = high(j, q[j] >> 4);
  }
}

// d, 16 bytes of nibbles: (q - 8) d
void decode_q4_0(const uint8_t* b, float* out) {
  const float d = half_at(b);
  const auto value = [d](int, int q) { return static_cast<float>(q - 8) * d; };
  nibbles(b + 2, out, value, value);
}
// d, m, 16 bytes of nibbles: q d + m
void decode_q4_1(const uint8_t* b, float* out) {
  const float d = half_at(b), m = half_at(b + 2);
  const auto value = [d, m](int, int q) { return static_cast<float>(q) * d + m; };
  nibbles(b + 4, out, value, value);
}
// d, 32 fifth bits, 16 bytes of nibbles: (q - 16) d
void decode_q5_0(const uint8_t* b, float* out) {
  const float d = half_at(b);
  const auto bits = number_at<uint32_t>(b + 2);
  const auto value = [d](int q, uint32_t bit) {
    return static_cast<float>((q | static_cast<int>(bit & 1) << 4) - 16) * d;
  };
  nibbles(
      b + 6, out, [&](int j, int q) { return value(q, bits >> j); },
      [&](int j, int q) { return value(q, bits >> (j + 16)); });
}
// d, m, 32 fifth bits, 16 bytes of nibbles: q d + m
void decode_q5_1(const uint8_t* b, float* out) {
  const float d = half_at(b), m = half_at(b + 2);
  const auto bits = number_at<uint32_t>(b + 4);
  const auto value = [d, m](int q, uint32_t bit) {
    return static_cast<float>(q | static_cast<int>(bit & 1) << 4) * d + m;
  };
  nibbles(
      b + 8, out, [&](int j, int q) { return value(q, bits >> j); },
      [&](int j, int q) { return value(q, bits >> (j + 16)); });
}
// d, 32 int8: q d
void decode_q8_0(const uint8_t* b, float* out) {
  const float d = half_at(b);
  for (int j = 0; j < kSmall; ++j) out[j] = static_cast<float>(static_cast<int8_t>(b[2 + j])) * d;
}
// d, d times the sum, 32 int8: q d
void decode_q8_1(const uint8_t* b, float* out) {
  const float d = half_at(b);
  for (int j = 0; j < kSmall; ++j) out[j] = static_cast<float>(static_cast<int8_t>(b[4 + j])) * d;
}

// The integers of kNonLinear as floats, so that no number is converted where it is decoded.
constexpr auto kNonLinearFloats = [] {
  std::array<float, kNonLinear.size()> floats{};
  for (size_t i = 0; i < floats.size(); ++i) floats[i] = static_cast<float>(kNonLinear[i]);
  return floats;
}();

// d, 16 bytes of nibbles: table[q] d
void decode_iq4_nl(const uint8_t* b, float* out) {
  const float d = half_at(b);
  const auto value = [d](int, int q) { return d * kNonLinearFloats[static_cast<size_t>(q)]; };
  nibbles(b + 2, out, value, value);
}
// The exponent of a power of two with bias 128 (the numbers are halves), 16 bytes of nibbles with 1 sign, 2 exponent and 1 mantissa bits
void decode_mxfp4(const uint8_t* b, float* out) {
  constexpr std::array<float, 16> numbers = {0, 1, 2, 3, 4, 6, 8, 12, -0.0F, -1, -2, -3, -4, -6, -8, -12};
  const float d = std::ldexp(1.0F, static_cast<int>(b[0]) - 128);
  const auto value = [d, &numbers](int, int q) { return d * numbers[static_cast<size_t>(q)]; };
  nibbles(b + 1, out, value, value);
}

// 16 bytes with 4 bits of scale and 4 of minimum for 16 elements each, 64 bytes of 2 bits, d, m: scale d q - minimum m
void decode_q2_k(const uint8_t* b, float* out) {
  const uint8_t *scales = b, *q = b + 16;
  const float d = half_at(b + 80), m = half_at(b + 82);
  for (int i = 0; i < kLarge; ++i) {
    const int half = i / 128, shift = i % 128 / 32 * 2, s = scales[i / 16];
    out[i] = d * static_cast<float>(s & 15) * static_cast<float>(q[half * 32 + i % 32] >> shift & 3) -
             m * static_cast<float>(s >> 4);
  }
}
// 256 third bits, 64 bytes of 2 bits, 16 scales of 6 bits in 12 bytes, d: (scale - 32) d (q - 4)
void decode_q3_k(const uint8_t* b, float* out) {
  const uint8_t *high = b, *q = b + 32, *packed = b + 96;
  const float d = half_at(b + 108);
  std::array<float, kLarge / 16> scales;
  for (int i = 0; i < kLarge / 16; ++i)
    scales[static_cast<size_t>(i)] = d * static_cast<float>(scale_of_q3_k(packed, i));
  for (int i = 0; i < kLarge; ++i) {
    const int half = i / 128, shift = i % 128 / 32 * 2;
    const int two = q[half * 32 + i % 32] >> shift & 3, third = high[i % 32] >> (i / 32) & 1;
    out[i] = scales[static_cast<size_t>(i / 16)] * static_cast<float>(two - (third != 0 ? 0 : 4));
  }
}

// d, m, scales and minima, 128 bytes of nibbles (32 low ones, then their 32 high ones): scale d q - minimum m
void decode_q4_k(const uint8_t* b, float* out) {
  const float d = half_at(b), m = half_at(b + 2);
  const uint8_t *packed = b + 4, *q = b + 16;
  for (int i = 0; i < kLarge; ++i) {
    const ScaleAndMinimum s = six_bits(packed, i / 32);
    const int byte = q[i / 64 * 32 + i % 32], nibble = i / 32 % 2 == 0 ? byte & 15 : byte >> 4;
    out[i] = d * static_cast<float>(s.scale) * static_cast<float>(nibble) - m * static_cast<float>(s.minimum);
  }
}
// The same with 32 bytes of fifth bits before the nibbles
void decode_q5_k(const uint8_t* b, float* out) {
  const float d = half_at(b), m = half_at(b + 2);
  const uint8_t *packed = b + 4, *high = b + 16, *q = b + 48;
  for (int i = 0; i < kLarge; ++i) {
    const ScaleAndMinimum s = six_bits(packed, i / 32);
    const int byte = q[i / 64 * 32 + i % 32], nibble = i / 32 % 2 == 0 ? byte & 15 : byte >> 4;
    out[i] = d * static_cast<float>(s.scale) * static_cast<float>(nibble | (high[i % 32] >> (i / 32) & 1) << 4) -
             m * static_cast<float>(s.minimum);
  }
}
// 128 bytes of nibbles, 64 bytes of 2 more bits, 16 int8 scales, d: scale d (q - 32)
void decode_q6_k(const uint8_t* b, float* out) {
  const uint8_t *low = b, *high = b + 128, *scales = b + 192;
  const float d = half_at(b + 208);
  for (int i = 0; i < kLarge; ++i) {
    const int half = i / 128, part = i % 128 / 32, l = i % 32;
    const int byte = low[half * 64 + part % 2 * 32 + l], nibble = part < 2 ? byte & 15 : byte >> 4;
    const int q = (nibble | (high[half * 32 + l] >> (part * 2) & 3) << 4) - 32;
    out[i] = d * static_cast<float>(static_cast<int8_t>(scales[i / 16])) * static_cast<float>(q);
  }
}
// d, 8 high parts of scales of 2 bits, 8 low parts of 4 bits, 128 bytes of nibbles: (scale - 32) d table[q]
void decode_iq4_xs(const uint8_t* b, float* out) {
  const float d = half_at(b);
  for (int block = 0; block < 8; ++block) {
    const float ds = d * static_cast<float>(scale_of_iq4_xs(b + 2, block));
    const auto value = [ds](int, int n) { return ds * kNonLinearFloats[static_cast<size_t>(n)]; };
    nibbles(b + 8 + block * 16, out + block * kSmall, value, value);
  }
}

constexpr DType kF32 = DType::float32, kF16 = DType::float16, kF64 = DType::float64, kBF16 = DType::bfloat16,
                kI8 = DType::int8, kI16 = DType::int16, kI32 = DType::int32, kI64 = DType::int64;

constexpr std::array<Type, 32> kTypes = {{
    {0, "F32", 1, 4, &kF32, nullptr},
    {1, "F16", 1, 2, &kF16, nullptr},
    {2, "Q4_0", kSmall, 18, nullptr, decode_q4_0},
    {3, "Q4_1", kSmall, 20, nullptr, decode_q4_1},
    {6, "Q5_0", kSmall, 22, nullptr, decode_q5_0},
    {7, "Q5_1", kSmall, 24, nullptr, decode_q5_1},
    {8, "Q8_0", kSmall, 34, nullptr, decode_q8_0},
    {9, "Q8_1", kSmall, 36, nullptr, decode_q8_1},
    {10, "Q2_K", kLarge, 84, nullptr, decode_q2_k},
    {11, "Q3_K", kLarge, 110, nullptr, decode_q3_k},
    {12, "Q4_K", kLarge, 144, nullptr, decode_q4_k},
    {13, "Q5_K", kLarge, 176, nullptr, decode_q5_k},
    {14, "Q6_K", kLarge, 210, nullptr, decode_q6_k},
    {15, "Q8_K", kLarge, 292, nullptr, nullptr},
    {16, "IQ2_XXS", kLarge, 66, nullptr, nullptr},
    {17, "IQ2_XS", kLarge, 74, nullptr, nullptr},
    {18, "IQ3_XXS", kLarge, 98, nullptr, nullptr},
    {19, "IQ1_S", kLarge, 50, nullptr, nullptr},
    {20, "IQ4_NL", kSmall, 18, nullptr, decode_iq4_nl},
    {21, "IQ3_S", kLarge, 110, nullptr, nullptr},
    {22, "IQ2_S", kLarge, 82, nullptr, nullptr},
    {23, "IQ4_XS", kLarge, 136, nullptr, decode_iq4_xs},
    {24, "I8", 1, 1, &kI8, nullptr},
    {25, "I16", 1, 2, &kI16, nullptr},
    {26, "I32", 1, 4, &kI32, nullptr},
    {27, "I64", 1, 8, &kI64, nullptr},
    {28, "F64", 1, 8, &kF64, nullptr},
    {29, "IQ1_M", kLarge, 56, nullptr, nullptr},
    {30, "BF16", 1, 2, &kBF16, nullptr},
    {34, "TQ1_0", kLarge, 54, nullptr, nullptr},
    {35, "TQ2_0", kLarge, 66, nullptr, nullptr},
    {39, "MXFP4", kSmall, 17, nullptr, decode_mxfp4},
}};

}  // namespace

std::span<const Type> types() { return kTypes; }

const Type* find_type(uint32_t id) {
  for (const Type& t : kTypes)
    if (t.id == id) return &t;
  return nullptr;
}
const Type* find_type(std::string_view name) {
  for (const Type& t : kTypes)
    if (t.name == name) return &t;
  return nullptr;
}

}  // namespace pyflame::gguf
