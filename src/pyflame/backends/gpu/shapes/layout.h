// Sizes, strides, grids and workspaces for the GPU's implementations. Uses no device.
#pragma once
#include <algorithm>
#include <array>
#include <cstddef>

#include "pyflame/backends/backend.h"
#include "pyflame/kernels/device/fault.h"
#include "pyflame/kernels/device/view.h"

namespace pyflame::gpu {

// An operand's sizes and strides as kernels take them.
using View = pf::View;
View view_of(const Dims& shape, const Dims& strides);

// The dims without the last `drop`; and the strides of an operand's leading dims, broadcast to a shape.
Dims leading(const Dims& d, int drop);
Dims over(const Operand& o, const Dims& shape, int drop);

// Drops dims of size one, and merges dims that are contiguous with each other.
inline void collapse(Dims& shape, Dims& strides) {
  Dims s, t;
  for (int d = 0; d < shape.size(); ++d) {
    if (shape[d] == 1) continue;
    if (!s.empty() && t.back() == strides[d] * shape[d]) s.back() *= shape[d], t.back() = strides[d];
    else s.push_back(shape[d]), t.push_back(strides[d]);
  }
  shape = s, strides = t;
}

// The same elements in the same order, with as few divisions per element as possible.
inline View collapsed_view(Dims shape, Dims strides) {
  collapse(shape, strides);
  return view_of(shape, strides);
}

constexpr int64_t kGroupThreads = 256;  // threads of a workgroup, unless a kernel says otherwise
constexpr int kShortRowThreads = 32;    // threads that share a short row; a power of two

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The number of workgroups for n elements, with `each` of them per workgroup; kernels loop over the grid.
unsigned groups_for(int64_t n, int64_t each);

// A grid with one workgroup for each of n items (kernels number them over both dims).
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
inline pf::u8* bytes_at(void* workspace, size_t at) { return static_cast<pf::u8*>(workspace) + at; }

// Where kernels report values that they cannot use.
inline pf::Fault* fault_of(const RunContext& ctx) { return static_cast<pf::Fault*>(ctx.fault); }

}  // namespace pyflame::gpu
