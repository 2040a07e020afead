// Convolution as a matrix product over unfolded input (im2col), one image and group at a time, so that the unfolded
// block stays in the L2 cache and the product runs at the speed of matmul. Work is split over images, groups and, for
// large images, blocks of output rows. Gradients of weights are partial sums over chunks of images, added in a fixed
// order.
#include <algorithm>

#include "pyflame/backends/cpu/common.h"
#include "pyflame/backends/cpu/dnn_conv.h"
#include "pyflame/backends/cpu/gemm.h"
#include "pyflame/backends/cpu/tile.h"
#include "pyflame/backends/cpu/vec.h"

namespace pyflame::cpu {

namespace {

struct Shape {
  ConvAttrs a;
  int64_t n, ic, h, w, oc, kh, kw, oh, ow;  // ic and oc of one group
  Shape(const ConvAttrs& attrs, const Dims& input, const Dims& weight, const Dims& output) : a(attrs) {
    n = input[0], ic = weight[1], h = input[2], w = input[3];
    oc = a.groups ? weight[0] / a.groups : 0, kh = weight[2], kw = weight[3], oh = output[2], ow = output[3];
  }
  int64_t taps() const { return ic * kh * kw; }
  int64_t pixels() const { return oh * ow; }
  int64_t in_plane() const { return ic * h * w; }
  int64_t out_plane() const { return oc * oh * ow; }
  bool pointwise() const {
    return kh == 1 && kw == 1 && a.stride_h == 1 && a.stride_w == 1 && a.pad_h == 0 && a.pad_w == 0;
  }
  // Output rows whose unfolded input fits half of a typical L2 cache.
  int64_t row_block() const {
    return std::clamp<int64_t>(131072 / std::max<int64_t>(1, taps() * ow), 1, std::max<int64_t>(1, oh));
  }
  int64_t grain(int64_t rows) const {
    const double flops = 2.0 * static_cast<double>(taps() * oc) * static_cast<double>(rows * ow);
    return std::max<int64_t>(1, static_cast<int64_t>(1e6 / std::max(1.0, flops)));
  }
  // Images per call of the library: a few megaflops, but still enough calls for many threads.
  int64_t images() const {
    const int64_t each = 2 * oc * taps() * pixels(), most = std::clamp<int64_t>(n / 16, 1, 1 + 20000000 / (1 + each));
    for (int64_t m = most; m > 1; --m)
      if (n % m == 0) return m;
    return 1;
  }
  // Parts of a batch whose gradients of the weight are added in order; fewer parts if the weight is large.
  int64_t parts() const {
    const int64_t most = oc * taps() > (1 << 18) ? 4 : 16;
    for (int64_t m = std::min(n, most); m > 1; --m)
      if (n % m == 0) return m;
    return 1;
  }
  // Which of the images that the convolution reads and writes (dy and x for the gradient of the weight) are
  // channels-last?
  std::shared_ptr<const DnnConv> library(DnnConv::Pass pass, bool a_last, bool b_last, bool weight_last) const {
    // A 1x1 convolution is a matrix product without unfolding; copying into the library's layout would only slow it
    // down (docs/decisions/0003).
    constexpr int64_t kLeastFlops = 500000;
    if (a.groups != 1 || n == 0 || (kh * kw == 1 && !(a_last && b_last))) return nullptr;
    if (2 * oc * taps() * pixels() * images() < kLeastFlops) return nullptr;
    return DnnConv::find(
        pass, {pass == DnnConv::Pass::grad_weight ? n / parts() : images(), ic, h, w, oc, kh, kw, oh, ow, a.stride_h,
               a.stride_w, a.pad_h, a.pad_w, a.dilation_h, a.dilation_w, a_last, b_last, weight_last});
  }
  // The output columns, first to last + 1, whose tap kx is inside the image.
  void columns(int64_t kx, int64_t& first, int64_t& last) const {
    const int64_t at = kx * a.dilation_w - a.pad_w;
    first = at >= 0 ? 0 : std::min(ow, ceil_div(-at, a.stride_w));
    last = at >= w ? first : std::clamp(ceil_div(w - at, a.stride_w), first, ow);
  }
};

// col[(c, ky, kx)][pixel] for output rows [y0, y1).
template <class T>
void unfold(const Shape& s, const T* x, int64_t y0, int64_t y1, T* col) {
  const int64_t pixels = (y1 - y0) * s.ow;
  for (int64_t c = 0; c < s.ic; ++c)
    for (int64_t ky = 0; ky < s.kh; ++ky)
      for (int64_t kx = 0; kx < s.kw; ++kx, col += pixels) {
        int64_t first, last;
        s.columns(kx, first, last);
        for (int64_t y = y0; y < y1; ++y) {
          T* row = col + (y - y0) * s.ow;
          const int64_t iy = y * s.a.stride_h - s.a.pad_h + ky * s.a.dilation_h;
          if (iy < 0 || iy >= s.h) {
            std::fill_n(row, s.ow, T(0));
            continue;
          }
          const T* from = x + (c * s.h + iy) * s.w + kx * s.a.dilation_w - s.a.pad_w;
          std::fill_n(row, first, T(0));
          if (s.a.stride_w == 1) std::copy(from + first, from + last, row + first);
          else
            for (int64_t i = first; i < last; ++i) row[i] = from[i * s.a.stride_w];
          std::fill(row + last, row + s.ow, T(0));
        }
      }
}

// The adjoint of unfold: adds every tap to the pixel that it was read from.
template <class T>
void fold(const Shape& s, const T* col, int64_t y0, int64_t y1, T* x) {
  const int64_t pixels = (y1 - y0) * s.ow;
  for (int64_t c = 0; c < s.ic; ++c)
    for (int64_t ky = 0; ky < s.kh; ++ky)
      for (int64_t kx = 0; kx < s.kw; ++kx, col += pixels) {
        int64_t first, last;
        s.columns(kx, first, last);
        for (int64_t y = y0; y < y1; ++y) {
          const int64_t iy = y * s.a.stride_h - s.a.pad_h + ky * s.a.dilation_h;
          if (iy < 0 || iy >= s.h) continue;
          T* to = x + (c * s.h + iy) * s.w + kx * s.a.dilation_w - s.a.pad_w;
          const T* row = col + (y - y0) * s.ow;
          if (s.a.stride_w == 1) vec::add(to + first, row + first, last - first);
          else
            for (int64_t i = first; i < last; ++i) to[i * s.a.stride_w] += row[i];
        }
      }
}

Shape forward_shape(const Node& n) { return {n.attr<ConvAttrs>(), n.ins[0].shape, n.ins[1].shape, n.outs[0].shape}; }
Shape grad_input_shape(const Node& n) { return {n.attr<ConvAttrs>(), n.outs[0].shape, n.ins[1].shape, n.ins[0].shape}; }
Shape grad_weight_shape(const Node& n) {
  return {n.attr<ConvAttrs>(), n.ins[1].shape, n.outs[0].shape, n.ins[0].shape};
}

template <class T>
class Conv : public Exec {
 public:
  explicit Conv(const Problem& p)
      : s_(forward_shape(p.root())), x_(p.root().ins[0], ws_), w_(p.root().ins[1], ws_), out_(p.root().outs[0]) {
    elided_ = !p.group.stores(out_);
    if (p.group.kind == GroupKind::Epilogue) epilogue_ = TileEpilogue::make(p, s_.pixels());
    in_place_ = !elided_ && out_.contiguous && out_.dtype == compute_dtype<T>();
    // Whole planes, if fused ops need them as rows afterwards.
    whole_ = epilogue_ != nullptr || !in_place_;
    if (!in_place_ && !elided_) staged_ = Out<T>(out_, ws_);
  }

