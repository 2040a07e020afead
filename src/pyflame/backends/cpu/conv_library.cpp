#include "pyflame/backends/cpu/conv_library.h"

#include <optional>

#include "pyflame/backends/cpu/conv_shape.h"
#include "pyflame/backends/cpu/conv_taps.h"
#include "pyflame/backends/cpu/tile.h"
#include "pyflame/backends/cpu/vec.h"

namespace pyflame::cpu {

namespace {

using Pass = DnnConv::Pass;

// Planes of a volume that one call computes, and what it reads for them: planes [z0, z1) of the input, [o0, o1) of the output.
struct Slab {
  int64_t z0, z1, o0, o1, before, after;  // before, after: planes of padding
};

// A group that is a convolution and the addition of a bias: the library computes both.
struct Biased {
  Operand bias, out;
};
std::optional<Biased> biased(const Problem& p) {
  if (p.root().op != OpId::conv2d || p.size() != 2) return {};
  const Node& root = p.root();
  const Node& n = p.graph.nodes[p.group.nodes[1]];
  const Operand& out = root.outs[0];
  const bool same =
      n.outs[0].dtype == DType::float32 && n.outs[0].shape == out.shape && n.outs[0].strides == out.strides;
  if (n.op != OpId::add || !same || p.group.stores(out)) return {};
  const size_t other = !n.ins[0].is_param && n.ins[0].binding == out.binding ? 1 : 0;
  const Operand &b = n.ins[other], &product = n.ins[1 - other];
  if (b.is_param || b.binding == out.binding || product.is_param || product.binding != out.binding) return {};
  const int channel = b.shape.size() - (out.shape.size() - 1);
  const int64_t channels = out.shape[1];
  if (product.shape != out.shape || b.dtype != DType::float32 || channel < 0 || b.numel() != channels) return {};
  if (b.shape[channel] != channels || (channels > 1 && b.strides[channel] != 1)) return {};
  return Biased{b, n.outs[0]};
}

struct LibraryShape : ConvShape {
  Pass pass;
  ConvKernels kernels;
  // Which of the images that the convolution reads and writes (dy and x for the gradient of the weight) are channels-last?
  bool a_last, b_last, weight_last;
  bool bias;
  bool scratch_result;  // the result of a call is memory of its own, not a part of a volume

