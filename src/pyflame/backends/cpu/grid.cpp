// grid_sample and its gradients. The corners of a block of places are found once for all channels. Few channels are computed one by one,
// with neighbouring places side by side. Many are computed side by side: the images are transposed, so that an element's channels are a row.
#include <algorithm>

#include "pyflame/backends/cpu/common.h"
#include "pyflame/backends/cpu/vec_grid.h"

namespace pyflame::cpu {

namespace {

using vec::GridBlock;
using vec::GridRule;
using vec::kGridBlock;

constexpr int64_t kRowsFrom = 8;  // channels: from here on they are computed side by side

struct GridShape {
  GridShape(const Node& node, const Dims& image, const Dims& grid) : n(image[0]), c(image[1]) {
    rule = {node.attr<GridAttrs>(), image.size() - 2, {1, 1, 1}};
    for (int d = 0; d < rule.dims; ++d) {
      rule.size[d] = image[d + 2];
      elements *= image[d + 2], places *= grid[d + 1];
    }
    blocks = ceil_div(places, kGridBlock);
  }
  bool rows() const { return c >= kRowsFrom; }
  // A grain for blocks of places.
  int64_t grain() const {
    return std::max<int64_t>(1, kGrainElements / (kGridBlock * rule.corners() * std::max<int64_t>(1, c)));
  }
  GridRule rule;
  int64_t n, c, elements = 1, places = 1, blocks = 0;
};

// A block of places of one image. The corners are in scratch memory, beside room for the block's channels.
template <class T>
struct Block {
  Block(const GridShape& s, int64_t image, int64_t number, const T* grid, bool slopes)
      : first(number * kGridBlock),
        n(std::min(kGridBlock, s.places - first)),
        corners(*scratch<GridBlock<T>>(0, 1)),
        channels(scratch<T>(1, kGridBlock * s.c)) {
    vec::grid_corners(s.rule, grid + (image * s.places + first) * s.rule.dims, n, slopes, corners);
  }
  int64_t first, n;
  GridBlock<T>& corners;
  T* channels;
};

// Images as planes, or as rows of channels.
template <class T>
class Images {
 public:
  Images(const Operand& o, const GridShape& s, WorkspacePlan& ws) : s_(s) {
    Operand last = o;
    last.shape.erase(1), last.shape.push_back(s.c);
    last.strides.erase(1), last.strides.push_back(o.strides[1]);
    last.contiguous = is_contiguous(last.shape, last.strides);
    transposed_ = s.rows() && !last.contiguous;
    in_ = In<T>(s.rows() && last.contiguous ? last : o, ws);
    if (transposed_) offset_ = ws.take(static_cast<size_t>(o.numel()) * sizeof(T));
  }
  const T* get(const RunContext& ctx) const {
    const T* x = in_.get(ctx);
    if (!transposed_) return x;
    T* y = reinterpret_cast<T*>(static_cast<char*>(ctx.workspace) + offset_);
    constexpr int64_t kStrip = 512;
    const int64_t strips = ceil_div(s_.elements, kStrip);
    parallel_for(s_.n * strips, std::max<int64_t>(1, kGrainElements / (kStrip * s_.c)),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t i = begin; i < end; ++i) {
                     const int64_t image = i / strips * s_.c * s_.elements, first = i % strips * kStrip;
                     vec::transpose(x + image + first, s_.elements, y + image + first * s_.c, s_.c, s_.c,
                                    std::min(kStrip, s_.elements - first));
                   }
                 });
    return y;
  }

 private:
  GridShape s_;
  In<T> in_;
  bool transposed_ = false;
  size_t offset_ = 0;
};

template <class T>
class GridSample : public Exec {
 public:
  explicit GridSample(const Node& node)
      : s_(node, node.ins[0].shape, node.ins[1].shape),
        x_(node.ins[0], s_, ws_),
        grid_(node.ins[1], ws_),
        y_(node.outs[0], ws_) {}
  void run(const RunContext& ctx) override {
    const T *x = x_.get(ctx), *grid = grid_.get(ctx);
    T* y = y_.begin(ctx);
    parallel_for(s_.n * s_.blocks, s_.grain(), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) some(i / s_.blocks, i % s_.blocks, x, grid, y);
    });
    y_.finish(ctx);
  }

 private:
  void some(int64_t image, int64_t number, const T* x, const T* grid, T* y) const {
    const Block<T> b(s_, image, number, grid, false);
    const int64_t corners = s_.rule.corners();
    x += image * s_.c * s_.elements, y += image * s_.c * s_.places + b.first;
    if (s_.rows()) {
      vec::sample_rows(b.corners, corners, x, s_.c, b.channels, b.n);
      return vec::transpose(b.channels, s_.c, y, s_.places, b.n, s_.c);
    }
    for (int64_t c = 0; c < s_.c; ++c)
      vec::sample_plane(b.corners, corners, x + c * s_.elements, y + c * s_.places, b.n);
  }
  GridShape s_;
  Images<T> x_;
  In<T> grid_;
  Out<T> y_;
};

