// Finds out which programs can report faults.
#include "pyflame/runtime/state.h"

namespace pyflame {

// Kernels report invalid indices and offsets, which are integers. Fused loops only compute and cannot report.
ProgramState::ProgramState(const Program& p) {
  for (const Node& n : p.graph.nodes) {
    if (n.info().cls != OpClass::Other) continue;
    for (const Operand& o : n.ins) reports |= !o.is_param && (o.dtype == DType::int64 || o.dtype == DType::int32);
  }
}

}  // namespace pyflame
