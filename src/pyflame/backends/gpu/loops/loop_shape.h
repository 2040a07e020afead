// How a loop is divided among lanes, workgroups and kernels. This is decided here, in loop_flat.cpp and in loop_tile.cpp. PyFlame's own
// choice depends on the loop's sizes, types and strides. The order of a reduction is part of its result (kernels/loop/loop.h), so for
// reductions it depends on the sizes alone. Tuning may choose another shape.
#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "pyflame/backends/gpu/shapes/estimate.h"
#include "pyflame/backends/gpu/shapes/layout.h"

namespace pyflame::gpu {

constexpr int64_t kUnit = 8;           // adjacent elements of a row that one lane of a reduction takes together
constexpr int64_t kRowsAtOnce = 4;     // rows that a thread of a reduction of columns loads together
constexpr int64_t kBusyGroups = 2048;  // workgroups that keep a large GPU busy for several rounds

// Elementwise loops. 0: as the loop's types and strides suggest. The result has the same bits for all of them.
struct FlatShape {
  int64_t vector = 0;  // adjacent elements that a lane takes together
  int64_t each = 0;    // the number of such vectors of a lane
  int64_t side = 0;    // of the tiles through which a transposition goes
  bool operator==(const FlatShape&) const = default;
};

struct RowCut {
  int64_t lanes;              // per row (per segment); up to 32 of them are part of a wave, otherwise the workgroup
  int64_t segments, segment;  // number and length
  bool operator==(const RowCut&) const = default;
};

// A row is cut into about so many segments, each of whole steps of a workgroup.
inline RowCut row_segments(int64_t n, int64_t wanted) {
  constexpr int64_t kStep = kUnit * kGroupThreads;
  RowCut c{kGroupThreads, 1, n};
  if (wanted <= 1) return c;
  c.segment = ceil_div(ceil_div(n, wanted), kStep) * kStep;
  c.segments = ceil_div(n, c.segment);
  return c;
}

constexpr int64_t kWaveRow = 1024;  // up to this length, part of a wave takes a row

inline RowCut cut_rows(int64_t rows, int64_t n) {
  constexpr int64_t kLongRow = 32768, kFewRows = 512, kSegment = 8192, kGroups = 2048;
  if (n <= kWaveRow) {
    const auto units = static_cast<uint64_t>(std::clamp<int64_t>(ceil_div(n, kUnit), 1, 32));
    return {static_cast<int64_t>(std::bit_ceil(units)), 1, n};
  }
  if (n < kLongRow || rows >= kFewRows || rows == 0) return {kGroupThreads, 1, n};
  return row_segments(n, std::min(ceil_div(n, kSegment), kGroups / rows));
}

struct ColumnCut {
  int64_t across, lanes;  // threads along adjacent columns, and along rows
  int64_t segments, segment;
  bool operator==(const ColumnCut&) const = default;
};

inline ColumnCut column_segments(int64_t rows, int64_t across, int64_t segment) {
  return {across, kGroupThreads / across, std::max<int64_t>(1, ceil_div(rows, segment)), segment};
}

inline ColumnCut cut_columns(int64_t rows, int64_t columns) {
  constexpr int64_t kRowsEach = 8, kSegments = 512;
  const auto units = static_cast<uint64_t>(std::clamp<int64_t>(ceil_div(columns, kUnit), 1, 32));
  const auto across = static_cast<int64_t>(std::bit_ceil(units));
  const int64_t lanes = kGroupThreads / across;
  int64_t segment = kRowsEach * lanes;
  if (rows <= 2 * segment) segment = std::max<int64_t>(rows, 1);
  if (ceil_div(rows, segment) > kSegments) segment = ceil_div(ceil_div(rows, kSegments), lanes) * lanes;
  return column_segments(rows, across, segment);
}

struct LoopShape {
  FlatShape flat;
  RowCut rows{1, 1, 1};
  ColumnCut columns{1, 1, 1, 1};
};

// PyFlame's own choice.
LoopShape own_shape(const Problem& p);

// A shape, and its name as a configuration.
struct NamedShape {
  std::string name;
  LoopShape shape;
};
// Other shapes that fit the loop, those with the shortest estimates first.
std::vector<NamedShape> other_shapes(const Problem& p, const Figures& f);
std::vector<NamedShape> other_shapes(const Problem& p);  // on the problem's device
// Microseconds by arithmetic (estimate.h) for a shape of the loop. Of an elementwise loop it must say how many elements a lane takes.
double shape_us(const Problem& p, const LoopShape& shape, const Figures& f);
// Whether the loop is so large that another shape may be worth a measurement. This is asked for each loop, so it must be quick.
bool worth_measuring(const Problem& p);

}  // namespace pyflame::gpu
