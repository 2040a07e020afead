// Reading and adding by index. Indices are checked before anything is written. Adding is deterministic: the task that
// owns a part of the output visits all sources of this part in order, so the work is divided over the output, never
// over the sources.
#include <algorithm>
#include <cstring>

#include "pyflame/backends/cpu/common.h"
#include "pyflame/backends/cpu/vec.h"

namespace pyflame::cpu {

namespace {

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
  const int64_t* get(const RunContext& ctx, const char* op) const {
    const int64_t* p = reinterpret_cast<const int64_t*>(in_.get(ctx));
    parallel_for(in_.numel(), 4 * kGrainElements, [&](int64_t begin, int64_t end) {
      uint64_t bad = 0;
      for (int64_t i = begin; i < end; ++i) bad |= static_cast<uint64_t>(p[i]) >= static_cast<uint64_t>(limit_);
      if (!bad) [[likely]]
        return;
      for (int64_t i = begin; i < end; ++i)
        PF_CHECK(p[i] >= 0 && p[i] < limit_, Index, "{}: index out of range; got {}; expected 0 <= index < {}", op,
                 p[i], limit_);
    });
    return p;
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

int64_t grain_for(int64_t elements) { return std::max<int64_t>(1, kGrainElements / std::max<int64_t>(1, elements)); }

// Offsets, in a contiguous `full` shape, of the elements of a `part` shape (which is not larger), along the dims [from,
// to).
std::vector<int64_t> offsets(const Dims& part, const Dims& full, int from, int to) {
  const Dims strides = contiguous_strides(full);
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

class Gather : public Exec {
 public:
  explicit Gather(const Node& node) : out_(node.outs[0]) {
    const Dims& x = node.ins[0].shape;
    const Dims& index = node.ins[1].shape;
    const int dim = static_cast<int>(node.attr<DimAttrs>().dim);
    x_ = InBytes(node.ins[0], ws_);
    index_ = Index(node.ins[1], x[dim], ws_);
    around_ = Around(index, dim);
    stride_ = contiguous_strides(x)[dim];
    outer_ = offsets(index, x, 0, dim);
    inner_ = offsets(index, x, dim + 1, index.size());
  }
  void run(const RunContext& ctx) override {
    if (out_.numel() == 0) return;
    const int64_t* index = index_.get(ctx, "gather");
    const char* x = x_.get(ctx);
    switch (dtype_size(out_.dtype)) {
      case 1: copy<uint8_t>(ctx, index, x); break;
      case 2: copy<uint16_t>(ctx, index, x); break;
      case 4: copy<uint32_t>(ctx, index, x); break;
      default: copy<uint64_t>(ctx, index, x); break;
    }
  }

 private:
  template <class W>
  void copy(const RunContext& ctx, const int64_t* index, const char* from) const {
    const W* x = reinterpret_cast<const W*>(from);
    W* y = ctx.ptr<W>(out_);
    parallel_for(around_.outer * around_.size, grain_for(around_.inner), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const W* base = x + outer_[static_cast<size_t>(i / around_.size)];
        const int64_t at = i * around_.inner;
        for (int64_t j = 0; j < around_.inner; ++j)
          y[at + j] = base[index[at + j] * stride_ + inner_[static_cast<size_t>(j)]];
      }
    });
  }
  InBytes x_;
  Index index_;
  Operand out_;
  Around around_;
  int64_t stride_ = 0;
  std::vector<int64_t> outer_, inner_;
};

class IndexSelect : public Exec {
 public:
  explicit IndexSelect(const Node& node) : out_(node.outs[0]) {
    const int64_t dim = node.attr<DimAttrs>().dim;
    x_ = InBytes(node.ins[0], ws_);
    around_ = Around(node.ins[0].shape, dim);
    index_ = Index(node.ins[1], around_.size, ws_);
    count_ = node.ins[1].numel();
  }
  void run(const RunContext& ctx) override {
    const int64_t* index = index_.get(ctx, "index_select");
    if (out_.numel() == 0) return;
    const char* x = x_.get(ctx);
    char* y = ctx.ptr<char>(out_);
    const int64_t bytes = around_.inner * dtype_size(out_.dtype);
    parallel_for(around_.outer * count_, grain_for(around_.inner), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        std::memcpy(y + i * bytes, x + (i / count_ * around_.size + index[i % count_]) * bytes,
                    static_cast<size_t>(bytes));
    });
  }