  LibraryShape(const Problem& p, Pass which, ConvKernels whose = ConvKernels::library)
      : ConvShape(shape_of(p.root(), which)), pass(which), kernels(whose) {
    const Node& root = p.root();
    const bool grad_weight = pass == Pass::grad_weight;
    a_last = is_channels_last(root.ins[0]);
    b_last = is_channels_last(grad_weight ? root.ins[1] : root.outs[0]);
    weight_last = is_channels_last(grad_weight ? root.outs[0] : root.ins[1]);
    bias = pass == Pass::forward && biased(p);
    scratch_result = !p.group.stores(root.outs[0]) && !bias;
  }
  static ConvShape shape_of(const Node& root, Pass which) {
    return which == Pass::forward      ? ConvShape::forward(root)
           : which == Pass::grad_input ? ConvShape::grad_input(root)
                                       : ConvShape::grad_weight(root);
  }
  // Images per call of the library: a few megaflops, but still enough calls for many threads.
  int64_t images() const {
    const int64_t each = 2 * oc * taps() * pixels();
    int64_t most = std::clamp<int64_t>(n / 16, 1, 1 + 20000000 / (1 + each));
    // Transformed weights are large, and so are read for several images; two threads still have work.
    constexpr int64_t kWinogradPixels = 128;
    if (kernels == ConvKernels::winograd)
      most = std::max(most, std::min(n / 2, ceil_div(kWinogradPixels, std::max<int64_t>(1, pixels()))));
    return largest_part(n, most);
  }
  // Parts of a batch whose gradients of the weight are added in order; fewer parts if the weight is large.
  int64_t most_parts() const { return oc * taps() > (1 << 18) ? 4 : 16; }
  // Parts of each volume, so that small batches are enough for many threads.
  int64_t slabs() const {
    constexpr int64_t kLeastFlops = 4000000, kLeastPlanes = 2;
    if (!volume || n == 0 || images() > 1) return 1;
    const int64_t planes = split_planes(), flops = 2 * oc * taps() * pixels();
    const int64_t calls = pass == Pass::grad_weight ? most_parts() : 16;
    const int64_t most = std::min({calls / n, planes / kLeastPlanes, flops / kLeastFlops});
    return largest_part(planes, most);
  }
  // Images per call for volumes in so many parts.
  int64_t images_of(int64_t slabs) const {
    if (pass != Pass::grad_weight) return images();
    return slabs > 1 ? 1 : n / largest_part(n, most_parts());
  }
  Slab slab(int64_t k, int64_t count) const {
    const int64_t each = split_planes() / count, first = k * each, s = a.stride_d, p = a.pad_d,
                  reach = (kd - 1) * a.dilation_d;
    if (pass == Pass::grad_input) {
      const int64_t z1 = first + each, o0 = std::max<int64_t>(0, ceil_div(std::max<int64_t>(0, first + p - reach), s)),
                    o1 = std::min(od, (z1 - 1 + p) / s + 1);
      return {first, z1, o0, o1, first + p - o0 * s, std::max<int64_t>(0, (o1 - 1) * s - p + reach + 1 - z1)};
    }
    const int64_t begin = first * s - p, end = (first + each - 1) * s - p + reach + 1;
    return {std::max<int64_t>(0, begin),  std::min(d, end), first, first + each, std::max<int64_t>(0, -begin),
            std::max<int64_t>(0, end - d)};
  }
  // The library's kernels for each slab; none if it has no fast one for this shape.
  std::vector<std::shared_ptr<const DnnConv>> find(int64_t count) const {
    std::vector<std::shared_ptr<const DnnConv>> found;
    for (int64_t k = 0; k < count; ++k) {
      const Slab part = slab(k, count);
      if (part.z0 >= part.z1 || part.o0 >= part.o1 || part.before < 0) return {};
      const auto wanted = problem(part, count);
      found.push_back(kernels == ConvKernels::taps       ? find_tap_conv(pass, wanted)
                      : kernels == ConvKernels::winograd ? find_winograd_conv(pass, wanted, n / images_of(count))
                                                         : DnnConv::find(pass, wanted));
      if (!found.back() || !found.back()->same_weights(*found[0])) return {};
    }
    return found;
  }
  std::vector<std::shared_ptr<const DnnConv>> find() const {
    // A convolution of single pixels is a matrix product without unfolding; copying into the library's layout would only slow it
    // down (docs/decisions/0003).
    constexpr int64_t kLeastFlops = 500000;
    if (a.groups != 1 || n == 0 || (kd * kh * kw == 1 && !(a_last && b_last))) return {};
    if (2 * oc * taps() * pixels() * images() < kLeastFlops) return {};
    const int64_t count = slabs();
    auto found = find(count);
    return found.empty() && count > 1 ? find(1) : found;
  }

 private:
  // The largest divisor that is at most `most`.
  static int64_t largest_part(int64_t of, int64_t most) {
    for (int64_t m = std::min(of, most); m > 1; --m)
      if (of % m == 0) return m;
    return 1;
  }
  int64_t split_planes() const { return pass == Pass::grad_input ? d : od; }
  DnnConv::Problem problem(const Slab& part, int64_t count) const {
    const bool whole = count == 1;
    const int64_t x = whole ? 0 : d * h * w, y = whole ? 0 : pixels(), result = scratch_result ? 0 : y;
    const bool forward = pass == Pass::forward;
    return {volume,
            images_of(count),
            ic,
            oc,
            {whole ? d : part.z1 - part.z0, h, w},
            {kd, kh, kw},
            {whole ? od : part.o1 - part.o0, oh, ow},
            {a.stride_d, a.stride_h, a.stride_w},
            {a.dilation_d, a.dilation_h, a.dilation_w},
            {whole ? a.pad_d : part.before, a.pad_h, a.pad_w},
            {whole ? a.pad_d : part.after, a.pad_h, a.pad_w},
            a_last,
            b_last,
            weight_last,
            bias,
            forward ? x : y,
            forward ? result : x};
  }
};

// What the library computes in one call: images from `image` on, or a part of one.
class Parts {
 public:
  explicit Parts(const LibraryShape& s) : libraries_(s.find()) {
    for (int64_t k = 0; k < slabs(); ++k) slabs_.push_back(slabs() == 1 ? Slab{} : s.slab(k, slabs()));
  }
  int64_t slabs() const { return static_cast<int64_t>(libraries_.size()); }
  const DnnConv& library(int64_t k = 0) const { return *libraries_[static_cast<size_t>(k)]; }
  const Slab& slab(int64_t k) const { return slabs_[static_cast<size_t>(k)]; }

