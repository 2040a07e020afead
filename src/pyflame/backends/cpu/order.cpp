// argmax and argmin, and what finds positions: nonzero, searchsorted. NaN counts as the largest value (for argmin too, it wins).
#include <algorithm>
#include <limits>
#include <numeric>

#include "pyflame/backends/cpu/indexing.h"
#include "pyflame/backends/cpu/vec_order.h"
#include "pyflame/backends/plugin_call.h"

namespace pyflame::cpu {

namespace {

template <class T>
class ArgReduce : public Exec {
 public:
  explicit ArgReduce(const Node& node) : out_(node.outs[0]), max_(node.op == OpId::argmax) {
    if constexpr (std::is_floating_point_v<T>) floats_ = In<T>(node.ins[0], ws_);
    else bytes_ = InBytes(node.ins[0], ws_);
    const Dims& shape = node.ins[0].shape;
    const int64_t dim = node.attr<ArgAttrs>().dim;
    if (dim < 0) around_.size = shape.numel();
    else around_ = Around(shape, dim);
  }
  void run(const RunContext& ctx) override {
    if (out_.numel() == 0) return;
    const T* x;
    if constexpr (std::is_floating_point_v<T>) x = floats_.get(ctx);
    else x = reinterpret_cast<const T*>(bytes_.get(ctx));
    int64_t* y = ctx.ptr<int64_t>(out_);
    const int64_t size = around_.size, inner = around_.inner;
    if (inner == 1)
      return parallel_for(around_.outer, grain_for(size), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) y[i] = vec::arg_best(x + i * size, size, max_);
      });
    const int64_t strip = 256, strips = ceil_div(inner, strip);
    parallel_for(around_.outer * strips, grain_for(size * std::min(strip, inner)), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t o = i / strips, j = i % strips * strip;
        vec::arg_best(x + o * size * inner + j, size, inner, std::min(strip, inner - j), max_, y + o * inner + j);
      }
    });
  }

 private:
  In<T> floats_;
  InBytes bytes_;
  Operand out_;
  bool max_;
  Around around_;
};

// The chunks are counted first, so that each of them knows where its positions go.
class Nonzero : public Exec {
 public:
  explicit Nonzero(const Node& node) : mask_(node.ins[0], ws_), fill_(node.ins[1]), out_(node.outs[0]) {
    chunks_ = std::max<int64_t>(1, std::min<int64_t>(64, ceil_div(mask_.numel(), 4 * kGrainElements)));
  }
  void run(const RunContext& ctx) override {
    const auto* mask = reinterpret_cast<const uint8_t*>(mask_.get(ctx));
    int64_t* y = ctx.ptr<int64_t>(out_);
    const int64_t n = mask_.numel(), each = ceil_div(n, chunks_), size = out_.numel();
    std::vector<int64_t> begins(static_cast<size_t>(chunks_ + 1));
    parallel_for(chunks_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c)
        begins[static_cast<size_t>(c + 1)] = count(mask + std::min(n, c * each), mask + std::min(n, (c + 1) * each));
    });
    std::partial_sum(begins.begin(), begins.end(), begins.begin());
    parallel_for(chunks_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c)
        put(mask, c * each, y, begins[static_cast<size_t>(c)], std::min(size, begins[static_cast<size_t>(c + 1)]));
    });
    std::fill(y + std::min(size, begins.back()), y + size, ctx.param(fill_).as_i64());
  }

 private:
  static int64_t count(const uint8_t* p, const uint8_t* end) {
    int64_t total = 0;
    while (p < end) {  // partial sums fit into a byte's worth of additions
      const uint8_t* const stop = std::min(end, p + 4096);
      uint32_t some = 0;
      for (; p < stop; ++p) some += *p != 0;
      total += some;
    }
    return total;
  }
  static void put(const uint8_t* mask, int64_t i, int64_t* y, int64_t k, int64_t end) {
    for (; k < end; ++i) {  // without a branch that depends on the mask
      y[k] = i;
      k += mask[i] != 0;
    }
  }
  InBytes mask_;
  Operand fill_, out_;
  int64_t chunks_ = 1;
};

