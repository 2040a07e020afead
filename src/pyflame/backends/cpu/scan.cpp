// cumsum, cumprod, cummax, cummin, logcumsumexp. Adjacent lines are processed together: if the dim is not the last one, the
// operations are vector instructions; if it is, they do not wait for each other. The elements of a line are taken in order; floats are
// added and multiplied in double.
#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "pyflame/backends/cpu/common.h"
#include "pyflame/backends/cpu/vec.h"

namespace pyflame::cpu {

namespace {

constexpr int64_t kMostTogether = 256;  // adjacent lines
constexpr int64_t kApart = 4;  // other lines: enough to hide the latency of an addition, and still in the cache

template <class S>
constexpr bool kFloats = std::is_floating_point_v<S> || std::is_same_v<S, float16> || std::is_same_v<S, bfloat16>;
template <class S>
auto widened(S x) {
  if constexpr (!kFloats<S>) return static_cast<int64_t>(x);
  else if constexpr (std::is_floating_point_v<S>) return static_cast<double>(x);
  else return static_cast<double>(static_cast<float>(x));
}

// The lines of an operand and of its results along the dim of a scan.
class ScanLines {
 public:
  explicit ScanLines(const Node& node) : x_(node.ins[0]), y_(node.outs[0]) {
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
  // f(offset in the operand, offset in the results, lines) for blocks of lines.
  template <class F>
  void each(F f) const {
    if (y_.numel() == 0) return;
    const int64_t lines = std::min(dims_[0].size, together_);
    parallel_for(blocks_, std::max<int64_t>(1, kGrainElements / (lines * n_)), [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) block(b, f);
    });
  }
  const Operand& x() const { return x_; }
  const Operand& y() const { return y_; }
  int64_t n() const { return n_; }
  bool adjacent() const { return together_ == kMostTogether; }
  // From an element of a line to the next, and from a line to the next.
  int64_t x_step() const { return back_ ? -x_step_ : x_step_; }
  int64_t y_step() const { return back_ ? -y_step_ : y_step_; }
  int64_t x_line() const { return dims_[0].x; }
  int64_t y_line() const { return dims_[0].y; }

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
  template <class F>
  void block(int64_t b, F f) const {
    const Dim& inner = dims_[0];
    const int64_t in_row = ceil_div(inner.size, together_), begin = b % in_row * together_;
    b /= in_row;
    int64_t x = first_ * x_step_ + begin * inner.x, y = first_ * y_step_ + begin * inner.y;
    for (size_t i = 1; i < rank_; ++i) {
      x += b % dims_[i].size * dims_[i].x, y += b % dims_[i].size * dims_[i].y;
      b /= dims_[i].size;
    }
    f(x, y, std::min(together_, inner.size - begin));
  }
  Operand x_, y_;
  int64_t n_ = 1, first_ = 0, x_step_ = 1, y_step_ = 1, blocks_ = 1, together_ = kMostTogether;
  bool back_ = false;
  std::array<Dim, kMaxDims> dims_{};
  size_t rank_ = 0;
};

struct Adds {
  static constexpr int kStart = 0;
  static double of(double a, double b) { return a + b; }
  static int64_t of(int64_t a, int64_t b) {
    return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));  // wraps around
  }
};
struct Multiplies {
  static constexpr int kStart = 1;
  static double of(double a, double b) { return a * b; }
  static int64_t of(int64_t a, int64_t b) {
    return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  }
};

// Running sums or products of S. Floats are stored as S, other types as int64.
template <class S, class Op>
class Accumulated : public Exec {
  using Sum = std::conditional_t<kFloats<S>, double, int64_t>;
  using To = std::conditional_t<kFloats<S>, S, int64_t>;

 public:
  explicit Accumulated(const Node& node) : lines_(node) {}
  void run(const RunContext& ctx) override {
    const S* from = ctx.ptr<const S>(lines_.x());
    To* to = ctx.ptr<To>(lines_.y());
    lines_.each([&](int64_t x, int64_t y, int64_t lines) { block(from + x, to + y, lines); });
  }

