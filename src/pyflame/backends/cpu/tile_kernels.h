// The vector instructions of the tile engine: function pointers that are looked up once when a program is made. A
// kernel works on one tile, and the bits of an element do not depend on its position in a tile. dst may be one of the
// sources, but must not overlap one partly.
#pragma once
#include <cstdint>

#include "pyflame/ops/op.h"
#include "pyflame/record/ir.h"
#include "pyflame/tensor/dtype.h"

namespace pyflame::cpu::tile {

// The type of a value in a tile. float16 and bfloat16 are float32 values that are rounded to the 16-bit type; bool is 0
// or 1 in u8.
enum class Reg : uint8_t { f32, f64, i64, i32, i16, i8, u8 };

constexpr Reg reg_of(DType d) {
  constexpr Reg regs[] = {Reg::f64, Reg::f32, Reg::f32, Reg::f32, Reg::i64,
                          Reg::i32, Reg::i16, Reg::i8,  Reg::u8,  Reg::u8};
  return regs[static_cast<int>(d)];
}
constexpr int reg_size(Reg r) {
  constexpr int sizes[] = {4, 8, 8, 4, 2, 1, 1};
  return sizes[static_cast<int>(r)];
}
constexpr bool is_native(DType d) { return !is_half(d); }  // memory and tile have the same bytes

struct Args {
  void* dst;
  const void* src[3];
  int64_t n;
  int64_t index;            // row-major index of the first element
  Params params;            // the run's parameters,
  const ParamId* param;     // which params this instruction uses,
  const DType* param_type;  // and the dtypes in which it uses them
  double f64(int i) const;
  int64_t i64(int i) const { return params[param[i]].as_i64(); }
};
using Fn = void (*)(const Args&);

// Null if there is no such instruction. `in` is the type of the (value) operands.
Fn find_float_arith(OpId op, Reg in);  // f32 and f64: arithmetic and comparisons
Fn find_math_f32(OpId op);
Fn find_math_f64(OpId op);
Fn find_int_arith(OpId op, Reg in);  // the other types
Fn find_bool_arith(OpId op);         // u8 that holds bool
Fn find_where(Reg value);
Fn find_bits(OpId op);           // complex64 elements and 8-bit floats: the ops that keep the bits of their inputs
Fn find_float8(OpId op);         // of these, 8-bit floats
Fn find_cast(Reg from, Reg to);  // ints wrap; floats to ints saturate, NaN is 0
// To f32 on the way to a 16-bit type: rounded to odd, so that the second rounding gives the same result as a single
// one. Null if the plain cast is exact.
Fn find_cast_odd(Reg from);
Fn find_to_bool(Reg from);
Fn find_round(DType half);           // f32 to the nearest value of the 16-bit type
Fn find_source(OpId op, DType out);  // arange, rand_*; the params are those of ops.def
Fn find_random(OpId op, DType out);  // rand_* of these

// --- coverage: each file asserts that it has the instruction of each op of the table that belongs there.
// Sources are in tile_memory.cpp. tile_lower.cpp expresses these by other instructions.
constexpr bool has_instruction(OpId op) {
  const OpClass cls = op_info(op).cls;
  if (!is_elementwise(cls) || cls == OpClass::Source) return false;
  return !op_info(op).bits_kept && op != OpId::cast && op != OpId::where && op != OpId::logical_not &&
         op != OpId::logical_and && op != OpId::logical_or && op != OpId::logical_xor;
}
// On floats: functions, which cost more than arithmetic, are in tile_math-inl.h, the others in tile_float.cpp.
constexpr bool in_tile_math(OpId op) {
  const int cost = op_info(op).cpu_cost;
  return has_instruction(op) && (op == OpId::pow || (cost > 1 && cost < kOneByOne));
}
constexpr bool in_tile_float(OpId op) { return has_instruction(op) && !in_tile_math(op) && !op_info(op).integers_only; }
// No integer is NaN or infinite: ops/elementwise.cpp records nothing for them.
constexpr bool in_tile_int(OpId op) {
  return has_instruction(op) && !op_info(op).floats_only && op != OpId::isnan && op != OpId::isinf;
}
// An instruction, or none. `known` is for assertions: under UBSan a function's address cannot be compared in a constant expression.
struct Found {
  Fn fn = nullptr;
  bool known = false;
  constexpr Found() = default;
  constexpr Found(Fn f) : fn(f), known(true) {}
};

// --- reductions. The accumulator ("state") has 8 bytes per row or column: double for floats, int64 for other types. A
// row is divided into blocks of kBlock elements. Within a block, lane i takes the elements i, i + kLanes, ...; lanes
// are combined as a tree, blocks of a chunk in order, and chunks of a row in order. None of this depends on the
// instruction set.
constexpr int64_t kLanes = 32;
constexpr int64_t kBlock = 512;
constexpr int64_t kChunk = 32768;   // elements of a row that one thread takes at a time
constexpr int64_t kRowBlock = 128;  // rows that accumulate in order before their sums are combined (ColReduce)

struct Reduction {
  void (*init)(void* state, int64_t n);
  void (*row)(void* state, const void* src, int64_t n);  // whole blocks, except in the last call for a row
  // The same of the real or imaginary parts of complex elements, and of both at once. Null: there is none.
  void (*part_row[2])(void* state, const void* src, int64_t n) = {};
  void (*both_parts)(void* re, void* im, const void* src, int64_t n) = nullptr;
  void (*col)(void* states, const void* src, int64_t n);  // one row into n states
  // Several rows into n states; each column gives the same bits as col would. Null: use col.
  void (*cols)(void* states, const void* src, int64_t n, int64_t rows) = nullptr;
  void (*combine)(void* states, const void* with, int64_t n);
  void (*finish)(const void* states, void* dst, int64_t n);  // to the output's register type
};
bool find_reduction(OpId op, Reg in, Reg out, Reduction* r);

// --- memory
float round_to_odd(double v);
double round_param(double v, DType dtype);
void fill(Reg r, void* dst, const Param& value, DType dtype, int64_t n);
void load_convert(DType half, const void* src, float* dst, int64_t n);
void store_convert(DType half, const float* src, void* dst, int64_t n);
void copy_strided(void* dst, int64_t dst_stride, const void* src, int64_t src_stride, int size, int64_t n);  // in bytes

}  // namespace pyflame::cpu::tile
