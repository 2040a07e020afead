// Products with rows of 8-bit floats and their scales (tensor/float8_rows.h), for a few rows of x. A lane reads 16 codes at once. x is not rounded:
// codes become floats, and sums are float32. Their order depends on the number of columns; where x has 16 bits and there are matrix cores
// (float_units.h), also on whether there are up to 2, 16 or 32 rows. A sum over codes is multiplied by their scale: the whole sum where a scale
// covers the row, and otherwise that of each 16 codes.
#pragma once

namespace pf {

#ifdef PF_ON_DEVICE

// The four codes of a word as floats, divided by kFactor. kCheck: the code of NaN becomes a number, and nan_in() finds it.
template <class F, bool kInstruction = kDecodesFloat8<F>>
struct FloatCodes {
  static constexpr bool kCheck = false;
  static constexpr float kFactor = 1;
  static PF_DEVICE void decode(u32 word, float* to) {
    decode_float8_pair<F>(word, false, to);
    decode_float8_pair<F>(word, true, to + 2);
  }
};
// Without an instruction: with few operations, two codes become the bits of two numbers of float16, and each of these a float.
PF_DEVICE void halves_to_floats(u32 even, u32 odd, float* to) {
  to[0] = half_to_float((u16)even), to[1] = half_to_float((u16)odd);
  to[2] = half_to_float((u16)(even >> 16)), to[3] = half_to_float((u16)(odd >> 16));
}
template <>
struct FloatCodes<float8_e4m3fn, false> {
  static constexpr bool kCheck = true;
  static constexpr float kFactor = 256;  // the exponents of float16 have a bias of 15 instead of 7
  static PF_DEVICE u32 halves(u32 w) { return (w & 0x80008000u) | (w >> 1 & 0x3f803f80u); }
  static PF_DEVICE void decode(u32 word, float* to) { halves_to_floats(halves(word << 8), halves(word), to); }
  // The upper bit of a byte is set where its code is NaN.
  static PF_DEVICE u32 nan_in(u32 word) { return (word & 0x7f7f7f7fu) + 0x01010101u; }
};
template <>
struct FloatCodes<float8_e5m2, false> {
  static constexpr bool kCheck = false;
  static constexpr float kFactor = 1;  // a code has the upper bits of a number of float16
  static PF_DEVICE void decode(u32 word, float* to) {
    halves_to_floats(word << 8 & 0xff00ff00u, word & 0xff00ff00u, to);
  }
};

// kAligned: p is a multiple of 16.
template <bool kAligned>
PF_DEVICE Vec<u32, 4> load_codes(const u8* p) {
  if constexpr (kAligned) return load_once<4>((const u32*)p);
  Vec<u32, 4> words;
#pragma unroll
  for (int i = 0; i < 4; ++i)
    words[i] = (u32)p[4 * i] | (u32)p[4 * i + 1] << 8 | (u32)p[4 * i + 2] << 16 | (u32)p[4 * i + 3] << 24;
  return words;
}
template <bool kAligned>
PF_DEVICE float scale_of(const u8* line, i64 column, const FloatRows& p) {
  const u8* at = line + p.columns + (u32)column / (u32)p.group * 4;
  if constexpr (kAligned) return *(const float*)at;
  return float_of_bits((u32)at[0] | (u32)at[1] << 8 | (u32)at[2] << 16 | (u32)at[3] << 24);
}
// The elements of x beside 16 codes. kAligned: they are adjacent, and so many bytes are aligned to 16.
template <bool kAligned, class S>
PF_DEVICE void load_inputs(const S* x, i64 stride, float* to) {
  if constexpr (kAligned) {
    constexpr int kVec = 16 / sizeof(S);
#pragma unroll
    for (int i = 0; i < kCodes; i += kVec) {
      const Vec<S, kVec> v = load_vec<kVec>(x + i);
#pragma unroll
      for (int j = 0; j < kVec; ++j) to[i + j] = (float)load(&v.v[j]);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kCodes; ++i) to[i] = (float)load(x + i * stride);
  }
}

// A team of kTeam lanes multiplies kLines rows of weights with kVectors rows of x. kWhole: a scale covers the row. out(0, row, column, sum) is called
// once for each output.
template <class S, class F, bool kWhole, bool kAligned, int kVectors, int kLines, int kAhead, int kTeam, int kThreads,
          class Out>
PF_DEVICE void float_product(const u8* weight, const S* x, const FloatRows& p, const Out& out) {
  using Codes = FloatCodes<F>;
  constexpr int kTeams = kThreads / kTeam;
  const int me = (int)thread() % kTeam;
  const i64 line0 = ((i64)group().x * kTeams + (int)thread() / kTeam) * kLines;
  const i64 row0 = (i64)group().y * kVectors, units = p.columns / kCodes;
  const u8* line[kLines];
#pragma unroll
  for (int l = 0; l < kLines; ++l)  // lines beyond the last one read it, and nobody stores them
    line[l] = weight + (line0 + l < p.outputs ? line0 + l : p.outputs - 1) * p.row_bytes;
  if constexpr (kAligned) {  // the first codes of the lines
    constexpr int kMost = kTeam * kAhead * kCodes;
#pragma unroll
    for (int l = 0; l < kLines; ++l)
      if (me == 0) bring_near(line[l], (unsigned)(p.columns < kMost ? p.columns : kMost));
  }
  await_earlier_kernels();
  float sums[kLines][kVectors] = {};
  u32 nan[kLines] = {};
  for (i64 begin = me; begin < units; begin += kTeam * kAhead) {
    Vec<u32, 4> codes[kAhead][kLines];
#pragma unroll
    for (int h = 0; h < kAhead; ++h)
#pragma unroll
      for (int l = 0; l < kLines; ++l)
        if (begin + h * kTeam < units) codes[h][l] = load_codes<kAligned>(line[l] + (begin + h * kTeam) * kCodes);
#pragma unroll
    for (int h = 0; h < kAhead; ++h) {
      const i64 at = (begin + h * kTeam) * kCodes;
      if (at >= p.columns) continue;
      float values[kLines][kCodes], scales[kLines];
#pragma unroll
      for (int l = 0; l < kLines; ++l) {
        if constexpr (!kWhole) scales[l] = scale_of<kAligned>(line[l], at, p);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          Codes::decode(codes[h][l][j], values[l] + 4 * j);
          if constexpr (Codes::kCheck) nan[l] |= Codes::nan_in(codes[h][l][j]);
        }
      }
#pragma unroll
      for (int f = 0; f < kVectors; ++f) {
        const i64 row = row0 + f < p.rows ? row0 + f : p.rows - 1;
        float inputs[kCodes];
        load_inputs<kAligned>(x + row * p.x_row + at * p.x_column, p.x_column, inputs);
#pragma unroll
        for (int l = 0; l < kLines; ++l) {
          float sum = kWhole ? sums[l][f] : 0;
#pragma unroll
          for (int i = 0; i < kCodes; ++i) sum = fmaf(values[l][i], inputs[i], sum);
          if constexpr (kWhole) sums[l][f] = sum;
          else sums[l][f] = fmaf(sum * Codes::kFactor, scales[l], sums[l][f]);
        }
      }
    }
  }
  let_later_kernels_start();
  // Every lane of the team has every sum. Each lane stores one of them.
  static_assert(kLines * kVectors <= kTeam);
  float mine = 0;
#pragma unroll
  for (int l = 0; l < kLines; ++l) {
    const bool bad = Codes::kCheck && (nan[l] & 0x80808080u) != 0;
#pragma unroll
    for (int f = 0; f < kVectors; ++f) {
      float sum = over_lanes<Sum, kTeam>(bad ? float_of_bits(0x7fc00000u) : sums[l][f]);
      if constexpr (kWhole) sum = sum * Codes::kFactor * scale_of<kAligned>(line[l], 0, p);
      if (me == l * kVectors + f) mine = sum;
    }
  }
  const i64 to = line0 + me / kVectors, row = row0 + me % kVectors;
  if (me < kLines * kVectors && to < p.outputs && row < p.rows) out(0, row, to, (C<S>)mine);
}

