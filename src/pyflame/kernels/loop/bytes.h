// Transposition of a matrix of bytes, such as codes of 8-bit floats. Through the general tiles (loop_tile.cpp) each byte would be an access to shared
// memory of its own. Here a lane reads and writes 16 bytes at a time, and shared memory holds words, whose bytes are exchanged in registers.
#pragma once

namespace pf {

#ifdef PF_ON_DEVICE

// Byte j of word i becomes byte i of word j.
PF_DEVICE void transpose_words(u32* w) {
  const u32 a = permuted(w[1], w[0], 0x05010400u), b = permuted(w[1], w[0], 0x07030602u),
            c = permuted(w[3], w[2], 0x05010400u), d = permuted(w[3], w[2], 0x07030602u);
  w[0] = permuted(c, a, 0x05040100u), w[1] = permuted(c, a, 0x07060302u);
  w[2] = permuted(d, b, 0x05040100u), w[3] = permuted(d, b, 0x07060302u);
}

// to[r][c] = from[c][r] for r < rows and c < columns, which are multiples of 16, as the distances from row to row are. Pointers are aligned to 16 bytes.
//
// A tile has kSide lines of kWords words, one for each column of the result. Lines are rotated by 4 words for each 16 of them: the lanes that write
// 16 bytes each of the same rows read lines that are 16 apart, and so find their words in different banks.
template <class I, int kThreads>
PF_DEVICE void transpose_bytes(const u8* from, u8* to, I rows, I columns, I from_pitch, I to_pitch) {
  constexpr int kSide = 128, kWords = kSide / 4, kUnit = 16, kUnits = kSide / kUnit, kSteps = kSide * kUnits / kThreads;
  static_assert(kUnits * kWords == kThreads);
  PF_SHARED Vec<u32, 4> tile[kSide * kWords / 4];
  const int t = (int)thread();
  const I across = (columns + kSide - 1) / kSide, tiles = (rows + kSide - 1) / kSide * across;
  for (I id = group().x; id < tiles; id += groups().x) {
    const I r0 = id / across * kSide, c0 = id % across * kSide;
    Vec<u32, 4> read[kSteps];
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      const I c = c0 + t / kUnits + k * (kThreads / kUnits), r = r0 + t % kUnits * kUnit;
      read[k] = {};
      if (c < columns && r < rows) read[k] = load_vec<4>((const u32*)(from + c * from_pitch + r));
    }
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      const int line = t / kUnits + k * (kThreads / kUnits);
      tile[line * kUnits + (t + line / kUnit) % kUnits] = read[k];
    }
    barrier();
    // Four rows of the result, and 16 of their columns.
    const int word = t / (4 * kUnits) * 4 + t % 4, unit = t / 4 % kUnits;
    const u32* const words = (const u32*)tile + (word + 4 * unit) % kWords;
    u32 w[kUnit];
#pragma unroll
    for (int k = 0; k < kUnit; ++k) w[k] = words[(unit * kUnit + k) * kWords];
#pragma unroll
    for (int k = 0; k < kUnit; k += 4) transpose_words(w + k);
    const I r = r0 + 4 * word, c = c0 + unit * kUnit;
    if (r < rows && c < columns) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        store_vec((u32*)(to + (r + i) * to_pitch + c), Vec<u32, 4>{{w[i], w[4 + i], w[8 + i], w[12 + i]}});
    }
    barrier();
  }
}

#endif

}  // namespace pf
