// The tiles are taken in chunks, whose pixels and gradients are transformed, and whose matrix products are added to the
// sums of the 16 places. At the end the sums become taps. Where a thread's cache holds all sums, the tiles are divided
// between threads. Otherwise all threads take one chunk, and a task is one place and some outputs. The shape alone sets
// chunks and tasks, so the bits do not depend on the number of threads.
//
// Rounding errors are relative to the largest pixels and gradients of the tiles. An infinity or NaN spreads to all taps
// of its channels, and sums of large pixels overflow: taps that are not finite are computed again as plain sums.
#include "pyflame/backends/cpu/conv_winograd.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <vector>

#include "pyflame/backends/cpu/common.h"
#include "pyflame/backends/cpu/conv_shape.h"
#include "pyflame/backends/cpu/gemm.h"
#include "pyflame/backends/cpu/vec.h"
#include "pyflame/backends/cpu/vec_grid.h"
#include "pyflame/backends/cpu/vec_winograd.h"

namespace pyflame::cpu {

namespace {

constexpr int64_t kTaps = 9;

int64_t tiles(int64_t size) { return ceil_div(size, vec::kWinogradTile); }

class WinogradGradWeight : public Exec {
 public:
  explicit WinogradGradWeight(const Problem& p)
      : s_(ConvShape::grad_weight(p.root())),
        g_(in_memory_order(p.root().ins[0]), ws_),
        x_(in_memory_order(p.root().ins[1]), ws_),
        dw_(in_memory_order(p.root().outs[0]), ws_),
        weight_last_(is_channels_last(p.root().outs[0])),
        all_(s_.n * tiles(s_.oh) * tiles(s_.ow)) {
    alone_ = s_.ic * s_.oc <= kFewPairs;
    const int64_t numbers = vec::kWinogradPlaces * (s_.ic + s_.oc);
    const int64_t most =
        alone_ ? std::max<int64_t>(1, kOwnNumbers / numbers) : std::max(kLeastTiles, kChunkNumbers / numbers);
    count_ = ceil_div(all_, ceil_div(all_, most));
    if (alone_) parts_ = std::min(kParts, ceil_div(all_, count_));
    pixels_step_ = vec::winograd_step(count_ * s_.ic), gradients_step_ = vec::winograd_step(count_ * s_.oc);
    sums_step_ = vec::winograd_step(s_.oc * s_.ic);
    if (!alone_) pixels_ = take(pixels_step_), gradients_ = take(gradients_step_);
    sums_ = take(parts_ * sums_step_);
    nothing_.assign(static_cast<size_t>(s_.ic), 0.0f);
  }

  void run(const RunContext& ctx) override {
    const float *g = g_.get(ctx), *x = x_.get(ctx);
    float *dw = dw_.begin(ctx), *sums = at<float>(ctx, sums_);
    if (alone_) each_alone(g, x, sums);
    else together(g, x, at<float>(ctx, gradients_), at<float>(ctx, pixels_), sums);
    std::atomic<bool> finite{true};
    parallel_for(s_.oc, std::max<int64_t>(1, kGrainElements / (vec::kWinogradPlaces * s_.ic)),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t o = begin; o < end; ++o)
                     if (!taps_of(sums, o, dw + o * s_.ic * kTaps)) finite = false;
                 });
    if (!finite) compute_again(g, x, dw);
    dw_.finish(ctx);
  }

 private:
  // Of a chunk that all threads take: transformed numbers, and tiles for which it pays to read and write the sums again. Outputs of a task.
  static constexpr int64_t kChunkNumbers = 1 << 22, kLeastTiles = 128, kOutputs = 64;
  // Pairs of channels whose sums a thread's cache holds beside a chunk of its own; numbers of that chunk; parts, enough for many threads.
  static constexpr int64_t kFewPairs = 96 * 96, kOwnNumbers = 1 << 17, kParts = 16;

