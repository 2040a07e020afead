// Sizes, strides, grids and workspaces as the GPU's implementations need them. Knows no device.
#pragma once
#include <algorithm>
#include <array>
#include <cstddef>

#include "pyflame/backends/backend.h"

namespace pyflame::gpu {

// An operand's sizes and strides as kernels take them (kernels/device/view.h).
struct View {
  int64_t shape[8] = {}, strides[8] = {};
  int32_t rank = 0;
};
View view_of(const Dims& shape, const Dims& strides);

// Dims without the last `drop`; and the strides of an operand's leading dims as broadcast to a shape.
Dims leading(const Dims& d, int drop);
Dims over(const Operand& o, const Dims& shape, int drop);

// Dims of more than one element, those that follow each other in memory as one.
inline void collapse(Dims& shape, Dims& strides) {
  Dims s, t;
  for (int d = 0; d < shape.size(); ++d) {
    if (shape[d] == 1) continue;
    if (!s.empty() && t.back() == strides[d] * shape[d]) s.back() *= shape[d], t.back() = strides[d];
    else s.push_back(shape[d]), t.push_back(strides[d]);
  }
  shape = s, strides = t;
}

// The same elements in the same order, with as few divisions for each as can be.
inline View collapsed_view(Dims shape, Dims strides) {
  collapse(shape, strides);
  return view_of(shape, strides);
}

// Workgroups for n elements, `each` of them to a workgroup; kernels go on in strides of the grid.
unsigned groups_for(int64_t n, int64_t each);

// A workgroup for each of n things (kernels number them over both dims).
inline std::array<unsigned, 3> group_each(int64_t n) {
  constexpr int64_t kRow = 1 << 20;
  return {static_cast<unsigned>(std::min(n, kRow)), static_cast<unsigned>((n + kRow - 1) / kRow), 1};
}

// Parts of a workspace, each aligned to 256 bytes.
class Parts {
 public:
  size_t take(int64_t nbytes) {
    const size_t at = size_;
    size_ += (static_cast<size_t>(nbytes) + 255) / 256 * 256;
    return at;
  }
  size_t size() const { return size_; }

 private:
  size_t size_ = 0;
};
inline char* part_of(void* workspace, size_t at) { return static_cast<char*>(workspace) + at; }

}  // namespace pyflame::gpu
