// Convolutions of channels-last images. On processors with vectors of 256 bits they are faster than oneDNN's kernels
// (docs/decisions/0003).
//
// A convolution copies some rows of the input with their padding. Then all taps of a pixel are at fixed distances, and
// six pixels times two vectors of outputs are summed in registers. The gradient of the input is the convolution of the
// result's gradient with the mirrored weights.
//
// The gradient of the weight is a sum over all pixels. Both images are first copied to blocks of channels: the gradients
// of the outputs once, by all threads; the input by each task for its channels. A task computes the gradients between
// some channels of the input and some of the output. For few channels, tasks also share the batch, and their sums are
// added in a fixed order. The shape alone sets the tasks, so the bits do not depend on the number of threads.
#include "pyflame/backends/cpu/conv_taps.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "pyflame/backends/cpu/common.h"
#include "pyflame/backends/cpu/conv_shape.h"
#include "pyflame/backends/cpu/vec.h"
#include "pyflame/backends/cpu/vec_conv.h"
#include "pyflame/backends/cpu/vec_grid.h"
#include "pyflame/backends/cpu/vec_winograd.h"
#include "pyflame/base/error.h"

namespace pyflame::cpu {

namespace {

// The largest divisor of `of` that is at most `most` and a multiple of `unit`; unit if there is none.
int64_t largest_divisor(int64_t of, int64_t most, int64_t unit = 1) {
  for (int64_t m = std::min(of, most) / unit * unit; m > unit; m -= unit)
    if (of % m == 0) return m;
  return unit;
}

// Channels that two vectors hold.
int64_t two_vectors() { return 2 * vec::weight_lanes(); }

class TapConv : public DnnConv {
 public:
  TapConv(Pass pass, const Problem& p) : mirrored_(pass == Pass::grad_input), weight_last_(p.weight_last) {
    const auto &from = mirrored_ ? p.out : p.in, &to = mirrored_ ? p.in : p.out;
    images_ = p.images, height_ = from[1], width_ = from[2], rows_ = to[1];
    t_ = {p.kernel[1], p.kernel[2], p.dilation[1], p.dilation[2], p.stride[1], p.stride[2], p.ic, p.oc, 0, to[2], 0};
    if (mirrored_) std::swap(t_.inputs, t_.outputs);
    const auto padding = [&](size_t dim) {
      return mirrored_ ? p.dilation[dim] * (p.kernel[dim] - 1) - p.before[dim] : p.before[dim];
    };
    top_ = padding(1), left_ = padding(2);
    columns_ = (t_.columns - 1) * t_.stride_w + (t_.taps_w - 1) * t_.dilation_w + 1;
    t_.row = columns_ * t_.inputs;
    zeros_.assign(static_cast<size_t>(t_.outputs), 0.0f);
  }
  static bool takes(Pass pass, const Problem& p) {
    if (pass == Pass::grad_weight || p.volume || !p.a_last || !p.b_last) return false;
    const bool mirrored = pass == Pass::grad_input;
    if (mirrored && (p.stride[1] != 1 || p.stride[2] != 1)) return false;
    for (const size_t dim : {1, 2})
      if (mirrored && p.dilation[dim] * (p.kernel[dim] - 1) < p.before[dim]) return false;
    constexpr int64_t kLeastInputs = 16;
    // Few channels make short sums, and single pixels are products of matrices.
    return p.kernel[1] * p.kernel[2] > 1 && (mirrored ? p.oc : p.ic) >= kLeastInputs &&
           (mirrored ? p.ic : p.oc) % two_vectors() == 0;
  }

  size_t weight_bytes() const override { return part_bytes() * static_cast<size_t>(parts()); }
  int64_t parts() const override { return t_.outputs / block_; }
  size_t part_bytes() const override { return static_cast<size_t>(taps() * t_.inputs * block_) * sizeof(float); }
  bool same_weights(const DnnConv& other) const override { return this == &other; }
  void unpack(int64_t, const void*, float*) const override {
    PF_CHECK(false, Runtime, "conv: a gradient cannot be unpacked here");
  }

