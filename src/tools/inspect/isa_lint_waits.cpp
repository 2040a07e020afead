// Rules about synchronisation: full waits soon after the instructions that they wait for, barriers, and data that goes through LDS twice.
#include <algorithm>
#include <array>
#include <optional>

#include "tools/inspect/isa_lint.h"

namespace pyflame::tools::inspect {

namespace {

enum class Counter { load, lds, scalar, store };

bool counts(const Op& op, Counter c) {
  switch (c) {
    case Counter::load: return op.kind == OpClass::global_load || op.kind == OpClass::scratch_load;
    case Counter::lds: return op.kind == OpClass::lds_load || op.kind == OpClass::lane_exchange;
    case Counter::scalar: return op.kind == OpClass::smem && op.bytes > 0;
    case Counter::store: return op.kind == OpClass::global_store || op.kind == OpClass::global_atomic;
  }
  return false;
}

bool waits_for_all(const Op& op, Counter c) {
  if (op.kind != OpClass::wait) return false;
  const Wait w = parse_wait(op.mnemonic, op.operands);
  switch (c) {
    case Counter::load: return w.load == 0;
    case Counter::lds: return w.lds == 0;
    case Counter::scalar: return w.scalar == 0;
    case Counter::store: return w.store == 0;
  }
  return false;
}

struct Before {
  uint32_t op = 0;           // the first instruction that is waited for
  uint64_t cycles = 0;       // of other work between it and the wait
  uint32_t outstanding = 0;  // instructions of that kind since the last full wait
};

// What a full wait waits for within the same iteration. Nothing if it was issued in the iteration before: then the loop is
// pipelined. Nor if each load polls one address: then the loop waits for another workgroup.
std::optional<Before> before_wait(const IsaLinter& l, int loop, size_t at, Counter c) {
  const auto& own = l.own(loop);
  Before b;
  uint64_t cycles = 0;
  bool polls = c == Counter::load;
  for (size_t i = at; i-- > 0;) {
    const Op& op = l.ops[own[i]];
    if (waits_for_all(op, c)) break;
    if (counts(op, c)) {
      ++b.outstanding;
      b.op = own[i];
      b.cycles = cycles;
      polls = polls && l.address_is_fixed(loop, op);
    } else if (op.kind != OpClass::wait) {
      cycles += op.cycles;
    }
    // Far enough: more instructions do not change the finding.
    if (at - i > 4096) break;
  }
  return b.outstanding > 0 && !polls ? std::optional(b) : std::nullopt;
}

void full_waits(IsaLinter& l, int loop, Counter c, const char* id, uint32_t near_cycles, const char* means) {
  const auto& own = l.own(loop);
  std::vector<uint32_t> where;
  std::string what;
  for (size_t i = 0; i < own.size(); ++i) {
    if (!waits_for_all(l.ops[own[i]], c)) continue;
    const auto b = before_wait(l, loop, i, c);
    if (!b || b->cycles >= near_cycles) continue;
    where.push_back(own[i]);
    if (!what.empty()) continue;
    what = fmt::format(
        "In {}, {} waits for all {}. {} in flight; between {}{} and the wait is other work of about {} "
        "cycles.",
        l.place(loop), l.at(own[i]), means, b->outstanding == 1 ? "One is" : fmt::format("{} are", b->outstanding),
        b->outstanding == 1 ? "" : "the first, ", l.at(b->op) + (b->outstanding == 1 ? "" : ","), b->cycles);
  }
  l.report(id, loop, where, what);
}

void store_waits(IsaLinter& l, int loop) {
  const auto& own = l.own(loop);
  std::vector<uint32_t> where;
  for (size_t i = 0; i < own.size(); ++i) {
    if (waits_for_all(l.ops[own[i]], Counter::store) && before_wait(l, loop, i, Counter::store))
      where.push_back(own[i]);
  }
  if (!where.empty())
    l.report("store-wait-in-loop", loop, where,
             fmt::format("In {}, {} waits until all stores are written.", l.place(loop), l.at(where[0])));
}

void barriers(IsaLinter& l, int loop) {
  const auto where = l.select(loop, [](const Op& op) { return op.kind == OpClass::barrier; });
  if (where.size() >= 2)
    l.report("barriers-in-loop", loop, where,
             fmt::format("{} has {} barriers in each pass.", l.place(loop), where.size()));
}

// The LDS read from which the content of each vector register originates. Arithmetic with scalars and constants keeps the origin. Arithmetic with
// another vector register (a sum over lanes) and matrix products make new values.
class Origins {
 public:
  static constexpr uint16_t kNone = 0, kMixed = 0xffff;

  uint16_t of(const Reg& r) const {
    uint16_t origin = kNone;
    each(r, [&](uint16_t o) {
      if (o != kNone) origin = origin == kNone || origin == o ? o : kMixed;
    });
    return origin;
  }
  void set(const Reg& r, uint16_t origin) {
    if (r.file != 'v' && r.file != 'a') return;
    auto& file = r.file == 'v' ? v_ : a_;
    for (int i = r.first; i < std::min<int>(r.first + r.count, static_cast<int>(file.size())); ++i)
      file[static_cast<size_t>(i)] = origin;
  }