  size_t take(int64_t step) { return ws_.take(static_cast<size_t>(vec::kWinogradPlaces * step) * sizeof(float)); }

  vec::WinogradTiles some(int64_t first, int64_t count) const {
    return {s_.h,         s_.w,         s_.ic, s_.oh, s_.ow,        s_.oc,           s_.a.pad_h, s_.a.pad_w,
            tiles(s_.oh), tiles(s_.ow), first, count, pixels_step_, gradients_step_, 0};
  }

  // All threads take the chunks one after the other.
  void together(const float* g, const float* x, float* gradients, float* pixels, float* sums) const {
    for (int64_t first = 0; first < all_; first += count_) {
      const int64_t count = std::min(count_, all_ - first), blocks = ceil_div(s_.oc, kOutputs);
      const int64_t grain = std::max<int64_t>(1, kGrainElements / (vec::kWinogradPlaces * (s_.ic + s_.oc)));
      parallel_for(count, grain, [&](int64_t begin, int64_t end) {
        transform(g, x, first + begin, end - begin, gradients + begin * s_.oc, pixels + begin * s_.ic);
      });
      parallel_for(vec::kWinogradPlaces * blocks, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
          add_products(i / blocks, i % blocks * kOutputs, kOutputs, count, gradients, pixels, first > 0, sums);
      });
    }
  }
  // Each part of the tiles has sums of its own, and a thread takes its chunks, which its own cache holds.
  void each_alone(const float* g, const float* x, float* sums) const {
    const int64_t chunks = ceil_div(all_, count_), size = vec::kWinogradPlaces * sums_step_;
    parallel_for(parts_, 1, [&](int64_t begin, int64_t end) {
      float* pixels = scratch<float>(0, vec::kWinogradPlaces * pixels_step_);
      float* gradients = scratch<float>(1, vec::kWinogradPlaces * gradients_step_);
      for (int64_t part = begin; part < end; ++part) {
        const int64_t from = part * chunks / parts_, to = (part + 1) * chunks / parts_;
        for (int64_t chunk = from; chunk < to; ++chunk) {
          const int64_t first = chunk * count_, count = std::min(count_, all_ - first);
          transform(g, x, first, count, gradients, pixels);
          for (int64_t place = 0; place < vec::kWinogradPlaces; ++place)
            add_products(place, 0, s_.oc, count, gradients, pixels, chunk > from, sums + part * size);
        }
      }
    });
    parallel_for(size, kGrainElements, [&](int64_t begin, int64_t end) {
      for (int64_t part = 1; part < parts_; ++part) vec::add(sums + begin, sums + part * size + begin, end - begin);
    });
  }
  void transform(const float* g, const float* x, int64_t first, int64_t count, float* gradients, float* pixels) const {
    const vec::WinogradTiles t = some(first, count);
    vec::winograd_pixels(t, x, nothing_.data(), pixels);
    vec::winograd_gradients(t, g, gradients);
  }
  // The products of some tiles, for one place and at most so many outputs from `o` on.
  void add_products(int64_t place, int64_t o, int64_t outputs, int64_t count, const float* gradients,
                    const float* pixels, bool more, float* sums) const {
    gemm(true, false, std::min(outputs, s_.oc - o), s_.ic, count, 1.0f, gradients + place * gradients_step_ + o, s_.oc,
         pixels + place * pixels_step_, s_.ic, more ? 1.0f : 0.0f, sums + place * sums_step_ + o * s_.ic, s_.ic);
  }

  // The taps of an output, in the order of the weights. Returns whether all are finite.
  bool taps_of(const float* sums, int64_t o, float* to) const {
    if (weight_last_) return vec::winograd_weight_gradients(sums + o * s_.ic, sums_step_, s_.ic, to, s_.ic);
    float* taps = scratch<float>(0, kTaps * s_.ic);
    const bool finite = vec::winograd_weight_gradients(sums + o * s_.ic, sums_step_, s_.ic, taps, s_.ic);
    vec::transpose(taps, s_.ic, to, kTaps, kTaps, s_.ic);
    return finite;
  }

  // The taps that are not finite, as sums over the pixels one by one.
  void compute_again(const float* g, const float* x, float* dw) const {
    parallel_for(s_.oc, 1, [&](int64_t begin, int64_t end) {
      std::vector<float> plain(static_cast<size_t>(s_.ic));
      for (int64_t o = begin; o < end; ++o)
        for (int64_t tap = 0; tap < kTaps; ++tap) {
          float* to = dw + o * s_.ic * kTaps + (weight_last_ ? tap * s_.ic : tap);
          const int64_t step = weight_last_ ? 1 : kTaps;
          bool finite = true;
          for (int64_t c = 0; c < s_.ic; ++c) finite &= std::isfinite(to[c * step]);
          if (finite) continue;
          plain_sums(g + o, x, tap / 3, tap % 3, plain.data());
          for (int64_t c = 0; c < s_.ic; ++c)
            if (!std::isfinite(to[c * step])) to[c * step] = plain[static_cast<size_t>(c)];
        }
    });
  }
  void plain_sums(const float* g, const float* x, int64_t ky, int64_t kx, float* to) const {
    std::fill_n(to, s_.ic, 0.0f);
    for (int64_t i = 0; i < s_.n * s_.oh * s_.ow; ++i) {
      const int64_t image = i / (s_.oh * s_.ow), y = i / s_.ow % s_.oh - s_.a.pad_h + ky,
                    column = i % s_.ow - s_.a.pad_w + kx;
      if (y < 0 || y >= s_.h || column < 0 || column >= s_.w) continue;
      const float* from = x + ((image * s_.h + y) * s_.w + column) * s_.ic;
      const float factor = g[i * s_.oc];
      for (int64_t c = 0; c < s_.ic; ++c) to[c] += factor * from[c];
    }
  }

  ConvShape s_;
  In<float> g_, x_;
  Out<float> dw_;
  bool weight_last_;
  bool alone_ = false;
  int64_t all_, count_ = 0, parts_ = 1;  // tiles, those of a chunk, and parts of the tiles
  int64_t pixels_step_ = 0, gradients_step_ = 0, sums_step_ = 0;
  size_t pixels_ = 0, gradients_ = 0, sums_ = 0;
  std::vector<float> nothing_;
};

}  // namespace

