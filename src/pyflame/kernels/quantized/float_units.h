// Products with rows of 8-bit floats on matrix cores, for rows of x in 16 bits. As in floats.h, a lane reads 16 codes at
// once. They become operands of the matrix instructions without shared memory and without barriers: each code is a number
// of 16 bits exactly. The steps of the sum are dealt out to kSlices slices, which are added in their order. The order of a sum differs from that
// of floats.h, and depends on kAhead: it is one for 3 to 16 rows of x, and another one for 17 to 32.
#pragma once

namespace pf {

#if defined(PF_ON_DEVICE) && (defined(PF_MATRIX_LINES) || defined(PF_MATRIX_SYNC))
template <class S>
constexpr bool kIsHalf = false;
template <>
constexpr bool kIsHalf<f16> = true;

// A workgroup has 16 lines of weights and kVectors rows of x: 8, or a multiple of 16. kAhead: the steps whose loads are
// issued together. kWhole: a scale covers the row; otherwise it covers a multiple of kFloatStep columns. All rows begin at multiples
// of 16 bytes. out(0, row, column, sum) is called once for each output.
template <class S, class F, bool kWhole, int kVectors, int kAhead, int kSlices, int kThreads, class Out>
PF_DEVICE void float_units(const u8* weight, const S* x, const FloatRows& p, const Out& out) {
  using D = DirectMma<S>;
  using M = Mma<S>;
  using Codes = FloatCodes<F>;
  // float16 gets the values themselves: divided by kFactor, some would be subnormal, and some matrix instructions flush those to 0.
  constexpr float kBefore = kIsHalf<S> ? Codes::kFactor : 1, kAfter = Codes::kFactor / kBefore;
  constexpr int kLines = 16, kDepth = kCodes * D::kLanes, kStep = kDepth * kAhead, kWaves = kThreads / kWave;
  constexpr int kTiles = kVectors > 16 ? kVectors / 16 : 1, kFirst = kVectors > 8 ? 16 : 8;
  constexpr int kPieces = kCodes / (8 * D::kEach);  // operands that 16 codes make
  static_assert(kSlices % kWaves == 0 && kFloatStep % kDepth == 0 && kVectors % kFirst == 0);
  PF_SHARED float parts[kSlices * kVectors * kLines];
  PF_SHARED int bad[kLines];
  const i64 line0 = (i64)group().x * kLines, row0 = (i64)group().y * kVectors;
  const u8* lines[D::kA];
#pragma unroll
  for (int i = 0; i < D::kA; ++i) {  // lines beyond the last one read it, and nobody stores them
    const i64 line = line0 + D::line(i);
    lines[i] = weight + (line < p.outputs ? line : p.outputs - 1) * p.row_bytes;
  }
  if ((int)thread() < kLines && line0 + thread() < p.outputs) {
    const i64 most = kSlices * kStep;
    bring_near(weight + (line0 + thread()) * p.row_bytes, (unsigned)(p.columns < most ? p.columns : most));
  }
  await_earlier_kernels();
  if ((int)thread() < kLines) bad[thread()] = 0;
  barrier();
  const S* rows[kTiles][D::kB];
#pragma unroll
  for (int t = 0; t < kTiles; ++t)
#pragma unroll
    for (int i = 0; i < D::kB; ++i) {
      const i64 row = row0 + 16 * t + D::line(i);
      rows[t][i] = x + (row < p.rows ? row : p.rows - 1) * p.x_row + D::part() * kCodes;
    }
  for (int slice = wave(); slice < kSlices; slice += kWaves) {
    typename M::C sums[kTiles] = {};
    u32 nan[D::kA] = {};
    // kSteps steps from k on. whole: the end does not cut them.
    const auto steps = [&](i64 k, auto count, bool whole) {
      constexpr int kSteps = decltype(count)::kValue;
      Vec<u32, 4> codes[kSteps][D::kA] = {};
      InFlight<S, 8> inputs[kSteps][kTiles][D::kB][2];
#pragma unroll
      for (int h = 0; h < kSteps; ++h)
#pragma unroll
        for (int i = 0; i < D::kA; ++i) {
          const i64 at = k + h * kDepth + D::part() * kCodes;
          if (whole || at < p.columns) codes[h][i] = load_codes<true>(lines[i] + at);
        }
#pragma unroll
      for (int h = 0; h < kSteps; ++h)
#pragma unroll
        for (int t = 0; t < kTiles; ++t)
#pragma unroll
          for (int i = 0; i < (kFirst > 8 ? D::kB : 1); ++i)
#pragma unroll
            for (int j = 0; j < 2; ++j)
              if (whole || k + h * kDepth + D::part() * kCodes < p.columns)
                inputs[h][t][i][j].load(rows[t][i] + k + h * kDepth + 8 * j);
#pragma unroll
      for (int h = 0; h < kSteps; ++h) {
        u32 words[D::kA][8];
#pragma unroll
        for (int i = 0; i < D::kA; ++i)
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            float values[4];
            Codes::decode(codes[h][i][j], values);
            if constexpr (Codes::kCheck) nan[i] |= Codes::nan_in(codes[h][i][j]);
            words[i][2 * j] = pack<S>(values[0] * kBefore, values[1] * kBefore);
            words[i][2 * j + 1] = pack<S>(values[2] * kBefore, values[3] * kBefore);
          }
        typename M::C here[kTiles] = {};
#pragma unroll
        for (int piece = 0; piece < kPieces; ++piece) {
          typename D::A a;
#pragma unroll
          for (int i = 0; i < D::kA; ++i)
#pragma unroll
            for (int e = 0; e < D::kEach; ++e)
#pragma unroll
              for (int w = 0; w < 4; ++w) a.v[i][e].words[w] = words[i][(piece * D::kEach + e) * 4 + w];
#pragma unroll
          for (int t = 0; t < kTiles; ++t) {
            typename D::B b;
#pragma unroll
            for (int i = 0; i < D::kB; ++i)
#pragma unroll
              for (int e = 0; e < D::kEach; ++e) b.v[i][e] = inputs[h][t][i][piece * D::kEach + e];
            D::template fma<kFirst>(kWhole ? sums[t] : here[t], a, b);
          }
        }
        if constexpr (!kWhole) {
          const i64 column = k + h * kDepth < p.columns ? k + h * kDepth : p.columns - 1;
          float scales[D::kA];
#pragma unroll
          for (int i = 0; i < D::kA; ++i) scales[i] = scale_of<true>(lines[i], column, p) * kAfter;
#pragma unroll
          for (int t = 0; t < kTiles; ++t)
#pragma unroll
            for (int e = 0; e < M::kC; ++e)
              sums[t].v[e] = fmaf(here[t].v[e], scales[D::kA > 1 ? M::slot(e) : 0], sums[t].v[e]);
        }
      }
    };
    for (i64 k = slice * kStep; k < p.columns; k += kSlices * kStep) {
      if (k + kStep <= p.columns) {
        steps(k, Count<kAhead>(), true);
      } else {
#pragma unroll 1
        for (i64 at = k; at < p.columns; at += kDepth) steps(at, Count<1>(), false);
      }
    }
    if constexpr (Codes::kCheck) {
#pragma unroll
      for (int i = 0; i < D::kA; ++i)
        if ((nan[i] & 0x80808080u) != 0) bad[D::line(i)] = 1;
    }
#pragma unroll
    for (int t = 0; t < kTiles; ++t)
#pragma unroll
      for (int e = 0; e < M::kC; ++e) {
        const int line = M::row(e), vector = 16 * t + M::col(e);
        if (vector < kVectors) parts[(slice * kVectors + vector) * kLines + line] = sums[t].v[e];
      }
  }
  let_later_kernels_start();
  barrier();
#pragma unroll 1
  for (int e = (int)thread(); e < kVectors * kLines; e += kThreads) {
    const i64 line = line0 + e % kLines, row = row0 + e / kLines;
    if (line >= p.outputs || row >= p.rows) continue;
    float sum = parts[e];
    for (int s = 1; s < kSlices; ++s) sum += parts[s * kVectors * kLines + e];
    if constexpr (kWhole) sum = sum * kAfter * scale_of<true>(weight + line * p.row_bytes, 0, p);
    if (bad[e % kLines] != 0) sum = float_of_bits(0x7fc00000u);
    out(0, row, line, (C<S>)sum);
  }
}
#endif

}  // namespace pf
