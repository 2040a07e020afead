// See impls.h.
#include "pyflame/backends/gpu/impls.h"

#include <algorithm>

namespace pyflame::gpu {

std::span<const Impl> op_impls(OpId op) {
  for (const auto family : {attention_impls, batch_norm_impls, conv_impls, index_impls, loss_impls, matmul_impls,
                            norm_impls, optim_impls, order_impls, pool_impls, rows_impls})
    if (const auto impls = family(op); !impls.empty()) return impls;
  return {};
}

Dims leading(const Dims& d, int drop) { return Dims(std::span(d.begin(), static_cast<size_t>(d.size() - drop))); }

Dims over(const Operand& o, const Dims& shape, int drop) {
  return broadcast_strides(leading(o.shape, drop), leading(o.strides, drop), shape);
}

unsigned groups_for(int64_t n, int64_t each) {
  return static_cast<unsigned>(std::clamp<int64_t>((n + each - 1) / each, 1, 1 << 20));
}

}  // namespace pyflame::gpu