  void pack(int64_t part, const float* weight, void* to) const override {
    float* packed = static_cast<float*>(to) + part * taps() * t_.inputs * block_;
    for (int64_t c = 0; c < t_.inputs; c += vec::kTapChunk) {
      const int64_t inputs = std::min(vec::kTapChunk, t_.inputs - c);
      pack_taps(part, c, inputs, weight, packed);
      packed += taps() * inputs * block_;
    }
  }

  void run(const void* a, const void* b, void* out, const float* bias) const override {
    const auto *x = static_cast<const float*>(a), *weight = static_cast<const float*>(b);
    auto* y = static_cast<float*>(out);
    const int64_t band = std::clamp<int64_t>(kBandBytes / (t_.row * t_.stride_h * 4), 1, std::max<int64_t>(1, rows_));
    for (int64_t i = 0; i < images_; ++i, x += height_ * width_ * t_.inputs)
      for (int64_t first = 0; first < rows_; first += band) {
        vec::TapTile t = t_;
        t.rows = std::min(band, rows_ - first);
        const int64_t rows = (t.rows - 1) * t.stride_h + (t.taps_h - 1) * t.dilation_h + 1;
        float* padded = scratch<float>(kSlot, rows * t.row);
        copy_rows(x, first * t.stride_h - top_, rows, padded);
        vec::tap_rows(t, padded, weight, bias ? bias : zeros_.data(), y);
        y += t.rows * t.columns * t.outputs;
      }
  }

 protected:
  static constexpr int kSlot = 4;  // of scratch memory; callers use those before it

  int64_t taps() const { return t_.taps_h * t_.taps_w; }
  // packed[tap][input][output] of a part's outputs and some inputs.
  void pack_taps(int64_t part, int64_t input, int64_t inputs, const float* weight, float* packed) const {
    if (mirrored_) pack_mirrored(part * block_, input, inputs, weight, packed);
    else pack_chunk(part * block_, input, inputs, weight, packed);
  }

  bool mirrored_, weight_last_;
  int64_t block_ = two_vectors();  // outputs whose weights lie together
  int64_t images_, height_, width_, rows_, top_, left_;
  vec::TapTile t_;

 private:
  static constexpr int64_t kBandBytes = 1 << 18;  // of the input, half of an L2 cache

  // Rows of an image from `top` on, with zeros outside of it.
  void copy_rows(const float* x, int64_t top, int64_t rows, float* to) const {
    const int64_t first = std::min(left_, columns_), last = std::clamp(width_ + left_, first, columns_), c = t_.inputs;
    for (int64_t y = top; y < top + rows; ++y, to += t_.row) {
      if (y < 0 || y >= height_) {
        std::fill_n(to, t_.row, 0.0f);
        continue;
      }
      std::fill(to, to + first * c, 0.0f);
      if (first < last) std::copy_n(x + (y * width_ + first - left_) * c, (last - first) * c, to + first * c);
      std::fill(to + last * c, to + t_.row, 0.0f);
    }
  }