  void run(const RunContext& ctx) override {
    if (out_.numel() == 0) return;
    const T* x = x_.get(ctx);
    const T* w = w_.get(ctx);
    T* y = elided_ ? nullptr : in_place_ ? ctx.ptr<T>(out_) : staged_.begin(ctx);
    const int64_t rows = whole_ ? s_.oh : s_.row_block(), blocks = ceil_div(s_.oh, rows);
    parallel_for(s_.n * s_.a.groups * blocks, s_.grain(rows), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t image = i / blocks, g = image % s_.a.groups;
        T* plane = y ? y + image * s_.out_plane() : scratch<T>(1, s_.out_plane());
        const int64_t step = s_.row_block(), y0 = i % blocks * rows, y1 = std::min(s_.oh, y0 + rows);
        for (int64_t at = y0; at < y1; at += step)
          product(x + image * s_.in_plane(), w + g * s_.oc * s_.taps(), at, std::min(y1, at + step), plane);
        if (epilogue_) epilogue_->run(ctx, rounded(plane), image * s_.oc, s_.oc);
      }
    });
    if (!in_place_ && !elided_) staged_.finish(ctx);
  }

 private:
  void product(const T* x, const T* w, int64_t y0, int64_t y1, T* plane) const {
    const int64_t pixels = (y1 - y0) * s_.ow;
    const T* col = x + y0 * s_.ow;
    int64_t ld = s_.pixels();
    if (!s_.pointwise()) {
      T* unfolded = scratch<T>(0, s_.taps() * pixels);
      unfold(s_, x, y0, y1, unfolded);
      col = unfolded, ld = pixels;
    }
    gemm(false, false, s_.oc, pixels, s_.taps(), T(1), w, std::max<int64_t>(1, s_.taps()), col, ld, T(0),
         plane + y0 * s_.ow, s_.pixels());
  }
  const void* rounded(const T* plane) const {
    if (out_.dtype == compute_dtype<T>()) return plane;
    void* block = scratch_bytes(2, static_cast<size_t>(s_.out_plane() * dtype_size(out_.dtype)));
    store_run(plane, block, out_.dtype, s_.out_plane());
    return block;
  }
  Shape s_;
  In<T> x_, w_;
  Operand out_;
  Out<T> staged_;
  bool elided_ = false, in_place_ = false, whole_ = false;
  std::unique_ptr<TileEpilogue> epilogue_;
};

