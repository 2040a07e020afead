// Pooling. Planes are independent and small; a task is several of them. If the result is channels-last, a task is rows
// of windows, or images, and the loops run over channels. The order of an element's sum is the same in either case.
#include <algorithm>
#include <vector>

#include "pyflame/backends/cpu/common.h"
#include "pyflame/backends/cpu/vec.h"

namespace pyflame::cpu {

namespace {

struct Geometry {
  PoolAttrs a;
  int64_t h, w, oh, ow, planes, images, channels;
  Geometry(const PoolAttrs& attrs, const Dims& full, const Dims& pooled) : a(attrs) {
    const int rank = full.size();
    h = full[rank - 2], w = full[rank - 1], oh = pooled[rank - 2], ow = pooled[rank - 1];
    images = full[0], channels = full[1], planes = images * channels;
    for (int64_t j = 0; j < a.kernel_w; ++j) reached_.push_back(windows_with(j));
  }
  // The taps [first, last) of a window that starts at `at` that are in [0, size).
  struct Range {
    int64_t first, last;
    int64_t count() const { return std::max<int64_t>(0, last - first); }
  };
  static Range clip(int64_t at, int64_t kernel, int64_t dilation, int64_t size) {
    const int64_t first = at < 0 ? ceil_div(-at, dilation) : 0;
    const int64_t last = at >= size ? 0 : std::min(kernel, ceil_div(size - at, dilation));
    return {std::min(first, kernel), std::max<int64_t>(0, last)};
  }
  // The windows of a row for which tap column j is inside the image.
  Range windows(int64_t j) const { return reached_[static_cast<size_t>(j)]; }
  Range windows_with(int64_t j) const {
    const int64_t at = j * a.dilation_w - a.pad_w;  // the column of window 0
    const int64_t first = at >= 0 ? 0 : std::min(ow, ceil_div(-at, a.stride_w));
    return {first, at >= w ? first : std::clamp(ceil_div(w - at, a.stride_w), first, ow)};
  }
  // The position of tap (i, j) of window (y, x) in its plane.
  int64_t pixel(int64_t y, int64_t x, int64_t i, int64_t j) const {
    return (top(y) + i * a.dilation_h) * w + left(x) + j * a.dilation_w;
  }
  // The positions of the taps of window (y, x) that are inside the image, in their order; returns how many.
  int64_t taps(int64_t y, int64_t x, int64_t* to) const {
    const Range down = rows(y), across = cols(x);
    int64_t count = 0;
    for (int64_t i = down.first; i < down.last; ++i)
      for (int64_t j = across.first; j < across.last; ++j) to[count++] = pixel(y, x, i, j);
    return count;
  }
  int64_t top(int64_t y) const { return y * a.stride_h - a.pad_h; }
  int64_t left(int64_t x) const { return x * a.stride_w - a.pad_w; }
  Range rows(int64_t y) const { return clip(top(y), a.kernel_h, a.dilation_h, h); }
  Range cols(int64_t x) const { return clip(left(x), a.kernel_w, a.dilation_w, w); }
  // The divisor of an average is the product of both. Padding may count; positions beyond the padding do not.
  int64_t divisor_of_row(int64_t y) const {
    if (!a.count_include_pad) return rows(y).count();
    return clip(top(y) + a.pad_h, a.kernel_h, a.dilation_h, h + 2 * a.pad_h).count();
  }
  int64_t divisor_of_column(int64_t x) const {
    if (!a.count_include_pad) return cols(x).count();
    return clip(left(x) + a.pad_w, a.kernel_w, a.dilation_w, w + 2 * a.pad_w).count();
  }
  template <class T>
  std::vector<T> divisors_of_columns() const {
    std::vector<T> all;
    for (int64_t x = 0; x < ow; ++x) all.push_back(static_cast<T>(divisor_of_column(x)));
    return all;
  }
  template <class F>
  static void for_each(int64_t count, int64_t work, const F& f) {
    parallel_for(count, std::max<int64_t>(1, kGrainElements / std::max<int64_t>(1, work)),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t p = begin; p < end; ++p) f(p);
                 });
  }
  template <class F>
  void for_planes(const F& f) const {
    for_each(planes, std::max(h * w, oh * ow * a.kernel_h * a.kernel_w), f);
  }
  // Channels-last: tasks of rows of windows, and of images.
  template <class F>
  void for_window_rows(const F& f) const {
    for_each(images * oh, ow * a.kernel_h * a.kernel_w * channels, f);
  }
  template <class F>
  void for_images(const F& f) const {
    for_each(images, std::max(h * w, oh * ow * a.kernel_h * a.kernel_w) * channels, f);
  }

 private:
  std::vector<Range> reached_;  // windows() of each tap column
};

