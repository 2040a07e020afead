// Rules about arithmetic: matrix instructions that are missing, too few or waited for, slow sequences, and code size.
#include <algorithm>
#include <map>
#include <set>

#include "tools/inspect/isa_lint.h"

namespace pyflame::tools::inspect {

namespace {

std::vector<uint32_t> with_tag(const IsaLinter& l, int loop, Tag tag) {
  return l.select(loop, [&](const Op& op) { return op.info->tag == tag; });
}

const char* name_of(FmaType t) {
  switch (t) {
    case FmaType::f16: return "f16";
    case FmaType::bf16: return "bf16";
    case FmaType::i8: return "int8";
    case FmaType::f32: return "f32";
    case FmaType::f64: return "f64";
    case FmaType::none: break;
  }
  return "";
}

// A matrix product sums into many registers: each iteration adds to a register that the iteration before wrote. (A polynomial has as many multiply-adds, but adds constants. A dot product has few sums.)
class Sums {
 public:
  void visit(std::string_view name, std::string_view operands, bool fma) {
    const Operands o = split_operands(operands);
    const Reg result = o.count ? parse_reg(o.item[0]) : Reg{};
    if (result.file != 'v' && result.file != 'a') return;
    if (fma) {
      // fmac, mac and some dot products sum into their result. Others have the sum as the fourth operand.
      const bool itself = name.find("mac") != std::string_view::npos || o.count == 3;
      const Reg sum = itself ? result : o.count > 3 ? parse_reg(o.item[3].substr(0, o.item[3].find(' '))) : Reg{};
      for (int r = 0; r < sum.count; ++r) {
        Register& reg = at(sum, r);
        if (!reg.written) reg.carried = true;
      }
      ++multiplications_;
      for (int i = 1; i < std::min(o.count, 3); ++i)
        if (const Reg factor = parse_reg(o.item[i].substr(0, o.item[i].find(' '))); factor.file)
          factors_.emplace(slot(factor, 0), versions_[slot(factor, 0)]);
    }
    for (int r = 0; r < result.count; ++r) ++versions_[slot(result, r)];
    for (int r = 0; r < result.count; ++r) {
      Register& reg = at(result, r);
      reg.written = true;
      reg.sum = fma;
    }
  }
  // In a product of matrices each value is a factor of several sums; of a matrix and a vector, each of the matrix's values of
  // one (two if it is complex), whatever instructions there are.
  bool reuses_factors() const { return multiplications_ >= 2 * factors_.size(); }
  int count() const {
    return static_cast<int>(std::count_if(registers_.begin(), registers_.end(),
                                          [](const auto& r) { return r.second.carried && r.second.sum; }));
  }

