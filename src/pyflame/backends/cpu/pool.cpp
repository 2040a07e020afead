#include "pyflame/backends/cpu/pool.h"

#include <algorithm>
#include <vector>

#include "pyflame/backends/cpu/vec.h"

namespace pyflame::cpu {

namespace {

struct Geometry {
  PoolAttrs a;
  int64_t h, w, oh, ow, planes;
  Geometry(const PoolAttrs& attrs, const Dims& full, const Dims& pooled) : a(attrs) {
    const int rank = full.size();
    h = full[rank - 2], w = full[rank - 1], oh = pooled[rank - 2], ow = pooled[rank - 1];
    planes = 1;
    for (int d = 0; d < rank - 2; ++d) planes *= full[d];
  }
  // Taps [first, last) of a window that starts at `at` and lie in [0, size).
  struct Range {
    int64_t first, last;
    int64_t count() const { return std::max<int64_t>(0, last - first); }
  };
  static Range clip(int64_t at, int64_t kernel, int64_t dilation, int64_t size) {
    const int64_t first = at < 0 ? ceil_div(-at, dilation) : 0;
    const int64_t last = at >= size ? 0 : std::min(kernel, ceil_div(size - at, dilation));
    return {std::min(first, kernel), std::max<int64_t>(0, last)};
  }
  int64_t top(int64_t y) const { return y * a.stride_h - a.pad_h; }
  int64_t left(int64_t x) const { return x * a.stride_w - a.pad_w; }
  Range rows(int64_t y) const { return clip(top(y), a.kernel_h, a.dilation_h, h); }
  Range cols(int64_t x) const { return clip(left(x), a.kernel_w, a.dilation_w, w); }
  // What an average divides by. Padding may count; what hangs over beyond it does not.
  int64_t divisor(int64_t y, int64_t x) const {
    if (!a.count_include_pad) return rows(y).count() * cols(x).count();
    return clip(top(y) + a.pad_h, a.kernel_h, a.dilation_h, h + 2 * a.pad_h).count() *
           clip(left(x) + a.pad_w, a.kernel_w, a.dilation_w, w + 2 * a.pad_w).count();
  }
  template <class F>
  void for_planes(const F& f) const {
    const int64_t work = std::max(h * w, oh * ow * a.kernel_h * a.kernel_w);
    parallel_for(planes, std::max<int64_t>(1, kGrainElements / std::max<int64_t>(1, work)),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t p = begin; p < end; ++p) f(p);
                 });
  }
};

template <class T>
class MaxPool : public Exec {
 public:
  explicit MaxPool(const Node& node)
      : g_(node.attr<PoolAttrs>(), node.ins[0].shape, node.outs[0].shape), x_(node.ins[0], ws_), y_(node.outs[0], ws_) {
    with_index_ = node.outs.size() > 1;
    if (with_index_) index_ = node.outs[1];
    for (int64_t i = 0; i < g_.a.kernel_h; ++i)
      for (int64_t j = 0; j < g_.a.kernel_w; ++j) offsets_.push_back(i * g_.a.dilation_h * g_.w + j * g_.a.dilation_w);
  }
  void run(const RunContext& ctx) override {
    const T* x = x_.get(ctx);
    T* y = y_.begin(ctx);
    int64_t* index = with_index_ ? ctx.ptr<int64_t>(index_) : nullptr;
    g_.for_planes([&](int64_t p) {
      for (int64_t oy = 0, o = p * g_.oh * g_.ow; oy < g_.oh; ++oy, o += g_.ow)
        row(x + p * g_.h * g_.w, oy, y + o, index ? index + o : nullptr);
    });
    y_.finish(ctx);
  }

