// Products with weights in GGUF's blocks of a few bits, for a few rows of x. A unit is 32 weights, mostly in 16 bytes, which a lane reads at
// once; it consists of two runs of 16 adjacent weights. A weight is scale * (q - kZero) + shift, with an integer q of 8 bits. It has a sign for
// Q8_0 and for the types with a table.
//
// x is rounded once to integers of 8 bits with a scale for each 32 elements (round_rows), so that a run is four products of four integers each.
// These sums are exact. The sums over runs are float32, in an order that depends on the number of columns alone.
#pragma once

namespace pf {

// GGUF's numbers of the types.
enum BlockType {
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kIQ4_NL = 20,
  kIQ4_XS = 23
};

// 32 rounded elements of x: their scale, and the sums of the integers of each half.
struct RoundedBlock {
  float scale;
  int sum[2];
  int unused;
};

#ifdef PF_ON_DEVICE

// kBytes bytes as words. kAligned: they begin at a multiple of 16, or of their own number.
template <int kBytes, bool kAligned>
PF_DEVICE void load_words(const u8* p, u32* to) {
  if constexpr (!kAligned) {
#pragma unroll
    for (int i = 0; i < kBytes / 4; ++i)
      to[i] = (u32)p[4 * i] | (u32)p[4 * i + 1] << 8 | (u32)p[4 * i + 2] << 16 | (u32)p[4 * i + 3] << 24;
  } else if constexpr (kBytes % 16 == 0) {
#pragma unroll
    for (int i = 0; i < kBytes / 16; ++i) {
      const Vec<u32, 4> v = load_vec<4>((const u32*)p + 4 * i);
#pragma unroll
      for (int j = 0; j < 4; ++j) to[4 * i + j] = v[j];
    }
  } else {
#pragma unroll
    for (int i = 0; i < kBytes / 4; ++i) to[i] = ((const u32*)p)[i];
  }
}
template <bool kAligned>
PF_DEVICE float load_half(const u8* p) {
  return half_to_float(kAligned ? *(const u16*)p : (u16)(p[0] | p[1] << 8));
}

template <int kType>
struct BlockTraits {
  static constexpr bool kTwo = kType == kQ2_K || kType == kQ3_K;  // two bits, beside those of Q3_K's upper bits
  static constexpr bool kTable = kType == kIQ4_NL || kType == kIQ4_XS;
  static constexpr bool kLarge = kTwo || kType == kQ4_K || kType == kQ5_K || kType == kQ6_K || kType == kIQ4_XS;
  static constexpr bool kFive = kType == kQ5_0 || kType == kQ5_1 || kType == kQ5_K;
  static constexpr bool kMinimum =
      kType == kQ4_1 || kType == kQ5_1 || kType == kQ2_K || kType == kQ4_K || kType == kQ5_K;
  static constexpr bool kSigned = kType == kQ8_0 || kTable;  // the integers have a sign
  static constexpr int kZero = kType == kQ4_0 ? 8 : kType == kQ5_0 ? 16 : kType == kQ6_K ? 32 : kType == kQ3_K ? 4 : 0;
  // The element at which a run of a unit begins.
  static PF_DEVICE i64 first(i64 unit, int run) {
    if constexpr (!kLarge || kTable) return unit * 32 + run * 16;
    const int v = (int)(unit % 8);
    if constexpr (kType == kQ6_K) return unit / 8 * 256 + v / 4 * 128 + v % 4 * 16 + run * 64;
    return unit / 8 * 256 + v / 2 * 64 + v % 2 * 16 + run * 32;
  }
};

// What a lane reads for a unit. The reads are apart from the arithmetic, so that several are in flight.
template <int kType, bool kAligned>
struct RawUnit {
  using Traits = BlockTraits<kType>;
  static constexpr int kHighBytes = !Traits::kFive && kType != kQ3_K && kType != kQ6_K ? 0 : Traits::kLarge ? 16 : 4;
  u32 q[kType == kQ8_0 ? 8 : 4];
  u32 high[kHighBytes ? kHighBytes / 4 : 1];
  u32 scales[3];
  float d, m;