// Vector code has elements of 32 and 64 bits.
template <class T>
class SearchSorted : public Exec {
 public:
  explicit SearchSorted(const Node& node) : out_(node.outs[0]), right_(node.attr<SearchAttrs>().right != 0) {
    if constexpr (std::is_floating_point_v<T>) {
      sorted_floats_ = In<T>(node.ins[0], ws_), value_floats_ = In<T>(node.ins[1], ws_);
    } else {
      sorted_bytes_ = InBytes(node.ins[0], ws_), value_bytes_ = InBytes(node.ins[1], ws_);
    }
    n_ = node.ins[0].shape.back();
    shared_ = node.ins[0].shape.size() == 1;
    m_ = shared_ ? std::max<int64_t>(1, node.ins[1].numel()) : node.ins[1].shape.back();
  }
  void run(const RunContext& ctx) override {
    if (out_.numel() == 0) return;
    const T *sorted, *values;
    if constexpr (std::is_floating_point_v<T>) {
      sorted = sorted_floats_.get(ctx), values = value_floats_.get(ctx);
    } else {
      sorted = reinterpret_cast<const T*>(sorted_bytes_.get(ctx));
      values = reinterpret_cast<const T*>(value_bytes_.get(ctx));
    }
    int64_t* y = ctx.ptr<int64_t>(out_);
    parallel_for(out_.numel(), 1024, [&](int64_t begin, int64_t end) {
      while (begin < end) {
        const int64_t row = begin / m_, stop = std::min(end, (row + 1) * m_);
        search(sorted + row * n_, values + begin, y + begin, stop - begin);
        begin = stop;
      }
    });
  }

 private:
  void search(const T* line, const T* value, int64_t* y, int64_t m) const {
    if constexpr (sizeof(T) >= 4) {
      if (n_ < std::numeric_limits<int32_t>::max()) return vec::search(line, n_, value, m, right_, y);
    }
    for (int64_t i = 0; i < m; ++i) {
      const T v = value[i];
      y[i] =
          std::partition_point(line, line + n_, [&](T here) { return here < v || (right_ && here == v) || v != v; }) -
          line;
    }
  }
  In<T> sorted_floats_, value_floats_;
  InBytes sorted_bytes_, value_bytes_;
  Operand out_;
  bool right_, shared_ = false;
  int64_t n_ = 0, m_ = 1;
};

Refusal accept_positions(const Problem& p) {
  if (auto r = accept_single(p)) return r;
  if (!p.root().outs.back().contiguous) return "writes contiguous indices only";
  return {};
}

// E<T>(node): halves are compared as float, bools as bytes.
template <template <class> class E>
std::unique_ptr<Executable> make_compared(const Problem& p) {
  const Node& node = p.root();
  switch (node.ins[0].dtype) {
    case DType::float64: return std::make_unique<E<double>>(node);
    case DType::int64: return std::make_unique<E<int64_t>>(node);
    case DType::int32: return std::make_unique<E<int32_t>>(node);
    case DType::int16: return std::make_unique<E<int16_t>>(node);
    case DType::int8: return std::make_unique<E<int8_t>>(node);
    case DType::uint8:
    case DType::bool_: return std::make_unique<E<uint8_t>>(node);
    default: return std::make_unique<E<float>>(node);
  }
}
std::unique_ptr<Executable> make_nonzero(const Problem& p) { return std::make_unique<Nonzero>(p.root()); }

}  // namespace

std::span<const Impl> argmax_impls() {
  static const Impl impl{"cpu.arg_reduce", accept_positions, make_compared<ArgReduce>};
  return {&impl, 1};
}
std::span<const Impl> argmin_impls() { return argmax_impls(); }
std::span<const Impl> nonzero_impls() {
  static const Impl impl{"cpu.nonzero", accept_positions, make_nonzero};
  return {&impl, 1};
}
std::span<const Impl> searchsorted_impls() {
  static const Impl impl{"cpu.searchsorted", accept_positions, make_compared<SearchSorted>};
  return {&impl, 1};
}
std::span<const Impl> user_kernel_impls() { return extension_impls(); }

}  // namespace pyflame::cpu
