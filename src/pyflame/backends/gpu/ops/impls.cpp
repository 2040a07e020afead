// Finds the list of implementations of an op, and has helpers for all of them.
#include "pyflame/backends/gpu/ops/impls.h"

namespace pyflame::gpu {

std::span<const Impl> op_impls(const Problem& p) {
  const OpId op = p.root().op;
  if (op == OpId::matmul) return matmul_impls(p);
  for (const auto family : {attention_impls, batch_norm_impls, conv_impls, index_impls, loss_impls, norm_impls,
                            optim_impls, order_impls, pool_impls, rows_impls})
    if (const auto impls = family(op); !impls.empty()) return impls;
  return {};
}

}  // namespace pyflame::gpu