// Inputs are read in the memory format of the result.
Operand ordered(const Operand& o, bool channels_last) { return channels_last ? as_nhwc(o) : o; }

template <class T>
class MaxPool : public Exec {
 public:
  MaxPool(const Node& node, bool with_index)
      : g_(node.attr<PoolAttrs>(), node.ins[0].shape, node.outs[0].shape),
        last_(is_channels_last(node.outs[0])),
        x_(ordered(node.ins[0], last_), ws_),
        y_(ordered(node.outs[0], last_), ws_) {
    if (with_index) index_ = node.outs[1];
    with_index_ = with_index;
    for (int64_t i = 0; i < g_.a.kernel_h; ++i)
      for (int64_t j = 0; j < g_.a.kernel_w; ++j) offsets_.push_back(i * g_.a.dilation_h * g_.w + j * g_.a.dilation_w);
  }
  void run(const RunContext& ctx) override {
    const T* x = x_.get(ctx);
    T* y = y_.begin(ctx);
    int64_t* index = with_index_ ? ctx.ptr<int64_t>(index_) : nullptr;
    const int64_t c = last_ ? g_.channels : 1, in = g_.h * g_.w * c, out = g_.ow * c;
    if (last_) {
      g_.for_window_rows(
          [&](int64_t r) { row(x + r / g_.oh * in, r % g_.oh, c, y + r * out, index ? index + r * out : nullptr); });
    } else {
      g_.for_planes([&](int64_t p) {
        for (int64_t oy = 0, o = p * g_.oh * out; oy < g_.oh; ++oy, o += out)
          row(x + p * in, oy, 1, y + o, index ? index + o : nullptr);
      });
    }
    y_.finish(ctx);
  }

 private:
  void check(bool inside) const {
    PF_CHECK(inside, Runtime,
             "max_pool2d: a window is entirely in the padding; got padding ({}, {}) and kernel ({}, {})", g_.a.pad_h,
             g_.a.pad_w, g_.a.kernel_h, g_.a.kernel_w);
  }
  // A row of windows over pixels of `c` values. Many channels are taken window by window, in registers.
  void row(const T* image, int64_t oy, int64_t c, T* y, int64_t* index) const {
    constexpr int64_t kChannels = 8;
    if (c < kChannels) return row_by_taps(image, oy, c, y, index);
    T* at = index ? scratch<T>(0, c) : nullptr;
    const int64_t most = g_.a.kernel_h * g_.a.kernel_w;
    int64_t *taken = scratch<int64_t>(1, 2 * most), *offset = taken + most;
    for (int64_t x = 0; x < g_.ow; ++x, y += c) {
      const int64_t count = g_.taps(oy, x, taken);
      check(count > 0);
      for (int64_t i = 0; i < count; ++i) offset[i] = taken[i] * c;
      vec::max_of_taps(image, offset, count, y, at, c);
      if (!index) continue;
      for (int64_t k = 0; k < c; ++k) index[k] = taken[static_cast<int32_t>(at[k])];
      index += c;
    }
  }
  // Tap by tap; for each tap, the windows whose tap is inside the image are consecutive.
  void row_by_taps(const T* image, int64_t oy, int64_t c, T* y, int64_t* index) const {
    const PoolAttrs& a = g_.a;
    T* at = scratch<T>(0, g_.ow * c);
    std::fill_n(at, g_.ow * c, T(-1));
    std::fill_n(y, g_.ow * c, T(0));
    const auto rows = g_.rows(oy);
    for (int64_t i = rows.first; i < rows.last; ++i)
      for (int64_t j = 0; j < a.kernel_w; ++j) {
        const auto [first, end] = g_.windows(j);
        const T* from = image + g_.pixel(oy, first, i, j) * c;
        const T tap = static_cast<T>(i * a.kernel_w + j);
        if (c == 1 || a.stride_w == 1) {
          vec::take_max(from, c == 1 ? a.stride_w : 1, tap, y + first * c, at + first * c, (end - first) * c);
          continue;
        }
        for (int64_t x = first; x < end; ++x, from += a.stride_w * c)
          vec::take_max(from, 1, tap, y + x * c, at + x * c, c);
      }
    const int64_t corner = g_.top(oy) * g_.w - a.pad_w;
    for (int64_t x = 0; x < g_.ow; ++x)
      for (int64_t k = x * c; k < (x + 1) * c; ++k) {
        check(at[k] >= 0);
        if (index) index[k] = corner + x * a.stride_w + offsets_[at[k]];
      }
  }
  Geometry g_;
  bool last_;
  In<T> x_;
  Out<T> y_;
  Operand index_;
  bool with_index_ = false;
  std::vector<int64_t> offsets_;  // of each tap from the window's corner
};

