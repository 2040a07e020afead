// Writing by index: scatter_add and index_add (onto zeros), scatter and index_put (onto what is there). Indices are checked before they are
// used. The result does not depend on threads: the task that owns a part of the output visits all sources of this part in order, so
// the work is divided over the output, never over the sources, unless all destinations are different.
#include <algorithm>
#include <cstring>

#include "pyflame/backends/cpu/indexing.h"
#include "pyflame/backends/cpu/vec.h"

namespace pyflame::cpu {

namespace {

struct Replaced {
  template <class T>
  static T of(T, T b) {
    return b;
  }
};
struct Summed {  // integers wrap around
  template <class T>
  static T of(T a, T b) {
    if constexpr (std::is_integral_v<T>) return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
    else return a + b;
  }
};
struct Multiplied {
  template <class T>
  static T of(T a, T b) {
    if constexpr (std::is_integral_v<T>) return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    else return a * b;
  }
};
struct Larger {  // NaN wins
  template <class T>
  static T of(T a, T b) {
    return a >= b || a != a ? a : b;
  }
};
struct Smaller {
  template <class T>
  static T of(T a, T b) {
    return a <= b || a != a ? a : b;
  }
};

// A source as contiguous values of T. If all of its elements are one in memory, it is not expanded.
template <class T>
class Sources {
 public:
  Sources(const Operand& o, WorkspacePlan& ws) : o_(o) {
    one_ = o.numel() > 1;
    for (int d = 0; d < o.shape.size(); ++d) one_ &= o.shape[d] == 1 || o.strides[d] == 0;
    if (one_) o_.shape = o_.strides = {}, o_.contiguous = true;
    if constexpr (std::is_floating_point_v<T>) floats_ = In<T>(o_, ws);
    else bytes_ = InBytes(o_, ws);
  }
  bool one() const { return one_; }
  const T* get(const RunContext& ctx) const {
    if constexpr (std::is_floating_point_v<T>) return floats_.get(ctx);
    else return reinterpret_cast<const T*>(bytes_.get(ctx));
  }

 private:
  Operand o_;
  bool one_ = false;
  In<T> floats_;
  InBytes bytes_;
};

// The output as values of T: zeros, or what is there.
template <class T>
class Target {
 public:
  Target(const Node& node, WorkspacePlan& ws) : o_(node.outs[0]), onto_(node.ins.size() == 3) {
    if constexpr (std::is_floating_point_v<T>) floats_ = Out<T>(o_, ws);
  }
  T* begin(const RunContext& ctx) const {
    T* y;
    if constexpr (std::is_floating_point_v<T>) {
      y = floats_.begin(ctx);
      if (onto_ && static_cast<const void*>(y) != ctx.ptr<void>(o_))
        load_strided(ctx.ptr<const void>(o_), o_.dtype, o_.shape, o_.strides, y);
    } else {
      y = ctx.ptr<T>(o_);
    }
    if (!onto_)
      parallel_for(o_.numel(), 4 * kGrainElements,
                   [&](int64_t begin, int64_t end) { std::fill(y + begin, y + end, T(0)); });
    return y;
  }
  void finish(const RunContext& ctx) const {
    if constexpr (std::is_floating_point_v<T>) floats_.finish(ctx);
  }

 private:
  Operand o_;
  bool onto_;
  Out<T> floats_;
};

// Where the index and the sources are among the inputs.
const Operand& index_of(const Node& node) { return node.ins[node.ins.size() - 2]; }
const Operand& source_of(const Node& node) { return node.ins[node.ins.size() - 1]; }
int64_t dim_of(const Node& node) {
  return node.ins.size() == 3 ? node.attr<ScatterAttrs>().dim : node.attr<DimAttrs>().dim;
}

bool ascending(const int64_t* index, int64_t n) {
  for (int64_t i = 1; i < n; ++i)
    if (index[i] <= index[i - 1]) return false;
  return true;
}

// scatter: the output's lines along dim are independent of each other.
template <class T, class How>
class ScatterLines : public Exec {
 public:
  explicit ScatterLines(const Node& node) : op_(op_name(node.op)), src_(source_of(node), ws_), out_(node, ws_) {
    const Dims& index = index_of(node).shape;
    const Dims to = contiguous_strides(node.outs[0].shape);
    const int dim = static_cast<int>(dim_of(node)), rank = index.size();
    index_ = Index(index_of(node), node.outs[0].shape[dim], ws_);
    around_ = Around(index, dim);
    stride_ = to[dim];
    outer_ = offsets(index, to, 0, dim), inner_ = offsets(index, to, dim + 1, rank);
    const Dims from = src_.one() ? Dims::filled(rank, 0) : contiguous_strides(source_of(node).shape);
    src_outer_ = offsets(index, from, 0, dim), src_inner_ = offsets(index, from, dim + 1, rank);
    src_stride_ = from[dim];
    length_ = node.outs[0].shape[dim];
    empty_ = index.numel() == 0;
    strip_ = strip_of(node.outs[0].shape, index, dim);
  }
  void run(const RunContext& ctx) override {
    // Indices are checked just before they are used, where that is once; a bad index fails the whole op, whose output is lost.
    const int64_t* index = around_.inner == 1 || strip_ > 0 ? index_.unchecked(ctx) : index_.get(ctx, op_);
    const T* src = src_.get(ctx);
    T* y = out_.begin(ctx);
    if (!empty_) combine(index, src, y);
    out_.finish(ctx);
  }