template <class T>
class ConvGradInput : public Exec {
 public:
  explicit ConvGradInput(const Node& node)
      : s_(grad_input_shape(node)), g_(node.ins[0], ws_), w_(node.ins[1], ws_), dx_(node.outs[0], ws_) {}

  void run(const RunContext& ctx) override {
    const T* g = g_.get(ctx);
    const T* w = w_.get(ctx);
    T* dx = dx_.begin(ctx);
    parallel_for(s_.n * s_.a.groups, s_.grain(s_.oh), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        image(g + i * s_.out_plane(), w + i % s_.a.groups * s_.oc * s_.taps(), dx + i * s_.in_plane());
    });
    dx_.finish(ctx);
  }

 private:
  void image(const T* g, const T* w, T* dx) const {
    std::fill_n(dx, s_.in_plane(), T(0));
    const int64_t step = s_.row_block();
    for (int64_t y0 = 0; y0 < s_.oh; y0 += step) {
      const int64_t y1 = std::min(s_.oh, y0 + step), pixels = (y1 - y0) * s_.ow;
      T* col = scratch<T>(0, s_.taps() * pixels);
      gemm(true, false, s_.taps(), pixels, s_.oc, T(1), w, std::max<int64_t>(1, s_.taps()), g + y0 * s_.ow, s_.pixels(),
           T(0), col, std::max<int64_t>(1, pixels));
      fold(s_, col, y0, y1, dx);
    }
  }
  Shape s_;
  In<T> g_, w_;
  Out<T> dx_;
};

template <class T>
class ConvGradWeight : public Exec {
 public:
  explicit ConvGradWeight(const Node& node)
      : s_(grad_weight_shape(node)),
        g_(node.ins[0], ws_),
        x_(node.ins[1], ws_),
        dw_(node.outs[0], ws_),
        parts_(std::clamp<int64_t>(s_.n, 1, 16)) {
    partial_ = ws_.take(static_cast<size_t>(parts_ * dw_.numel()) * sizeof(T));
  }