  // packed[tap][input][output] of the weights [output][input][tap], or [output][tap][input].
  void pack_chunk(int64_t output, int64_t input, int64_t inputs, const float* weight, float* packed) const {
    const int64_t row = t_.inputs * taps();
    if (weight_last_) {
      for (int64_t k = 0; k < taps(); ++k)
        vec::transpose(weight + output * row + k * t_.inputs + input, row, packed + k * inputs * block_, block_, block_,
                       inputs);
      return;
    }
    float* transposed = scratch<float>(kSlot, inputs * taps() * block_);
    vec::transpose(weight + output * row + input * taps(), row, transposed, block_, block_, inputs * taps());
    for (int64_t k = 0; k < taps(); ++k)
      for (int64_t c = 0; c < inputs; ++c)
        std::copy_n(transposed + (c * taps() + k) * block_, block_, packed + (k * inputs + c) * block_);
  }
  // The same of the mirrored weights: what is input here was an output.
  void pack_mirrored(int64_t output, int64_t input, int64_t inputs, const float* weight, float* packed) const {
    const int64_t row = t_.outputs * taps(), last = taps() - 1;
    float* transposed = scratch<float>(kSlot, taps() * block_);
    for (int64_t c = 0; c < inputs; ++c) {
      const float* from = weight + (input + c) * row + (weight_last_ ? output : output * taps());
      if (!weight_last_) vec::transpose(from, taps(), transposed, block_, block_, taps());
      for (int64_t k = 0; k < taps(); ++k)
        std::copy_n(weight_last_ ? from + k * t_.outputs : transposed + k * block_, block_,
                    packed + ((last - k) * inputs + c) * block_);
    }
  }

  int64_t columns_;
  std::vector<float> zeros_;
};

// 3x3 taps with stride 1 by Winograd's algorithm. Tiles are taken in blocks, so that the transformed pixels and the
// products of a block stay in the caches. Rounding errors are relative to the largest pixel that a tile reads. An
// infinity or NaN in one pixel spreads to all results of the tile, and sums of large pixels overflow: results that are
// not finite are computed again by the taps, one by one, so these are what a plain convolution gives.
class WinogradConv final : public TapConv {
 public:
  WinogradConv(Pass pass, const Problem& p) : TapConv(pass, p) {
    const int64_t tiles_h = tiles(rows_), tiles_w = tiles(t_.columns), all = images_ * tiles_h * tiles_w;
    const int64_t most = std::clamp<int64_t>(kBlockNumbers / std::max(t_.inputs, t_.outputs), kLeastTiles, kMostTiles);
    count_ = round_up(ceil_div(all, ceil_div(all, most)), vec::kWinogradGroup);
    w_ = {height_,
          width_,
          t_.inputs,
          rows_,
          t_.columns,
          t_.outputs,
          top_,
          left_,
          tiles_h,
          tiles_w,
          0,
          all,
          vec::winograd_step(count_ * t_.inputs),
          vec::winograd_step(count_ * t_.outputs),
          vec::winograd_step(t_.inputs * t_.outputs)};
    nothing_.assign(static_cast<size_t>(t_.inputs), 0.0f);
  }

  static bool takes(Pass pass, const Problem& p) {
    if (!TapConv::takes(pass, p)) return false;
    for (const size_t dim : {1, 2})
      if (p.kernel[dim] != 3 || p.stride[dim] != 1 || p.dilation[dim] != 1) return false;
    return true;
  }
  // Whether it is less work for so many calls with the same weights. Counted in products of vectors; the other
  // instructions are weighted by what they took on vectors of 256 bits.
  static bool pays(Pass pass, const Problem& p, int64_t calls) {
    constexpr int64_t kTransform = 90;  // a vector of channels of one tile, pixels or results
    constexpr int64_t kWeights = 150;   // a vector of weights
    constexpr int64_t kSum = 10;        // a sum begins, and ends in memory
    const bool mirrored = pass == Pass::grad_input;
    const auto& to = mirrored ? p.in : p.out;
    const int64_t inputs = mirrored ? p.oc : p.ic, outputs = (mirrored ? p.ic : p.oc) / vec::weight_lanes();
    const int64_t all = p.images * tiles(to[1]) * tiles(to[2]), pixels = p.images * to[1] * to[2];
    const int64_t each = vec::kWinogradPlaces * round_up(all, vec::kWinogradGroup) * outputs * (inputs + kSum) +
                         kTransform * all * (ceil_div(inputs, vec::weight_lanes()) + outputs);
    const int64_t work = calls * each + kWeights * inputs * outputs;
    return work + work / 8 < calls * pixels * outputs * (9 * inputs + kSum);
  }

