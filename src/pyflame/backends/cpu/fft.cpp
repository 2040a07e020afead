// Fourier transforms: lines are distributed over threads, which share a long one (fft_long.h). A line that does not lie in one piece is gathered first, several
// neighbours at a time, so that each cache line is read once. Real transforms of even length are complex ones of half the
// length, whose elements are pairs of neighbours.
#include "pyflame/backends/cpu/fft.h"

#include <cmath>
#include <cstring>
#include <numbers>
#include <optional>

#include "pyflame/backends/cpu/common.h"
#include "pyflame/backends/cpu/fft_long.h"

namespace pyflame::cpu {

namespace {

enum Kind : int64_t { kComplex = 0, kFromReal = 1, kToReal = 2 };
constexpr int64_t kNeighbours = 8;
constexpr int64_t kPadding =
    8;  // of gathered lines, so that those of 2^k elements do not compete for the same lines of the cache

// The transform of a line of any length.
template <class T>
struct Transform {
  explicit Transform(int64_t length) : n(length), plan(fft::LongLine<T>::takes(length) ? 1 : length) {
    if (fft::LongLine<T>::takes(length)) long_line.emplace(length);
  }
  void operator()(const fft::Line<T>& in, const fft::Line<T>& out, T scale, T* work) const {
    if (long_line) long_line->transform(in, out, scale, work);
    else fft::transform<T>(plan, in, out, scale, work);
  }
  int64_t work() const { return long_line ? 2 * n : plan.work(); }
  int64_t n;
  fft::Plan<T> plan;
  std::optional<fft::LongLine<T>> long_line;
};

template <class T>
class Fft : public Exec {
 public:
  explicit Fft(const Node& node)
      : x_(node.ins[0]),
        y_(node.outs[0]),
        attrs_(node.attr<FftAttrs>()),
        n_(attrs_.kind == kFromReal ? x_.shape.back()
           : attrs_.kind == kToReal ? y_.shape.back()
                                    : x_.shape[x_.shape.size() - 2]),
        halves_(attrs_.kind != kComplex && n_ % 2 == 0),
        transform_(halves_ ? n_ / 2 : n_) {
    const bool pairs = attrs_.kind != kFromReal;
    const int dims = x_.shape.size() - (pairs ? 2 : 1);
    count_ = pairs ? x_.shape[dims] : n_;
    step_ = x_.strides[dims];
    part_step_ = pairs ? x_.strides.back() : 0;
    results_ = attrs_.kind == kFromReal ? n_ / 2 + 1 : n_;
    for (int d = 0; d < dims; ++d) {
      outer_shape_.push_back(x_.shape[d]);
      outer_strides_.push_back(x_.strides[d]);
    }
    lines_ = outer_shape_.numel();
    const auto size = static_cast<double>(n_);
    scale_ = static_cast<T>(attrs_.scale == 2 ? 1 / size : attrs_.scale == 1 ? 1 / std::sqrt(size) : 1.0);
    whole_ = pairs ? step_ == 2 && part_step_ == 1 : step_ == 1 && halves_;
    for (int64_t k = 0; halves_ && k <= n_ / 4 + 1; ++k) {
      const double a = -2 * std::numbers::pi * static_cast<double>(k) / size;
      w_re_.push_back(static_cast<T>(std::cos(a))), w_im_.push_back(static_cast<T>(std::sin(a)));
    }
  }
  void run(const RunContext& ctx) override {
    const T* x = ctx.ptr<const T>(x_);
    T* y = ctx.ptr<T>(y_);
    const int64_t together = whole_ || outer_shape_.empty() ? 1 : std::min(kNeighbours, outer_shape_.back());
    const int64_t in_row = outer_shape_.empty() ? 1 : ceil_div(outer_shape_.back(), together);
    const int64_t blocks = outer_shape_.empty() ? 1 : lines_ / outer_shape_.back() * in_row;
    const auto cost = static_cast<int64_t>(std::log2(static_cast<double>(n_) + 1)) * n_ * together;
    const auto some = [&](int64_t begin, int64_t end) {
      T* room = scratch<T>(0, 2 * together * (count_ + kPadding) + transform_.work() + 2 * n_ + 64);
      for (int64_t b = begin; b < end; ++b) {
        const int64_t first = b % in_row * together;
        const int64_t many = outer_shape_.empty() ? 1 : std::min(together, outer_shape_.back() - first);
        block(x + offset(b / in_row, first), y, b / in_row * (outer_shape_.empty() ? 1 : outer_shape_.back()) + first,
              many, room);
      }
    };
    if (transform_.long_line) return some(0, blocks);  // the threads share each line
    parallel_for(blocks, std::max<int64_t>(1, 2 * kGrainElements / std::max<int64_t>(cost, 1)), some);
  }

