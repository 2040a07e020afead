// Convolution as a matrix product over unfolded input (im2col), one image and group at a time, so that the unfolded
// block stays in the L2 cache and the product runs at the speed of matmul. Work is split over images, groups and, for
// large images, blocks of output rows. Gradients of weights are partial sums over chunks of images, added in a fixed
// order.
#include <algorithm>
#include <array>

#include "pyflame/backends/cpu/common.h"
#include "pyflame/backends/cpu/conv_library.h"
#include "pyflame/backends/cpu/conv_shape.h"
#include "pyflame/backends/cpu/conv_taps.h"
#include "pyflame/backends/cpu/conv_winograd.h"
#include "pyflame/backends/cpu/gemm.h"
#include "pyflame/backends/cpu/tile.h"
#include "pyflame/backends/cpu/vec.h"
#include "pyflame/backends/cpu/vec_conv.h"

namespace pyflame::cpu {

namespace {

struct Shape : ConvShape {
  // Output rows whose unfolded input fits half of a typical L2 cache.
  int64_t row_block() const {
    return std::clamp<int64_t>(131072 / std::max<int64_t>(1, taps() * ow), 1, std::max<int64_t>(1, rows()));
  }
  // The output columns, first to last + 1, whose tap kx is inside the image.
  void columns(int64_t kx, int64_t& first, int64_t& last) const {
    const int64_t at = kx * a.dilation_w - a.pad_w;
    first = at >= 0 ? 0 : std::min(ow, ceil_div(-at, a.stride_w));
    last = at >= w ? first : std::clamp(ceil_div(w - at, a.stride_w), first, ow);
  }
  // Calls f(row, input row) for the output rows [y0, y1), with the input row of a channel that tap (kz, ky) reads; -1: it is padding.
  template <class F>
  void input_rows(int64_t kz, int64_t ky, int64_t y0, int64_t y1, F&& f) const {
    for (int64_t row = y0; row < y1;) {
      const int64_t z = row / oh, iz = z * a.stride_d - a.pad_d + kz * a.dilation_d;
      for (const int64_t end = std::min(y1, (z + 1) * oh); row < end; ++row) {
        const int64_t iy = (row - z * oh) * a.stride_h - a.pad_h + ky * a.dilation_h;
        f(row - y0, iz < 0 || iz >= d || iy < 0 || iy >= h ? -1 : iz * h + iy);
      }
    }
  }
};

// col[(c, kz, ky, kx)][pixel] for output rows [y0, y1).
template <class T>
void unfold(const Shape& s, const T* x, int64_t y0, int64_t y1, T* col) {
  const int64_t pixels = (y1 - y0) * s.ow;
  for (int64_t c = 0; c < s.ic; ++c, x += s.d * s.h * s.w)
    for (int64_t k = 0; k < s.kd * s.kh * s.kw; ++k, col += pixels) {
      const int64_t kx = k % s.kw, ky = k / s.kw % s.kh, kz = k / s.kw / s.kh;
      int64_t first, last;
      s.columns(kx, first, last);
      s.input_rows(kz, ky, y0, y1, [&](int64_t r, int64_t in) {
        T* row = col + r * s.ow;
        if (in < 0) {
          std::fill_n(row, s.ow, T(0));
          return;
        }
        const T* from = x + in * s.w + kx * s.a.dilation_w - s.a.pad_w;
        std::fill_n(row, first, T(0));
        if (s.a.stride_w == 1) std::copy(from + first, from + last, row + first);
        else
          for (int64_t i = first; i < last; ++i) row[i] = from[i * s.a.stride_w];
        std::fill(row + last, row + s.ow, T(0));
      });
    }
}

// The adjoint of unfold: adds every tap to the pixel that it was read from.
template <class T>
void fold(const Shape& s, const T* col, int64_t y0, int64_t y1, T* x) {
  const int64_t pixels = (y1 - y0) * s.ow;
  for (int64_t c = 0; c < s.ic; ++c, x += s.d * s.h * s.w)
    for (int64_t k = 0; k < s.kd * s.kh * s.kw; ++k, col += pixels) {
      const int64_t kx = k % s.kw, ky = k / s.kw % s.kh, kz = k / s.kw / s.kh;
      int64_t first, last;
      s.columns(kx, first, last);
      s.input_rows(kz, ky, y0, y1, [&](int64_t r, int64_t in) {
        if (in < 0) return;
        T* to = x + in * s.w + kx * s.a.dilation_w - s.a.pad_w;
        const T* row = col + r * s.ow;
        if (s.a.stride_w == 1) vec::add(to + first, row + first, last - first);
        else
          for (int64_t i = first; i < last; ++i) to[i * s.a.stride_w] += row[i];
      });
    }
}

template <class T>
class Conv : public Exec {
 public:
  explicit Conv(const Problem& p)
      : s_{ConvShape::forward(p.root())}, x_(p.root().ins[0], ws_), w_(p.root().ins[1], ws_), out_(p.root().outs[0]) {
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
    const int64_t rows = whole_ ? s_.rows() : s_.row_block(), blocks = ceil_div(s_.rows(), rows);
    parallel_for(s_.n * s_.a.groups * blocks, s_.grain(rows), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t image = i / blocks, g = image % s_.a.groups;
        T* plane = y ? y + image * s_.out_plane() : scratch<T>(1, s_.out_plane());
        const int64_t step = s_.row_block(), y0 = i % blocks * rows, y1 = std::min(s_.rows(), y0 + rows);
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
      : s_{ConvShape::grad_input(node)}, g_(node.ins[0], ws_), w_(node.ins[1], ws_), dx_(node.outs[0], ws_) {}

  void run(const RunContext& ctx) override {
    const T* g = g_.get(ctx);
    const T* w = w_.get(ctx);
    T* dx = dx_.begin(ctx);
    parallel_for(s_.n * s_.a.groups, s_.grain(s_.rows()), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        image(g + i * s_.out_plane(), w + i % s_.a.groups * s_.oc * s_.taps(), dx + i * s_.in_plane());
    });
    dx_.finish(ctx);
  }

 private:
  void image(const T* g, const T* w, T* dx) const {
    std::fill_n(dx, s_.in_plane(), T(0));
    const int64_t step = s_.row_block();
    for (int64_t y0 = 0; y0 < s_.rows(); y0 += step) {
      const int64_t y1 = std::min(s_.rows(), y0 + step), pixels = (y1 - y0) * s_.ow;
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
      : s_{ConvShape::grad_weight(node)},
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
    parallel_for(parts_ * groups, s_.grain(s_.rows() * per), [&](int64_t begin, int64_t end) {
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
    for (int64_t y0 = 0; y0 < s_.rows(); y0 += step) {
      const int64_t y1 = std::min(s_.rows(), y0 + step), pixels = (y1 - y0) * s_.ow;
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

static Refusal accept_any(const Problem& p) {
  if (!is_float(p.root().outs[0].dtype)) return "takes floating point data only";
  const int dims = p.root().ins[0].shape.size();
  if ((dims != 4 && dims != 5) || p.root().ins[1].shape.size() != dims)
    return "takes operands of four or of five dimensions";
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
  if (!library_takes(p, pass)) return "oneDNN has no kernel that is faster for this shape and processor";
  return {};
}
Refusal accept_dnn_conv(const Problem& p) { return accept_library(p, DnnConv::Pass::forward); }
Refusal accept_dnn_grad_input(const Problem& p) { return accept_library(p, DnnConv::Pass::grad_input); }
Refusal accept_dnn_grad_weight(const Problem& p) { return accept_library(p, DnnConv::Pass::grad_weight); }
static Refusal accept_taps(const Problem& p, DnnConv::Pass pass) {
  if (const Refusal r = accept_any(p)) return r;
  if (p.root().outs[0].dtype == DType::float64) return "takes types that are computed in float32";
  if (!library_takes(p, pass, ConvKernels::taps))
    return "takes several taps of channels-last images in whole pairs of vectors, and gradients of the input of "
           "stride 1";
  return {};
}
static Refusal accept_winograd(const Problem& p, DnnConv::Pass pass) {
  if (const Refusal r = accept_any(p)) return r;
  if (p.root().outs[0].dtype == DType::float64) return "takes types that are computed in float32";
  if (!library_takes(p, pass, ConvKernels::winograd))
    return "takes 3x3 taps of stride 1 on channels-last images in whole pairs of vectors, where the transforms pay";
  return {};
}
Refusal accept_winograd_conv(const Problem& p) { return accept_winograd(p, DnnConv::Pass::forward); }
Refusal accept_winograd_grad_input(const Problem& p) { return accept_winograd(p, DnnConv::Pass::grad_input); }
Refusal accept_tap_conv(const Problem& p) { return accept_taps(p, DnnConv::Pass::forward); }
Refusal accept_tap_grad_input(const Problem& p) { return accept_taps(p, DnnConv::Pass::grad_input); }
Refusal accept_tap_grad_weight(const Problem& p) {
  if (const Refusal r = accept_any(p)) return r;
  if (p.root().outs[0].dtype == DType::float64) return "takes types that are computed in float32";
  return refuses_tap_grad_weight(p);
}
Refusal accept_winograd_grad_weight(const Problem& p) {
  if (const Refusal r = accept_any(p)) return r;
  if (p.root().outs[0].dtype == DType::float64) return "takes types that are computed in float32";
  return refuses_winograd_grad_weight(p);
}

std::unique_ptr<Executable> make_conv(const Problem& p) {
  if (p.root().ins[0].dtype == DType::float64) return std::make_unique<Conv<double>>(p);
  return std::make_unique<Conv<float>>(p);
}
std::unique_ptr<Executable> make_conv_grad_input(const Problem& p) { return make_by_type<ConvGradInput>(p); }
std::unique_ptr<Executable> make_conv_grad_weight(const Problem& p) { return make_by_type<ConvGradWeight>(p); }

}  // namespace

// Winograd's algorithm is first where it pays. Our other kernels are before the library where they were measured to be faster: on vectors of 256 bits.
static bool own_first() {
  constexpr int64_t kMeasured = 8;
  return vec::weight_lanes() == kMeasured;
}
static std::array<Impl, 4> in_order(const Impl& winograd, const Impl& taps, const Impl& library, const Impl& unfold) {
  if (own_first()) return {winograd, taps, library, unfold};
  return {winograd, library, unfold, taps};
}
std::span<const Impl> conv2d_impls() {
  static const auto impls =
      in_order({"cpu.conv_winograd", accept_winograd_conv, make_winograd_conv},
               {"cpu.conv_taps", accept_tap_conv, make_tap_conv}, {"onednn.conv", accept_dnn_conv, make_library_conv},
               {"cpu.conv_unfold", accept_conv, make_conv});
  return impls;
}
std::span<const Impl> conv2d_grad_input_impls() {
  static const auto impls = in_order({"cpu.conv_winograd", accept_winograd_grad_input, make_winograd_grad_input},
                                     {"cpu.conv_taps", accept_tap_grad_input, make_tap_grad_input},
                                     {"onednn.conv", accept_dnn_grad_input, make_library_grad_input},
                                     {"cpu.conv_unfold", accept_conv, make_conv_grad_input});
  return impls;
}
std::span<const Impl> conv2d_grad_weight_impls() {
  static const auto impls = in_order({"cpu.conv_winograd", accept_winograd_grad_weight, make_winograd_grad_weight},
                                     {"cpu.conv_taps", accept_tap_grad_weight, make_tap_grad_weight},
                                     {"onednn.conv", accept_dnn_grad_weight, make_library_grad_weight},
                                     {"cpu.conv_unfold", accept_conv, make_conv_grad_weight});
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
