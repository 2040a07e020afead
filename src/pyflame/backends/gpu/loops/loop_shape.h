// How reductions are divided. This depends on the shape alone, because the order of a reduction is part of its result
// (kernels/loop/loop.h).
#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>

#include "pyflame/backends/gpu/shapes/layout.h"

namespace pyflame::gpu {

constexpr int64_t kUnit = 8;  // adjacent elements that one lane takes together

struct RowCut {
  int64_t lanes;              // per row (per segment); up to 32 of them are part of a wave, otherwise the workgroup
  int64_t segments, segment;  // number and length
};

inline RowCut cut_rows(int64_t rows, int64_t n) {
  constexpr int64_t kWaveRow = 1024, kLongRow = 32768, kFewRows = 512, kSegment = 8192, kGroups = 2048;
  RowCut c{kGroupThreads, 1, n};
  if (n <= kWaveRow)
    c.lanes =
        static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::clamp<int64_t>(ceil_div(n, kUnit), 1, 32))));
  if (n < kLongRow || rows >= kFewRows || rows == 0) return c;
  const int64_t wanted = std::min(ceil_div(n, kSegment), kGroups / rows);
  const int64_t step = kUnit * kGroupThreads;
  c.segment = ceil_div(ceil_div(n, wanted), step) * step;
  c.segments = ceil_div(n, c.segment);
  return c;
}

struct ColumnCut {
  int64_t across, lanes;  // threads along adjacent columns, and along rows
  int64_t segments, segment;
};

inline ColumnCut cut_columns(int64_t rows, int64_t columns) {
  constexpr int64_t kRowsEach = 8, kSegments = 512;
  ColumnCut c{};
  c.across =
      static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::clamp<int64_t>(ceil_div(columns, kUnit), 1, 32))));
  c.lanes = kGroupThreads / c.across;
  c.segment = kRowsEach * c.lanes;
  if (rows <= 2 * c.segment) c.segment = std::max<int64_t>(rows, 1);
  if (ceil_div(rows, c.segment) > kSegments) c.segment = ceil_div(ceil_div(rows, kSegments), c.lanes) * c.lanes;
  c.segments = std::max<int64_t>(1, ceil_div(rows, c.segment));
  return c;
}

}  // namespace pyflame::gpu
