// What the kernels that read and write by index share: operands as bytes, checked indices, and offsets.
#pragma once
#include <algorithm>
#include <string_view>
#include <vector>

#include "pyflame/backends/cpu/common.h"

namespace pyflame::cpu {

// An operand of any dtype as contiguous bytes.
class InBytes {
 public:
  InBytes() = default;
  InBytes(const Operand& o, WorkspacePlan& ws) : o_(o) {
    if (!o.contiguous) offset_ = ws.take(static_cast<size_t>(o.numel() * dtype_size(o.dtype)));
  }
  const char* get(const RunContext& ctx) const {
    const char* src = ctx.ptr<const char>(o_);
    if (o_.contiguous) return src;
    char* dst = static_cast<char*>(ctx.workspace) + offset_;
    switch (dtype_size(o_.dtype)) {
      case 1: copy<uint8_t>(src, dst); break;
      case 2: copy<uint16_t>(src, dst); break;
      case 4: copy<uint32_t>(src, dst); break;
      default: copy<uint64_t>(src, dst); break;
    }
    return dst;
  }
  int64_t numel() const { return o_.numel(); }

 private:
  template <class W>
  void copy(const char* from, char* to) const {
    const W* src = reinterpret_cast<const W*>(from);
    W* dst = reinterpret_cast<W*>(to);
    const int rank = o_.shape.size();
    const int64_t inner = o_.shape.back(), step = o_.strides.back();
    const int64_t rows = inner ? o_.numel() / inner : 0;
    parallel_for(rows, std::max<int64_t>(1, kGrainElements / std::max<int64_t>(1, inner)),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t r = begin; r < end; ++r) {
                     const W* s = src;
                     int64_t rest = r;
                     for (int d = rank - 2; d >= 0; --d) {
                       s += rest % o_.shape[d] * o_.strides[d];
                       rest /= o_.shape[d];
                     }
                     for (int64_t i = 0; i < inner; ++i) dst[r * inner + i] = s[i * step];
                   }
                 });
  }
  Operand o_;
  size_t offset_ = 0;
};

class Index {
 public:
  Index() = default;
  Index(const Operand& o, int64_t limit, WorkspacePlan& ws) : in_(o, ws), limit_(limit) {}
  // The indices, after all were checked.
  const int64_t* get(const RunContext& ctx, std::string_view op) const {
    const int64_t* p = unchecked(ctx);
    parallel_for(in_.numel(), 4 * kGrainElements,
                 [&](int64_t begin, int64_t end) { check(p + begin, end - begin, op); });
    return p;
  }
  // For kernels that check what they are about to use, while it is in the cache.
  const int64_t* unchecked(const RunContext& ctx) const { return reinterpret_cast<const int64_t*>(in_.get(ctx)); }
  // For kernels that look at each index just before they use it.
  uint64_t limit() const { return static_cast<uint64_t>(limit_); }
  void check(const int64_t* p, int64_t n, std::string_view op) const {
    // The sign bit of one of the two terms is set for a bad index: unlike comparisons, these are vector instructions everywhere.
    uint64_t bad = 0;
    const uint64_t last = static_cast<uint64_t>(limit_) - 1;
    for (int64_t i = 0; i < n; ++i) bad |= static_cast<uint64_t>(p[i]) | (last - static_cast<uint64_t>(p[i]));
    if (static_cast<int64_t>(bad) >= 0) [[likely]]
      return;
    for (int64_t i = 0; i < n; ++i)
      PF_CHECK(p[i] >= 0 && p[i] < limit_, Index, "{}: index out of range; got {}; expected 0 <= index < {}", op, p[i],
               limit_);
  }

 private:
  InBytes in_;
  int64_t limit_ = 0;
};

// A shape divided at one dim: the dims before it, the dim, the dims after it.
struct Around {
  int64_t outer = 1, size = 1, inner = 1;
  Around() = default;
  Around(const Dims& shape, int64_t dim) {
    for (int d = 0; d < shape.size(); ++d) (d < dim ? outer : d == dim ? size : inner) *= shape[d];
  }
};

inline int64_t grain_for(int64_t elements) {
  return std::max<int64_t>(1, kGrainElements / std::max<int64_t>(1, elements));
}

// Offsets, in a tensor with these strides, of the elements of a `part` of it, along the dims [from, to).
inline std::vector<int64_t> offsets(const Dims& part, const Dims& strides, int from, int to) {
  std::vector<int64_t> r{0};
  for (int d = from; d < to; ++d) {
    std::vector<int64_t> next;
    next.reserve(r.size() * static_cast<size_t>(part[d]));
    for (int64_t base : r)
      for (int64_t i = 0; i < part[d]; ++i) next.push_back(base + i * strides[d]);
    r = std::move(next);
  }
  return r;
}

}  // namespace pyflame::cpu