 private:
  // Of line `first` in the last outer dim, at position `row` of the others.
  int64_t offset(int64_t row, int64_t first) const {
    if (outer_shape_.empty()) return 0;
    int64_t at = first * outer_strides_.back();
    for (int d = outer_shape_.size() - 2; d >= 0; --d) {
      at += row % outer_shape_[d] * outer_strides_[d];
      row /= outer_shape_[d];
    }
    return at;
  }
  // `many` neighbouring lines.
  void block(const T* x, T* y, int64_t line, int64_t many, T* room) const {
    const int64_t out_line = attrs_.kind == kToReal ? n_ : 2 * results_;
    const int64_t apart = outer_shape_.empty() ? 0 : outer_strides_.back();
    T* work = room + 2 * many * (count_ + kPadding);
    if (whole_) {
      for (int64_t l = 0; l < many; ++l) one(const_cast<T*>(x) + l * apart, y + (line + l) * out_line, work);
      return;
    }
    // Each line as pairs, or as real numbers.
    const bool real = attrs_.kind == kFromReal, adjacent = part_step_ == 1;
    const int64_t gathered = (real ? 1 : 2) * (count_ + kPadding);
    if (adjacent && apart == 2) {
      fft::transpose_pairs<T>(true, x, step_ / 2, count_, many, room, count_ + kPadding);
      for (int64_t l = 0; l < many; ++l) one(room + l * gathered, y + (line + l) * out_line, work);
      return;
    }
    for (int64_t k = 0; k < count_; ++k) {
      const T* from = x + k * step_;
      T* to = room + (real ? k : 2 * k);
      for (int64_t l = 0; l < many; ++l, from += apart, to += gathered) {
        if (real) *to = *from;
        else if (adjacent) std::memcpy(to, from, 2 * sizeof(T));
        else to[0] = from[0], to[1] = from[part_step_];
      }
    }
    for (int64_t l = 0; l < many; ++l) one(room + l * gathered, y + (line + l) * out_line, work);
  }
  // One line; x is in one piece.
  void one(T* x, T* y, T* work) const {
    using fft::Line;
    if (attrs_.kind == kComplex) {
      const bool back = attrs_.inverse != 0;
      const Line<T> in{x + back, x + !back, true}, out{y + back, y + !back, true};
      return transform_(in, out, scale_, work);
    }
    T* z = work + transform_.work();
    const int64_t h = transform_.n;
    if (attrs_.kind == kFromReal && halves_) {
      transform_({x, x + 1, true}, {z, z + h, false}, T{1}, work);
      return fft::frequencies_of_pairs<T>(h, z, z + h, w_re_.data(), w_im_.data(), scale_, y);
    }
    if (halves_) {
      fft::pairs_of_frequencies<T>(h, x, w_re_.data(), w_im_.data(), z, z + h);
      return transform_({z + h, z, false}, {y + 1, y, true}, scale_, work);
    }
    if (attrs_.kind == kFromReal) {
      for (int64_t k = 0; k < n_; ++k) z[k] = x[k], z[k + n_] = 0;
      transform_({z, z + n_, false}, {z, z + n_, false}, scale_, work);
      for (int64_t k = 0; k < results_; ++k) y[2 * k] = z[k], y[2 * k + 1] = z[k + n_];
      y[1] = 0;
      return;
    }
    z[0] = x[0], z[n_] = 0;
    for (int64_t k = 1; k <= n_ / 2; ++k) {
      z[k] = z[n_ - k] = x[2 * k];
      z[n_ + k] = x[2 * k + 1], z[2 * n_ - k] = -x[2 * k + 1];
    }
    transform_({z + n_, z, false}, {z + n_, z, false}, scale_, work);
    std::copy_n(z, n_, y);
  }

  Operand x_, y_;
  FftAttrs attrs_;
  int64_t n_;
  bool halves_;  // real, of even length
  Transform<T> transform_;
  int64_t count_ = 0, step_ = 0, part_step_ = 0, results_ = 0, lines_ = 0;
  Dims outer_shape_, outer_strides_;
  bool whole_ = false;  // the elements of a line lie next to each other
  T scale_ = 1;
  std::vector<T> w_re_, w_im_;
};

}  // namespace

std::span<const Impl> fft_impls() {
  static const Impl impl{"cpu.stockham",
                         [](const Problem& p) -> Refusal {
                           const Operand& x = p.root().ins[0];
                           if (x.dtype != DType::float32 && x.dtype != DType::float64)
                             return "takes float32 and float64 only";
                           if (!p.root().outs[0].contiguous) return "the result is not contiguous";
                           return accept_single(p);
                         },
                         make_by_type<Fft>};
  return {&impl, 1};
}

}  // namespace pyflame::cpu
