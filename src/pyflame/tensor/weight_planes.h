// Weights of a few bits in the order in which GPUs multiply them. GGUF's blocks have sizes such as 18 or 210 bytes, so their parts are not
// aligned to the words that a GPU reads. Here a row has the same part of all its blocks one after the other: first the numbers, then their
// upper bits, then the scales. It holds the same bytes as the row of blocks, and is padded to a multiple of 16.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>

#include "pyflame/tensor/gguf_blocks.h"

namespace pyflame {

// Where a part is in a block.
struct BlockPart {
  int64_t at = 0, bytes = 0;
};

// The parts in the order of the planes: numbers, upper bits, scales of a few bits, scales in float16. A part may be missing.
struct PlaneForm {
  std::string_view type;
  std::array<BlockPart, 4> parts;
};

// Null: there are no planes for this type.
const PlaneForm* plane_form(const gguf::Type& type);

struct PlaneShape {
  const gguf::Type* type = nullptr;
  const PlaneForm* form = nullptr;
  int64_t rows = 0, columns = 0;

  int64_t blocks() const { return columns / type->elements; }
  int64_t padding() const { return (16 - blocks() * type->bytes % 16) % 16; }
  int64_t row_bytes() const { return blocks() * type->bytes + padding(); }
};

}  // namespace pyflame
