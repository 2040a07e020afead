// Reading by index. Indices are checked before anything is written.
#include "pyflame/backends/cpu/indexing.h"

#include "pyflame/backends/cpu/vec.h"

#include <cstring>

namespace pyflame::cpu {

namespace {

// Calls f.operator()<W>() with a word of so many bytes.
template <class F>
void with_word(int64_t bytes, F&& f) {
  switch (bytes) {
    case 1: return f.template operator()<uint8_t>();
    case 2: return f.template operator()<uint16_t>();
    case 4: return f.template operator()<uint32_t>();
    default: return f.template operator()<uint64_t>();
  }
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
    const Dims strides = contiguous_strides(x);
    outer_ = offsets(index, strides, 0, dim);
    inner_ = offsets(index, strides, dim + 1, index.size());
  }
  void run(const RunContext& ctx) override {
    if (out_.numel() == 0) return;
    const int64_t* index = around_.inner == 1 ? index_.unchecked(ctx) : index_.get(ctx, "gather");
    const char* x = x_.get(ctx);
    with_word(dtype_size(out_.dtype), [&]<class W>() {
      if (around_.inner == 1) copy_lines(index, reinterpret_cast<const W*>(x), ctx.ptr<W>(out_));
      else copy(index, reinterpret_cast<const W*>(x), ctx.ptr<W>(out_));
    });
  }