// The index may have another layout than the other operands.
template <class T>
class MaxPoolGrad : public Exec {
 public:
  explicit MaxPoolGrad(const Node& node)
      : g_(node.attr<PoolAttrs>(), node.outs[0].shape, node.ins[0].shape),
        last_(is_channels_last(node.outs[0])),
        dy_(ordered(node.ins[0], last_), ws_),
        index_(node.ins[1]),
        dx_(ordered(node.outs[0], last_), ws_) {}
  void run(const RunContext& ctx) override {
    const T* dy = dy_.get(ctx);
    const auto* index = ctx.ptr<const int64_t>(index_);
    T* dx = dx_.begin(ctx);
    const Dims& s = index_.strides;
    const int64_t c = g_.channels, in = g_.h * g_.w, out = g_.oh * g_.ow;
    if (last_) {
      g_.for_images([&](int64_t n) {
        T* image = dx + n * in * c;
        std::fill_n(image, in * c, T(0));
        const T* from = dy + n * out * c;
        for (int64_t y = 0; y < g_.oh; ++y)
          for (int64_t x = 0; x < g_.ow; ++x, from += c) {
            const int64_t* at = index + n * s[0] + y * s[2] + x * s[3];
            for (int64_t k = 0; k < c; ++k) image[at[k * s[1]] * c + k] += from[k];
          }
      });
    } else {
      g_.for_planes([&](int64_t p) {
        T* plane = dx + p * in;
        std::fill_n(plane, in, T(0));
        const T* from = dy + p * out;
        const int64_t* at = index + p / c * s[0] + p % c * s[1];
        for (int64_t y = 0; y < g_.oh; ++y)
          for (int64_t x = 0; x < g_.ow; ++x) plane[at[y * s[2] + x * s[3]]] += *from++;
      });
    }
    dx_.finish(ctx);
  }

 private:
  Geometry g_;
  bool last_;
  In<T> dy_;
  Operand index_;
  Out<T> dx_;
};

template <class T>
class AvgPool : public Exec {
 public:
  explicit AvgPool(const Node& node)
      : g_(node.attr<PoolAttrs>(), node.ins[0].shape, node.outs[0].shape),
        last_(is_channels_last(node.outs[0])),
        x_(ordered(node.ins[0], last_), ws_),
        y_(ordered(node.outs[0], last_), ws_) {}
  void run(const RunContext& ctx) override {
    const T* x = x_.get(ctx);
    T* y = y_.begin(ctx);
    const int64_t c = last_ ? g_.channels : 1, in = g_.h * g_.w * c, out = g_.ow * c;
    if (last_) {
      g_.for_window_rows([&](int64_t r) { row(x + r / g_.oh * in, r % g_.oh, c, y + r * out); });
    } else {
      g_.for_planes([&](int64_t p) {
        for (int64_t oy = 0; oy < g_.oh; ++oy) row(x + p * in, oy, 1, y + (p * g_.oh + oy) * out);
      });
    }
    y_.finish(ctx);
  }

 private:
  // As in MaxPool: a window's taps are added in the same order for either layout.
  void row(const T* image, int64_t oy, int64_t c, T* y) const {
    const PoolAttrs& a = g_.a;
    const T rows_of = static_cast<T>(g_.divisor_of_row(oy));
    constexpr int64_t kChannels = 8;
    if (c >= kChannels) {
      int64_t* taken = scratch<int64_t>(0, a.kernel_h * a.kernel_w);
      for (int64_t x = 0; x < g_.ow; ++x, y += c) {
        const int64_t count = g_.taps(oy, x, taken);
        vec::sum_rows(image, c, taken, count, 0, y, c);
        const T divisor = rows_of * divisors_[static_cast<size_t>(x)];
        for (int64_t k = 0; k < c; ++k) y[k] /= divisor;
      }
      return;
    }
    std::fill_n(y, g_.ow * c, T(0));
    const auto rows = g_.rows(oy);
    for (int64_t i = rows.first; i < rows.last; ++i)
      for (int64_t j = 0; j < a.kernel_w; ++j) {
        const auto [first, end] = g_.windows(j);
        const T* from = image + g_.pixel(oy, first, i, j) * c;
        if (a.stride_w == 1) {
          vec::add(y + first * c, from, (end - first) * c);
        } else if (c == 1) {
          add_spread(y + first, from, end - first);
        } else {
          for (int64_t x = first; x < end; ++x, from += a.stride_w * c) vec::add(y + x * c, from, c);
        }
      }
    if (c == 1) {
      for (int64_t x = 0; x < g_.ow; ++x) y[x] /= rows_of * divisors_[static_cast<size_t>(x)];
      return;
    }
    for (int64_t x = 0; x < g_.ow; ++x) {
      const T count = rows_of * divisors_[static_cast<size_t>(x)];
      for (int64_t k = x * c; k < (x + 1) * c; ++k) y[k] /= count;
    }
  }
  void add_spread(T* y, const T* from, int64_t n) const {
    if (g_.a.stride_w == 2)  // a constant, so that the compiler uses vector instructions
      for (int64_t x = 0; x < n; ++x) y[x] += from[2 * x];
    else
      for (int64_t x = 0; x < n; ++x) y[x] += from[x * g_.a.stride_w];
  }
  Geometry g_;
  bool last_;
  In<T> x_;
  Out<T> y_;
  std::vector<T> divisors_{g_.divisors_of_columns<T>()};
};

