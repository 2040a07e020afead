// A convolution's weight gets its gradient from sums over all pixels. oneDNN's kernel for AVX2 is slow on channels-last images, so here both images
// are first copied to blocks of channels: the outputs' gradients once, by all threads; the input by each task for its channels. A task
// computes the gradients between some channels of the input and some of the output. For few channels, tasks also share the batch, and
// their sums are added in a fixed order. The shape alone sets the tasks, so the bits do not depend on the number of threads.
#include "pyflame/backends/cpu/conv_taps.h"

#include <algorithm>

#include "pyflame/backends/cpu/common.h"
#include "pyflame/backends/cpu/conv_shape.h"
#include "pyflame/backends/cpu/vec.h"
#include "pyflame/backends/cpu/vec_conv.h"

namespace pyflame::cpu {

namespace {

// The largest divisor of `of` that is at most `most` and a multiple of `unit`; unit if there is none.
int64_t largest_divisor(int64_t of, int64_t most, int64_t unit = 1) {
  for (int64_t m = std::min(of, most) / unit * unit; m > unit; m -= unit)
    if (of % m == 0) return m;
  return unit;
}

class TapGradWeight : public Exec {
 public:
  static constexpr int64_t kLanes = 8, kBlocks = 2, kInputs = kLanes * kBlocks;  // channels of the input in a task

  explicit TapGradWeight(const Problem& p)
      : s_(ConvShape::grad_weight(p.root())),
        g_(in_memory_order(p.root().ins[0]), ws_),
        x_(in_memory_order(p.root().ins[1]), ws_),
        dw_(in_memory_order(p.root().outs[0]), ws_),
        weight_last_(is_channels_last(p.root().outs[0])),
        outputs_(largest_divisor(s_.oc, kMostOutputs, vec::kWeightOutputs)),
        parts_(largest_divisor(s_.n, ceil_div(kTasks, s_.ic / kInputs * (s_.oc / outputs_)))),
        rows_(std::clamp<int64_t>(kPanelBytes / (panel_columns() * kInputs * s_.a.stride_h * 4), 1, s_.oh)),
        images_(rows_ < s_.oh ? 1 : std::clamp<int64_t>(kPixels / s_.pixels(), 1, s_.n / parts_)),
        packed_(ws_.take(static_cast<size_t>(s_.n * s_.out_plane()) * sizeof(float))) {
    if (parts_ > 1) sums_ = ws_.take(static_cast<size_t>(parts_ * s_.ic * s_.oc * taps()) * sizeof(float));
  }

  void run(const RunContext& ctx) override {
    const float *g = g_.get(ctx), *x = x_.get(ctx);
    float *dw = dw_.begin(ctx), *packed = at<float>(ctx, packed_);
    pack(g, packed);
    float* sums = parts_ > 1 ? at<float>(ctx, sums_) : nullptr;
    const int64_t tasks = s_.ic / kInputs * (s_.oc / outputs_), size = kInputs * outputs_ * taps();
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
  static constexpr int64_t kMostOutputs = 128;      // output channels in a task: what all of them read of some pixels fits the L2 cache
  static constexpr int64_t kTasks = 16;             // enough for many threads
  static constexpr int64_t kPanelBytes = 1 << 18;   // of the input, half of an L2 cache
  static constexpr int64_t kPixels = 256;           // of small images, computed together

  int64_t taps() const { return s_.kh * s_.kw; }
  int64_t panel_columns() const { return (s_.ow - 1) * s_.a.stride_w + (s_.kw - 1) * s_.a.dilation_w + 1; }

  void pack(const float* g, float* packed) const {
    const int64_t pixels = s_.pixels(), chunk = 64, chunks = ceil_div(pixels, chunk);
    parallel_for(s_.n * chunks, std::max<int64_t>(1, kGrainElements / (chunk * s_.oc)), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t image = i / chunks * s_.out_plane(), first = i % chunks * chunk;
        vec::weight_outputs(g + image, first, std::min(pixels, first + chunk), pixels, s_.oc, packed + image);
      }
    });
  }