 private:
  std::vector<std::shared_ptr<const DnnConv>> libraries_;
  std::vector<Slab> slabs_;
};

void pack(const DnnConv& library, const float* weight, char* packed) {
  parallel_for(library.parts(), std::max<int64_t>(1, kGrainElements * 4 / static_cast<int64_t>(library.part_bytes())),
               [&](int64_t begin, int64_t end) {
                 for (int64_t i = begin; i < end; ++i) library.pack(i, weight, packed);
               });
}

class LibraryConv : public Exec {
 public:
  LibraryConv(const Problem& p, ConvKernels kernels)
      : s_(p, Pass::forward, kernels),
        parts_(s_),
        x_(in_memory_order(p.root().ins[0]), ws_),
        w_(in_memory_order(p.root().ins[1]), ws_),
        out_(in_memory_order(p.root().outs[0])),
        elided_(s_.scratch_result),
        pixels_(s_.pixels() / parts_.slabs()),
        packed_(ws_.take(parts_.library().weight_bytes())) {
    if (s_.bias) bias_ = biased(p)->bias, out_ = in_memory_order(biased(p)->out);
    else if (p.group.kind == GroupKind::Epilogue) epilogue_ = TileEpilogue::make(p, s_.b_last ? s_.oc : pixels_);
    if (!elided_) y_ = Out<float>(out_, ws_);
  }

  void run(const RunContext& ctx) override {
    const float *x = x_.get(ctx), *w = w_.get(ctx);
    float* y = elided_ ? nullptr : y_.begin(ctx);
    const float* bias = s_.bias ? ctx.ptr<const float>(bias_) : nullptr;
    char* packed = at<char>(ctx, packed_);
    pack(parts_.library(), w, packed);
    const int64_t m = s_.images(), slabs = parts_.slabs();
    const auto compute = [&](int64_t image, int64_t k) {
      const Slab& slab = parts_.slab(k);
      float* planes = y ? y + image * s_.out_plane() + slab.o0 * s_.oh * s_.ow : scratch<float>(1, m * s_.oc * pixels_);
      parts_.library(k).run(x + image * s_.in_plane() + slab.z0 * s_.h * s_.w, packed, planes, bias);
      if (!epilogue_) return;
      if (slabs == 1) {
        const int64_t rows = s_.b_last ? s_.pixels() : s_.oc;  // of an image, as the epilogue counts them
        epilogue_->run(ctx, rounded(planes, m * s_.out_plane()), image * rows, m * rows);
        return;
      }
      for (int64_t c = 0; c < s_.oc; ++c)
        epilogue_->run(ctx, rounded(planes + c * (y ? s_.pixels() : pixels_), pixels_), (image * s_.oc + c) * slabs + k,
                       1);
    };
    parallel_for(s_.n / m * slabs, std::max<int64_t>(1, s_.grain(s_.rows()) / m * slabs),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t i = begin; i < end; ++i) compute(i / slabs * m, i % slabs);
                 });
    if (!elided_) y_.finish(ctx);
  }

 private:
  const void* rounded(const float* values, int64_t count) const {
    if (out_.dtype == DType::float32) return values;
    void* block = scratch_bytes(2, static_cast<size_t>(count * dtype_size(out_.dtype)));
    store_run(values, block, out_.dtype, count);
    return block;
  }
  LibraryShape s_;
  Parts parts_;
  In<float> x_, w_;
  Operand out_, bias_;
  bool elided_;
  int64_t pixels_;  // that a call computes of each channel
  Out<float> y_;
  std::unique_ptr<TileEpilogue> epilogue_;
  size_t packed_;
};

class LibraryGradInput : public Exec {
 public:
  LibraryGradInput(const Problem& p, ConvKernels kernels)
      : s_(p, Pass::grad_input, kernels),
        parts_(s_),
        g_(in_memory_order(p.root().ins[0]), ws_),
        w_(in_memory_order(p.root().ins[1]), ws_),
        dx_(in_memory_order(p.root().outs[0]), ws_),
        packed_(ws_.take(parts_.library().weight_bytes())) {}

