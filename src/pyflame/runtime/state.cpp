// Finds out which programs can report faults.
#include "pyflame/runtime/state.h"

namespace pyflame {

// Kernels report invalid indices and offsets, which are integers. Fused loops only compute and cannot report.
bool may_report(const Node& n) {
  if (n.info().cls != OpClass::Other) return false;
  for (const Operand& o : n.ins)
    if (!o.is_param && (o.dtype == DType::int64 || o.dtype == DType::int32)) return true;
  return false;
}

ProgramState::ProgramState(const Program& p) {
  for (const Node& n : p.graph.nodes) reports |= may_report(n);
}

}  // namespace pyflame
