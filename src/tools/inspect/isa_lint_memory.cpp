// Rules about memory accesses: how wide they are, whether neighbours could be merged, and traffic that should not be in a loop.
#include <algorithm>
#include <optional>
#include <set>

#include "tools/inspect/isa_lint.h"

namespace pyflame::tools::inspect {

namespace {

std::string_view first_word(std::string_view s) { return s.substr(0, s.find(' ')); }

// A memory access by base and offset. Accesses with equal bases, between which no register of the base changed, are comparable.
struct Access {
  uint32_t op = 0;
  OpClass kind = OpClass::other;
  std::string_view base[3];
  int64_t offset = 0;
  int width = 0;
  bool same_base(const Access& o) const {
    return kind == o.kind && base[0] == o.base[0] && base[1] == o.base[1] && base[2] == o.base[2];
  }
};

bool describe(const Op& op, uint32_t index, Access& a) {
  if (op.bytes == 0 || op.bytes >= 16 || op.info->pair || loads_to_lds(op) || op.info->transposing) return false;
  const bool load = op.kind == OpClass::global_load || op.kind == OpClass::lds_load;
  const bool lds = op.kind == OpClass::lds_load || op.kind == OpClass::lds_store;
  if (!load && op.kind != OpClass::global_store && op.kind != OpClass::lds_store) return false;
  const Operands o = split_operands(op.operands);
  a = {index, op.kind, {}, modifier(op.operands, "offset", 0), op.bytes};
  if (op.info->buffer) {
    if (o.count < 4) return false;  // "lds" forms have no data operand
    a.base[0] = first_word(o.item[1]);
    a.base[1] = o.item[2];
    a.base[2] = first_word(o.item[3]);
    return true;
  }
  if (o.count < 2) return false;
  if (lds) {
    a.base[0] = first_word(load ? o.item[1] : o.item[0]);
    return true;
  }
  a.base[0] = first_word(load ? o.item[1] : o.item[0]);
  if (o.count > 2) a.base[1] = first_word(o.item[2]);
  return true;
}

// Finds runs of neighbours among accesses with one base. Appends those that wider instructions could replace, if there is
// enough for one whole instruction.
void find_runs(std::vector<Access>& group, std::vector<uint32_t>& found, int64_t& bytes) {
  std::stable_sort(group.begin(), group.end(), [](const Access& a, const Access& b) { return a.offset < b.offset; });
  for (size_t i = 0; i < group.size();) {
    size_t end = i + 1;
    int64_t total = group[i].width;
    while (end < group.size() && group[end].offset == group[end - 1].offset + group[end - 1].width)
      total += group[end++].width;
    const int64_t needed = (total + 15) / 16;
    if (total >= 16 && static_cast<int64_t>(end - i) > needed) {
      for (size_t k = i; k < end; ++k) found.push_back(group[k].op);
      bytes += total;
    }
    i = end;
  }
}

struct Neighbours {
  std::vector<uint32_t> loads, stores;
  int64_t load_bytes = 0, store_bytes = 0;
};

// All groups of a region. Gaps and branches separate blocks.
void neighbours(const IsaLinter& l, int loop, bool lds, Neighbours& out) {
  if (!l.registers_known()) return;
  std::vector<std::vector<Access>> groups;
  const auto close = [&](std::vector<Access>& g) {
    const bool load = g[0].kind == OpClass::global_load || g[0].kind == OpClass::lds_load;
    if (g.size() > 1) find_runs(g, load ? out.loads : out.stores, load ? out.load_bytes : out.store_bytes);
  };
  const auto close_all = [&] {
    for (auto& g : groups) close(g);
    groups.clear();
  };
  std::vector<Reg> changed;
  uint32_t previous = 0;
  for (const uint32_t i : l.own(loop)) {
    const Op& op = l.ops[i];
    if (i != previous + 1 || op.kind == OpClass::branch || op.kind == OpClass::barrier) close_all();
    // A write to LDS in between may change what the next read finds, so the two cannot become one.
    if (lds && !groups.empty() &&
        op.kind == (groups[0][0].kind == OpClass::lds_load ? OpClass::lds_store : OpClass::lds_load))
      close_all();
    previous = i;
    Access a;
    if (describe(op, i, a) && (op.kind == OpClass::lds_load || op.kind == OpClass::lds_store) == lds) {
      const auto it = std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g[0].same_base(a); });
      if (it != groups.end()) {
        it->push_back(a);
      } else {
        if (groups.size() >= 32) {
          close(groups.front());
          groups.erase(groups.begin());
        }
        groups.push_back({a});
      }
    }
    if (groups.empty()) continue;
    written_registers(op, changed);
    for (const Reg& r : changed) {
      for (size_t g = 0; g < groups.size();) {
        const Access& head = groups[g][0];
        if (std::any_of(head.base, head.base + 3, [&](std::string_view b) { return parse_reg(b).overlaps(r); })) {
          close(groups[g]);
          groups.erase(groups.begin() + static_cast<std::ptrdiff_t>(g));
        } else {
          ++g;
        }
      }
    }
  }
  close_all();
}