 private:
  void block(const S* x, To* y, int64_t lines) const {
    const int64_t n = lines_.n(), x_step = lines_.x_step(), y_step = lines_.y_step();
    if (lines == 1) {
      Sum sum = Op::kStart;
      for (int64_t i = 0; i < n; ++i, x += x_step, y += y_step) *y = rounded(sum = Op::of(sum, widened(*x)));
      return;
    }
    if (!lines_.adjacent()) {
      if (lines == kApart) take_apart<kApart>(x, y, lines);  // in registers
      else take_apart<kMostTogether>(x, y, lines);
      return;
    }
    std::array<Sum, kMostTogether> sums;
    sums.fill(Op::kStart);
    for (int64_t i = 0; i < n; ++i, x += x_step, y += y_step) take_adjacent(x, y, lines, sums.data());
  }
  template <int64_t kMost>
  void take_apart(const S* x, To* y, int64_t lines) const {
    const int64_t count = kMost == kApart ? kApart : lines;
    const int64_t x_step = lines_.x_step(), y_step = lines_.y_step(), x_line = lines_.x_line(),
                  y_line = lines_.y_line();
    Sum sums[kMost];
    std::fill_n(sums, count, Sum(Op::kStart));
    for (int64_t i = 0; i < lines_.n(); ++i, x += x_step, y += y_step)
      for (int64_t l = 0; l < count; ++l) y[l * y_line] = rounded(sums[l] = Op::of(sums[l], widened(x[l * x_line])));
  }
  // All loads of a part precede its stores, so that the compiler can use vector instructions.
  static void take_adjacent(const S* x, To* y, int64_t lines, Sum* sums) {
    constexpr int64_t kPart = 8;
    int64_t l = 0;
    for (; l + kPart <= lines; l += kPart) {
      Sum part[kPart];
      for (int64_t k = 0; k < kPart; ++k) part[k] = Op::of(sums[l + k], widened(x[l + k]));
      for (int64_t k = 0; k < kPart; ++k) sums[l + k] = part[k];
      for (int64_t k = 0; k < kPart; ++k) y[l + k] = rounded(part[k]);
    }
    for (; l < lines; ++l) y[l] = rounded(sums[l] = Op::of(sums[l], widened(x[l])));
  }
  static To rounded(Sum sum) {
    if constexpr (std::is_same_v<To, Sum>) return sum;
    else return To(static_cast<float>(sum));
  }
  ScanLines lines_;
};

// The largest or smallest so far and where it was: the last of equals; NaN wins.
template <class S, bool kLargest>
class Extremes : public Exec {
  using Key = std::conditional_t<kFloats<S>, std::conditional_t<std::is_same_v<S, double>, double, float>, S>;

 public:
  explicit Extremes(const Node& node) : lines_(node), at_(node.outs[1]) {}
  void run(const RunContext& ctx) override {
    const S* from = ctx.ptr<const S>(lines_.x());
    S* to = ctx.ptr<S>(lines_.y());
    int64_t* at = ctx.ptr<int64_t>(at_);
    lines_.each([&](int64_t x, int64_t y, int64_t lines) { block(from + x, to + y, at + y, lines); });
  }

 private:
  static bool wins(Key x, Key best) {
    if constexpr (kFloats<S>) return (kLargest ? x >= best : x <= best) | (x != x);
    else return kLargest ? x >= best : x <= best;
  }
  void block(const S* x, S* y, int64_t* at, int64_t lines) const {
    if (lines == kApart) take<kApart>(x, y, at, lines);  // in registers
    else take<kMostTogether>(x, y, at, lines);
  }
  template <int64_t kMost>
  void take(const S* x, S* y, int64_t* at, int64_t lines) const {
    const int64_t count = kMost == kApart ? kApart : lines;
    const int64_t x_step = lines_.x_step(), y_step = lines_.y_step(), x_line = lines_.x_line(),
                  y_line = lines_.y_line();
    Key best[kMost];
    int64_t where[kMost] = {};
    for (int64_t l = 0; l < count; ++l) best[l] = Key(x[l * x_line]);
    for (int64_t i = 0; i < lines_.n(); ++i, x += x_step, y += y_step, at += y_step)
      for (int64_t l = 0; l < count; ++l) {
        const Key v = Key(x[l * x_line]);
        const bool taken = wins(v, best[l]);
        best[l] = taken ? v : best[l], where[l] = taken ? i : where[l];
        y[l * y_line] = S(best[l]), at[l * y_line] = where[l];
      }
  }
  ScanLines lines_;
  Operand at_;
};

