// Finds problems in the machine code of a kernel that a person would look for. A table has each lint once, with its
// severity, the reason and the remedy; the code that searches only returns positions and numbers.
#pragma once
#include <fmt/format.h>

#include <array>
#include <span>
#include <string>
#include <vector>

#include "tools/base/finding.h"
#include "tools/inspect/isa_stats.h"

namespace pyflame::tools::inspect {

// The rules. To add one, add an entry to the table in isa_lint.cpp, a search that reports it to one of the parts below, a
// row to docs/inspect.md and a pair of programs to tests/cpp/tools/inspect/isa_lint_test.cpp.
std::span<const RuleText> isa_lints();

// One per rule that finds something in a kernel. `what` tells of the worst position, and in how many loops the same occurs.
struct IsaFinding : Finding {
  uint64_t address = 0;                  // the first one at the worst position
  uint64_t count = 0;                    // in the whole kernel
  int loop = -1;                         // the worst position, -1: in no loop
  std::vector<uint64_t> addresses = {};  // the first ones
};

// Thresholds that findings mention: with less work than this between the first load and the wait for it, little of the
// latency is hidden.
constexpr uint32_t kNearLoadCycles = 128, kNearLdsCycles = 32;

std::vector<IsaFinding> lint_isa(const IsaArch& arch, const std::vector<Op>& ops, const ControlFlow& flow,
                                 const Regions& regions);

// --- for the parts of the lint

class IsaLinter {
 public:
  IsaLinter(const IsaArch& a, const std::vector<Op>& o, const ControlFlow& f, const Regions& r);

  const IsaArch& arch;
  const std::vector<Op>& ops;
  const ControlFlow& flow;
  const Regions& regions;

  // `where` are instructions, ascending and not empty; `loop` -1: in no loop.
  void report(const char* id, int loop, std::vector<uint32_t> where, std::string what);
  // "the loop at 0x1a00" or "the kernel outside of its loops"
  std::string place(int loop) const;
  std::string at(uint32_t op) const;  // "global_load_dword at 0x1a40"

  const std::vector<uint32_t>& own(int loop) const { return regions.own[static_cast<size_t>(loop + 1)]; }
  const Stats& stats(int loop) const { return regions.own_stats[static_cast<size_t>(loop + 1)]; }
  // The instructions of a region for which `is` holds.
  template <class F>
  std::vector<uint32_t> select(int loop, const F& is) const {
    std::vector<uint32_t> where;
    for (const uint32_t i : own(loop))
      if (is(ops[i])) where.push_back(i);
    return where;
  }
  int loops() const { return static_cast<int>(flow.loops.size()); }
  // The loops whose passes decide the speed: innermost ones, and those around nothing but short ones (a retry, a wait).
  // What stands in the loop of a persistent kernel, around its main loop, runs once for many passes of the main loop.
  const std::vector<int>& hot_loops() const { return hot_; }
  // False if the code changes which registers the names mean (s_set_vgpr_msb of gfx1250): then no rule may follow values.
  bool registers_known() const { return registers_known_; }
  // Whether no instruction of the loop writes any of the registers that make the address of this access.
  bool address_is_fixed(int loop, const Op& op) const;
  std::vector<IsaFinding> take();

 private:
  struct Place {
    const RuleText* lint;
    int loop;
    std::vector<uint32_t> where;
    std::string what;
  };
  std::vector<Place> places_;
  // How a loop writes the vector and scalar registers.
  enum class Writes : uint8_t { none, copies, other };
  struct LoopWrites {
    int loop = -1;
    std::array<Writes, 4096> of{};
  };
  const LoopWrites& writes_of(int loop) const;

  std::vector<int> hot_;
  mutable LoopWrites last_writes_;  // of the loop that was asked for last
  bool registers_known_ = true;
};

// The registers that an instruction writes and that can be part of an address: its first operand, and that of the second
// half of a dual instruction.
void written_registers(const Op& op, std::vector<Reg>& out);
// Of an atomic operation: "sc0" (gfx94x, gfx950), "glc" (older) and "th:TH_ATOMIC_RETURN" (gfx12) ask for the former value.
bool returns_value(const Op& op);
// A load that goes to LDS instead of registers. Only gfx950 has one of more than 4 bytes a lane.
bool loads_to_lds(const Op& op);

void lint_memory(IsaLinter& linter);   // isa_lint_memory.cpp: widths, address spaces, spills, atomics
void lint_waits(IsaLinter& linter);    // isa_lint_waits.cpp: waits, barriers, uses of LDS
void lint_compute(IsaLinter& linter);  // isa_lint_compute.cpp: matrix instructions, arithmetic, code size

}  // namespace pyflame::tools::inspect