 private:
  // How many neighbouring lines are combined in a buffer of their own; 0: in the output. The rows of a large output are far apart, often by
  // a power of 2, so that the caches hold few of them. The buffer holds them side by side.
  int64_t strip_of(const Dims& out, const Dims& index, int dim) const {
    constexpr int64_t kBuffer = 256 * 1024, kRow = 64;  // bytes
    const auto size = static_cast<int64_t>(sizeof(T));
    for (int d = dim + 1; d < index.size(); ++d)
      if (index[d] != out[d] || (!src_.one() && src_inner_.size() > 1 && src_inner_[1] != 1)) return 0;
    if (around_.inner * size <= 2 * kRow || length_ * around_.inner * size <= kBuffer) return 0;
    const int64_t strip = kBuffer / (length_ * size);
    return strip * size < kRow || index[dim] < length_ ? 0 : std::min(strip, around_.inner);
  }
  void combine(const int64_t* index, const T* src, T* y) const {
    if (strip_ > 0) return buffered_strips(index, src, y);
    if (in_parts(index, src, y)) return;
    // A task is a range of the inner positions of one outer position.
    const int64_t strip = 64, strips = ceil_div(around_.inner, strip);
    parallel_for(around_.outer * strips, grain_for(around_.size * std::min(strip, around_.inner)),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t i = begin; i < end; ++i)
                     lines(i / strips, i % strips * strip, std::min(around_.inner, (i % strips + 1) * strip), index,
                           src, y);
                 });
  }
  void lines(int64_t o, int64_t j0, int64_t j1, const int64_t* index, const T* src, T* y) const {
    T* base = y + outer_[static_cast<size_t>(o)];
    const T* from = src + src_outer_[static_cast<size_t>(o)];
    const int64_t* at = index + o * around_.size * around_.inner;
    if (around_.inner == 1) return line(at, from, base, 0, around_.size);
    for (int64_t d = 0; d < around_.size; ++d, at += around_.inner)
      for (int64_t j = j0; j < j1; ++j) {
        T& to = base[at[j] * stride_ + inner_[static_cast<size_t>(j)]];
        to = How::of(to, from[d * src_stride_ + src_inner_[static_cast<size_t>(j)]]);
      }
  }
  // The elements [begin, end) of a line.
  void line(const int64_t* at, const T* from, T* base, int64_t begin, int64_t end) const {
    const T value = begin < end ? *from : T(0);
    if (stride_ == 1 && src_stride_ == 1) each(at, begin, end, base, [=](int64_t k) { return from[k]; });
    else if (stride_ == 1 && src_stride_ == 0) each(at, begin, end, base, [=](int64_t) { return value; });
    else strided_line(at, from, base, begin, end);
  }
  template <class F>
  void each(const int64_t* at, int64_t begin, int64_t end, T* base, F&& source) const {
    const uint64_t limit = index_.limit();
    for (int64_t k = begin; k < end; ++k) {
      const int64_t i = at[k];
      if (static_cast<uint64_t>(i) >= limit) [[unlikely]]
        return index_.check(at + k, 1, op_);
      base[i] = How::of(base[i], source(k));
    }
  }
  void strided_line(const int64_t* at, const T* from, T* base, int64_t begin, int64_t end) const {
    index_.check(at + begin, end - begin, op_);
    for (int64_t k = begin; k < end; ++k) {
      T& to = base[at[k] * stride_];
      to = How::of(to, from[k * src_stride_]);
    }
  }
  // Sums of integers are the same in any order: the threads have sums of their own, if these are short compared to the sources.
  bool in_parts(const int64_t* index, const T* src, T* y) const {
    if constexpr (!std::is_integral_v<T> || !std::is_same_v<How, Summed>) {
      return false;
    } else {
      if (around_.outer != 1 || around_.inner != 1 || stride_ != 1) return false;
      const int64_t least = std::max(4 * length_, 2 * kGrainElements);
      const int64_t parts = std::min<int64_t>(num_threads(), around_.size / least);
      if (parts < 2) return false;
      const int64_t each = ceil_div(around_.size, parts);
      std::vector<T> others(static_cast<size_t>((parts - 1) * length_));
      parallel_for(parts, 1, [&](int64_t begin, int64_t end) {
        for (int64_t p = begin; p < end; ++p)
          line(index, src, p == 0 ? y : others.data() + (p - 1) * length_, p * each,
               std::min(around_.size, (p + 1) * each));
      });
      parallel_for(length_, kGrainElements, [&](int64_t begin, int64_t end) {
        for (int64_t p = 0; p < parts - 1; ++p)
          for (int64_t j = begin; j < end; ++j) y[j] = How::of(y[j], others[static_cast<size_t>(p * length_ + j)]);
      });
      return true;
    }
  }
  void buffered_strips(const int64_t* index, const T* src, T* y) const {
    const int64_t strips = ceil_div(around_.inner, strip_);
    parallel_for(around_.outer * strips, 1, [&](int64_t begin, int64_t end) {
      T* buffer = scratch<T>(0, length_ * strip_);
      for (int64_t i = begin; i < end; ++i) {
        const int64_t o = i / strips, j = i % strips * strip_, n = std::min(strip_, around_.inner - j);
        buffered_strip(index + o * around_.size * around_.inner + j, src + src_outer_[static_cast<size_t>(o)],
                       y + outer_[static_cast<size_t>(o)] + j, j, n, buffer);
      }
    });
  }
  // The lines j .. j + n of one outer position.
  void buffered_strip(const int64_t* at, const T* src, T* y, int64_t j, int64_t n, T* buffer) const {
    const size_t bytes = static_cast<size_t>(n) * sizeof(T);
    for (int64_t r = 0; r < length_; ++r) std::memcpy(buffer + r * n, y + r * stride_, bytes);
    for (int64_t d = 0; d < around_.size; ++d, at += around_.inner) {
      index_.check(at, n, op_);
      const T* from = src + d * src_stride_ + (src_.one() ? 0 : j);
      const int64_t step = src_.one() ? 0 : 1;
      for (int64_t k = 0; k < n; ++k) {
        T& to = buffer[at[k] * n + k];
        to = How::of(to, from[k * step]);
      }
    }
    for (int64_t r = 0; r < length_; ++r) std::memcpy(y + r * stride_, buffer + r * n, bytes);
  }
  std::string_view op_;
  Sources<T> src_;
  Target<T> out_;
  Index index_;
  Around around_;
  bool empty_ = false;
  int64_t stride_ = 0, src_stride_ = 0, length_ = 0, strip_ = 0;
  std::vector<int64_t> outer_, inner_, src_outer_, src_inner_;
};