 private:
  // Along the last dim.
  template <class W>
  void copy_lines(const int64_t* index, const W* x, W* y) const {
    parallel_for(around_.outer * around_.size, kGrainElements, [&](int64_t begin, int64_t end) {
      while (begin < end) {
        const int64_t o = begin / around_.size, stop = std::min(end, (o + 1) * around_.size);
        const W* base = x + outer_[static_cast<size_t>(o)];
        for (const uint64_t limit = index_.limit(); begin < stop; ++begin) {
          const int64_t i = index[begin];
          if (static_cast<uint64_t>(i) >= limit) [[unlikely]]
            return index_.check(index + begin, 1, "gather");
          y[begin] = base[i * stride_];
        }
      }
    });
  }
  template <class W>
  void copy(const int64_t* index, const W* x, W* y) const {
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

// Rows that are read by index would each wait for memory. So the row that is read kRowsAhead rows later is fetched
// meanwhile.
constexpr int64_t kRowsAhead = 8;
void prefetch_row(const char* row, int64_t bytes) {
  constexpr int64_t kLine = 64, kMost = 512;
  for (int64_t b = 0; b < bytes && b < kMost; b += kLine) __builtin_prefetch(row + b);
}

// Slices of x. It is copied first only if the dims behind the indexed one are not contiguous with each other.
class IndexSelect : public Exec {
 public:
  explicit IndexSelect(const Node& node) : in_(node.ins[0]), out_(node.outs[0]) {
    const int dim = static_cast<int>(node.attr<DimAttrs>().dim);
    around_ = Around(in_.shape, dim);
    index_ = Index(node.ins[1], around_.size, ws_);
    count_ = node.ins[1].numel();
    Dims strides = in_.strides;
    int64_t expected = 1;
    for (int d = in_.shape.size() - 1; d > dim; expected *= in_.shape[d--])
      direct_ &= in_.shape[d] == 1 || strides[d] == expected;
    if (!direct_) copied_ = InBytes(in_, ws_), strides = contiguous_strides(in_.shape);
    step_ = strides[dim];
    if (out_.numel() > 0) outer_ = offsets(in_.shape, strides, 0, dim);
  }
  void run(const RunContext& ctx) override {
    const int64_t* index = index_.get(ctx, "index_select");
    if (out_.numel() == 0) return;
    const char* x = direct_ ? ctx.ptr<const char>(in_) : copied_.get(ctx);
    char* y = ctx.ptr<char>(out_);
    const int64_t each = dtype_size(out_.dtype), bytes = around_.inner * each;
    if (bytes <= 8 && (bytes & (bytes - 1)) == 0 && reinterpret_cast<uintptr_t>(x) % static_cast<size_t>(bytes) == 0 &&
        (step_ * each) % bytes == 0 && reinterpret_cast<uintptr_t>(y) % static_cast<size_t>(bytes) == 0 && words(bytes))
      return with_word(bytes, [&]<class W>() { select_words<W>(index, x, y, each); });
    parallel_for(around_.outer * count_, grain_for(around_.inner), [&](int64_t begin, int64_t end) {
      while (begin < end) {
        const int64_t o = begin / count_, first = begin - o * count_, last = std::min(count_, first + end - begin);
        const char* part = x + outer_[static_cast<size_t>(o)] * each;
        for (int64_t k = first; k < last; ++k) {
          if (k + kRowsAhead < last) prefetch_row(part + index[k + kRowsAhead] * step_ * each, bytes);
          std::memcpy(y + (o * count_ + k) * bytes, part + index[k] * step_ * each, static_cast<size_t>(bytes));
        }
        begin += last - first;
      }
    });
  }

 private:
  // Whether every outer part begins at a whole word.
  bool words(int64_t bytes) const {
    const int64_t each = dtype_size(out_.dtype);
    return bytes == each || std::all_of(outer_.begin(), outer_.end(), [&](int64_t o) { return o * each % bytes == 0; });
  }
  template <class W>
  void select_words(const int64_t* index, const char* from, char* to, int64_t each) const {
    W* y = reinterpret_cast<W*>(to);
    const int64_t step = step_ * each;
    parallel_for(around_.outer * count_, kGrainElements, [&](int64_t begin, int64_t end) {
      while (begin < end) {
        const int64_t o = begin / count_, first = begin - o * count_, last = std::min(count_, first + end - begin);
        const char* x = from + outer_[static_cast<size_t>(o)] * each;
        for (int64_t k = first; k < last; ++k) y[o * count_ + k] = *reinterpret_cast<const W*>(x + index[k] * step);
        begin += last - first;
      }
    });
  }
  Operand in_, out_;
  InBytes copied_;
  Index index_;
  Around around_;
  bool direct_ = true;
  int64_t count_ = 0, step_ = 0;
  std::vector<int64_t> outer_;
};

// Sums of the rows of bags. Each row is read once, and nothing of the size of all rows is written.
template <class T>
class EmbeddingBag : public Exec {
 public:
  explicit EmbeddingBag(const Node& node)
      : table_(node.ins[0], ws_),
        offsets_(node.ins[2], ws_),
        y_(node.outs[0], ws_),
        index_(node.ins[1], node.ins[0].shape[0], ws_) {
    width_ = node.ins[0].shape[1], rows_ = node.ins[1].numel(), bags_ = node.ins[2].numel();
  }
  void run(const RunContext& ctx) override {
    const int64_t* index = index_.unchecked(ctx);
    const auto* offsets = reinterpret_cast<const int64_t*>(offsets_.get(ctx));
    int64_t last = 0;
    for (int64_t b = 0; b < bags_; last = offsets[b++])
      PF_CHECK(offsets[b] >= last && offsets[b] <= (b == 0 ? 0 : rows_), Index,
               "embedding_bag: index out of range; got offset {}; expected ascending offsets from 0 to {}", offsets[b],
               rows_);
    const T* table = table_.get(ctx);
    T* y = y_.begin(ctx);
    const int64_t each = width_ * std::max<int64_t>(1, rows_ / std::max<int64_t>(1, bags_));
    parallel_for(bags_, grain_for(each), [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) {
        const int64_t from = offsets[b], to = b + 1 < bags_ ? offsets[b + 1] : rows_;
        index_.check(index + from, to - from, "embedding_bag");
        vec::sum_rows(table, width_, index + from, to - from, rows_ - from, y + b * width_, width_);
      }
    });
    y_.finish(ctx);
  }

 private:
  In<T> table_;
  InBytes offsets_;
  Out<T> y_;
  Index index_;
  int64_t width_ = 0, rows_ = 0, bags_ = 0;
};

Refusal accept_indexed_copy(const Problem& p) {
  if (auto r = accept_single(p)) return r;
  if (!p.root().outs[0].contiguous) return "writes contiguous outputs only";
  return {};
}

std::unique_ptr<Executable> make_gather(const Problem& p) { return std::make_unique<Gather>(p.root()); }
std::unique_ptr<Executable> make_index_select(const Problem& p) { return std::make_unique<IndexSelect>(p.root()); }

}  // namespace

std::span<const Impl> gather_impls() {
  static const Impl impl{"cpu.gather", accept_indexed_copy, make_gather};
  return {&impl, 1};
}
std::span<const Impl> embedding_bag_impls() {
  static const Impl impl{"cpu.bag", accept_float, make_by_type<EmbeddingBag>};
  return {&impl, 1};
}
std::span<const Impl> index_select_impls() {
  static const Impl impl{"cpu.gather", accept_indexed_copy, make_index_select};
  return {&impl, 1};
}

}  // namespace pyflame::cpu
