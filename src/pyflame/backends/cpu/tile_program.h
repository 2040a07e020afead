// A lowered Loop group. Elements have a row-major index over the space S, and a tile is a range of this index, whatever
// the strides of the operands are. An operand that is contiguous in this order is used in place; others are gathered
// into the tile.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "pyflame/backends/backend.h"
#include "pyflame/backends/cpu/tile_kernels.h"

namespace pyflame::cpu::tile {

using AccessId = Id<struct TileAccessTag>;
using ValueId = Id<struct TileValueTag>;
using ReductionId = Id<struct TileReductionTag>;

// How an operand is addressed by the row-major index over the dims that it spans (S, its outer dims, or its inner
// dims).
struct Access {
  enum class Kind : uint8_t { Contiguous, Scalar, General };
  Kind kind = Kind::Contiguous;
  bool output = false;
  bool streamed = false;  // an output that is too large for the caches: it is written past them
  bool root = false;      // the epilogue's root, whose address is an argument of run()
  DType dtype = DType::float32;
  BindingId binding;
  int32_t size_of = 4;
  int32_t rank = 0;  // after merging dims
  int64_t size[kMaxDims] = {};
  int64_t stride[kMaxDims] = {};  // in bytes
  int64_t reach = 0;              // bytes from the first element to the end of the last
  bool same_layout(const Access& o) const;
};

enum class Opcode : uint8_t {
  Compute,    // fn over the tile
  Load,       // access -> dst
  Point,      // dst is computed directly in the memory of access
  Store,      // src[0] -> access
  Expand,     // row value src[0] -> every element of its row
  RowReduce,  // src[0] -> row value dst
  ColReduce,  // src[0] -> column states
};

struct Instr {
  Opcode opcode = Opcode::Compute;
  bool row = false;  // runs over rows, not elements
  Fn fn = nullptr;
  ValueId dst;
  ValueId src[3];
  AccessId access;
  ReductionId reduction;
  ParamId param[4];
  DType param_type[4] = {};
};

struct Value {
  Reg reg = Reg::f32;
  bool row = false;
  bool constant = false;  // the same for all elements, or in all tiles; computed once per task
  ParamId param;          // of a constant: a param,
  AccessId access;        // or one element in memory, or a row in memory that repeats
  DType dtype = DType::float32;
};

struct ReductionUse {
  Reduction fn;
  bool col = false;
  AccessId access;              // of a column reduction: the output
  ValueId dst;                  // of a row reduction: the row value
  int part = -1;                // of complex elements: 0 and 1 are the real and imaginary parts
  ReductionId imaginary;        // of the real part: the reduction of the other one, if it is computed here as well
  bool with_real_part = false;  // it is computed there
  Reg out = Reg::f32;
  DType dtype = DType::float32;
};

// One pass over the elements (of a row). Only long rows need several passes.
struct Stage {
  std::vector<Instr> row_code;  // long rows: row values that depend on earlier passes
  std::vector<Instr> code;
  Indexed<ValueId, int64_t> place;  // of each value in its arena, in bytes; -1: none
  int64_t arena = 0;
};

// An input that may share memory with an output.
struct Hazard {
  AccessId input, output;
  bool same_place_ok;    // correct if each element is read before it is written, in a tile's order,
  bool same_place_copy;  // or correct if the tile is copied first
};

enum class Mode : uint8_t { Map, Rows, LongRows, Columns };

struct TileProgram {
  Mode mode = Mode::Map;
  int64_t rows = 1, cols = 1;  // S cut at split; elements = rows * cols
  int64_t tile = 1024;         // elements
  int64_t ahead = 1;           // Map: how many tiles ahead operands are prefetched
  int64_t rows_per_tile = 1;
  int64_t natural_row = 0;  // Map: tiles do not cross multiples of this (0: they may)
  int64_t weight = 1;       // cost of an element, in simple instructions
  bool streams = false;     // some access is streamed
  Indexed<AccessId, Access> accesses;
  Indexed<ValueId, Value> values;
  Indexed<ReductionId, ReductionUse> reductions;
  std::vector<ReductionId> row_reductions, col_reductions;
  std::vector<Hazard> hazards;
  std::vector<Stage> stages;
  Indexed<ValueId, int64_t> row_place;  // of row values
  int64_t row_arena = 0;

  int64_t pointer_bytes() const { return values.size() * sizeof(void*); }  // of an array with the address of each value

  int64_t row_blocks() const { return rows == 0 ? 0 : (rows + kRowBlock - 1) / kRowBlock; }
  int64_t workspace() const { return std::ssize(col_reductions) * row_blocks() * cols * 8; }
};

// The reason of a refusal, or the program. `epilogue`: nodes from 1 on, with nodes[0]'s output as the root.
Refusal lower(const Problem& p, TileProgram* program);

void run(const TileProgram& program, const RunContext& ctx);
// Elements [begin, end) of a Map program. `root` is the address of the root's element 0, which may lie outside the
// block.
void run_range(const TileProgram& program, const RunContext& ctx, const void* root, int64_t begin, int64_t end);

}  // namespace pyflame::cpu::tile