 private:
  // A row of windows, tap by tap; a tap's columns lie inside the image for a run of windows.
  void row(const T* plane, int64_t oy, T* y, int64_t* index) const {
    const PoolAttrs& a = g_.a;
    T* at = scratch<T>(0, g_.ow);
    std::fill_n(at, g_.ow, T(-1));
    std::fill_n(y, g_.ow, T(0));
    const auto rows = g_.rows(oy);
    for (int64_t i = rows.first; i < rows.last; ++i)
      for (int64_t j = 0; j < a.kernel_w; ++j) {
        const int64_t left = j * a.dilation_w - a.pad_w;  // the column of window 0
        const int64_t first = left >= 0 ? 0 : std::min(g_.ow, ceil_div(-left, a.stride_w));
        const int64_t last = left >= g_.w ? first : std::clamp(ceil_div(g_.w - left, a.stride_w), first, g_.ow);
        const T* from = plane + (g_.top(oy) + i * a.dilation_h) * g_.w + left + first * a.stride_w;
        vec::take_max(from, a.stride_w, static_cast<T>(i * a.kernel_w + j), y + first, at + first, last - first);
      }
    const int64_t corner = g_.top(oy) * g_.w - a.pad_w;
    for (int64_t x = 0; x < g_.ow; ++x) {
      PF_CHECK(at[x] >= 0, Runtime,
               "max_pool2d: a window lies in the padding altogether; got padding ({}, {}) and kernel ({}, {})", a.pad_h,
               a.pad_w, a.kernel_h, a.kernel_w);
      if (index) index[x] = corner + x * a.stride_w + offsets_[static_cast<size_t>(at[x])];
    }
  }
  Geometry g_;
  In<T> x_;
  Out<T> y_;
  Operand index_;
  bool with_index_ = false;
  std::vector<int64_t> offsets_;  // of each tap from the window's corner
};

template <class T>
class AvgPool : public Exec {
 public:
  explicit AvgPool(const Node& node)
      : g_(node.attr<PoolAttrs>(), node.ins[0].shape, node.outs[0].shape),
        x_(node.ins[0], ws_),
        y_(node.outs[0], ws_) {}
  void run(const RunContext& ctx) override {
    const T* x = x_.get(ctx);
    T* y = y_.begin(ctx);
    g_.for_planes([&](int64_t p) {
      const T* plane = x + p * g_.h * g_.w;
      for (int64_t oy = 0, o = p * g_.oh * g_.ow; oy < g_.oh; ++oy)
        for (int64_t ox = 0; ox < g_.ow; ++ox, ++o) {
          const auto rows = g_.rows(oy), cols = g_.cols(ox);
          T sum{};
          for (int64_t i = rows.first; i < rows.last; ++i)
            for (int64_t j = cols.first; j < cols.last; ++j)
              sum += plane[(g_.top(oy) + i * g_.a.dilation_h) * g_.w + g_.left(ox) + j * g_.a.dilation_w];
          y[o] = sum / static_cast<T>(g_.divisor(oy, ox));
        }
    });
    y_.finish(ctx);
  }

 private:
  Geometry g_;
  In<T> x_;
  Out<T> y_;
};

template <class T>
class AvgPoolGrad : public Exec {
 public:
  explicit AvgPoolGrad(const Node& node)
      : g_(node.attr<PoolAttrs>(), node.outs[0].shape, node.ins[0].shape),
        dy_(node.ins[0], ws_),
        dx_(node.outs[0], ws_) {}
  void run(const RunContext& ctx) override {
    const T* dy = dy_.get(ctx);
    T* dx = dx_.begin(ctx);
    g_.for_planes([&](int64_t p) {
      T* plane = dx + p * g_.h * g_.w;
      std::fill_n(plane, g_.h * g_.w, T(0));
      for (int64_t oy = 0, o = p * g_.oh * g_.ow; oy < g_.oh; ++oy)
        for (int64_t ox = 0; ox < g_.ow; ++ox, ++o) {
          const auto rows = g_.rows(oy), cols = g_.cols(ox);
          const T share = dy[o] / static_cast<T>(g_.divisor(oy, ox));
          for (int64_t i = rows.first; i < rows.last; ++i)
            for (int64_t j = cols.first; j < cols.last; ++j)
              plane[(g_.top(oy) + i * g_.a.dilation_h) * g_.w + g_.left(ox) + j * g_.a.dilation_w] += share;
        }
    });
    dx_.finish(ctx);
  }

 private:
  Geometry g_;
  In<T> dy_;
  Out<T> dx_;
};

}  // namespace

Refusal accept_pool(const Problem& p) {
  if (auto r = accept_float(p)) return r;
  for (const Operand& o : p.root().outs)
    if (o.dtype == DType::int64 && !o.contiguous) return "writes contiguous indices only";
  return {};
}

std::unique_ptr<Executable> make_max_pool(const Problem& p) { return make_by_type<MaxPool>(p); }
std::unique_ptr<Executable> make_avg_pool(const Problem& p) { return make_by_type<AvgPool>(p); }
std::unique_ptr<Executable> make_avg_pool_grad(const Problem& p) { return make_by_type<AvgPoolGrad>(p); }

}  // namespace pyflame::cpu