 private:
  struct Register {
    bool carried = false;  // added to before the iteration wrote it
    bool written = false;
    bool sum = false;  // written last by a multiply-add
  };
  static int slot(const Reg& r, int i) { return (r.file == 'a' ? 1024 : r.file == 's' ? 2048 : 0) + r.first + i; }
  Register& at(const Reg& r, int i) { return registers_[slot(r, i)]; }
  std::map<int, Register> registers_;
  std::map<int, int> versions_;            // how often each register was written
  std::set<std::pair<int, int>> factors_;  // register and version
  size_t multiplications_ = 0;
};

// 0 if it is no product of matrices.
int accumulators(const IsaLinter& l, int loop) {
  Sums sums;
  for (const uint32_t i : l.own(loop)) {
    const Op& op = l.ops[i];
    if (op.kind == OpClass::global_store || op.kind == OpClass::lds_store || op.kind == OpClass::scratch_store)
      continue;
    const size_t second = op.operands.find("::");
    sums.visit(op.mnemonic, op.operands.substr(0, second), op.info->fma != FmaType::none);
    if (second == std::string_view::npos) continue;
    std::string_view rest = op.operands.substr(second + 2);
    while (rest.starts_with(" ")) rest.remove_prefix(1);
    const size_t blank = rest.find(' ');
    if (blank != std::string_view::npos)
      sums.visit(rest.substr(0, blank), rest.substr(blank + 1), rest.starts_with("v_dual_fma"));
  }
  return sums.reuses_factors() ? sums.count() : 0;
}

void matrix(IsaLinter& l, int loop) {
  const Stats& s = l.stats(loop);
  const uint64_t n = s.of(OpClass::matrix);
  if (n == 0) {
    if (!l.arch.matrix || !l.flow.loops[static_cast<size_t>(loop)].innermost) return;
    FmaType type = FmaType::none;
    uint64_t most = 0;
    for (const FmaType t : {FmaType::f16, FmaType::bf16, FmaType::i8, FmaType::f32, FmaType::f64}) {
      if (s.fma[static_cast<size_t>(t)] > most) type = t, most = s.fma[static_cast<size_t>(t)];
    }
    // Packed single precision is as fast as the matrix cores in that type, and so is double precision on gfx950.
    bool possible = true;
    if (type == FmaType::f32)
      possible = l.arch.matrix_f32 &&
                 l.select(loop, [](const Op& op) { return op.info->packed && op.info->fma == FmaType::f32; }).empty();
    if (type == FmaType::f64) possible = l.arch.matrix_f32 && !l.arch.gfx.starts_with("gfx95");
    const uint64_t loads = s.of(OpClass::lds_load) + s.of(OpClass::global_load) + s.of(OpClass::smem);
    if (!possible || most < 16 || loads == 0 || !l.registers_known()) return;
    const int sums = accumulators(l, loop);
    if (sums < 8) return;
    l.report("no-matrix-instructions", loop, l.select(loop, [&](const Op& op) { return op.info->fma == type; }),
             fmt::format("{} does {} multiply-adds of {} a lane into {} accumulators, and has no matrix instruction.",
                         l.place(loop), most, name_of(type), sums));
    return;
  }
  if (!l.flow.loops[static_cast<size_t>(loop)].innermost) return;
  const double share = static_cast<double>(s.matrix_cycles) / static_cast<double>(std::max<uint64_t>(s.cycles, 1));
  // Kernels that fuse a product with something else have a quarter to a half, also where experts wrote them.
  if (share >= 0.2) return;
  l.report("low-matrix-share", loop, l.select(loop, [](const Op& op) { return op.kind == OpClass::matrix; }),
           fmt::format("In {}, {} matrix instructions take {} of about {} issue cycles ({:.0f} %).", l.place(loop), n,
                       s.matrix_cycles, s.cycles, 100 * share));
}

// A small model of CDNA's matrix core: an instruction issues in one slot and occupies the core for its passes. An instruction that needs its result waits for their end, unless it uses the result as the sum of the next matrix instruction.
void matrix_stalls(IsaLinter& l, int loop) {
  const Stats& s = l.stats(loop);
  if (!l.arch.cdna || s.of(OpClass::matrix) == 0 || !l.registers_known()) return;
  std::map<int, uint64_t> ready;
  const auto wait_for = [&](const Reg& r, uint64_t now) {
    uint64_t latest = now;
    if (r.file != 'v' && r.file != 'a') return latest;
    for (int i = 0; i < r.count && !ready.empty(); ++i) {
      const auto it = ready.find((r.file == 'a' ? 1024 : 0) + r.first + i);
      if (it != ready.end()) latest = std::max(latest, it->second);
    }
    return latest;
  };
  uint64_t now = 0, unit_free = 0, stalled = 0;
  std::vector<uint32_t> where;
  for (const uint32_t i : l.own(loop)) {
    const Op& op = l.ops[i];
    const Operands o = split_operands(op.operands);
    const bool is_matrix = op.kind == OpClass::matrix;
    uint64_t start = now;
    for (int k = 0; k < o.count; ++k) {
      // Operand 0 of a matrix instruction is the result and operand 3 the sum. They do not wait for the matrix instruction before.
      if (is_matrix && k != 1 && k != 2) continue;
      start = wait_for(parse_reg(o.item[k].substr(0, o.item[k].find(' '))), start);
    }
    if (start > now) {
      stalled += start - now;
      where.push_back(i);
    }
    now = is_matrix ? std::max(start, unit_free) + 4 : start + op.cycles;
    const Reg d = o.count ? parse_reg(o.item[0]) : Reg{};
    if (is_matrix) {
      unit_free = now - 4 + op.cycles;
      for (int r = 0; r < d.count; ++r) ready[(d.file == 'a' ? 1024 : 0) + d.first + r] = unit_free;
    } else if (op.kind == OpClass::valu || op.kind == OpClass::global_load || op.kind == OpClass::lds_load) {
      for (int r = 0; r < d.count && !ready.empty(); ++r) ready.erase((d.file == 'a' ? 1024 : 0) + d.first + r);
    }
  }
  if (stalled < 16 || stalled * 10 < s.cycles) return;
  const std::string first = l.at(where[0]);
  l.report("matrix-result-stall", loop, where,
           fmt::format("In {}, about {} cycles are spent waiting for results of matrix instructions, first at {}.",
                       l.place(loop), stalled, first));
}

void padding_and_moves(IsaLinter& l, int loop) {
  const Stats& s = l.stats(loop);
  if (s.nop_cycles >= 16 && s.nop_cycles * 20 >= s.cycles) {
    l.report("nop-padding", loop, l.select(loop, [](const Op& op) { return op.kind == OpClass::nop; }),
             fmt::format("In {}, s_nop takes {} of about {} issue cycles.", l.place(loop), s.nop_cycles, s.cycles));
  }
  const auto moves = with_tag(l, loop, Tag::accvgpr);
  // Moves in one direction, in a loop without products, take a result out.
  const auto reads = static_cast<size_t>(std::count_if(moves.begin(), moves.end(), [&](uint32_t i) {
    return l.ops[i].mnemonic.find("read") != std::string_view::npos;
  }));
  const bool both = reads > 0 && reads < moves.size();
  if (moves.size() >= 4 && moves.size() * 10 >= s.instructions && (both || s.of(OpClass::matrix) > 0)) {
    l.report(
        "accvgpr-traffic", loop, moves,
        fmt::format("{} of the {} instructions in {} only move values between accumulation and ordinary registers.",
                    moves.size(), s.instructions, l.place(loop)));
  }
}

void slow_sequences(IsaLinter& l, int loop) {
  const Stats& s = l.stats(loop);
  if (auto where = with_tag(l, loop, Tag::div_scale); !where.empty()) {
    const size_t n = (where.size() + 1) / 2;
    l.report("division-in-loop", loop, where,
             fmt::format("{} has {} exact division{}.", l.place(loop), n, n > 1 ? "s" : ""));
  }
  if (auto where = with_tag(l, loop, Tag::rcp_iflag); !where.empty()) {
    const size_t n = where.size();
    l.report("integer-division-in-loop", loop, where,
             fmt::format("{} has {} integer division{} or remainder{} by a variable.", l.place(loop), n,
                         n > 1 ? "s" : "", n > 1 ? "s" : ""));
  }
  if (auto where = with_tag(l, loop, Tag::dynamic_index); !where.empty()) {
    l.report("dynamic-register-index", loop, where,
             fmt::format("{} chooses registers by a variable {} times.", l.place(loop), where.size()));
  }
  const auto packed = [&](std::string_view type) {
    return l
        .select(loop, [&](const Op& op) { return op.info->packed && op.mnemonic.find(type) != std::string_view::npos; })
        .size();
  };
  if (auto where = with_tag(l, loop, Tag::f16_math); where.size() >= 8 && where.size() > packed("f16")) {
    l.report("unpacked-f16", loop, where,
             fmt::format("{} has {} half-precision operations on single values.", l.place(loop), where.size()));
  }
  const bool packed_f32 = l.arch.cdna && l.arch.gfx != "gfx908";
  if (auto where = with_tag(l, loop, Tag::f32_math);
      packed_f32 && where.size() >= 16 && packed("f32") == 0 && s.of(OpClass::matrix) == 0) {
    l.report("unpacked-f32", loop, where,
             fmt::format("{} has {} single-precision operations on single values and no packed one.", l.place(loop),
                         where.size()));
  }
}

void whole_kernel(IsaLinter& l) {
  // Double-precision code that rounds a value to single precision in between is no detour.
  std::vector<uint32_t> wide, narrow;
  std::vector<Reg> changed;
  std::set<uint16_t> rounded;  // registers that hold a narrowed value
  for (uint32_t i = 0; i < l.ops.size(); ++i) {
    const Op& op = l.ops[i];
    const Operands o = op.info->tag == Tag::f64_from_f32 ? split_operands(op.operands) : Operands{};
    if (o.count > 1 && !rounded.count(parse_reg(o.item[1]).first)) wide.push_back(i);
    if (op.info->tag == Tag::f32_from_f64) narrow.push_back(i);
    if (narrow.empty()) continue;
    written_registers(op, changed);
    for (const Reg& r : changed)
      for (int n = 0; r.file == 'v' && n < r.count; ++n) rounded.erase(static_cast<uint16_t>(r.first + n));
    if (op.info->tag == Tag::f32_from_f64 && !changed.empty()) rounded.insert(changed[0].first);
  }
  if (!wide.empty() && !narrow.empty()) {
    const int loop = [&] {
      for (const BasicBlock& b : l.flow.blocks)
        if (b.first <= wide[0] && wide[0] < b.last) return b.loop;
      return -1;
    }();
    l.report("f64-conversion", loop, wide,
             fmt::format("{} conversions from single to double precision and {} back, first {}.", wide.size(),
                         narrow.size(), l.at(wide[0])));
  }
  for (int loop = -1; loop < l.loops(); ++loop) {
    const auto calls = l.select(loop, [](const Op& op) { return op.info->call; });
    l.report("function-call", loop, calls, fmt::format("{} calls functions {} times.", l.place(loop), calls.size()));
  }
  if (l.arch.icache_bytes <= 0) return;
  const uint64_t room = static_cast<uint64_t>(l.arch.icache_bytes);
  for (const int loop : l.hot_loops()) {
    const uint64_t bytes = l.regions.loop_stats[static_cast<size_t>(loop)].code_bytes;
    if (bytes <= room) continue;
    const uint32_t first = l.flow.blocks[l.flow.loops[static_cast<size_t>(loop)].header].first;
    l.report("loop-exceeds-instruction-cache", loop, {first},
             fmt::format("{} is {:.1f} KiB of code; the instruction cache has {:.0f} KiB{}.", l.place(loop),
                         static_cast<double>(bytes) / 1024, static_cast<double>(room) / 1024,
                         l.arch.icache_shared > 1 ? fmt::format(" for {} CUs", l.arch.icache_shared) : ""));
  }
}

}  // namespace

void lint_compute(IsaLinter& l) {
  for (const int loop : l.hot_loops()) {
    matrix(l, loop);
    matrix_stalls(l, loop);
    padding_and_moves(l, loop);
    slow_sequences(l, loop);
  }
  whole_kernel(l);
}

}  // namespace pyflame::tools::inspect
