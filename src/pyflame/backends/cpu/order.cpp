// Ops that compare along a line: argmax, argmin, topk, sort. NaN counts as the largest value; equal values keep the
// order of their indices.
#include <algorithm>
#include <numeric>

#include "pyflame/backends/cpu/common.h"
namespace pyflame::cpu {

namespace {

// Whether a comes before b when the order is descending.
template <class T>
bool larger(T a, T b) {
  return a > b || (a != a && b == b);
}

template <class T>
class ArgReduce : public Exec {
 public:
  explicit ArgReduce(const Node& node) : x_(node.ins[0], ws_), out_(node.outs[0]), max_(node.op == OpId::argmax) {
    const Dims& shape = node.ins[0].shape;
    const int64_t dim = node.attr<ArgAttrs>().dim;
    if (dim < 0) size_ = shape.numel();
    else
      for (int d = 0; d < shape.size(); ++d) (d < dim ? outer_ : d == dim ? size_ : inner_) *= shape[d];
  }
  void run(const RunContext& ctx) override {
    if (out_.numel() == 0) return;
    const T* x = x_.get(ctx);
    int64_t* y = ctx.ptr<int64_t>(out_);
    parallel_for(outer_ * inner_, std::max<int64_t>(1, kGrainElements / std::max<int64_t>(1, size_)),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t i = begin; i < end; ++i) y[i] = line(x + i / inner_ * size_ * inner_ + i % inner_);
                 });
  }

 private:
  int64_t line(const T* x) const {
    int64_t best = 0;
    T value = x[0];
    for (int64_t i = 1; i < size_ && value == value; ++i) {
      const T v = x[i * inner_];
      const bool better = max_ ? v > value : v < value;
      if (better || v != v) value = v, best = i;
    }
    return best;
  }
  In<T> x_;
  Operand out_;
  bool max_;
  int64_t outer_ = 1, size_ = 1, inner_ = 1;
};

// The first `k` elements of each row in the wanted order, with their indices. Sorting is k == n.
template <class T>
class Leading : public Exec {
 public:
  Leading(const Node& node, bool descending)
      : x_(node.ins[0], ws_), y_(node.outs[0], ws_), index_(node.outs[1]), descending_(descending) {
    n_ = node.ins[0].shape.empty() ? 1 : node.ins[0].shape.back();
    k_ = node.outs[0].shape.empty() ? 1 : node.outs[0].shape.back();
  }
  void run(const RunContext& ctx) override {
    if (y_.numel() == 0) return;
    const T* x = x_.get(ctx);
    T* y = y_.begin(ctx);
    int64_t* index = ctx.ptr<int64_t>(index_);
    parallel_for(y_.numel() / k_, std::max<int64_t>(1, kGrainElements / (8 * n_)), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) row(x + r * n_, y + r * k_, index + r * k_);
    });
    y_.finish(ctx);
  }

 private:
  void row(const T* x, T* y, int64_t* index) const {
    int64_t* order = scratch<int64_t>(0, n_);
    std::iota(order, order + n_, int64_t{0});
    const auto first = [&](int64_t a, int64_t b) {
      if (descending_ ? larger(x[a], x[b]) : larger(x[b], x[a])) return true;
      if (descending_ ? larger(x[b], x[a]) : larger(x[a], x[b])) return false;
      return a < b;
    };
    if (k_ < n_) std::partial_sort(order, order + k_, order + n_, first);
    else std::sort(order, order + n_, first);
    for (int64_t i = 0; i < k_; ++i) {
      index[i] = order[i];
      y[i] = x[order[i]];
    }
  }
  In<T> x_;
  Out<T> y_;
  Operand index_;
  bool descending_;
  int64_t n_ = 1, k_ = 1;
};

std::unique_ptr<Executable> make_leading(const Node& node, bool descending) {
  if (node.ins[0].dtype == DType::float64) return std::make_unique<Leading<double>>(node, descending);
  return std::make_unique<Leading<float>>(node, descending);
}

Refusal accept_order(const Problem& p) {
  if (auto r = accept_single(p)) return r;
  if (!is_float(p.root().ins[0].dtype)) return "compares floating point data only";
  if (!p.root().outs.back().contiguous) return "writes contiguous indices only";
  return {};
}

std::unique_ptr<Executable> make_arg_reduce(const Problem& p) { return make_by_type<ArgReduce>(p); }
std::unique_ptr<Executable> make_topk(const Problem& p) {
  return make_leading(p.root(), p.root().attr<TopkAttrs>().largest != 0);
}
std::unique_ptr<Executable> make_sort(const Problem& p) {
  return make_leading(p.root(), p.root().attr<SortAttrs>().descending != 0);
}

}  // namespace

std::span<const Impl> argmax_impls() {
  static const Impl impl{"cpu.arg_reduce", accept_order, make_arg_reduce};
  return {&impl, 1};
}
std::span<const Impl> argmin_impls() { return argmax_impls(); }
std::span<const Impl> topk_impls() {
  static const Impl impl{"cpu.sort", accept_order, make_topk};
  return {&impl, 1};
}
std::span<const Impl> sort_impls() {
  static const Impl impl{"cpu.sort", accept_order, make_sort};
  return {&impl, 1};
}
std::span<const Impl> randperm_impls() { return {}; }  // a second implementation of sorting 64-bit keys is not worth it

}  // namespace pyflame::cpu
