// Weights of a few bits in the order in which the CPU multiplies them: tiles of eight rows, so that one vector has the same elements of all
// eight. A tile holds the same numbers as the rows of GGUF's blocks that it was made of.
//
// A tile is a sequence of groups along the rows. Scales and minima are those of eight rows, one after the other:
//   Halves      32 elements:  scales (float16), data. Q4_0, Q5_0, Q8_0, IQ4_NL
//   WithMinima  32 elements:  scales, minima (float16), data. Q4_1, Q5_1
//   Nested      256 elements: scales, minima (float16), then for each 32 elements: scales, minima (uint8), data. Q4_K, Q5_K
//   Finer       256 elements: scales (float16), then for each 32 elements: scales of the first and of the last 16 (int8), data. Q3_K, Q6_K, IQ4_XS
//   FinerMinima 256 elements: scales, minima (float16), then for each 32 elements: those of the first and of the last 16, a scale in the low
//                             half of a byte and a minimum in the high one, data. Q2_K
// The data of 32 elements are parts of four elements; a part has the four elements of each row:
//   Bytes       eight parts of bytes with sign. Q5_0, Q5_1, Q8_0, Q5_K, Q6_K
//   Nibbles     four parts of bytes, whose low halves are the elements 0 to 15, and the high ones the elements 16 to 31. Q4_0, Q4_1, Q3_K, Q4_K
//   Places      nibbles that are places in a table of integers of 8 bits. IQ4_NL, IQ4_XS
//   Quarters    two parts of bytes; the lowest two bits are the elements 0 to 7, and so on. Q2_K
#pragma once
#include <cstdint>
#include <span>

#include "pyflame/tensor/gguf_blocks.h"

namespace pyflame {

constexpr int64_t kTileRows = 8, kTileBlock = 32;

enum class TileData : uint8_t { Quarters, Nibbles, Places, Bytes };
enum class TileScales : uint8_t { Halves, WithMinima, Nested, Finer, FinerMinima };

struct TileForm {
  TileData data;
  TileScales scales;

  // The number that counts as zero. Only nibbles without minima have one that is not 0: Q4_0's and Q3_K's.
  constexpr int zero() const {
    if (data != TileData::Nibbles) return 0;
    return scales == TileScales::Halves ? 8 : scales == TileScales::Finer ? 4 : 0;
  }
  int bits() const { return data == TileData::Bytes ? 8 : data == TileData::Quarters ? 2 : 4; }
  bool nested() const { return scales != TileScales::Halves && scales != TileScales::WithMinima; }
  bool minima() const { return scales != TileScales::Halves && scales != TileScales::Finer; }
  int64_t data_bytes() const { return kTileRows * kTileBlock * bits() / 8; }
  int64_t group() const { return nested() ? 256 : kTileBlock; }  // elements
  int64_t first_bytes() const { return minima() ? 32 : 16; }     // of scales and minima in float16
  int64_t group_bytes() const { return first_bytes() + (nested() ? 8 * (16 + data_bytes()) : data_bytes()); }
};

// Null: there are no tiles for this type.
const TileForm* tile_form(const gguf::Type& type);

struct TileShape {
  const gguf::Type* type = nullptr;
  const TileForm* form = nullptr;
  int64_t rows = 0, columns = 0;

  int64_t row_bytes() const { return columns / type->elements * type->bytes; }
  int64_t tiles() const { return (rows + kTileRows - 1) / kTileRows; }
  int64_t tile_bytes() const { return columns / form->group() * form->group_bytes(); }
};

// A tile of up to eight rows of blocks, wherever they are. Rows that are missing are zeros.
void make_tile(const TileShape& s, std::span<const uint8_t* const> rows, uint8_t* to);
// Tile number `tile` of rows that follow each other.
void make_tile(const TileShape& s, const uint8_t* rows, int64_t tile, uint8_t* to);
// The weights of one row of a tile, as the type's decode computes them.
void decode_tile_row(const TileShape& s, const uint8_t* tile, int64_t row, float* to);

}  // namespace pyflame