// (index 1-D, src): rows of `inner` values are combined with rows of the output.
template <class T, class How>
class ScatterSlices : public Exec {
 public:
  explicit ScatterSlices(const Node& node) : op_(op_name(node.op)), src_(source_of(node), ws_), out_(node, ws_) {
    around_ = Around(node.outs[0].shape, dim_of(node));
    index_ = Index(index_of(node), around_.size, ws_);
    count_ = index_of(node).numel();
  }
  void run(const RunContext& ctx) override {
    const int64_t* index = index_.get(ctx, op_);
    const T* src = src_.get(ctx);
    T* y = out_.begin(ctx);
    if (around_.outer * around_.inner * count_ == 0) return out_.finish(ctx);
    if (around_.inner == 1) single(index, src, y);
    else if (std::is_same_v<How, Replaced> && count_ > 1 && around_.outer * around_.inner < 8 * kGrainElements &&
             ascending(index, count_))
      rows(index, src, y, around_.outer * count_, 1);
    else rows(index, src, y, around_.outer, count_);
    out_.finish(ctx);
  }

 private:
  // Tasks are strips of the rows that go to an outer position: `together` sources each, which are visited in order.
  void rows(const int64_t* index, const T* src, T* y, int64_t tasks, int64_t together) const {
    const int64_t inner = around_.inner, strip = together == 1 ? inner : 64, strips = ceil_div(inner, strip);
    parallel_for(tasks * strips, grain_for(together * std::min(strip, inner)), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t j = i % strips * strip, n = std::min(strip, inner - j), first = i / strips * together;
        const int64_t o = first / count_;
        for (int64_t k = first - o * count_, last = k + together; k < last; ++k)
          row(y + (o * around_.size + index[k]) * inner + j, src_.one() ? src : src + (o * count_ + k) * inner + j, n);
      }
    });
  }
  void row(T* y, const T* src, int64_t n) const {
    if (src_.one()) {
      const T value = *src;
      for (int64_t j = 0; j < n; ++j) y[j] = How::of(y[j], value);
    } else if constexpr (std::is_same_v<How, Replaced>) {
      std::memcpy(y, src, static_cast<size_t>(n) * sizeof(T));
    } else if constexpr (std::is_same_v<How, Summed> && std::is_floating_point_v<T>) {
      vec::add(y, src, n);
    } else {
      for (int64_t j = 0; j < n; ++j) y[j] = How::of(y[j], src[j]);
    }
  }
  void single(const int64_t* index, const T* src, T* y) const {
    const int64_t step = src_.one() ? 0 : 1;
    const auto some = [&](int64_t o, int64_t begin, int64_t end) {
      T* to = y + o * around_.size;
      const T* from = src + o * count_ * step;
      for (int64_t k = begin; k < end; ++k) to[index[k]] = How::of(to[index[k]], from[k * step]);
    };
    if (around_.outer == 1 && count_ >= 2 * kGrainElements && ascending(index, count_))
      return parallel_for(count_, kGrainElements, [&](int64_t begin, int64_t end) { some(0, begin, end); });
    parallel_for(around_.outer, grain_for(count_), [&](int64_t begin, int64_t end) {
      for (int64_t o = begin; o < end; ++o) some(o, 0, count_);
    });
  }
  std::string_view op_;
  Sources<T> src_;
  Target<T> out_;
  Index index_;
  Around around_;
  int64_t count_ = 0;
};

