// cumsum. Adjacent lines are processed together: if the dim is not the last one, the additions are vector instructions;
// if it is, they do not wait for each other. The elements of a line are added in order, floats in double.
#include <algorithm>
#include <array>

#include "pyflame/backends/cpu/common.h"

namespace pyflame::cpu {

namespace {

constexpr int64_t kMostTogether = 256;  // adjacent lines
constexpr int64_t kApart = 4;  // other lines: enough to hide the latency of an addition, and still in the cache

template <class S>
double widened(S x) {
  return static_cast<double>(x);
}
double widened(float16 x) { return static_cast<float>(x); }
double widened(bfloat16 x) { return static_cast<float>(x); }

// Running sums of S. Floats are added in double and stored as S; other types are added and stored as int64.
template <class S>
class CumSum : public Exec {
  static constexpr bool kFloats =
      std::is_floating_point_v<S> || std::is_same_v<S, float16> || std::is_same_v<S, bfloat16>;
  using Sum = std::conditional_t<kFloats, double, int64_t>;
  using To = std::conditional_t<kFloats, S, int64_t>;

 public:
  explicit CumSum(const Node& node) : x_(node.ins[0]), y_(node.outs[0]) {
    const auto [dim, reverse] = node.attr<ScanAttrs>();
    const int d = static_cast<int>(dim);
    n_ = x_.shape[d], x_step_ = x_.strides[d], y_step_ = y_.strides[d];
    if (reverse) first_ = n_ - 1;
    back_ = reverse != 0;
    for (int i = 0; i < x_.shape.size(); ++i)
      if (i != d && x_.shape[i] != 1) add_dim(x_.shape[i], x_.strides[i], y_.strides[i]);
    if (rank_ == 0) add_dim(1, 1, 1);
    if (dims_[0].x != 1 || dims_[0].y != 1) together_ = kApart;
    blocks_ = ceil_div(dims_[0].size, together_);
    for (size_t i = 1; i < rank_; ++i) blocks_ *= dims_[i].size;
  }
  void run(const RunContext& ctx) override {
    if (y_.numel() == 0) return;
    const S* x = ctx.ptr<const S>(x_) + first_ * x_step_;
    To* y = ctx.ptr<To>(y_) + first_ * y_step_;
    const int64_t lines = std::min(dims_[0].size, together_);
    parallel_for(blocks_, std::max<int64_t>(1, kGrainElements / (lines * n_)), [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) block(b, x, y);
    });
  }

 private:
  struct Dim {
    int64_t size, x, y;
  };
  // From the last dim to the first; dims that are contiguous with each other are merged.
  void add_dim(int64_t size, int64_t x, int64_t y) {
    for (size_t i = rank_; i > 0; --i) dims_[i] = dims_[i - 1];
    ++rank_;
    dims_[0] = {size, x, y};
    if (rank_ == 1 || dims_[1].x != x * size || dims_[1].y != y * size) return;
    dims_[0].size *= dims_[1].size;
    for (size_t i = 1; i + 1 < rank_; ++i) dims_[i] = dims_[i + 1];
    --rank_;
  }
  void block(int64_t b, const S* x, To* y) const {
    const Dim& inner = dims_[0];
    const int64_t in_row = ceil_div(inner.size, together_), begin = b % in_row * together_;
    b /= in_row;
    x += begin * inner.x, y += begin * inner.y;
    for (size_t i = 1; i < rank_; ++i) {
      x += b % dims_[i].size * dims_[i].x, y += b % dims_[i].size * dims_[i].y;
      b /= dims_[i].size;
    }
    const int64_t lines = std::min(together_, inner.size - begin);
    const int64_t x_step = back_ ? -x_step_ : x_step_, y_step = back_ ? -y_step_ : y_step_;
    if (lines == 1) {
      Sum sum = 0;
      for (int64_t i = 0; i < n_; ++i, x += x_step, y += y_step) *y = rounded(sum = plus(sum, *x));
      return;
    }
    std::array<Sum, kMostTogether> sums{};
    for (int64_t i = 0; i < n_; ++i, x += x_step, y += y_step) {
      if (together_ == kMostTogether) add_adjacent(x, y, lines, sums.data());
      else
        for (int64_t l = 0; l < lines; ++l)
          y[l * inner.y] = rounded(sums[static_cast<size_t>(l)] = plus(sums[static_cast<size_t>(l)], x[l * inner.x]));
    }
  }
  // All loads of a part precede its stores, so that the compiler can use vector instructions.
  static void add_adjacent(const S* x, To* y, int64_t lines, Sum* sums) {
    constexpr int64_t kPart = 8;
    int64_t l = 0;
    for (; l + kPart <= lines; l += kPart) {
      Sum part[kPart];
      for (int64_t k = 0; k < kPart; ++k) part[k] = plus(sums[l + k], x[l + k]);
      for (int64_t k = 0; k < kPart; ++k) sums[l + k] = part[k];
      for (int64_t k = 0; k < kPart; ++k) y[l + k] = rounded(part[k]);
    }
    for (; l < lines; ++l) y[l] = rounded(sums[l] = plus(sums[l], x[l]));
  }
  static Sum plus(Sum sum, S x) {
    if constexpr (kFloats) return sum + widened(x);
    else return static_cast<int64_t>(static_cast<uint64_t>(sum) + static_cast<uint64_t>(x));  // wraps around
  }
  static To rounded(Sum sum) {
    if constexpr (std::is_same_v<To, Sum>) return sum;
    else return To(static_cast<float>(sum));
  }
  Operand x_, y_;
  int64_t n_ = 1, first_ = 0, x_step_ = 1, y_step_ = 1, blocks_ = 1, together_ = kMostTogether;
  bool back_ = false;
  std::array<Dim, kMaxDims> dims_{};
  size_t rank_ = 0;
};

std::unique_ptr<Executable> make_cumsum(const Problem& p) {
  std::unique_ptr<Executable> e;
  dispatch(p.root().ins[0].dtype, [&]<class S>() { e = std::make_unique<CumSum<S>>(p.root()); });
  return e;
}

}  // namespace

std::span<const Impl> cumsum_impls() {
  static const Impl impl{"cpu.scan", accept_single, make_cumsum};
  return {&impl, 1};
}

}  // namespace pyflame::cpu
