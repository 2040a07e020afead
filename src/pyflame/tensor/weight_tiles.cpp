#include "pyflame/tensor/weight_tiles.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "pyflame/base/half.h"

namespace pyflame {

namespace {

using gguf::ScaleAndMinimum;

// One row's block of a type: what goes into a group.
struct Parts {
  std::array<uint8_t, 2> scale{}, minimum{};  // float16
  std::array<ScaleAndMinimum, 8> nested{};    // Finer: the two scales
  std::array<int8_t, 256> q{};
};

void nibble_pairs(const uint8_t* from, int8_t* q) {
  for (int j = 0; j < 16; ++j) q[j] = static_cast<int8_t>(from[j] & 15), q[j + 16] = static_cast<int8_t>(from[j] >> 4);
}
void add_fifth_bits(const uint8_t* from, int8_t* q) {
  for (int i = 0; i < 4; ++i, q += 8) {
    // Byte j of the word gets bit j of the byte, and 16 where that is 1.
    const uint64_t bits = from[i] * uint64_t{0x0101010101010101} & 0x8040201008040201;
    uint64_t w;
    std::memcpy(&w, q, sizeof w);
    w |= ((bits + 0x7F7F7F7F7F7F7F7F) & 0x8080808080808080) >> 3;
    std::memcpy(q, &w, sizeof w);
  }
}
void copy_half(const uint8_t* from, std::array<uint8_t, 2>& to) { to = {from[0], from[1]}; }

void parts_q4_0(const uint8_t* b, Parts& p) {
  copy_half(b, p.scale);
  nibble_pairs(b + 2, p.q.data());
}
void parts_q4_1(const uint8_t* b, Parts& p) {
  copy_half(b, p.scale), copy_half(b + 2, p.minimum);
  nibble_pairs(b + 4, p.q.data());
}
void parts_q5_0(const uint8_t* b, Parts& p) {
  copy_half(b, p.scale);
  nibble_pairs(b + 6, p.q.data());
  add_fifth_bits(b + 2, p.q.data());
  for (int j = 0; j < 32; ++j) p.q[static_cast<size_t>(j)] = static_cast<int8_t>(p.q[static_cast<size_t>(j)] - 16);
}
void parts_q5_1(const uint8_t* b, Parts& p) {
  copy_half(b, p.scale), copy_half(b + 2, p.minimum);
  nibble_pairs(b + 8, p.q.data());
  add_fifth_bits(b + 4, p.q.data());
}
void parts_q8_0(const uint8_t* b, Parts& p) {
  copy_half(b, p.scale);
  std::memcpy(p.q.data(), b + 2, 32);
}
void nested_nibbles(const uint8_t* packed, const uint8_t* q, Parts& p) {
  for (int i = 0; i < 8; ++i) p.nested[static_cast<size_t>(i)] = gguf::six_bits(packed, i);
  int8_t* to = p.q.data();
  for (int i = 0; i < 4; ++i, q += 32, to += 64)
    for (int j = 0; j < 32; ++j) to[j] = static_cast<int8_t>(q[j] & 15), to[32 + j] = static_cast<int8_t>(q[j] >> 4);
}
void parts_q4_k(const uint8_t* b, Parts& p) {
  copy_half(b, p.scale), copy_half(b + 2, p.minimum);
  nested_nibbles(b + 4, b + 16, p);
}
void parts_q5_k(const uint8_t* b, Parts& p) {
  copy_half(b, p.scale), copy_half(b + 2, p.minimum);
  nested_nibbles(b + 4, b + 48, p);
  int8_t* q = p.q.data();
  for (int i = 0; i < 8; ++i, q += 32)
    for (int j = 0; j < 32; ++j) q[j] = static_cast<int8_t>(q[j] | (b[16 + j] >> i & 1) << 4);
}
void parts_q6_k(const uint8_t* b, Parts& p) {
  const uint8_t *low = b, *high = b + 128, *scales = b + 192;
  copy_half(b + 208, p.scale);
  for (int i = 0; i < 8; ++i) p.nested[static_cast<size_t>(i)] = {scales[2 * i], scales[2 * i + 1]};
  int8_t* q = p.q.data();
  for (int half = 0; half < 2; ++half, low += 64, high += 32)
    for (int part = 0; part < 4; ++part, q += 32)
      for (int j = 0; j < 32; ++j) {
        const int byte = low[part % 2 * 32 + j], nibble = part < 2 ? byte & 15 : byte >> 4;
        q[j] = static_cast<int8_t>((nibble | (high[j] >> (part * 2) & 3) << 4) - 32);
      }
}

struct Maker {
  std::string_view type;
  TileForm form;
  void (*parts)(const uint8_t* block, Parts& to);
};
constexpr std::array<Maker, 8> kMakers = {{
    {"Q4_0", {true, TileScales::Halves, 8}, parts_q4_0},
    {"Q4_1", {true, TileScales::WithMinima, 0}, parts_q4_1},
    {"Q5_0", {false, TileScales::Halves, 0}, parts_q5_0},
    {"Q5_1", {false, TileScales::WithMinima, 0}, parts_q5_1},
    {"Q8_0", {false, TileScales::Halves, 0}, parts_q8_0},
    {"Q4_K", {true, TileScales::Nested, 0}, parts_q4_k},
    {"Q5_K", {false, TileScales::Nested, 0}, parts_q5_k},
    {"Q6_K", {false, TileScales::Finer, 0}, parts_q6_k},
}};

const Maker* maker_of(const gguf::Type& type) {
  const auto* found = std::find_if(kMakers.begin(), kMakers.end(), [&](const Maker& m) { return m.type == type.name; });
  return found == kMakers.end() ? nullptr : found;
}

// Four elements at a time: their bytes in a word.
uint32_t word(const int8_t* q) {
  uint32_t w;
  std::memcpy(&w, q, sizeof w);
  return w;
}
void put_data(bool nibbles, const int8_t* q, int64_t row, uint8_t* to) {
  for (int part = 0; part < (nibbles ? 4 : 8); ++part) {
    const uint32_t w = nibbles ? word(q + part * 4) | word(q + part * 4 + 16) << 4 : word(q + part * 4);
    std::memcpy(to + (part * kTileRows + row) * 4, &w, sizeof w);
  }
}
int element(bool nibbles, const uint8_t* data, int64_t row, int64_t i) {
  const uint8_t byte = data[((nibbles ? i % 16 : i) / 4 * kTileRows + row) * 4 + i % 4];
  if (!nibbles) return static_cast<int8_t>(byte);
  return i < 16 ? byte & 15 : byte >> 4;
}
float half_of(const uint8_t* p) {
  float16 h;
  std::memcpy(&h, p, sizeof h);
  return static_cast<float>(h);
}

// Puts one row's block into a group.
void put_group(const TileForm& f, const Parts& p, int64_t row, uint8_t* to) {
  std::memcpy(to + 2 * row, p.scale.data(), 2);
  if (f.scales == TileScales::WithMinima || f.scales == TileScales::Nested)
    std::memcpy(to + 16 + 2 * row, p.minimum.data(), 2);
  switch (f.scales) {
    case TileScales::Halves: return put_data(f.nibbles, p.q.data(), row, to + 16);
    case TileScales::WithMinima: return put_data(f.nibbles, p.q.data(), row, to + 32);
    default: break;
  }
  to += f.scales == TileScales::Nested ? 32 : 16;
  for (size_t i = 0; i < 8; ++i, to += 16 + f.data_bytes()) {
    to[row] = p.nested[i].scale, to[8 + row] = p.nested[i].minimum;
    put_data(f.nibbles, p.q.data() + 32 * i, row, to + 16);
  }
}

}  // namespace

const TileForm* tile_form(const gguf::Type& type) {
  const Maker* m = maker_of(type);
  return m ? &m->form : nullptr;
}

void make_tile(const TileShape& s, std::span<const uint8_t* const> rows, uint8_t* to) {
  const Maker& m = *maker_of(*s.type);
  const auto count = static_cast<int64_t>(rows.size());
  const int64_t groups = s.columns / s.form->group(), group_bytes = s.form->group_bytes();
  if (count < kTileRows) std::memset(to, 0, static_cast<size_t>(s.tile_bytes()));
  Parts p;
  for (int64_t row = 0; row < count; ++row) {
    const uint8_t* block = rows[static_cast<size_t>(row)];
    for (int64_t g = 0; g < groups; ++g, block += s.type->bytes) {
      m.parts(block, p);
      put_group(*s.form, p, row, to + g * group_bytes);
    }
  }
}

void make_tile(const TileShape& s, const uint8_t* rows, int64_t tile, uint8_t* to) {
  const int64_t first = tile * kTileRows, count = std::min(kTileRows, s.rows - first);
  std::array<const uint8_t*, kTileRows> at{};
  for (int64_t row = 0; row < count; ++row) at[static_cast<size_t>(row)] = rows + (first + row) * s.row_bytes();
  make_tile(s, std::span(at.data(), static_cast<size_t>(count)), to);
}

void decode_tile_row(const TileShape& s, const uint8_t* tile, int64_t row, float* to) {
  const TileForm& f = *s.form;
  for (int64_t g = 0; g < s.columns / f.group(); ++g, tile += f.group_bytes()) {
    const float d = half_of(tile + 2 * row), m = half_of(tile + 16 + 2 * row);
    const uint8_t* at = tile + (f.scales == TileScales::WithMinima || f.scales == TileScales::Nested ? 32 : 16);
    for (int64_t i = 0; i < f.group(); ++i, ++to) {
      const uint8_t* block = f.nested() ? at + i / 32 * (16 + f.data_bytes()) : at;
      const auto q = static_cast<float>(element(f.nibbles, f.nested() ? block + 16 : block, row, i % 32) - f.zero);
      const float first = block[row], second = block[8 + row];
      switch (f.scales) {
        case TileScales::Halves: *to = q * d; break;
        case TileScales::WithMinima: *to = q * d + m; break;
        case TileScales::Nested: *to = d * first * q - m * second; break;
        case TileScales::Finer:
          *to = d * static_cast<float>(static_cast<int8_t>(block[i % 32 < 16 ? row : 8 + row])) * q;
      }
    }
  }
}

}  // namespace pyflame