 private:
  template <class F>
  void each(const Reg& r, const F& f) const {
    if (r.file != 'v' && r.file != 'a') return;
    const auto& file = r.file == 'v' ? v_ : a_;
    for (int i = r.first; i < std::min<int>(r.first + r.count, static_cast<int>(file.size())); ++i)
      f(file[static_cast<size_t>(i)]);
  }
  std::array<uint16_t, 1024> v_{}, a_{};
};

// Instructions that pack parts of several values: their result was read, not computed.
bool gathers(std::string_view n) {
  for (const std::string_view p : {"v_perm_", "v_pack_", "v_cvt_pk", "v_cvt_scalef32_pk", "v_lshl_or", "v_and_or",
                                   "v_bfi", "v_alignb", "v_or_b32", "v_or3", "v_cndmask"})
    if (n.starts_with(p)) return true;
  return false;
}

void follow(const Op& op, Origins& origins, uint16_t& reads) {
  const Operands o = split_operands(op.operands);
  if (o.count == 0) return;
  const Reg result = parse_reg(o.item[0]);
  if (op.kind == OpClass::lds_load) {
    if (reads < Origins::kMixed - 1) ++reads;
    origins.set(result, reads);
    return;
  }
  // A value that did not come through LDS, or that combines those of several lanes.
  const bool of_lanes = op.kind == OpClass::lane_exchange || op.mnemonic.ends_with("_dpp") ||
                        op.mnemonic.starts_with("v_permlane") || op.mnemonic.starts_with("v_readlane");
  if (of_lanes || op.kind == OpClass::matrix || op.kind == OpClass::global_load || op.kind == OpClass::scratch_load) {
    origins.set(result, Origins::kMixed);
    return;
  }
  if (op.kind != OpClass::valu || op.info->dual) {
    // A dual instruction writes two results from six sources. It is not followed, because it is rare between two uses of LDS.
    if (op.kind != OpClass::lds_store && op.kind != OpClass::global_store && op.kind != OpClass::scratch_store)
      origins.set(result, Origins::kNone);
    return;
  }
  uint16_t origin = Origins::kNone;
  bool combines = false;
  for (int i = 1; i < o.count; ++i) {
    const Reg operand = parse_reg(o.item[i]);
    const uint16_t source = origins.of(operand);
    combines = combines || (source == Origins::kNone && (operand.file == 'v' || operand.file == 'a'));
    if (source == Origins::kNone || source == origin || origin == Origins::kMixed) continue;
    origin = origin == Origins::kNone || (gathers(op.mnemonic) && source != Origins::kMixed) ? source : Origins::kMixed;
  }
  if (origin != Origins::kNone && combines && !gathers(op.mnemonic)) origin = Origins::kMixed;
  origins.set(result, origin);
}

void double_conversion(IsaLinter& l, int loop) {
  const Stats& s = l.stats(loop);
  if (s.of(OpClass::lds_store) < 2 || s.of(OpClass::lds_load) < 2 || !l.registers_known()) return;
  Origins origins;
  uint16_t reads = 0;
  uint32_t barriers = 0, barriers_at_read = 0;
  uint32_t first_write = 0, first_read = 0;
  bool wrote = false, read = false;
  std::vector<uint32_t> again;  // writes of values that were read before
  for (const uint32_t i : l.own(loop)) {
    const Op& op = l.ops[i];
    if (op.kind == OpClass::barrier) ++barriers;
    if (op.kind == OpClass::lds_store) {
      const Operands o = split_operands(op.operands);
      const uint16_t origin =
          o.count > 1 ? origins.of(parse_reg(o.item[1].substr(0, o.item[1].find(' ')))) : Origins::kNone;
      if (wrote && read && origin != Origins::kNone && origin != Origins::kMixed) again.push_back(i);
      if (!wrote) wrote = true, first_write = i;
    } else if (op.kind == OpClass::lds_load) {
      if (!again.empty()) {
        l.report(
            "double-lds-conversion", loop, again,
            fmt::format(
                "In {}, data is written to LDS ({}), read ({}), and what was read is written again ({}) and read again "
                "({}), with {} barrier{} in between.",
                l.place(loop), l.at(first_write), l.at(first_read), l.at(again[0]), l.at(i),
                barriers - barriers_at_read, barriers - barriers_at_read == 1 ? "" : "s"));
        return;
      }
      if (wrote && !read) read = true, first_read = i, barriers_at_read = barriers;
    }
    if (wrote) follow(op, origins, reads);
  }
}

}  // namespace

void lint_waits(IsaLinter& l) {
  for (const int loop : l.hot_loops()) {
    full_waits(l, loop, Counter::load, "full-vmcnt-wait", kNearLoadCycles, "loads from memory");
    full_waits(l, loop, Counter::lds, "full-lgkmcnt-wait", kNearLdsCycles, "LDS reads");
    full_waits(l, loop, Counter::scalar, "scalar-load-in-loop", kNearLoadCycles, "scalar loads");
    store_waits(l, loop);
    barriers(l, loop);
  }
  if (l.loops() == 0) double_conversion(l, -1);
  for (const int loop : l.hot_loops()) double_conversion(l, loop);
}

}  // namespace pyflame::tools::inspect