  PF_DEVICE void load(const u8* row, const BlockParts& parts, i64 unit) {
    const auto part = [&](int i, i64 block) { return row + parts.at[i] + block * parts.step[i]; };
    const i64 block = Traits::kLarge ? unit / 8 : unit;
    const int v = Traits::kLarge ? (int)(unit % 8) : 0;
    const int numbers = Traits::kTwo ? v / 4 * 32 + v % 2 * 16 : 16 * v;  // two units share their bytes
    load_words<kType == kQ8_0 ? 32 : 16, kAligned>(part(0, block) + numbers, q);
    if constexpr (kHighBytes > 0) {
      const int at = !Traits::kLarge ? 0 : kType == kQ6_K ? v / 4 * 32 + v % 2 * 16 : v % 2 * 16;
      load_words<kHighBytes, kAligned>(part(1, block) + at, high);
    }
    if constexpr (kType == kQ6_K) {
      const u8* s = part(2, block) + v / 4 * 8 + v % 4;
      scales[0] = s[0], scales[1] = s[4];
    } else if constexpr (kType == kQ2_K) {
      const u8* s = part(2, block) + v / 2 * 4 + v % 2;
      scales[0] = s[0], scales[1] = s[2];
    } else if constexpr (kType == kIQ4_XS) {
      const u8* s = part(2, block);
      scales[0] = s[2 + v / 2], scales[1] = s[v / 4];
    } else if constexpr (Traits::kLarge) {
      load_words<12, kAligned>(part(2, block), scales);
    }
    const u8* p = part(3, block);
    d = load_half<kAligned>(p);
    if constexpr (Traits::kMinimum) m = load_half<kAligned>(p + 2);
  }
};

// A unit as integers of 8 bits.
template <int kType>
struct Unit {
  using Traits = BlockTraits<kType>;
  u32 q[2][4];
  float scale[2], shift[2];

  PF_DEVICE Unit() {}
  template <bool kAligned>
  PF_DEVICE Unit(const RawUnit<kType, kAligned>& raw, i64 unit) {
    const int v = (int)(unit % 8);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if constexpr (kType == kQ8_0) {
        q[0][j] = raw.q[j], q[1][j] = raw.q[4 + j];
      } else if constexpr (Traits::kTwo) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          q[r][j] = raw.q[j] >> (v / 2 % 2 * 4 + 2 * r) & 0x03030303u;
          if constexpr (kType == kQ3_K) q[r][j] |= (raw.high[j] >> (v / 2 * 2 + r) & 0x01010101u) << 2;
        }
      } else {
        q[0][j] = raw.q[j] & 0x0f0f0f0fu, q[1][j] = raw.q[j] >> 4 & 0x0f0f0f0fu;
        if constexpr (Traits::kFive && !Traits::kLarge) {
          q[0][j] |= fifths(raw.high[0] >> (4 * j)), q[1][j] |= fifths(raw.high[0] >> (16 + 4 * j));
        } else if constexpr (kType == kQ5_K) {
          q[0][j] |= (raw.high[j] >> (v / 2 * 2) & 0x01010101u) << 4;
          q[1][j] |= (raw.high[j] >> (v / 2 * 2 + 1) & 0x01010101u) << 4;
        } else if constexpr (kType == kQ6_K) {
          q[0][j] |= (raw.high[j] >> (v % 4 / 2 * 2) & 0x03030303u) << 4;
          q[1][j] |= (raw.high[j] >> (v % 4 / 2 * 2 + 4) & 0x03030303u) << 4;
        } else if constexpr (Traits::kTable) {
          q[0][j] = non_linear(q[0][j]), q[1][j] = non_linear(q[1][j]);
        }
      }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      shift[r] = 0;
      if constexpr (kType == kQ6_K) {
        scale[r] = raw.d * (float)(i8)(u8)raw.scales[r];
      } else if constexpr (kType == kQ2_K) {
        scale[r] = raw.d * (float)(raw.scales[r] & 15u), shift[r] = -(raw.m * (float)(raw.scales[r] >> 4));
      } else if constexpr (kType == kQ3_K) {
        const int i = v / 2 * 4 + v % 2 + 2 * r;  // of sixteen scales
        const u32 low = (v / 2 % 2 ? raw.scales[1] : raw.scales[0]) >> (i % 4 * 8 + i / 8 * 4) & 15u;
        scale[r] = raw.d * (float)((int)(low | (raw.scales[2] >> (i % 4 * 8 + i / 4 * 2) & 3u) << 4) - 32);
      } else if constexpr (kType == kIQ4_XS) {
        const u32 low = raw.scales[0] >> (v % 2 * 4) & 15u, high = raw.scales[1] >> (v % 4 * 2) & 3u;
        scale[r] = raw.d * (float)((int)(low | high << 4) - 32);
      } else if constexpr (Traits::kLarge) {
        const int i = v / 2 * 2 + r;
        scale[r] = raw.d * (float)six_bits(raw.scales, i, 0), shift[r] = -(raw.m * (float)six_bits(raw.scales, i, 1));
      } else {
        scale[r] = raw.d;
        if constexpr (Traits::kMinimum) shift[r] = raw.m;
      }
    }
  }

 private:
  // Four bits as the fifth bits of four bytes.
  static PF_DEVICE u32 fifths(u32 bits) { return ((bits & 15u) * 0x00204081u & 0x01010101u) << 4; }
  // The integers that four numbers of 4 bits stand for: tensor/gguf_blocks.h has them, too.
  static PF_DEVICE u32 non_linear(u32 q) {
    const u32 place = q & 0x07070707u;
    const u32 low = permuted(0xf6eaddcfu, 0xbfad9881u, place), high = permuted(0x71594535u, 0x26190d01u, place);
    return permuted(high, low, (q >> 1 & 0x04040404u) | 0x03020100u);
  }
  // Scale (which 0) or minimum (1) of 32 elements: 6 bits of the 12 bytes.
  static PF_DEVICE u32 six_bits(const u32* packed, int i, int which) {
    const int byte = i % 4 * 8;
    if (i < 4) return packed[which] >> byte & 63u;
    return (packed[2] >> (byte + 4 * which) & 15u) | (packed[which] >> (byte + 6) & 3u) << 4;
  }
};

