// Classifies an instruction: its class, the bytes that it moves, the matrix shape that it computes, and how long it
// blocks the issue of its wave. The rules use the name families that all generations share (gfx9 "global_load_dwordx4"
// and gfx11 "global_load_b128" are the same), not lists of thousands of names. Each distinct name is analysed once.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tools/inspect/disasm.h"

namespace pyflame::tools::inspect {

enum class OpClass : uint8_t {
  valu,
  salu,
  matrix,
  global_load,
  global_store,
  global_atomic,
  smem,
  lds_load,
  lds_store,
  lds_atomic,
  lane_exchange,  // through the hardware of LDS, without its memory: ds_bpermute, ds_swizzle
  scratch_load,
  scratch_store,
  wait,
  branch,
  barrier,
  nop,
  end,
  other,
  unknown,  // bytes that are not an instruction
};

// The operands of a multiply-add, which decide whether a matrix instruction could compute it.
enum class FmaType : uint8_t { none, f16, bf16, i8, f32, f64 };

// Single instructions that a finding looks for.
enum class Tag : uint8_t {
  none,
  f64_from_f32,
  f32_from_f64,
  div_scale,
  rcp_iflag,
  readfirstlane,
  readlane,
  writelane,
  accvgpr,
  compare_equal,
  set_exec,  // s_and_saveexec and similar
  dynamic_index,
  f16_math,  // one result per lane, although there is a packed form
  f32_math,
};

// How a generation issues instructions.
struct IsaArch {
  std::string gfx;
  int generation = 9;      // 9 … 12
  int wave = 64;           // lanes of a wave
  bool cdna = false;       // gfx908, 90a, 94x, 950
  int valu_cycles = 4;     // of one wave, on its SIMD
  int other_cycles = 4;    // until the wave may issue again, after any other instruction
  int f64_factor = 1;      // × valu_cycles
  int int_mul_factor = 1;  // 32-bit integer multiplication
  int cvt_factor = 1;      // conversions
  int icache_bytes = 0;    // 0: not known
  int icache_shared = 1;   // number of CUs that share it
  bool matrix = false, matrix_f32 = false;
  static IsaArch of(std::string_view gfx, int wave);
};

struct OpInfo {
  OpClass kind = OpClass::other;
  FmaType fma = FmaType::none;
  Tag tag = Tag::none;
  bool flat = false;         // flat_*: the address space is not known
  bool buffer = false;       // buffer_*: may access scratch
  bool trans = false;        // transcendental unit
  bool packed = false;       // v_pk_*: two results
  bool dual = false;         // v_dual_*: two instructions
  bool cas = false;          // compare and swap
  bool conditional = false;  // of a branch
  bool call = false;
  bool transposing = false;  // loads that transpose the data
  bool pair = false;         // ds_read2 and similar: two addresses
  bool to_lds = false;       // global_load_lds_*, straight to LDS
  uint16_t bytes = 0;        // per lane (smem: per wave)
  uint16_t cycles = 0;
  std::string shape, type;  // of a matrix instruction: "16x16x16", "bf16"
  bool f8f6f4 = false;      // its cycles depend on the operands
};

OpInfo classify(std::string_view mnemonic, const IsaArch& arch);

// A register operand: "v[4:7]", "-v3", "|a2|", "v5.l", "s[0:3]".
struct Reg {
  char file = 0;  // 'v', 'a', 's'; 0: none
  uint16_t first = 0, count = 0;
  bool overlaps(const Reg& o) const {
    return file && file == o.file && first < o.first + o.count && o.first < first + count;
  }
};
Reg parse_reg(std::string_view operand);

// The operands between commas, without surrounding blanks; at most `N` (the last one has the rest).
struct Operands {
  static constexpr int N = 8;
  std::string_view item[N];
  int count = 0;
};
Operands split_operands(std::string_view text);
// The number behind "name:", or `otherwise`.
int64_t modifier(std::string_view operands, std::string_view name, int64_t otherwise);

// What a wait waits for: the largest count that may be outstanding, -1 if it does not use that counter.
struct Wait {
  int load = -1, store = -1, lds = -1, scalar = -1;
};
Wait parse_wait(std::string_view mnemonic, std::string_view operands);

// An instruction in the form that the analysis uses.
struct Op {
  uint64_t address = 0;
  uint32_t size = 0;
  uint32_t cycles = 0;
  OpClass kind = OpClass::unknown;
  uint16_t bytes = 0;
  const OpInfo* info = nullptr;
  std::string_view mnemonic, operands;
  int64_t target = -1;  // of a branch: index of an instruction, -1 when it is none or unknown
};

// Classifies whole listings and caches the result for each name. One per thread and architecture.
class Classifier {
 public:
  explicit Classifier(IsaArch arch) : arch_(std::move(arch)) {}
  const IsaArch& arch() const { return arch_; }
  // `scratch_bytes` 0: the kernel has no scratch, so no access can be one. The views are into `listing`.
  void run(const Listing& listing, int64_t scratch_bytes, std::vector<Op>& out);

 private:
  const OpInfo& info(std::string_view mnemonic);
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view s) const { return std::hash<std::string_view>()(s); }
  };
  IsaArch arch_;
  std::unordered_map<std::string, OpInfo, Hash, std::equal_to<>> known_;
};

}  // namespace pyflame::tools::inspect
