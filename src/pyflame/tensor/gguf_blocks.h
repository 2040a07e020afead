// The types of tensors in GGUF files: most of them are blocks of a few bits per element.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "pyflame/tensor/dtype.h"

namespace pyflame::gguf {

// Blocks of `elements` in `bytes`. Types with a dtype are stored as they are; `decode` computes float32 of the others.
struct Type {
  uint32_t id;
  std::string_view name;
  uint32_t elements, bytes;
  const DType* dtype;
  void (*decode)(const uint8_t* block, float* out);  // null: not available
};
std::span<const Type> types();
const Type* find_type(uint32_t id);            // null: it is not known
const Type* find_type(std::string_view name);  // the same

// Eight scales and eight minima of 6 bits in the 12 bytes of Q4_K and Q5_K.
struct ScaleAndMinimum {
  uint8_t scale, minimum;
};
ScaleAndMinimum six_bits(const uint8_t* packed, int block);
// Scales with sign of 6 bits: the sixteen of Q3_K in 12 bytes, and the eight of IQ4_XS in the 6 bytes after d.
int8_t scale_of_q3_k(const uint8_t* packed, int part);
int8_t scale_of_iq4_xs(const uint8_t* packed, int block);

// What the numbers of 4 bits of IQ4_NL and IQ4_XS stand for: sixteen integers that are denser near zero.
constexpr std::array<int8_t, 16> kNonLinear = {-127, -104, -83, -65, -49, -35, -22, -10,
                                               1,    13,   25,  38,  53,  69,  89,  113};

}  // namespace pyflame::gguf