  void run(const RunContext& ctx) override {
    const float *g = g_.get(ctx), *w = w_.get(ctx);
    float* dx = dx_.begin(ctx);
    char* packed = at<char>(ctx, packed_);
    pack(parts_.library(), w, packed);
    const int64_t m = s_.images(), slabs = parts_.slabs();
    parallel_for(s_.n / m * slabs, std::max<int64_t>(1, s_.grain(s_.rows()) / m * slabs),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t i = begin; i < end; ++i) {
                     const int64_t image = i / slabs * m, k = i % slabs;
                     const Slab& slab = parts_.slab(k);
                     parts_.library(k).run(g + image * s_.out_plane() + slab.o0 * s_.oh * s_.ow, packed,
                                           dx + image * s_.in_plane() + slab.z0 * s_.h * s_.w);
                   }
                 });
    dx_.finish(ctx);
  }

 private:
  LibraryShape s_;
  Parts parts_;
  In<float> g_, w_;
  Out<float> dx_;
  size_t packed_;
};

class LibraryGradWeight : public Exec {
 public:
  explicit LibraryGradWeight(const Problem& p)
      : s_(p, Pass::grad_weight),
        parts_(s_),
        g_(in_memory_order(p.root().ins[0]), ws_),
        x_(in_memory_order(p.root().ins[1]), ws_),
        dw_(in_memory_order(p.root().outs[0]), ws_),
        per_(s_.images_of(parts_.slabs())),
        size_(parts_.library().weight_bytes()),
        sums_(ws_.take(size_ * static_cast<size_t>(calls()))) {}

  void run(const RunContext& ctx) override {
    const float *g = g_.get(ctx), *x = x_.get(ctx);
    const int64_t slabs = parts_.slabs(), count = static_cast<int64_t>(size_ / sizeof(float));
    float *sums = at<float>(ctx, sums_), *dw = dw_.begin(ctx);
    parallel_for(calls(), std::max<int64_t>(1, s_.grain(s_.rows()) / per_ * slabs), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t image = i / slabs * per_, k = i % slabs;
        const Slab& slab = parts_.slab(k);
        parts_.library(k).run(g + image * s_.out_plane() + slab.o0 * s_.oh * s_.ow,
                              x + image * s_.in_plane() + slab.z0 * s_.h * s_.w, sums + i * count);
      }
    });
    const DnnConv& library = parts_.library();
    const auto part = static_cast<int64_t>(library.part_bytes() / sizeof(float));
    parallel_for(library.parts(), std::max<int64_t>(1, kGrainElements / (part * calls())),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t k = begin; k < end; ++k) {
                     for (int64_t i = 1; i < calls(); ++i) vec::add(sums + k * part, sums + i * count + k * part, part);
                     library.unpack(k, sums, dw);
                   }
                 });
    dw_.finish(ctx);
  }

 private:
  int64_t calls() const { return s_.n / per_ * parts_.slabs(); }
  LibraryShape s_;
  Parts parts_;
  In<float> g_, x_;
  Out<float> dw_;
  int64_t per_;  // images in a call
  size_t size_, sums_;
};

}  // namespace

bool library_takes(const Problem& p, DnnConv::Pass pass, ConvKernels kernels) {
  return !LibraryShape(p, pass, kernels).find().empty();
}
std::unique_ptr<Executable> make_library_conv(const Problem& p) {
  return std::make_unique<LibraryConv>(p, ConvKernels::library);
}
std::unique_ptr<Executable> make_tap_conv(const Problem& p) {
  return std::make_unique<LibraryConv>(p, ConvKernels::taps);
}
std::unique_ptr<Executable> make_winograd_conv(const Problem& p) {
  return std::make_unique<LibraryConv>(p, ConvKernels::winograd);
}
std::unique_ptr<Executable> make_library_grad_input(const Problem& p) {
  return std::make_unique<LibraryGradInput>(p, ConvKernels::library);
}
std::unique_ptr<Executable> make_tap_grad_input(const Problem& p) {
  return std::make_unique<LibraryGradInput>(p, ConvKernels::taps);
}
std::unique_ptr<Executable> make_winograd_grad_input(const Problem& p) {
  return std::make_unique<LibraryGradInput>(p, ConvKernels::winograd);
}
std::unique_ptr<Executable> make_library_grad_weight(const Problem& p) {
  return std::make_unique<LibraryGradWeight>(p);
}

}  // namespace pyflame::cpu
