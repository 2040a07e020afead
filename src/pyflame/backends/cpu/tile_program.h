// A lowered Loop group. Elements have a row-major index over the space S; a tile is a range of it, whatever the strides of the
// operands. An operand whose elements lie in index order is used where it lies; others are gathered into the tile.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "pyflame/backends/backend.h"
#include "pyflame/backends/cpu/tile_kernels.h"

namespace pyflame::cpu::tile {

// Where an operand's elements lie, by row-major index over the dims that it spans (S, its outer or its inner dims).
struct Access {
  enum class Kind : uint8_t { Contiguous, Scalar, General };
  Kind kind = Kind::Contiguous;
  bool output = false;
  bool streamed = false;  // an output too large for the caches: written past them
  bool root = false;      // the epilogue's root: its place is an argument of run()
  DType dtype = DType::float32;
  int32_t binding = 0;
  int32_t size_of = 4;
  int32_t rank = 0;  // after merging neighbours
  int64_t size[kMaxDims] = {};
  int64_t stride[kMaxDims] = {};  // in bytes
  int64_t reach = 0;              // bytes from the first element to the end of the last
  bool same_layout(const Access& o) const;
};

enum class Step : uint8_t {
  Compute,    // fn over the tile
  Load,       // access -> dst
  Point,      // dst is computed straight into the memory of access
  Store,      // src[0] -> access
  Expand,     // row value src[0] -> every element of its row
  RowReduce,  // src[0] -> row value dst
  ColReduce,  // src[0] -> column states
};

struct Instr {
  Step step = Step::Compute;
  bool row = false;  // runs over rows, not elements
  Fn fn = nullptr;
  int32_t dst = -1;
  int32_t src[3] = {-1, -1, -1};
  int32_t access = -1;
  int32_t reduction = -1;
  int32_t param[4] = {0, 0, 0, 0};
  DType param_type[4] = {};
};

struct Value {
  Reg reg = Reg::f32;
  bool row = false;
  bool constant = false;  // the same for all elements, or in all tiles; filled once a task
  int32_t param = -1;     // of a constant: a parameter,
  int32_t access = -1;    // or one element of memory, or a row of it that repeats
  DType dtype = DType::float32;
};

struct ReductionUse {
  Reduction fn;
  bool col = false;
  int32_t access = -1;  // of a column reduction: the output
  int32_t dst = -1;     // of a row reduction: the row value
  Reg out = Reg::f32;
  DType dtype = DType::float32;
};

// One pass over the elements (of a row). Only long rows need more than one.
struct Stage {
  std::vector<Instr> row_code;  // long rows: what is computed from the passes before
  std::vector<Instr> code;
  std::vector<int64_t> place;  // of each value in its arena, in bytes; -1: none
  int64_t arena = 0;
};

// An input that may share memory with an output.
struct Hazard {
  int32_t input, output;
  bool same_place_ok;    // reading and writing the same element in a tile's order is right,
  bool same_place_copy;  // or right when the tile is copied first
};

enum class Mode : uint8_t { Map, Rows, LongRows, Columns };

struct Program {
  Mode mode = Mode::Map;
  int64_t rows = 1, cols = 1;  // S cut at split; elements = rows * cols
  int64_t tile = 1024;         // elements
  int64_t ahead = 1;           // Map: tiles between what is worked on and what is asked for from memory
  int64_t rows_per_tile = 1;
  int64_t natural_row = 0;  // Map: tiles do not cross multiples of this (0: they may)
  int64_t weight = 1;       // cost of an element, in simple instructions
  bool streams = false;     // some access is streamed
  std::vector<Access> accesses;
  std::vector<Value> values;
  std::vector<ReductionUse> reductions;
  std::vector<int32_t> row_reductions, col_reductions;
  std::vector<Hazard> hazards;
  std::vector<Stage> stages;
  std::vector<int64_t> row_place;  // of row values
  int64_t row_arena = 0;

  int64_t row_blocks() const { return rows == 0 ? 0 : (rows + kRowBlock - 1) / kRowBlock; }
  size_t workspace() const {
    return static_cast<size_t>(static_cast<int64_t>(col_reductions.size()) * row_blocks() * cols) * 8;
  }
};

// Why not, or the program. `epilogue`: nodes from 1 on, with nodes[0]'s output as the root.
Refusal lower(const Problem& p, Program* program);

void run(const Program& program, const RunContext& ctx);
// Elements [begin, end) of a Map program whose root's element 0 would lie at `root`.
void run_range(const Program& program, const RunContext& ctx, const void* root, int64_t begin, int64_t end);

}  // namespace pyflame::cpu::tile