Refusal refuses_winograd_grad_weight(const Problem& p) {
  const Node& root = p.root();
  if (root.outs[0].shape.size() != 4 || !is_channels_last(root.ins[0]) || !is_channels_last(root.ins[1]))
    return "takes channels-last images";
  const ConvShape s = ConvShape::grad_weight(root);
  if (s.kh != 3 || s.kw != 3 || s.a.stride_h != 1 || s.a.stride_w != 1 || s.a.dilation_h != 1 || s.a.dilation_w != 1 ||
      s.a.groups != 1)
    return "takes 3x3 taps of stride 1 and of one group";
  // Counted in products. A transform counts as in WinogradConv::pays; that of a weight is an estimate.
  constexpr int64_t kTransform = 90, kWeight = 60;
  const int64_t all = s.n * tiles(s.oh) * tiles(s.ow), pairs = s.ic * s.oc;
  const int64_t work = all * (vec::kWinogradPlaces * pairs + kTransform * (s.ic + s.oc)) + kWeight * pairs;
  if (s.n == 0 || s.ic == 0 || s.oc == 0 || work + work / 8 > kTaps * s.n * s.pixels() * pairs)
    return "takes as many channels and pixels as the transforms need to pay";
  return {};
}

std::unique_ptr<Executable> make_winograd_grad_weight(const Problem& p) {
  return std::make_unique<WinogradGradWeight>(p);
}

}  // namespace pyflame::cpu