Refusal accept_scatter(const Problem& p) {
  if (auto r = accept_single(p)) return r;
  const Operand& out = p.root().outs[0];
  if (!out.contiguous && !is_float(out.dtype)) return "writes contiguous integers only";
  if (out.shape.empty()) return "takes tensors with dims only";
  return {};
}

// E<T, How>(node). Replacing moves bytes; bools are 0 and 1.
template <template <class, class> class E, class How>
std::unique_ptr<Executable> make_for_type(const Node& node) {
  const auto make = [&]<class T>() -> std::unique_ptr<Executable> { return std::make_unique<E<T, How>>(node); };
  const DType d = node.outs[0].dtype;
  if constexpr (std::is_same_v<How, Replaced>) {
    if (!node.outs[0].contiguous)
      return d == DType::float64 ? make.template operator()<double>() : make.template operator()<float>();
    switch (dtype_size(d)) {
      case 1: return make.template operator()<uint8_t>();
      case 2: return make.template operator()<uint16_t>();
      case 4: return make.template operator()<uint32_t>();
      default: return make.template operator()<uint64_t>();
    }
  } else {
    switch (d) {
      case DType::float64: return make.template operator()<double>();
      case DType::int64: return make.template operator()<int64_t>();
      case DType::int32: return make.template operator()<int32_t>();
      case DType::int16: return make.template operator()<int16_t>();
      case DType::int8: return make.template operator()<int8_t>();
      case DType::uint8:
      case DType::bool_: return make.template operator()<uint8_t>();
      default: return make.template operator()<float>();
    }
  }
}

template <template <class, class> class E>
std::unique_ptr<Executable> make_combining(const Node& node, Combine how) {
  if (node.outs[0].dtype == DType::bool_) {
    if (how == Combine::Sum) how = Combine::Largest;
    if (how == Combine::Product) how = Combine::Smallest;
  }
  switch (how) {
    case Combine::Replace: return make_for_type<E, Replaced>(node);
    case Combine::Sum: return make_for_type<E, Summed>(node);
    case Combine::Product: return make_for_type<E, Multiplied>(node);
    case Combine::Largest: return make_for_type<E, Larger>(node);
    default: return make_for_type<E, Smaller>(node);
  }
}
Combine how_of(const Node& node) { return static_cast<Combine>(node.attr<ScatterAttrs>().combine); }

std::unique_ptr<Executable> make_scatter_add(const Problem& p) {
  return make_combining<ScatterLines>(p.root(), Combine::Sum);
}
std::unique_ptr<Executable> make_index_add(const Problem& p) {
  return make_combining<ScatterSlices>(p.root(), Combine::Sum);
}
std::unique_ptr<Executable> make_scatter(const Problem& p) {
  return make_combining<ScatterLines>(p.root(), how_of(p.root()));
}
std::unique_ptr<Executable> make_index_put(const Problem& p) {
  return make_combining<ScatterSlices>(p.root(), how_of(p.root()));
}

}  // namespace

std::span<const Impl> scatter_add_impls() {
  static const Impl impl{"cpu.scatter", accept_scatter, make_scatter_add};
  return {&impl, 1};
}
std::span<const Impl> index_add_impls() {
  static const Impl impl{"cpu.scatter", accept_scatter, make_index_add};
  return {&impl, 1};
}
std::span<const Impl> scatter_impls() {
  static const Impl impl{"cpu.scatter", accept_scatter, make_scatter};
  return {&impl, 1};
}
std::span<const Impl> index_put_impls() {
  static const Impl impl{"cpu.scatter", accept_scatter, make_index_put};
  return {&impl, 1};
}

}  // namespace pyflame::cpu