template <class T>
class GridSampleGradGrid : public Exec {
 public:
  explicit GridSampleGradGrid(const Node& node)
      : s_(node, node.ins[1].shape, node.ins[2].shape),
        g_(node.ins[0], ws_),
        x_(node.ins[1], s_, ws_),
        grid_(node.ins[2], ws_),
        to_(node.outs[0], ws_) {}
  void run(const RunContext& ctx) override {
    const T *g = g_.get(ctx), *x = x_.get(ctx), *grid = grid_.get(ctx);
    T* to = to_.begin(ctx);
    parallel_for(s_.n * s_.blocks, s_.grain(), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) some(i / s_.blocks, i % s_.blocks, g, x, grid, to);
    });
    to_.finish(ctx);
  }

 private:
  void some(int64_t image, int64_t number, const T* g, const T* x, const T* grid, T* to) const {
    const Block<T> b(s_, image, number, grid, true);
    g += image * s_.c * s_.places + b.first, x += image * s_.c * s_.elements;
    to += (image * s_.places + b.first) * s_.rule.dims;
    if (!s_.rows()) return vec::grid_slopes_of_planes(b.corners, s_.rule, x, s_.elements, g, s_.places, s_.c, to, b.n);
    vec::transpose(g, s_.places, b.channels, s_.c, s_.c, b.n);
    vec::grid_slopes_of_rows(b.corners, s_.rule, x, s_.c, b.channels, to, b.n);
  }
  GridShape s_;
  In<T> g_;
  Images<T> x_;
  In<T> grid_;
  Out<T> to_;
};

// A task owns some channels of an image, so an element's terms are added in the order of the places, whatever the number of threads is.
template <class T>
class GridSampleGradInput : public Exec {
 public:
  explicit GridSampleGradInput(const Node& node)
      : s_(node, node.outs[0].shape, node.ins[1].shape),
        g_(node.ins[0], ws_),
        grid_(node.ins[1], ws_),
        to_(node.outs[0], ws_) {
    if (s_.rows()) rows_ = ws_.take(static_cast<size_t>(node.outs[0].numel()) * sizeof(T));
  }
  void run(const RunContext& ctx) override {
    const T *g = g_.get(ctx), *grid = grid_.get(ctx);
    T* to = to_.begin(ctx);
    T* rows = s_.rows() ? at<T>(ctx, rows_) : nullptr;
    const int64_t most = s_.rows() ? ceil_div(s_.c, 16) : s_.c,
                  wanted = ceil_div(num_threads(), std::max<int64_t>(1, s_.n));
    const int64_t parts = std::max<int64_t>(1, std::min(most, wanted));
    const int64_t each = s_.rows() ? ceil_div(ceil_div(s_.c, parts), 16) * 16 : ceil_div(s_.c, parts);
    parallel_for(s_.n * parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t image = i / parts, c = i % parts * each, n = std::min(each, s_.c - c);
        const int64_t plane = image * s_.c + c;
        if (n <= 0) continue;
        if (rows) add_rows(image, g + plane * s_.places, n, grid, rows + plane * s_.elements, to + plane * s_.elements);
        else add_planes(image, g + plane * s_.places, n, grid, to + plane * s_.elements);
      }
    });
    to_.finish(ctx);
  }

 private:
  void add_rows(int64_t image, const T* g, int64_t channels, const T* grid, T* rows, T* to) const {
    std::fill(rows, rows + channels * s_.elements, T(0));
    for (int64_t number = 0; number < s_.blocks; ++number) {
      const Block<T> b(s_, image, number, grid, false);
      vec::transpose(g + b.first, s_.places, b.channels, channels, channels, b.n);
      vec::add_to_rows(b.corners, s_.rule.corners(), b.channels, channels, rows, b.n);
    }
    vec::transpose(rows, channels, to, s_.elements, s_.elements, channels);
  }
  void add_planes(int64_t image, const T* g, int64_t channels, const T* grid, T* to) const {
    std::fill(to, to + channels * s_.elements, T(0));
    const int64_t last = s_.rule.corners() * kGridBlock;
    for (int64_t number = 0; number < s_.blocks; ++number) {
      const Block<T> b(s_, image, number, grid, false);
      const int32_t* at = b.corners.at;
      const T* weight = b.corners.weight;
      for (int64_t c = 0; c < channels; ++c) {
        T* plane = to + c * s_.elements;
        const T* from = g + c * s_.places + b.first;
        for (int64_t i = 0; i < b.n; ++i)
          for (int64_t k = i; k < last; k += kGridBlock)
            if (at[k] >= 0) plane[at[k]] += weight[k] * from[i];
      }
    }
  }
  GridShape s_;
  In<T> g_, grid_;
  Out<T> to_;
  size_t rows_ = 0;
};

Refusal accept_grid(const Problem& p) {
  if (auto r = accept_float(p)) return r;
  const Operand& image =
      p.root().op == OpId::grid_sample_grad_input ? p.root().outs[0] : p.root().ins[p.root().ins.size() - 2];
  if (image.numel() > INT32_MAX) return "takes at most 2^31 elements";
  return {};
}

}  // namespace

std::span<const Impl> grid_sample_impls() {
  static const Impl impl{"cpu.grid_sample", accept_grid, make_by_type<GridSample>};
  return {&impl, 1};
}
std::span<const Impl> grid_sample_grad_input_impls() {
  static const Impl impl{"cpu.grid_sample", accept_grid, make_by_type<GridSampleGradInput>};
  return {&impl, 1};
}
std::span<const Impl> grid_sample_grad_grid_impls() {
  static const Impl impl{"cpu.grid_sample", accept_grid, make_by_type<GridSampleGradGrid>};
  return {&impl, 1};
}

}  // namespace pyflame::cpu