  size_t weight_bytes() const override {
    return kHead + static_cast<size_t>(vec::kWinogradPlaces * w_.weights_step) * sizeof(float);
  }
  // The head is the address of the weights: results that are not finite are computed from them.
  void pack(int64_t part, const float* weight, void* to) const override {
    if (part == 0) std::memcpy(to, &weight, sizeof(weight));
    auto* packed = reinterpret_cast<float*>(static_cast<char*>(to) + kHead) + part * t_.inputs * block_;
    const int64_t some = std::min(vec::kTapChunk, t_.inputs);
    float* taken = scratch<float>(kPixels, taps() * some * block_);
    for (int64_t c = 0; c < t_.inputs; c += some) {
      const int64_t inputs = std::min(some, t_.inputs - c);
      pack_taps(part, c, inputs, weight, taken);
      vec::winograd_weights(taken, inputs, packed + c * block_, w_.weights_step);
    }
  }

  void run(const void* a, const void* b, void* out, const float* bias) const override {
    const auto* weights = reinterpret_cast<const float*>(static_cast<const char*>(b) + kHead);
    float* pixels = scratch<float>(kPixels, vec::kWinogradPlaces * w_.pixels_step);
    float* products = scratch<float>(kProducts, vec::kWinogradPlaces * w_.products_step);
    vec::WinogradTiles t = w_;
    bool finite = true;
    for (t.first = 0; t.first < w_.count; t.first += count_) {
      t.count = std::min(count_, w_.count - t.first);
      vec::winograd_pixels(t, static_cast<const float*>(a), nothing_.data(), pixels);
      vec::winograd_products(t, pixels, weights, products);
      finite &= vec::winograd_results(t, products, bias, static_cast<float*>(out));
    }
    if (!finite) compute_again(a, b, static_cast<float*>(out), bias);
  }

 private:
  // A result that is finite here is finite by the taps, and has read finite pixels only.
  void compute_again(const void* a, const void* b, float* y, const float* bias) const {
    const float* weight = nullptr;
    std::memcpy(&weight, b, sizeof(weight));
    std::vector<float> packed(TapConv::weight_bytes() / sizeof(float));
    for (int64_t i = 0; i < parts(); ++i) TapConv::pack(i, weight, packed.data());
    std::vector<float> plain(static_cast<size_t>(images_ * rows_ * t_.columns * t_.outputs));
    TapConv::run(a, packed.data(), plain.data(), bias);
    for (const float value : plain) {
      if (!std::isfinite(*y)) *y = value;
      ++y;
    }
  }
  static int64_t tiles(int64_t size) { return ceil_div(size, vec::kWinogradTile); }
  static int64_t round_up(int64_t n, int64_t unit) { return ceil_div(n, unit) * unit; }

  static constexpr size_t kHead = 64;
  static constexpr int kPixels = 5, kProducts = 6;  // slots of scratch memory
  // Tiles in a block: enough that each weight is read for many of them, few enough for the caches.
  static constexpr int64_t kLeastTiles = 24, kMostTiles = 96, kBlockNumbers = 1 << 15;
  vec::WinogradTiles w_;
  int64_t count_;  // of tiles in a block
  std::vector<float> nothing_;
};

class TapGradWeight : public Exec {
 public:
  explicit TapGradWeight(const Problem& p)
      : lanes_(vec::weight_lanes()),
        inputs_(two_vectors()),
        s_(ConvShape::grad_weight(p.root())),
        g_(in_memory_order(p.root().ins[0]), ws_),
        x_(in_memory_order(p.root().ins[1]), ws_),
        dw_(in_memory_order(p.root().outs[0]), ws_),
        weight_last_(is_channels_last(p.root().outs[0])),
        outputs_(outputs_of_task(s_.oc)),
        parts_(largest_divisor(s_.n, ceil_div(kTasks, s_.ic / inputs_ * (s_.oc / outputs_)))),
        rows_(std::clamp<int64_t>(kPanelBytes / (panel_columns() * inputs_ * s_.a.stride_h * 4), 1,
                                  std::max<int64_t>(1, s_.oh))),
        images_(rows_ < s_.oh ? 1 : std::clamp<int64_t>(kPixels / s_.pixels(), 1, s_.n / parts_)),
        packed_(ws_.take(static_cast<size_t>(s_.n * s_.out_plane()) * sizeof(float))) {
    if (parts_ > 1) sums_ = ws_.take(static_cast<size_t>(parts_ * s_.ic * s_.oc * taps()) * sizeof(float));
  }