// Rounds the rows of x: q, an integer from -127 to 127 for each element, and a RoundedBlock for each 32. The scale of a block is its largest
// magnitude / 127; it is NaN if an element is not finite. A block whose magnitudes are all below 1e-30 becomes zeros.
template <class S, int kThreads>
PF_DEVICE void round_rows(const S* x, u32* q, RoundedBlock* blocks, const Quantized& p) {
  constexpr int kLanes = 8;  // for 32 elements
  const i64 words = p.rows * p.columns / 4, all = (i64)groups().x * kThreads;
  for (i64 first = (i64)group().x * kThreads; first < words; first += all) {
    const i64 at = first + thread(), word = at < words ? at : words - 1;
    const i64 row = word / (p.columns / 4), column = word % (p.columns / 4) * 4;
    float v[4], most = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      v[i] = (float)load(x + row * p.x_row + (column + i) * p.x_column);
      most = maximum<float>(most, v[i] < 0 ? -v[i] : v[i]);
    }
    most = over_lanes<Largest, kLanes>(most);
    const bool finite = most < float_of_bits(0x7f800000u), some = finite && most >= 1e-30f;
    const float factor = some ? 127.0f / most : 0;
    u32 packed = 0;
    int sum = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int n = some ? (int)m_rint(v[i] * factor) : 0;
      packed |= ((u32)n & 255u) << (8 * i);
      sum += n;
    }
    sum = over_lanes<Sum, kLanes / 2>(sum);
    const int other = xor_lane(sum, kLanes / 2);
    if (at < words) {
      q[at] = packed;
      if (at % kLanes == 0)
        blocks[at / kLanes] = {!finite ? float_of_bits(0x7fc00000u) : some ? most / 127.0f : 0, {sum, other}, 0};
    }
  }
}