 private:
  InBytes x_;
  Index index_;
  Operand out_;
  Around around_;
  int64_t count_ = 0;
};

template <class T>
void clear(T* y, int64_t n) {
  parallel_for(n, 4 * kGrainElements, [&](int64_t begin, int64_t end) { std::fill(y + begin, y + end, T(0)); });
}

// (index, src): the output's lines along dim are independent of each other.
template <class T>
class ScatterAdd : public Exec {
 public:
  explicit ScatterAdd(const Node& node) : src_(node.ins[1], ws_), out_(node.outs[0], ws_) {
    const Dims& index = node.ins[0].shape;
    const Dims& y = node.outs[0].shape;
    const int dim = static_cast<int>(node.attr<DimAttrs>().dim);
    index_ = Index(node.ins[0], y[dim], ws_);
    around_ = Around(index, dim);
    stride_ = contiguous_strides(y)[dim];
    outer_ = offsets(index, y, 0, dim);
    inner_ = offsets(index, y, dim + 1, index.size());
    src_outer_ = offsets(index, node.ins[1].shape, 0, dim);
    src_inner_ = offsets(index, node.ins[1].shape, dim + 1, index.size());
    src_stride_ = contiguous_strides(node.ins[1].shape)[dim];
  }
  void run(const RunContext& ctx) override {
    const int64_t* index = index_.get(ctx, "scatter_add");
    const T* src = src_.get(ctx);
    T* y = out_.begin(ctx);
    clear(y, out_.numel());
    // A task is a range of the inner positions of one outer position.
    const int64_t strip = 64, strips = ceil_div(around_.inner, strip);
    parallel_for(around_.outer * strips, grain_for(around_.size * std::min(strip, around_.inner)),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t i = begin; i < end; ++i)
                     lines(i / strips, i % strips * strip, std::min(around_.inner, (i % strips + 1) * strip), index,
                           src, y);
                 });
    out_.finish(ctx);
  }

 private:
  void lines(int64_t o, int64_t j0, int64_t j1, const int64_t* index, const T* src, T* y) const {
    T* base = y + outer_[static_cast<size_t>(o)];
    const T* from = src + src_outer_[static_cast<size_t>(o)];
    for (int64_t d = 0; d < around_.size; ++d) {
      const int64_t* at = index + (o * around_.size + d) * around_.inner;
      for (int64_t j = j0; j < j1; ++j)
        base[at[j] * stride_ + inner_[static_cast<size_t>(j)]] +=
            from[d * src_stride_ + src_inner_[static_cast<size_t>(j)]];
    }
  }
  In<T> src_;
  Out<T> out_;
  Index index_;
  Around around_;
  int64_t stride_ = 0, src_stride_ = 0;
  std::vector<int64_t> outer_, inner_, src_outer_, src_inner_;
};

// (index 1-D, src): rows of `inner` values are added to rows of the output.
template <class T>
class IndexAdd : public Exec {
 public:
  explicit IndexAdd(const Node& node) : src_(node.ins[1], ws_), out_(node.outs[0], ws_) {
    const int64_t dim = node.attr<DimAttrs>().dim;
    around_ = Around(node.outs[0].shape, dim);
    index_ = Index(node.ins[0], around_.size, ws_);
    count_ = node.ins[0].numel();
  }
  void run(const RunContext& ctx) override {
    const int64_t* index = index_.get(ctx, "index_add");
    const T* src = src_.get(ctx);
    T* y = out_.begin(ctx);
    clear(y, out_.numel());
    const int64_t inner = around_.inner, strip = 64, strips = ceil_div(inner, strip);
    parallel_for(around_.outer * strips, grain_for(count_ * std::min(strip, inner)), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t o = i / strips, j = i % strips * strip, n = std::min(strip, inner - j);
        for (int64_t k = 0; k < count_; ++k)
          vec::add(y + (o * around_.size + index[k]) * inner + j, src + (o * count_ + k) * inner + j, n);
      }
    });
    out_.finish(ctx);
  }

 private:
  In<T> src_;
  Out<T> out_;
  Index index_;
  Around around_;
  int64_t count_ = 0;
};

Refusal accept_indexed_copy(const Problem& p) {
  if (auto r = accept_single(p)) return r;
  if (!p.root().outs[0].contiguous) return "writes contiguous outputs only";
  return {};
}

std::unique_ptr<Executable> make_gather(const Problem& p) { return std::make_unique<Gather>(p.root()); }
std::unique_ptr<Executable> make_index_select(const Problem& p) { return std::make_unique<IndexSelect>(p.root()); }

Refusal accept_index_add(const Problem& p) {
  if (auto r = accept_single(p)) return r;
  if (!is_float(p.root().outs[0].dtype)) return "adds floating point data only";
  return {};
}

std::unique_ptr<Executable> make_scatter_add(const Problem& p) { return make_by_type<ScatterAdd>(p); }
std::unique_ptr<Executable> make_index_add(const Problem& p) { return make_by_type<IndexAdd>(p); }

}  // namespace

std::span<const Impl> gather_impls() {
  static const Impl impl{"cpu.gather", accept_indexed_copy, make_gather};
  return {&impl, 1};
}
std::span<const Impl> index_select_impls() {
  static const Impl impl{"cpu.gather", accept_indexed_copy, make_index_select};
  return {&impl, 1};
}
std::span<const Impl> scatter_add_impls() {
  static const Impl impl{"cpu.index_add", accept_index_add, make_scatter_add};
  return {&impl, 1};
}
std::span<const Impl> index_add_impls() {
  static const Impl impl{"cpu.index_add", accept_index_add, make_index_add};
  return {&impl, 1};
}

}  // namespace pyflame::cpu