  void run(const RunContext& ctx) override {
    const float *g = g_.get(ctx), *x = x_.get(ctx);
    float *dw = dw_.begin(ctx), *packed = at<float>(ctx, packed_);
    pack(g, packed);
    float* sums = parts_ > 1 ? at<float>(ctx, sums_) : nullptr;
    const int64_t tasks = s_.ic / inputs_ * (s_.oc / outputs_), size = inputs_ * outputs_ * taps();
    parallel_for(parts_ * tasks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        float* to = sums ? sums + i * size : scratch<float>(0, size);
        sum(x, packed, i / tasks, i % tasks, to);
        if (!sums) unpack(to, i, dw);
      }
    });
    if (sums)
      parallel_for(tasks, std::max<int64_t>(1, kGrainElements / (size * parts_)), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          for (int64_t part = 1; part < parts_; ++part)
            vec::add(sums + i * size, sums + (part * tasks + i) * size, size);
          unpack(sums + i * size, i, dw);
        }
      });
    dw_.finish(ctx);
  }

 private:
  static constexpr int64_t kBlocks = 2;  // of channels of the input in a task
  // Output channels in a task: what all of them read of some pixels fits the L2 cache.
  static constexpr int64_t kMostOutputs = 128;
  static constexpr int64_t kTasks = 16;            // enough for many threads
  static constexpr int64_t kPanelBytes = 1 << 18;  // of the input, half of an L2 cache
  static constexpr int64_t kPixels = 256;          // of small images, computed together

  // Few outputs would read the input's panels too often.
  static int64_t outputs_of_task(int64_t all) {
    constexpr int64_t kLeast = 32;
    const int64_t some = largest_divisor(all, kMostOutputs, vec::kWeightOutputs);
    return some < kLeast ? all : some;
  }
  int64_t taps() const { return s_.kh * s_.kw; }
  int64_t panel_columns() const { return (s_.ow - 1) * s_.a.stride_w + (s_.kw - 1) * s_.a.dilation_w + 1; }

  void pack(const float* g, float* packed) const {
    const int64_t pixels = s_.pixels(), chunk = 64, chunks = ceil_div(pixels, chunk);
    parallel_for(
        s_.n * chunks, std::max<int64_t>(1, kGrainElements / (chunk * s_.oc)), [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            const int64_t image = i / chunks * s_.out_plane(), first = i % chunks * chunk;
            vec::weight_outputs(g + image, first, std::min(pixels, first + chunk), pixels, s_.oc, packed + image);
          }
        });
  }

  // The sums of a task over the images of a part of the batch.
  void sum(const float* x, const float* packed, int64_t part, int64_t task, float* to) const {
    const int64_t first_input = task % (s_.ic / inputs_) * inputs_, first_output = task / (s_.ic / inputs_) * outputs_;
    std::fill_n(to, inputs_ * outputs_ * taps(), 0.0f);
    const int64_t per = s_.n / parts_;
    for (int64_t i = part * per, end = i + per; i < end; i += images_)
      for (int64_t y = 0; y < s_.oh; y += rows_) {
        const int64_t images = std::min(images_, end - i), rows = std::min(rows_, s_.oh - y);
        const int64_t panel_rows = (rows - 1) * s_.a.stride_h + (s_.kh - 1) * s_.a.dilation_h + 1;
        const vec::WeightTile tile{images,          kBlocks,       s_.kh,           rows,
                                   s_.ow,           s_.a.stride_h, s_.a.stride_w,   s_.a.dilation_h,
                                   s_.a.dilation_w, panel_rows,    panel_columns(), outputs_,
                                   s_.pixels(),     s_.out_plane()};
        const int64_t panel = panel_rows * panel_columns() * lanes_;
        float* panels = scratch<float>(1, panel * kBlocks * images);
        for (int64_t k = 0; k < images; ++k)
          vec::weight_panels(tile, x + (i + k) * s_.in_plane() + first_input, s_.h, s_.w, s_.ic,
                             y * s_.a.stride_h - s_.a.pad_h, -s_.a.pad_w, panels + k * panel);
        const float* outputs =
            packed + i * s_.out_plane() + first_output * s_.pixels() + y * s_.ow * vec::kWeightOutputs;
        vec::add_weight_sums(tile, panels, outputs, to);
      }
  }

  void unpack(const float* sums, int64_t task, float* dw) const {
    const int64_t first_input = task % (s_.ic / inputs_) * inputs_, first_output = task / (s_.ic / inputs_) * outputs_;
    const int64_t tap = weight_last_ ? s_.ic : 1, channel = weight_last_ ? 1 : taps();
    for (int64_t o = 0; o < outputs_; ++o)
      for (int64_t block = 0; block < kBlocks; ++block) {
        const int64_t quad = block * outputs_ / vec::kWeightOutputs + o / vec::kWeightOutputs;
        float* to = dw + (first_output + o) * s_.ic * taps() + (first_input + block * lanes_) * channel;
        for (int64_t c = 0; c < lanes_; ++c)
          for (int64_t k = 0; k < taps(); ++k) {
            const int64_t row = (quad * s_.kh + k / s_.kw) * vec::kWeightOutputs + o % vec::kWeightOutputs;
            to[c * channel + k * tap] = sums[(row * s_.kw + k % s_.kw) * lanes_ + c];
          }
      }
  }

  int64_t lanes_, inputs_;  // channels of the input in a block, and in a task
  ConvShape s_;
  In<float> g_, x_;
  Out<float> dw_;
  bool weight_last_;
  int64_t outputs_, parts_;  // output channels of a task; parts of the batch
  int64_t rows_, images_;    // that a panel holds: rows of the output, and whole images if they are small
  size_t packed_, sums_ = 0;
};

}  // namespace

