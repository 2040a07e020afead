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
  std::array<ScaleAndMinimum, 8> nested{};    // what the first and the last 16 elements have, where they differ
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

// The numbers of 2 bits of Q2_K and Q3_K: 32 bytes have 128 of them, first the lowest bits of each byte.
void quarters(const uint8_t* from, int8_t* q) {
  for (int half = 0; half < 2; ++half, from += 32)
    for (int shift = 0; shift < 8; shift += 2, q += 32)
      for (int j = 0; j < 32; ++j) q[j] = static_cast<int8_t>(from[j] >> shift & 3);
}

void parts_q2_k(const uint8_t* b, Parts& p) {
  copy_half(b + 80, p.scale), copy_half(b + 82, p.minimum);
  for (int i = 0; i < 8; ++i) p.nested[static_cast<size_t>(i)] = {b[2 * i], b[2 * i + 1]};
  quarters(b + 16, p.q.data());
}
void parts_q3_k(const uint8_t* b, Parts& p) {
  copy_half(b + 108, p.scale);
  const auto scale = [b](int part) { return static_cast<uint8_t>(gguf::scale_of_q3_k(b + 96, part)); };
  for (int i = 0; i < 8; ++i) p.nested[static_cast<size_t>(i)] = {scale(2 * i), scale(2 * i + 1)};
  int8_t* q = p.q.data();
  quarters(b + 32, q);
  for (int i = 0; i < 8; ++i, q += 32)
    for (int j = 0; j < 32; ++j) q[j] = static_cast<int8_t>(q[j] | (b[j] >> i & 1) << 2);
}
void parts_iq4_xs(const uint8_t* b, Parts& p) {
  copy_half(b, p.scale);
  for (int i = 0; i < 8; ++i) {
    const auto scale = static_cast<uint8_t>(gguf::scale_of_iq4_xs(b + 2, i));
    p.nested[static_cast<size_t>(i)] = {scale, scale};
    nibble_pairs(b + 8 + 16 * i, p.q.data() + 32 * i);
  }
}

struct Maker {
  std::string_view type;
  TileForm form;
  void (*parts)(const uint8_t* block, Parts& to);
};
constexpr std::array<Maker, 12> kMakers = {{
    {"Q4_0", {TileData::Nibbles, TileScales::Halves}, parts_q4_0},
    {"Q4_1", {TileData::Nibbles, TileScales::WithMinima}, parts_q4_1},
    {"Q5_0", {TileData::Bytes, TileScales::Halves}, parts_q5_0},
    {"Q5_1", {TileData::Bytes, TileScales::WithMinima}, parts_q5_1},
    {"Q8_0", {TileData::Bytes, TileScales::Halves}, parts_q8_0},
    {"Q2_K", {TileData::Quarters, TileScales::FinerMinima}, parts_q2_k},
    {"Q3_K", {TileData::Nibbles, TileScales::Finer}, parts_q3_k},
    {"Q4_K", {TileData::Nibbles, TileScales::Nested}, parts_q4_k},
    {"Q5_K", {TileData::Bytes, TileScales::Nested}, parts_q5_k},
    {"Q6_K", {TileData::Bytes, TileScales::Finer}, parts_q6_k},
    {"IQ4_NL", {TileData::Places, TileScales::Halves}, parts_q4_0},
    {"IQ4_XS", {TileData::Places, TileScales::Finer}, parts_iq4_xs},
}};

const Maker* maker_of(const gguf::Type& type) {
  const auto* found = std::find_if(kMakers.begin(), kMakers.end(), [&](const Maker& m) { return m.type == type.name; });
  return found == kMakers.end() ? nullptr : found;
}

// Four elements, in a word.
uint32_t word(const int8_t* q) {
  uint32_t w;
  std::memcpy(&w, q, sizeof w);
  return w;
}
// A byte has elements that are 32 * kBits / 8 apart.
template <int kBits>
void put_numbers(const int8_t* q, int64_t row, uint8_t* to) {
  constexpr int kApart = 4 * kBits;
  for (int part = 0; part < kBits; ++part) {
    uint32_t bytes = 0;
    for (int k = 0; k < 8 / kBits; ++k) bytes |= word(q + k * kApart + part * 4) << (k * kBits);
    std::memcpy(to + (part * kTileRows + row) * 4, &bytes, sizeof bytes);
  }
}
void put_data(const TileForm& f, const int8_t* q, int64_t row, uint8_t* to) {
  switch (f.bits()) {
    case 2: return put_numbers<2>(q, row, to);
    case 4: return put_numbers<4>(q, row, to);
    default: return put_numbers<8>(q, row, to);
  }
}
int element(const TileForm& f, const uint8_t* data, int64_t row, int64_t e) {
  const int64_t each = 4 * f.bits();
  const uint8_t byte = data[(e % each / 4 * kTileRows + row) * 4 + e % 4];
  if (f.data == TileData::Bytes) return static_cast<int8_t>(byte);
  const int number = byte >> (e / each * f.bits()) & ((1 << f.bits()) - 1);
  return f.data == TileData::Places ? gguf::kNonLinear[static_cast<size_t>(number)] : number - f.zero();
}
float half_of(const uint8_t* p) {
  float16 h;
  std::memcpy(&h, p, sizeof h);
  return static_cast<float>(h);
}

// Puts one row's block into a group.
void put_group(const TileForm& f, const Parts& p, int64_t row, uint8_t* to) {
  std::memcpy(to + 2 * row, p.scale.data(), 2);
  if (f.minima()) std::memcpy(to + 16 + 2 * row, p.minimum.data(), 2);
  to += f.first_bytes();
  if (!f.nested()) return put_data(f, p.q.data(), row, to);
  for (size_t i = 0; i < 8; ++i, to += 16 + f.data_bytes()) {
    to[row] = p.nested[i].scale, to[8 + row] = p.nested[i].minimum;
    put_data(f, p.q.data() + 32 * i, row, to + 16);
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
    const uint8_t* at = tile + f.first_bytes();
    for (int64_t i = 0; i < f.group(); ++i, ++to) {
      const uint8_t* block = f.nested() ? at + i / 32 * (16 + f.data_bytes()) : at;
      const auto q = static_cast<float>(element(f, f.nested() ? block + 16 : block, row, i % 32));
      const uint8_t first = block[row], second = block[8 + row], finer = i % 32 < 16 ? first : second;
      switch (f.scales) {
        case TileScales::Halves: *to = q * d; break;
        case TileScales::WithMinima: *to = q * d + m; break;
        case TileScales::Nested: *to = d * first * q - m * second; break;
        case TileScales::Finer: *to = d * static_cast<float>(static_cast<int8_t>(finer)) * q; break;
        case TileScales::FinerMinima: *to = d * static_cast<float>(finer & 15) * q - m * static_cast<float>(finer >> 4);
      }
    }
  }
}

}  // namespace pyflame
