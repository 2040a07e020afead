// Merges dims, computes strides, and divides work among workgroups.
#include "pyflame/backends/gpu/shapes/layout.h"

#include "pyflame/base/error.h"

namespace pyflame::gpu {

View view_of(const Dims& shape, const Dims& strides) {
  PF_CHECK(shape.size() <= 8, NotImplemented, "kernel: too many dimensions; got {}; expected at most 8", shape.size());
  View v;
  v.rank = shape.size();
  for (int d = 0; d < shape.size(); ++d) v.shape[d] = shape[d], v.strides[d] = strides[d];
  return v;
}

Dims leading(const Dims& d, int drop) { return Dims(std::span(d.begin(), static_cast<size_t>(d.size() - drop))); }

Dims over(const Operand& o, const Dims& shape, int drop) {
  return broadcast_strides(leading(o.shape, drop), leading(o.strides, drop), shape);
}

unsigned groups_for(int64_t n, int64_t each) {
  return static_cast<unsigned>(std::clamp<int64_t>((n + each - 1) / each, 1, 1 << 20));
}

}  // namespace pyflame::gpu
