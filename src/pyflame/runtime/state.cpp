// See state.h.
#include "pyflame/runtime/state.h"

namespace pyflame {

// Kernels report bad indices and offsets, which are integers of these; what is fused computes and cannot fail.
ProgramState::ProgramState(const Program& p) {
  for (const Node& n : p.graph.nodes) {
    if (n.info().cls != OpClass::Other) continue;
    for (const Operand& o : n.ins) reports |= !o.is_param && (o.dtype == DType::int64 || o.dtype == DType::int32);
  }
}

}  // namespace pyflame