// log(sum of exp(x)) as m + log(sum of exp(x - m)) with the running maximum m. Exponentials and logarithms are vector code over parts
// of a line.
template <class S>
class LogSums : public Exec {
  using T = std::conditional_t<std::is_same_v<S, double>, double, float>;
  static constexpr int64_t kPart = 512;

 public:
  explicit LogSums(const Node& node) : lines_(node) {}
  void run(const RunContext& ctx) override {
    const S* from = ctx.ptr<const S>(lines_.x());
    S* to = ctx.ptr<S>(lines_.y());
    lines_.each([&](int64_t x, int64_t y, int64_t lines) {
      for (int64_t l = 0; l < lines; ++l) line(from + x + l * lines_.x_line(), to + y + l * lines_.y_line());
    });
  }

 private:
  void line(const S* x, S* y) const {
    std::array<T, kPart> top, exponential, sums;
    T most = -std::numeric_limits<T>::infinity();
    double sum = 0;
    for (int64_t begin = 0; begin < lines_.n(); begin += kPart) {
      const int64_t count = std::min(kPart, lines_.n() - begin);
      T before = most;
      for (int64_t i = 0; i < count; ++i) {
        const T v = T(x[(begin + i) * lines_.x_step()]);
        most = v > most || v != v ? v : most;
        const auto at = static_cast<size_t>(i);
        top[at] = most;
        exponential[at] = v == most ? T{0} : v - most;  // of equal infinities, too
      }
      vec::exp_all(exponential.data(), count);
      for (int64_t i = 0; i < count; ++i) {
        const auto at = static_cast<size_t>(i);
        if (top[at] != before) sum *= std::exp(static_cast<double>(before) - static_cast<double>(top[at]));
        before = top[at];
        sum += static_cast<double>(exponential[at]);
        sums[at] = static_cast<T>(sum);
      }
      vec::log_all(sums.data(), count);
      for (int64_t i = 0; i < count; ++i) {
        const auto at = static_cast<size_t>(i);
        y[(begin + i) * lines_.y_step()] = S(top[at] + sums[at]);
      }
    }
  }
  ScanLines lines_;
};

template <template <class> class Kernel>
std::unique_ptr<Executable> make_scan(const Problem& p) {
  std::unique_ptr<Executable> e;
  dispatch(p.root().ins[0].dtype, [&]<class S>() { e = std::make_unique<Kernel<S>>(p.root()); });
  return e;
}
template <class S>
using CumSum = Accumulated<S, Adds>;
template <class S>
using CumProd = Accumulated<S, Multiplies>;
template <class S>
using CumMax = Extremes<S, true>;
template <class S>
using CumMin = Extremes<S, false>;

std::unique_ptr<Executable> make_log_sums(const Problem& p) {
  switch (p.root().ins[0].dtype) {
    case DType::float64: return std::make_unique<LogSums<double>>(p.root());
    case DType::float16: return std::make_unique<LogSums<float16>>(p.root());
    case DType::bfloat16: return std::make_unique<LogSums<bfloat16>>(p.root());
    default: return std::make_unique<LogSums<float>>(p.root());
  }
}

// Both results of cummax and cummin are new tensors of one layout.
Refusal accept_extremes(const Problem& p) {
  if (Refusal r = accept_single(p)) return r;
  const Node& n = p.root();
  if (n.outs[0].strides != n.outs[1].strides) return "the results have two layouts";
  return {};
}

}  // namespace

#define PF_SCAN(op, accepts, make)                     \
  std::span<const Impl> op##_impls() {                 \
    static const Impl impl{"cpu.scan", accepts, make}; \
    return {&impl, 1};                                 \
  }
PF_SCAN(cumsum, accept_single, make_scan<CumSum>)
PF_SCAN(cumprod, accept_single, make_scan<CumProd>)
PF_SCAN(cummax, accept_extremes, make_scan<CumMax>)
PF_SCAN(cummin, accept_extremes, make_scan<CumMin>)
PF_SCAN(logcumsumexp, accept_single, make_log_sums)

}  // namespace pyflame::cpu
