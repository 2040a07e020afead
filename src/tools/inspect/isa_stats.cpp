#include "tools/inspect/isa_stats.h"

#include <algorithm>

namespace pyflame::tools::inspect {

void Stats::add(const Op& op) {
  ++count[static_cast<size_t>(op.kind)];
  ++instructions;
  code_bytes += op.size;
  cycles += op.cycles;
  const OpInfo& info = *op.info;
  const unsigned results = (info.packed ? 2 : 1) * (info.dual ? 2 : 1);
  fma[static_cast<size_t>(info.fma)] += info.fma == FmaType::none ? 0 : results;
  trans += info.trans;
  dual += info.dual;
  switch (op.kind) {
    case OpClass::global_load:
      load_bytes += op.bytes;
      widest_load = std::max(widest_load, op.bytes);
      if (info.to_lds) lds_bytes += op.bytes;
      break;
    case OpClass::global_store:
      store_bytes += op.bytes;
      widest_store = std::max(widest_store, op.bytes);
      break;
    case OpClass::global_atomic:
      load_bytes += op.bytes;
      store_bytes += op.bytes;
      break;
    case OpClass::lds_load:
    case OpClass::lds_store:
    case OpClass::lds_atomic: lds_bytes += op.bytes; break;
    case OpClass::scratch_load:
    case OpClass::scratch_store: scratch_bytes += op.bytes; break;
    case OpClass::nop: nop_cycles += op.cycles; break;
    case OpClass::wait: {
      const Wait w = parse_wait(op.mnemonic, op.operands);
      wait_load0 += w.load == 0;
      wait_lds0 += w.lds == 0 || w.scalar == 0;
      wait_store0 += w.store == 0;
      break;
    }
    case OpClass::matrix: {
      matrix_cycles += op.cycles;
      const auto it = std::find_if(matrix.begin(), matrix.end(), [&](const MatrixUse& m) { return m.info == op.info; });
      if (it != matrix.end()) ++it->count, it->cycles += op.cycles;
      else matrix.push_back({op.info, op.mnemonic, 1, op.cycles});
      break;
    }
    default: break;
  }
}

void Stats::add(const Stats& o) {
  for (size_t i = 0; i < count.size(); ++i) count[i] += o.count[i];
  for (size_t i = 0; i < fma.size(); ++i) fma[i] += o.fma[i];
  instructions += o.instructions;
  code_bytes += o.code_bytes;
  cycles += o.cycles;
  matrix_cycles += o.matrix_cycles;
  trans += o.trans;
  dual += o.dual;
  nop_cycles += o.nop_cycles;
  load_bytes += o.load_bytes;
  store_bytes += o.store_bytes;
  lds_bytes += o.lds_bytes;
  scratch_bytes += o.scratch_bytes;
  widest_load = std::max(widest_load, o.widest_load);
  widest_store = std::max(widest_store, o.widest_store);
  wait_load0 += o.wait_load0;
  wait_lds0 += o.wait_lds0;
  wait_store0 += o.wait_store0;
  for (const MatrixUse& m : o.matrix) {
    const auto it = std::find_if(matrix.begin(), matrix.end(), [&](const MatrixUse& x) { return x.info == m.info; });
    if (it != matrix.end()) it->count += m.count, it->cycles += m.cycles;
    else matrix.push_back(m);
  }
}

Regions make_regions(const std::vector<Op>& ops, const ControlFlow& flow) {
  Regions r;
  r.own.resize(flow.loops.size() + 1);
  r.own_stats.resize(flow.loops.size() + 1);
  r.loop_stats.resize(flow.loops.size());
  for (const BasicBlock& b : flow.blocks) {
    const size_t region = static_cast<size_t>(b.loop + 1);
    for (uint32_t i = b.first; i < b.last; ++i) {
      r.own[region].push_back(i);
      r.own_stats[region].add(ops[i]);
    }
  }
  for (const Stats& s : r.own_stats) r.total.add(s);
  for (size_t l = 0; l < flow.loops.size(); ++l) {
    for (int around = static_cast<int>(l); around >= 0; around = flow.loops[static_cast<size_t>(around)].parent)
      r.loop_stats[static_cast<size_t>(around)].add(r.own_stats[l + 1]);
  }
  return r;
}

}  // namespace pyflame::tools::inspect
