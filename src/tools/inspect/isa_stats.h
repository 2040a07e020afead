// The contents of a stretch of code: instructions by class, matrix instructions by shape, bytes, waits and issue
// cycles.
#pragma once
#include <array>
#include <string>
#include <vector>

#include "tools/inspect/isa_loops.h"

namespace pyflame::tools::inspect {

struct MatrixUse {
  const OpInfo* info = nullptr;
  std::string_view name;
  uint64_t count = 0, cycles = 0;
};

struct Stats {
  std::array<uint64_t, static_cast<size_t>(OpClass::unknown) + 1> count{};
  uint64_t instructions = 0, code_bytes = 0;
  uint64_t cycles = 0, matrix_cycles = 0, trans = 0, dual = 0, nop_cycles = 0;
  uint64_t load_bytes = 0, store_bytes = 0, lds_bytes = 0, scratch_bytes = 0;  // of a lane
  uint16_t widest_load = 0, widest_store = 0;                                  // of a lane, global memory
  std::array<uint64_t, 6> fma{};                                               // by FmaType
  uint64_t wait_load0 = 0, wait_lds0 = 0, wait_store0 = 0;
  std::vector<MatrixUse> matrix;

  uint64_t of(OpClass c) const { return count[static_cast<size_t>(c)]; }
  void add(const Op& op);
  void add(const Stats& other);
};

// Each instruction belongs to one region: to the innermost loop that contains it, or to none.
struct Regions {
  std::vector<std::vector<uint32_t>> own;  // [loop + 1] -> instructions, ascending; [0]: in no loop
  std::vector<Stats> own_stats;            // [loop + 1]
  std::vector<Stats> loop_stats;           // [loop], with the loops inside
  Stats total;
};
Regions make_regions(const std::vector<Op>& ops, const ControlFlow& flow);

}  // namespace pyflame::tools::inspect