template <class T>
class AvgPoolGrad : public Exec {
 public:
  explicit AvgPoolGrad(const Node& node)
      : g_(node.attr<PoolAttrs>(), node.outs[0].shape, node.ins[0].shape),
        last_(is_channels_last(node.outs[0])),
        dy_(ordered(node.ins[0], last_), ws_),
        dx_(ordered(node.outs[0], last_), ws_) {}
  void run(const RunContext& ctx) override {
    const T* dy = dy_.get(ctx);
    T* dx = dx_.begin(ctx);
    const int64_t c = last_ ? g_.channels : 1, in = g_.h * g_.w * c, out = g_.oh * g_.ow * c;
    const auto part = [&](int64_t p) { spread(dy + p * out, c, dx + p * in); };
    if (last_) g_.for_images(part);
    else g_.for_planes(part);
    dx_.finish(ctx);
  }

 private:
  void spread(const T* dy, int64_t c, T* image) const {
    std::fill_n(image, g_.h * g_.w * c, T(0));
    T* share = scratch<T>(0, c);
    for (int64_t oy = 0; oy < g_.oh; ++oy)
      for (int64_t ox = 0; ox < g_.ow; ++ox, dy += c) {
        const auto rows = g_.rows(oy), cols = g_.cols(ox);
        const T count = static_cast<T>(g_.divisor_of_row(oy)) * divisors_[static_cast<size_t>(ox)];
        for (int64_t k = 0; k < c; ++k) share[k] = dy[k] / count;
        for (int64_t i = rows.first; i < rows.last; ++i)
          for (int64_t j = cols.first; j < cols.last; ++j) {
            T* to = image + g_.pixel(oy, ox, i, j) * c;
            if (c == 1) *to += *share;
            else vec::add(to, share, c);
          }
      }
  }
  Geometry g_;
  bool last_;
  In<T> dy_;
  Out<T> dx_;
  std::vector<T> divisors_{g_.divisors_of_columns<T>()};
};

Refusal accept_pool(const Problem& p) {
  if (auto r = accept_float(p)) return r;
  const bool channels_last = is_channels_last(p.root().outs[0]);
  for (const Operand& o : p.root().outs)
    if (o.dtype == DType::int64 && !ordered(o, channels_last).contiguous)
      return "writes indices in the order of the values only";
  return {};
}

// Whether something reads the indices: the gradient does, or the user holds them.
bool reads_index(const Problem& p) {
  if (p.root().outs.size() < 2) return false;
  const SlotId slot = p.graph.slot(p.root().outs[1]);
  const auto reads = [&](const Operand& o) { return !o.is_param && p.graph.slot(o) == slot; };
  return p.graph.slots[slot].live || std::any_of(p.graph.nodes.begin(), p.graph.nodes.end(), [&](const Node& n) {
           return std::any_of(n.ins.begin(), n.ins.end(), reads);
         });
}
std::unique_ptr<Executable> make_max_pool(const Problem& p) {
  const bool index = reads_index(p);
  if (p.root().ins[0].dtype == DType::float64) return std::make_unique<MaxPool<double>>(p.root(), index);
  return std::make_unique<MaxPool<float>>(p.root(), index);
}
std::unique_ptr<Executable> make_max_pool_grad(const Problem& p) { return make_by_type<MaxPoolGrad>(p); }
std::unique_ptr<Executable> make_avg_pool(const Problem& p) { return make_by_type<AvgPool>(p); }
std::unique_ptr<Executable> make_avg_pool_grad(const Problem& p) { return make_by_type<AvgPoolGrad>(p); }

}  // namespace

std::span<const Impl> max_pool2d_impls() {
  static const Impl impl{"cpu.pool", accept_pool, make_max_pool};
  return {&impl, 1};
}
std::span<const Impl> max_pool2d_grad_impls() {
  static const Impl impl{"cpu.pool", accept_pool, make_max_pool_grad};
  return {&impl, 1};
}
std::span<const Impl> avg_pool2d_impls() {
  static const Impl impl{"cpu.pool", accept_pool, make_avg_pool};
  return {&impl, 1};
}
std::span<const Impl> avg_pool2d_grad_impls() {
  static const Impl impl{"cpu.pool", accept_pool, make_avg_pool_grad};
  return {&impl, 1};
}

}  // namespace pyflame::cpu