  void run(const RunContext& ctx) override {
    const T* g = g_.get(ctx);
    const T* x = x_.get(ctx);
    T* dw = dw_.begin(ctx);
    T* partial = at<T>(ctx, partial_);
    const int64_t groups = s_.a.groups, size = dw_.numel(), per = ceil_div(s_.n, parts_), group = s_.oc * s_.taps();
    if (size == 0) return;
    parallel_for(parts_ * groups, s_.grain(s_.oh * per), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t part = i / groups, which = i % groups;
        T* sum = partial + part * size + which * group;
        std::fill_n(sum, group, T(0));
        for (int64_t n = part * per; n < std::min(s_.n, (part + 1) * per); ++n)
          image(g + (n * groups + which) * s_.out_plane(), x + (n * groups + which) * s_.in_plane(), sum);
      }
    });
    parallel_for(size, kGrainElements, [&](int64_t begin, int64_t end) {
      std::copy(partial + begin, partial + end, dw + begin);
      for (int64_t part = 1; part < parts_; ++part) vec::add(dw + begin, partial + part * size + begin, end - begin);
    });
    dw_.finish(ctx);
  }

 private:
  void image(const T* g, const T* x, T* sum) const {
    const int64_t step = s_.row_block(), ld = std::max<int64_t>(1, s_.taps());
    for (int64_t y0 = 0; y0 < s_.oh; y0 += step) {
      const int64_t y1 = std::min(s_.oh, y0 + step), pixels = (y1 - y0) * s_.ow;
      T* col = scratch<T>(0, s_.taps() * pixels);
      unfold(s_, x, y0, y1, col);
      gemm(false, true, s_.oc, s_.taps(), pixels, T(1), g + y0 * s_.ow, std::max<int64_t>(1, s_.pixels()), col,
           std::max<int64_t>(1, pixels), T(1), sum, ld);
    }
  }
  Shape s_;
  In<T> g_, x_;
  Out<T> dw_;
  int64_t parts_;
  size_t partial_ = 0;
};

// ---- by oneDNN (dnn_conv.h), on images in either memory format

std::shared_ptr<const DnnConv> find_library(const Node& n, DnnConv::Pass pass) {
  switch (pass) {
    case DnnConv::Pass::forward:
      return forward_shape(n).library(pass, is_channels_last(n.ins[0]), is_channels_last(n.outs[0]),
                                      is_channels_last(n.ins[1]));
    case DnnConv::Pass::grad_input:
      return grad_input_shape(n).library(pass, is_channels_last(n.ins[0]), is_channels_last(n.outs[0]),
                                         is_channels_last(n.ins[1]));
    case DnnConv::Pass::grad_weight:
      return grad_weight_shape(n).library(pass, is_channels_last(n.ins[0]), is_channels_last(n.ins[1]),
                                          is_channels_last(n.outs[0]));
  }
  return nullptr;
}

void pack(const DnnConv& library, const float* weight, char* packed) {
  parallel_for(library.parts(), std::max<int64_t>(1, kGrainElements * 4 / static_cast<int64_t>(library.part_bytes())),
               [&](int64_t begin, int64_t end) {
                 for (int64_t i = begin; i < end; ++i) library.pack(i, weight, packed);
               });
}

class LibraryConv : public Exec {
 public:
  explicit LibraryConv(const Problem& p)
      : s_(forward_shape(p.root())),
        x_(in_memory_order(p.root().ins[0]), ws_),
        w_(in_memory_order(p.root().ins[1]), ws_),
        out_(in_memory_order(p.root().outs[0])),
        out_last_(is_channels_last(p.root().outs[0])),
        library_(find_library(p.root(), DnnConv::Pass::forward)),
        packed_(ws_.take(library_->weight_bytes())) {
    elided_ = !p.group.stores(out_);
    if (p.group.kind == GroupKind::Epilogue) epilogue_ = TileEpilogue::make(p, out_last_ ? s_.oc : s_.pixels());
    if (!elided_) y_ = Out<float>(out_, ws_);
  }