// A team of kTeam lanes multiplies kLines rows of weights with kVectors rows of x.
template <class S, int kType, bool kAligned, int kVectors, int kLines, int kAhead, int kTeam, int kThreads>
PF_DEVICE void quantized_product(const u8* weight, const u8* q, const RoundedBlock* blocks, S* y, const Quantized& p) {
  using Traits = BlockTraits<kType>;
  constexpr int kTeams = kThreads / kTeam;
  const int me = (int)thread() % kTeam;
  const i64 line0 = ((i64)group().x * kTeams + (int)thread() / kTeam) * kLines;
  const i64 row0 = (i64)group().y * kVectors, units = p.columns / 32;
  const u8* line[kLines];
#pragma unroll
  for (int l = 0; l < kLines; ++l)  // lines beyond the last one read it, and nobody stores them
    line[l] = weight + (line0 + l < p.outputs ? line0 + l : p.outputs - 1) * p.row_bytes;
  if constexpr (kAligned) {  // the first numbers of the lines; the parts of a weight are apart from each other
    constexpr int kBlock = Traits::kLarge ? 256 : 32, kMost = kTeam * kAhead * 32;
    const i64 bytes = (p.columns < kMost ? p.columns : kMost) / kBlock * p.parts.step[0] / 16 * 16;
#pragma unroll
    for (int l = 0; l < kLines; ++l)
      if (me == 0 && bytes > 0) bring_near(line[l] + p.parts.at[0], (unsigned)bytes);
  }
  await_earlier_kernels();
  float sums[kLines][kVectors] = {};
  for (i64 begin = me; begin < units; begin += kTeam * kAhead) {
    RawUnit<kType, kAligned> raw[kAhead][kLines];
#pragma unroll
    for (int h = 0; h < kAhead; ++h)
#pragma unroll
      for (int l = 0; l < kLines; ++l)
        if (begin + h * kTeam < units) raw[h][l].load(line[l], p.parts, begin + h * kTeam);
#pragma unroll
    for (int h = 0; h < kAhead; ++h) {
      const i64 unit = begin + h * kTeam;
      if (unit >= units) continue;
      const i64 from[2] = {Traits::first(unit, 0), Traits::first(unit, 1)};
      Unit<kType> units_of[kLines];
#pragma unroll
      for (int l = 0; l < kLines; ++l) units_of[l] = Unit<kType>(raw[h][l], unit);
#pragma unroll
      for (int f = 0; f < kVectors; ++f) {
        const i64 row = row0 + f < p.rows ? row0 + f : p.rows - 1;
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const Vec<u32, 4> x = load_vec<4>((const u32*)(q + row * p.columns + from[r]));
          const Vec<u32, 4> b = load_vec<4>((const u32*)(blocks + row * units + from[r] / 32));
          const float scale = float_of_bits(b[0]);
          const int sum = (int)(from[r] / 16 % 2 ? b[2] : b[1]);
#pragma unroll
          for (int l = 0; l < kLines; ++l) {
            const Unit<kType>& u = units_of[l];
            int dot = Traits::kZero ? -Traits::kZero * sum : 0;
#pragma unroll
            for (int j = 0; j < 4; ++j) dot = dot4(u.q[r][j], x[j], dot);
            float part = u.scale[r] * (float)dot;
            if constexpr (Traits::kMinimum) part = fmaf(u.shift[r], (float)sum, part);
            sums[l][f] = fmaf(part, scale, sums[l][f]);
          }
        }
      }
    }
  }
  let_later_kernels_start();
  // Every lane of the team has every sum. Each lane stores one of them.
  static_assert(kLines * kVectors <= kTeam);
  float mine = 0;
#pragma unroll
  for (int l = 0; l < kLines; ++l)
#pragma unroll
    for (int f = 0; f < kVectors; ++f) {
      const float sum = over_lanes<Sum, kTeam>(sums[l][f]);
      if (me == l * kVectors + f) mine = sum;
    }
  const i64 to = line0 + me / kVectors, row = row0 + me % kVectors;
  if (me < kLines * kVectors && to < p.outputs && row < p.rows) store(y + row * p.outputs + to, (C<S>)mine);
}

// The weights themselves. A thread decodes a unit.
template <class S, int kType, bool kAligned, int kThreads>
PF_DEVICE void decode_units(const u8* weight, S* y, const Quantized& p) {
  using Traits = BlockTraits<kType>;
  const i64 each = p.columns / 32, units = p.outputs * each, all = (i64)groups().x * kThreads;
  for (i64 at = (i64)group().x * kThreads + thread(); at < units; at += all) {
    const i64 row = at / each, unit = at % each;
    RawUnit<kType, kAligned> raw;
    raw.load(weight + row * p.row_bytes, p.parts, unit);
    const Unit<kType> u(raw, unit);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      S* const to = y + row * p.columns + Traits::first(unit, r);
      constexpr int kVec = 16 / sizeof(S);
#pragma unroll
      for (int first = 0; first < 16; first += kVec) {
        Vec<S, kVec> values;
#pragma unroll
        for (int j = 0; j < kVec; ++j) {
          const int i = first + j;
          const u32 byte = u.q[r][i / 4] >> (i % 4 * 8) & 255u;
          const int n = Traits::kSigned ? (int)(i8)(u8)byte : (int)byte - Traits::kZero;
          store(&values.v[j], (C<S>)((float)n * u.scale[r] + u.shift[r]));
        }
        store_vec(to + first, values);
      }
    }
  }
}

#endif

}  // namespace pf