std::string common_names(const IsaLinter& l, const std::vector<uint32_t>& where) {
  std::vector<std::pair<std::string_view, size_t>> names;
  for (const uint32_t i : where) {
    const auto it =
        std::find_if(names.begin(), names.end(), [&](const auto& n) { return n.first == l.ops[i].mnemonic; });
    if (it != names.end()) ++it->second;
    else names.emplace_back(l.ops[i].mnemonic, 1);
  }
  std::stable_sort(names.begin(), names.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text;
  for (size_t i = 0; i < names.size() && i < 3; ++i)
    text += fmt::format("{}{} x {}", i ? ", " : "", names[i].second, names[i].first);
  return names.size() > 3 ? text + ", ..." : text;
}

void report_runs(IsaLinter& l, const char* id, int loop, std::vector<uint32_t> where, int64_t bytes, const char* verb) {
  if (where.empty()) return;
  std::sort(where.begin(), where.end());
  const std::string names = common_names(l, where);
  l.report(
      id, loop, where,
      fmt::format(
          "In {}, {} instructions ({}) {} {} bytes a lane at neighbouring addresses. {} of 16 bytes would be enough.",
          l.place(loop), where.size(), names, verb, bytes, (bytes + 15) / 16));
}

// Reports accesses if most of the bytes move in small pieces.
void small_accesses(IsaLinter& l, const char* id, int loop, const std::set<uint32_t>& already, bool lds) {
  std::vector<uint32_t> where;
  int64_t small = 0, all = 0;
  for (const uint32_t i : l.own(loop)) {
    const Op& op = l.ops[i];
    const bool mine = lds ? op.kind == OpClass::lds_load || op.kind == OpClass::lds_store
                          : op.kind == OpClass::global_load || op.kind == OpClass::global_store;
    if (!mine || op.bytes == 0 || loads_to_lds(op)) continue;
    all += op.bytes;
    if (op.bytes >= 16 || op.info->transposing) continue;
    small += op.bytes;
    if (!already.count(i)) where.push_back(i);
  }
  if (where.empty() || small * 2 <= all) return;
  l.report(id, loop, where,
           fmt::format("In {}, {} of {} bytes a lane move in pieces of less than 16 bytes: {}.", l.place(loop), small,
                       all, common_names(l, where)));
}

void widths(IsaLinter& l, int loop) {
  for (const bool lds : {false, true}) {
    Neighbours n;
    neighbours(l, loop, lds, n);
    std::set<uint32_t> already(n.loads.begin(), n.loads.end());
    already.insert(n.stores.begin(), n.stores.end());
    if (lds) {
      report_runs(l, "narrow-lds-access", loop, n.loads, n.load_bytes, "read");
      report_runs(l, "narrow-lds-access", loop, n.stores, n.store_bytes, "write");
    } else {
      report_runs(l, "narrow-global-load", loop, n.loads, n.load_bytes, "load");
      report_runs(l, "narrow-global-store", loop, n.stores, n.store_bytes, "store");
    }
    small_accesses(l, lds ? "small-lds-access" : "small-global-access", loop, already, lds);
  }
}

// The registers of a compare-and-swap: what it returns, and what it expects to find.
struct Swap {
  Reg result, expected;
};
std::optional<Swap> swap_of(const Op& op) {
  const Operands o = split_operands(op.operands);
  const auto reg = [&](int i) { return parse_reg(o.item[i].substr(0, o.item[i].find(' '))); };
  if (op.kind == OpClass::lds_atomic) {
    if (o.count < 4 || !returns_value(op)) return {};
    // ds_cmpst has the expected value first, ds_cmpstore the new one.
    return Swap{reg(0), reg(op.mnemonic.starts_with("ds_cmpstore") ? 3 : 2)};
  }
  if (!returns_value(op)) return {};
  // New and expected value are in neighbouring registers. A buffer operation returns its result there, too.
  const Reg data = reg(op.info->buffer ? 0 : 2);
  if (!data.file || data.count < 2) return {};
  Swap s{op.info->buffer ? data : reg(0), data};
  s.expected.count = static_cast<uint16_t>(data.count / 2);
  s.expected.first = static_cast<uint16_t>(data.first + s.expected.count);
  if (op.info->buffer) s.result.count = s.expected.count;
  return s;
}

// Whether a pass expects what the compare-and-swap of the pass before returned: then the loop repeats a read, a change and a
// swap until no other lane came between. One that claims something once, or that looks for a free place, is not such a loop.
bool repeats_swap(const IsaLinter& l, int loop, uint32_t cas) {
  const auto swap = swap_of(l.ops[cas]);
  if (!swap || !l.registers_known()) return false;
  const auto& own = l.own(loop);
  const auto at = static_cast<size_t>(std::find(own.begin(), own.end(), cas) - own.begin());
  Reg wanted = swap->expected;
  wanted.count = 1;
  std::vector<Reg> changed;
  // Backwards from the swap to itself, through the start of the loop.
  for (size_t step = 1; step <= own.size(); ++step) {
    const uint32_t i = own[(at + own.size() - step) % own.size()];
    const Op& op = l.ops[i];
    Reg written{};
    if (i == cas) {
      written = swap->result;
    } else {
      written_registers(op, changed);
      if (!changed.empty()) written = changed[0];
    }
    if (!written.overlaps(wanted)) continue;
    if (i == cas) return true;
    if (!op.mnemonic.starts_with("v_mov_b")) return false;
    const Operands o = split_operands(op.operands);
    const Reg source = o.count > 1 ? parse_reg(o.item[1]) : Reg{};
    if (source.file != 'v') return false;
    wanted = {source.file, static_cast<uint16_t>(source.first + wanted.first - written.first), 1};
  }
  return false;
}

void swaps(IsaLinter& l, int loop) {
  const auto& own = l.own(loop);
  std::vector<uint32_t> where;
  for (const uint32_t i : own)
    if (l.ops[i].info->cas && repeats_swap(l, loop, i)) where.push_back(i);
  if (where.empty()) return;
  const auto math =
      l.select(loop, [](const Op& op) { return op.info->tag == Tag::f32_math || op.info->tag == Tag::f16_math; });
  l.report("cas-loop", loop, where,
           fmt::format("{} repeats {} on {}{}.", l.place(loop), l.at(where[0]),
                       l.ops[where[0]].kind == OpClass::lds_atomic ? "LDS" : "memory",
                       math.empty() ? "" : " around floating-point arithmetic"));
}

void loop_traffic(IsaLinter& l, int loop) {
  const Stats& s = l.stats(loop);
  if (s.of(OpClass::scratch_load) + s.of(OpClass::scratch_store)) {
    const auto where = l.select(
        loop, [](const Op& op) { return op.kind == OpClass::scratch_load || op.kind == OpClass::scratch_store; });
    l.report("scratch-in-loop", loop, where,
             fmt::format("{} has {} loads from and {} stores to scratch, {} bytes a lane in each pass.", l.place(loop),
                         s.of(OpClass::scratch_load), s.of(OpClass::scratch_store), s.scratch_bytes));
  }
  // An operation on an address that changes belongs where it is: a sum that is scattered, a tile of a result. So does one
  // whose former value is used, such as the counter of a queue. A minimum or a flag is mostly written in rare cases only.
  const auto atomics = [&](OpClass kind, const char* id) {
    const auto where = l.select(loop, [&](const Op& op) {
      const bool one_address = kind == OpClass::lds_atomic || l.address_is_fixed(loop, op);
      const bool sums =
          op.mnemonic.find("_add") != std::string_view::npos || op.mnemonic.find("_sub") != std::string_view::npos;
      return op.kind == kind && sums && !op.info->cas && !returns_value(op) && one_address;
    });
    l.report(id, loop, where,
             fmt::format("{} has {} atomic operation{}: {}.", l.place(loop), where.size(), where.size() > 1 ? "s" : "",
                         common_names(l, where)));
  };
  if (s.of(OpClass::global_atomic)) atomics(OpClass::global_atomic, "atomic-in-loop");
  if (s.of(OpClass::lds_atomic)) atomics(OpClass::lds_atomic, "lds-atomic-in-loop");
}

// Finds readlane from a register whose lanes were written: it reads a spilled scalar back.
void sgpr_spills(IsaLinter& l) {
  std::set<uint16_t> spilled;
  for (const Op& op : l.ops) {
    if (op.info->tag != Tag::writelane) continue;
    const Reg r = parse_reg(op.operands.substr(0, op.operands.find(',')));
    if (r.file == 'v') spilled.insert(r.first);
  }
  if (spilled.empty() || !l.registers_known()) return;
  for (const int loop : l.hot_loops()) {
    const auto where = l.select(loop, [&](const Op& op) {
      if (op.info->tag != Tag::readlane) return false;
      const Operands o = split_operands(op.operands);
      return o.count > 1 && spilled.count(parse_reg(o.item[1]).first) > 0;
    });
    l.report("sgpr-spill-in-loop", loop, where,
             fmt::format("{} reads {} spilled scalars back.", l.place(loop), where.size()));
  }
}

void flat_accesses(IsaLinter& l, int loop) {
  const auto where = l.select(loop, [](const Op& op) { return op.info->flat && op.bytes > 0; });
  l.report("flat-access", loop, where,
           fmt::format("{} has {} flat access{}: {}.", l.place(loop), where.size(), where.size() == 1 ? "" : "es",
                       common_names(l, where)));
}

// "s = readfirstlane v", then a comparison of v with s, whose lanes do the work.
void waterfall(IsaLinter& l, int loop) {
  const auto& own = l.own(loop);
  if (own.size() > 200 || !l.registers_known()) return;
  const auto mask = l.select(loop, [](const Op& op) {
    return op.info->tag == Tag::set_exec || (op.kind == OpClass::salu && op.operands.starts_with("exec"));
  });
  if (mask.empty()) return;
  std::vector<uint32_t> where;
  for (size_t i = 0; i < own.size(); ++i) {
    if (l.ops[own[i]].info->tag != Tag::readfirstlane) continue;
    const Operands taken = split_operands(l.ops[own[i]].operands);
    if (taken.count < 2) continue;
    const Reg uniform = parse_reg(taken.item[0]), value = parse_reg(taken.item[1]);
    const auto compares = [&](uint32_t k) {
      if (l.ops[k].info->tag != Tag::compare_equal) return false;
      const Operands o = split_operands(l.ops[k].operands);
      bool has_uniform = false, has_value = false;
      for (int n = 1; n < o.count; ++n) {
        has_uniform = has_uniform || parse_reg(o.item[n]).overlaps(uniform);
        has_value = has_value || parse_reg(o.item[n]).overlaps(value);
      }
      return has_uniform && has_value;
    };
    if (std::any_of(own.begin() + static_cast<std::ptrdiff_t>(i), own.end(), compares)) where.push_back(own[i]);
  }
  if (where.empty()) return;
  const std::string first = l.at(where[0]);
  l.report(
      "waterfall-loop", loop, where,
      fmt::format(
          "{} takes the value of the first lane ({}), does its work for the lanes with an equal value, and repeats.",
          l.place(loop), first));
}

}  // namespace

void lint_memory(IsaLinter& l) {
  for (const int loop : l.hot_loops()) {
    widths(l, loop);
    loop_traffic(l, loop);
  }
  for (int loop = 0; loop < l.loops(); ++loop) {
    swaps(l, loop);
    waterfall(l, loop);
  }
  if (l.loops() == 0) widths(l, -1);
  for (int loop = l.loops() == 0 ? -1 : 0; loop < l.loops(); ++loop) flat_accesses(l, loop);
  sgpr_spills(l);
}

}  // namespace pyflame::tools::inspect