  // The sums of a task over the images of a part of the batch.
  void sum(const float* x, const float* packed, int64_t part, int64_t task, float* to) const {
    const int64_t first_input = task % (s_.ic / kInputs) * kInputs, first_output = task / (s_.ic / kInputs) * outputs_;
    std::fill_n(to, kInputs * outputs_ * taps(), 0.0f);
    const int64_t per = s_.n / parts_;
    for (int64_t i = part * per, end = i + per; i < end; i += images_)
      for (int64_t y = 0; y < s_.oh; y += rows_) {
        const int64_t images = std::min(images_, end - i), rows = std::min(rows_, s_.oh - y);
        const int64_t panel_rows = (rows - 1) * s_.a.stride_h + (s_.kh - 1) * s_.a.dilation_h + 1;
        const vec::WeightTile tile{images,         kBlocks,        s_.kh,          rows,
                                   s_.ow,          s_.a.stride_h,  s_.a.stride_w,  s_.a.dilation_h,
                                   s_.a.dilation_w, panel_rows,    panel_columns(), outputs_,
                                   s_.pixels(),    s_.out_plane()};
        const int64_t panel = panel_rows * panel_columns() * kLanes;
        float* panels = scratch<float>(1, panel * kBlocks * images);
        for (int64_t k = 0; k < images; ++k)
          vec::weight_panels(tile, x + (i + k) * s_.in_plane() + first_input, s_.h, s_.w, s_.ic,
                             y * s_.a.stride_h - s_.a.pad_h, -s_.a.pad_w, panels + k * panel);
        const float* outputs = packed + i * s_.out_plane() + first_output * s_.pixels() + y * s_.ow * vec::kWeightOutputs;
        vec::add_weight_sums(tile, panels, outputs, to);
      }
  }

  void unpack(const float* sums, int64_t task, float* dw) const {
    const int64_t first_input = task % (s_.ic / kInputs) * kInputs, first_output = task / (s_.ic / kInputs) * outputs_;
    const int64_t tap = weight_last_ ? s_.ic : 1, channel = weight_last_ ? 1 : taps();
    for (int64_t o = 0; o < outputs_; ++o)
      for (int64_t block = 0; block < kBlocks; ++block) {
        const int64_t quad = block * outputs_ / vec::kWeightOutputs + o / vec::kWeightOutputs;
        float* to = dw + (first_output + o) * s_.ic * taps() + (first_input + block * kLanes) * channel;
        for (int64_t c = 0; c < kLanes; ++c)
          for (int64_t k = 0; k < taps(); ++k) {
            const int64_t row = (quad * s_.kh + k / s_.kw) * vec::kWeightOutputs + o % vec::kWeightOutputs;
            to[c * channel + k * tap] = sums[(row * s_.kw + k % s_.kw) * kLanes + c];
          }
      }
  }

  ConvShape s_;
  In<float> g_, x_;
  Out<float> dw_;
  bool weight_last_;
  int64_t outputs_, parts_;  // output channels of a task; parts of the batch
  int64_t rows_, images_;    // that a panel holds: rows of the output, and whole images if they are small
  size_t packed_, sums_ = 0;
};

}  // namespace

Refusal refuses_tap_grad_weight(const Problem& p) {
  const Node& root = p.root();
  if (vec::weight_lanes() != TapGradWeight::kLanes) return "is faster than oneDNN on vectors of 256 bits only";
  if (root.outs[0].shape.size() != 4 || !is_channels_last(root.ins[0]) || !is_channels_last(root.ins[1]))
    return "takes channels-last images";
  const ConvShape s = ConvShape::grad_weight(root);
  if (s.kw != vec::kWeightColumns) return "takes kernels of three columns";
  if (s.a.groups != 1 || s.ic % TapGradWeight::kInputs != 0 || s.oc % vec::kWeightOutputs != 0 || s.ic == 0 || s.oc == 0)
    return "takes one group, and channels in multiples of 16 of the input and of 4 of the output";
  constexpr int64_t kLeastFlops = 500000;
  if (2 * s.n * s.oc * s.taps() * s.pixels() < kLeastFlops) return "is slower than a product for so little work";
  return {};
}

std::unique_ptr<Executable> make_tap_grad_weight(const Problem& p) { return std::make_unique<TapGradWeight>(p); }

}  // namespace pyflame::cpu
