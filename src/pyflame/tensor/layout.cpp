#include "pyflame/tensor/layout.h"

namespace pyflame {

Dims contiguous_strides(const Dims& shape) {
  Dims strides = Dims::filled(shape.size(), 1);
  int64_t step = 1;
  for (int i = shape.size() - 1; i >= 0; --i) {
    strides[i] = step;
    step *= std::max<int64_t>(shape[i], 1);
  }
  return strides;
}

Dims strides_of(const Dims& shape, MemoryFormat format) {
  if (format == MemoryFormat::contiguous) return contiguous_strides(shape);
  return {shape[1] * shape[2] * shape[3], 1, shape[3] * shape[1], shape[1]};
}

bool is_contiguous(const Dims& shape, const Dims& strides) {
  int64_t step = 1;
  for (int i = shape.size() - 1; i >= 0; --i) {
    if (shape[i] == 0) return true;  // nothing to walk over
    if (shape[i] != 1 && strides[i] != step) {
      for (int k = 0; k < i; ++k)
        if (shape[k] == 0) return true;
      return false;
    }
    step *= shape[i];
  }
  return true;
}

bool has_format(const Dims& shape, const Dims& strides, MemoryFormat format) {
  if (format == MemoryFormat::contiguous) return is_contiguous(shape, strides);
  return shape.size() == 4 && is_contiguous(nhwc(shape), nhwc(strides));
}

int64_t extent(const Dims& shape, const Dims& strides) {
  int64_t last = 0;
  for (int i = 0; i < shape.size(); ++i) {
    if (shape[i] == 0) return 0;
    last += (shape[i] - 1) * std::max<int64_t>(strides[i], 0);
  }
  return last + 1;
}

Dims broadcast_strides(const Dims& shape, const Dims& strides, const Dims& to) {
  Dims out = Dims::filled(to.size(), 0);
  const int lead = to.size() - shape.size();
  for (int i = 0; i < shape.size(); ++i)
    if (shape[i] != 1 || to[lead + i] == 1) out[lead + i] = strides[i];
  return out;
}

}  // namespace pyflame