// The weights themselves. A thread decodes 16 of them.
template <class S, class F, bool kAligned, int kThreads>
PF_DEVICE void decode_float_rows(const u8* weight, S* y, const FloatRows& p) {
  const i64 each = p.columns / kCodes, units = p.outputs * each, all = (i64)groups().x * kThreads;
  for (i64 at = (i64)group().x * kThreads + thread(); at < units; at += all) {
    const u8* const line = weight + at / each * p.row_bytes;
    const i64 column = at % each * kCodes;
    const Vec<u32, 4> words = load_codes<kAligned>(line + column);
    const float scale = scale_of<kAligned>(line, column, p);
    float values[kCodes];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if constexpr (kDecodesFloat8<F>) {
        FloatCodes<F>::decode(words[j], values + 4 * j);
      } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) values[4 * j + i] = F::value((u8)(words[j] >> (8 * i)));
      }
    }
    constexpr int kVec = 16 / sizeof(S);
#pragma unroll
    for (int first = 0; first < kCodes; first += kVec) {
      Vec<S, kVec> made;
#pragma unroll
      for (int j = 0; j < kVec; ++j) store(&made.v[j], (C<S>)(values[first + j] * scale));
      store_vec(y + at * kCodes + first, made);
    }
  }
}

#endif

}  // namespace pf