std::shared_ptr<const DnnConv> find_winograd_conv(DnnConv::Pass pass, const DnnConv::Problem& p, int64_t calls) {
  if (!WinogradConv::takes(pass, p) || !WinogradConv::pays(pass, p, calls)) return nullptr;
  return std::make_shared<WinogradConv>(pass, p);
}
std::shared_ptr<const DnnConv> find_tap_conv(DnnConv::Pass pass, const DnnConv::Problem& p) {
  if (!TapConv::takes(pass, p)) return nullptr;
  return std::make_shared<TapConv>(pass, p);
}

Refusal refuses_tap_grad_weight(const Problem& p) {
  const Node& root = p.root();
  if (root.outs[0].shape.size() != 4 || !is_channels_last(root.ins[0]) || !is_channels_last(root.ins[1]))
    return "takes channels-last images";
  const ConvShape s = ConvShape::grad_weight(root);
  if (s.kw != vec::kWeightColumns) return "takes kernels of three columns";
  if (s.a.groups != 1 || s.ic % two_vectors() != 0 || s.oc % vec::kWeightOutputs != 0 || s.ic == 0 || s.oc == 0)
    return "takes one group, and channels in multiples of two vectors of the input and of 4 of the output";
  constexpr int64_t kLeastFlops = 500000;
  if (2 * s.n * s.oc * s.taps() * s.pixels() < kLeastFlops) return "is slower than a product for so little work";
  return {};
}

std::unique_ptr<Executable> make_tap_grad_weight(const Problem& p) { return std::make_unique<TapGradWeight>(p); }

}  // namespace pyflame::cpu
