// Readable printing of numbers in host memory, in NumPy's style: aligned columns, and "..." in the middle of long dims.
#pragma once
#include <optional>
#include <string>

#include "pyflame/tensor/dims.h"
#include "pyflame/tensor/dtype.h"

namespace pyflame {

struct PrintOptions {
  int precision = 4;         // digits after the point
  int64_t threshold = 1000;  // larger tensors are summarised
  int64_t edge_items = 3;    // how many elements a summary shows at each end of a dim
  int line_width = 80;
  std::optional<bool> scientific;  // the notation; by the numbers that are shown unless set
};

// "[[1., 2.],\n [3., 4.]]". `data` is the first element; strides are in elements. Lines after the first are indented by `indent`.
std::string format_tensor(const void* data, const Dims& shape, const Dims& strides, DType dtype, int indent = 0,
                          const PrintOptions& options = {});

}  // namespace pyflame