  void run(const RunContext& ctx) override {
    const float *x = x_.get(ctx), *w = w_.get(ctx);
    float* y = elided_ ? nullptr : y_.begin(ctx);
    char* packed = at<char>(ctx, packed_);
    pack(*library_, w, packed);
    const int64_t m = s_.images(), rows = out_last_ ? s_.pixels() : s_.oc;  // per image, as the epilogue counts them
    parallel_for(s_.n / m, std::max<int64_t>(1, s_.grain(s_.oh) / m), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin * m; i < end * m; i += m) {
        float* planes = y ? y + i * s_.out_plane() : scratch<float>(1, m * s_.out_plane());
        library_->run(x + i * s_.in_plane(), packed, planes);
        if (epilogue_) epilogue_->run(ctx, rounded(planes, m), i * rows, m * rows);
      }
    });
    if (!elided_) y_.finish(ctx);
  }

 private:
  const void* rounded(const float* planes, int64_t images) const {
    if (out_.dtype == DType::float32) return planes;
    void* block = scratch_bytes(2, static_cast<size_t>(images * s_.out_plane() * dtype_size(out_.dtype)));
    store_run(planes, block, out_.dtype, images * s_.out_plane());
    return block;
  }
  Shape s_;
  In<float> x_, w_;
  Operand out_;
  bool out_last_, elided_ = false;
  Out<float> y_;
  std::unique_ptr<TileEpilogue> epilogue_;
  std::shared_ptr<const DnnConv> library_;
  size_t packed_;
};

class LibraryGradInput : public Exec {
 public:
  explicit LibraryGradInput(const Node& node)
      : s_(grad_input_shape(node)),
        g_(in_memory_order(node.ins[0]), ws_),
        w_(in_memory_order(node.ins[1]), ws_),
        dx_(in_memory_order(node.outs[0]), ws_),
        library_(find_library(node, DnnConv::Pass::grad_input)),
        packed_(ws_.take(library_->weight_bytes())) {}

  void run(const RunContext& ctx) override {
    const float *g = g_.get(ctx), *w = w_.get(ctx);
    float* dx = dx_.begin(ctx);
    char* packed = at<char>(ctx, packed_);
    pack(*library_, w, packed);
    const int64_t m = s_.images();
    parallel_for(s_.n / m, std::max<int64_t>(1, s_.grain(s_.oh) / m), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin * m; i < end * m; i += m)
        library_->run(g + i * s_.out_plane(), packed, dx + i * s_.in_plane());
    });
    dx_.finish(ctx);
  }

 private:
  Shape s_;
  In<float> g_, w_;
  Out<float> dx_;
  std::shared_ptr<const DnnConv> library_;
  size_t packed_;
};

class LibraryGradWeight : public Exec {
 public:
  explicit LibraryGradWeight(const Node& node)
      : s_(grad_weight_shape(node)),
        g_(in_memory_order(node.ins[0]), ws_),
        x_(in_memory_order(node.ins[1]), ws_),
        dw_(in_memory_order(node.outs[0]), ws_),
        library_(find_library(node, DnnConv::Pass::grad_weight)),
        size_(library_->weight_bytes()),
        sums_(ws_.take(size_ * static_cast<size_t>(s_.parts()))) {}

  void run(const RunContext& ctx) override {
    const float *g = g_.get(ctx), *x = x_.get(ctx);
    const int64_t batches = s_.parts(), per = s_.n / batches, count = static_cast<int64_t>(size_ / sizeof(float));
    float *sums = at<float>(ctx, sums_), *dw = dw_.begin(ctx);
    parallel_for(batches, std::max<int64_t>(1, s_.grain(s_.oh) / per), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        library_->run(g + i * per * s_.out_plane(), x + i * per * s_.in_plane(), sums + i * count);
    });
    const auto part = static_cast<int64_t>(library_->part_bytes() / sizeof(float));
    parallel_for(library_->parts(), std::max<int64_t>(1, kGrainElements / (part * batches)),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t k = begin; k < end; ++k) {
                     for (int64_t i = 1; i < batches; ++i) vec::add(sums + k * part, sums + i * count + k * part, part);
                     library_->unpack(k, sums, dw);
                   }
                 });
    dw_.finish(ctx);
  }

 private:
  Shape s_;
  In<float> g_, x_;
  Out<float> dw_;
  std::shared_ptr<const DnnConv> library_;
  size_t size_, sums_;
};

