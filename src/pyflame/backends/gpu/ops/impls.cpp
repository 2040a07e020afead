#include "pyflame/backends/gpu/ops/impls.h"

namespace pyflame::gpu {

std::span<const Impl> op_impls(const Problem& p) {
  using Impls = std::span<const Impl> (*)(DeviceType);
  static constexpr Impls kImpls[] = {
#define OP(...) nullptr,  // a generated loop computes it
#define KERNEL(name, ...) name##_impls,
#include "pyflame/ops/ops.def"
  };
  const Impls impls = kImpls[static_cast<size_t>(p.root().op)];
  return impls ? impls(p.graph.device.type) : std::span<const Impl>();
}

}  // namespace pyflame::gpu
