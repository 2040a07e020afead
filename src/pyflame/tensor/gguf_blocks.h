// The types of tensors in GGUF files: most of them are blocks of a few bits per element.
#pragma once
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

}  // namespace pyflame::gguf