static Refusal accept_any(const Problem& p) {
  if (!is_float(p.root().outs[0].dtype)) return "takes floating point data only";
  if (p.root().ins[0].shape.size() != 4 || p.root().ins[1].shape.size() != 4)
    return "takes operands of four dimensions";
  if (p.group.kind == GroupKind::Epilogue) return TileEpilogue::accepts(p);
  return accept_single(p);
}
Refusal accept_conv(const Problem& p) {
  if (p.group.kind == GroupKind::Epilogue && is_channels_last(p.root().outs[0]))
    return "computes planes, not channels-last images";
  return accept_any(p);
}

// float64 has its own kernel, and groups are too small for it.
static Refusal accept_library(const Problem& p, DnnConv::Pass pass) {
  if (const Refusal r = accept_any(p)) return r;
  if (p.root().outs[0].dtype == DType::float64) return "takes types that are computed in float32";
  if (!find_library(p.root(), pass)) return "oneDNN has no kernel that is faster for this shape and processor";
  return {};
}
Refusal accept_dnn_conv(const Problem& p) { return accept_library(p, DnnConv::Pass::forward); }
Refusal accept_dnn_grad_input(const Problem& p) { return accept_library(p, DnnConv::Pass::grad_input); }
Refusal accept_dnn_grad_weight(const Problem& p) { return accept_library(p, DnnConv::Pass::grad_weight); }
std::unique_ptr<Executable> make_dnn_conv(const Problem& p) { return std::make_unique<LibraryConv>(p); }
std::unique_ptr<Executable> make_dnn_grad_input(const Problem& p) {
  return std::make_unique<LibraryGradInput>(p.root());
}
std::unique_ptr<Executable> make_dnn_grad_weight(const Problem& p) {
  return std::make_unique<LibraryGradWeight>(p.root());
}

std::unique_ptr<Executable> make_conv(const Problem& p) {
  if (p.root().ins[0].dtype == DType::float64) return std::make_unique<Conv<double>>(p);
  return std::make_unique<Conv<float>>(p);
}
std::unique_ptr<Executable> make_conv_grad_input(const Problem& p) { return make_by_type<ConvGradInput>(p); }
std::unique_ptr<Executable> make_conv_grad_weight(const Problem& p) { return make_by_type<ConvGradWeight>(p); }

}  // namespace

std::span<const Impl> conv2d_impls() {
  static const Impl impls[] = {{"onednn.conv", accept_dnn_conv, make_dnn_conv},
                               {"cpu.conv_unfold", accept_conv, make_conv}};
  return impls;
}
std::span<const Impl> conv2d_grad_input_impls() {
  static const Impl impls[] = {{"onednn.conv", accept_dnn_grad_input, make_dnn_grad_input},
                               {"cpu.conv_unfold", accept_conv, make_conv_grad_input}};
  return impls;
}
std::span<const Impl> conv2d_grad_weight_impls() {
  static const Impl impls[] = {{"onednn.conv", accept_dnn_grad_weight, make_dnn_grad_weight},
                               {"cpu.conv_unfold", accept_conv, make_conv_grad_weight}};
  return impls;
}

// The library computes large enough convolutions channels-last. The next one reads such a result as it is, so that a network's images are
// permuted once. Depthwise convolutions are no products of matrices; one of single pixels is a product whatever its input's layout.
bool prefers_channels_last(const ImageResult& r) {
  constexpr int64_t kVector = 8, kLeastWork = 1 << 20;
  if (r.dtype != DType::float32 || (r.op != OpId::conv2d && r.op != OpId::conv2d_grad_input)) return false;
  const bool forward = r.op == OpId::conv2d;
  const Dims &weight = *r.ins[1], &x = forward ? *r.ins[0] : r.shape, &y = forward ? r.shape : *r.ins[0];
  const bool whole_vectors = r.shape[1] % kVector == 0, several_taps = weight[2] * weight[3] > 1;
  return whole_vectors && several_taps && weight[1] == x[1] && y[0] * y[2] * y[3] * weight.numel() >= kLeastWork;
}

}  // namespace pyflame::cpu
