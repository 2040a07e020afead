// Derives the geometry of a matrix product from its operands.
#include "pyflame/backends/gpu/shapes/product.h"

#include "pyflame/backends/gpu/shapes/layout.h"

namespace pyflame::gpu {

Product::Product(const Node& node) : dtype(node.outs[0].dtype) {
  const Operand &a = node.ins[0], &b = node.ins[1], &c = node.outs[0];
  const int r = c.shape.size();
  m = c.shape[r - 2], n = c.shape[r - 1], k = a.shape.back();
  a_row = a.strides[r - 2], a_col = a.strides[r - 1];
  b_row = b.strides[r - 2], b_col = b.strides[r - 1];
  c_row = c.strides[r - 2], c_col = c.strides[r - 1];
  const Dims all = leading(c.shape, 2), as = over(a, all, 2), bs = over(b, all, 2), cs = leading(c.strides, 2);
  for (int d = 0; d < all.size(); ++d) {
    if (all[d] == 1) continue;
    const int last = batch.size() - 1;
    if (last >= 0 && a_batch[last] == as[d] * all[d] && b_batch[last] == bs[d] * all[d] &&
        c_batch[last] == cs[d] * all[d]) {
      batch[last] *= all[d];
      a_batch[last] = as[d], b_batch[last] = bs[d], c_batch[last] = cs[d];
      continue;
    }
    batch.push_back(all[d]);
    a_batch.push_back(as[d]), b_batch.push_back(bs[d]), c_batch.push_back(cs[d]);
  }
}

double Product::flops() const {
  return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) *
         static_cast<double>(batches());
}

double Product::bytes() const {
  const auto d = [](int64_t x) { return static_cast<double>(x); };
  return d(dtype_size(dtype)) * d(batches()) * (d(m) * d(k) + d(k) * d(n) + d(m) * d(n));
}

}  // namespace pyflame::gpu
