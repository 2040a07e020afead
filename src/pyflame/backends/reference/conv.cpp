// Convolution and pooling, NCHW. Each gradient visits the same (output pixel, tap) pairs as the forward pass and adds
// where the forward pass reads, so all three use the same geometry.
#include <limits>

#include "pyflame/backends/reference/access.h"

namespace pyflame::reference {
namespace {

struct Window {
  int64_t kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
};

// Calls f(kh, kw, ih, iw) for the taps of output pixel (oh, ow) that are inside an H x W plane.
template <class F>
void for_taps(const Window& w, int64_t h, int64_t width, int64_t oh, int64_t ow, F&& f) {
  for (int64_t kh = 0; kh < w.kernel_h; ++kh) {
    const int64_t ih = oh * w.stride_h - w.pad_h + kh * w.dilation_h;
    if (ih < 0 || ih >= h) continue;
    for (int64_t kw = 0; kw < w.kernel_w; ++kw) {
      const int64_t iw = ow * w.stride_w - w.pad_w + kw * w.dilation_w;
      if (iw >= 0 && iw < width) f(kh, kw, ih, iw);
    }
  }
}

// Calls f(input, weight, output) with flat row-major indices for every multiplication of the convolution. An image is a volume of one plane.
template <class F>
void for_products(const ConvAttrs& a, const Dims& input, const Dims& weight, const Dims& output, F&& f) {
  const bool volume = input.size() == 5;
  const int y = volume ? 3 : 2, x = y + 1;
  const Window w{weight[y], weight[x], a.stride_h, a.stride_w, a.pad_h, a.pad_w, a.dilation_h, a.dilation_w};
  const int64_t in_group = weight[1], out_group = weight[0] / a.groups, depth = volume ? input[2] : 1,
                kernel_d = volume ? weight[2] : 1, out_depth = volume ? output[2] : 1;
  const auto pixel_products = [&](int64_t n, int64_t oc, int64_t od, int64_t oh, int64_t ow) {
    const int64_t o = (((n * output[1] + oc) * out_depth + od) * output[y] + oh) * output[x] + ow;
    for (int64_t g = 0; g < in_group; ++g)
      for (int64_t kd = 0; kd < kernel_d; ++kd) {
        const int64_t id = od * a.stride_d - a.pad_d + kd * a.dilation_d;
        if (id < 0 || id >= depth) continue;
        const int64_t plane = (n * input[1] + oc / out_group * in_group + g) * depth + id;
        const int64_t kernel = ((oc * in_group + g) * kernel_d + kd) * w.kernel_h;
        for_taps(w, input[y], input[x], oh, ow, [&](int64_t kh, int64_t kw, int64_t ih, int64_t iw) {
          f(static_cast<size_t>((plane * input[y] + ih) * input[x] + iw),
            static_cast<size_t>((kernel + kh) * w.kernel_w + kw), static_cast<size_t>(o));
        });
      }
  };
  for (int64_t n = 0; n < output[0]; ++n)
    for (int64_t oc = 0; oc < output[1]; ++oc)
      for (int64_t od = 0; od < out_depth; ++od)
        for (int64_t oh = 0; oh < output[y]; ++oh)
          for (int64_t ow = 0; ow < output[x]; ++ow) pixel_products(n, oc, od, oh, ow);
}

template <class T>
std::vector<T> zeros(const View& v) {
  return std::vector<T>(static_cast<size_t>(v.numel()));
}

Window window_of(const PoolAttrs& a) {
  return {a.kernel_h, a.kernel_w, a.stride_h, a.stride_w, a.pad_h, a.pad_w, a.dilation_h, a.dilation_w};
}

// The divisor of an average: all taps inside the padded plane, or inside the plane itself.
double pool_size(const PoolAttrs& a, int64_t h, int64_t w, int64_t oh, int64_t ow) {
  Window window = window_of(a);
  int64_t taps = 0;
  if (a.count_include_pad) {
    // The padded plane. Positions beyond it, which ceil_mode allows, do not count.
    window.pad_h = window.pad_w = 0;
    h += 2 * a.pad_h;
    w += 2 * a.pad_w;
  }
  for_taps(window, h, w, oh, ow, [&](int64_t, int64_t, int64_t, int64_t) { ++taps; });
  return static_cast<double>(taps);
}

// The number of H x W planes: the product of all dims but the last two.
int64_t planes_of(const View& v) {
  int64_t planes = 1;
  for (int d = 0; d < v.shape.size() - 2; ++d) planes *= v.shape[d];
  return planes;
}

struct Plane {
  int64_t h, w;
  explicit Plane(const View& v) : h(v.shape[v.shape.size() - 2]), w(v.shape.back()) {}
  int64_t size() const { return h * w; }
};

template <class T>
void max_pool(const Call& c) {
  const Window w = window_of(c.node.attr<PoolAttrs>());
  const View in = c.in(0), out = c.out(0);
  const Plane from(in), to(out);
  const std::vector<T> x = read_all<T>(in);
  std::vector<T> y = zeros<T>(out);
  std::vector<int64_t> index(y.size());
  for (int64_t p = 0; p < planes_of(in); ++p)
    for (int64_t oh = 0; oh < to.h; ++oh)
      for (int64_t ow = 0; ow < to.w; ++ow) {
        T best{};
        int64_t at = -1;
        for_taps(w, from.h, from.w, oh, ow, [&](int64_t, int64_t, int64_t ih, int64_t iw) {
          const T v = x[static_cast<size_t>(p * from.size() + ih * from.w + iw)];
          if (at < 0 || (!is_nan(best) && (is_nan(v) || v > best))) {
            best = v;
            at = ih * from.w + iw;
          }
        });
        PF_CHECK(at >= 0, Runtime,
                 "max_pool2d: a window is entirely in the padding; got padding ({}, {}) and kernel ({}, {})", w.pad_h,
                 w.pad_w, w.kernel_h, w.kernel_w);
        const size_t o = p * to.size() + oh * to.w + ow;
        y[o] = best;
        index[o] = at;
      }
  write_all(out, y);
  if (c.outputs() > 1) write_all(c.out(1), index);
}

}  // namespace

void run_conv2d(const Call& c) {
  with_compute_type(c.out(0).dtype, [&]<class T>() {
    const View in = c.in(0), weight = c.in(1), out = c.out(0);
    const std::vector<T> x = read_all<T>(in), k = read_all<T>(weight);
    std::vector<T> y = zeros<T>(out);
    for_products(c.node.attr<ConvAttrs>(), in.shape, weight.shape, out.shape,
                 [&](size_t i, size_t w, size_t o) { y[o] = add(y[o], mul(x[i], k[w])); });
    write_all(out, y);
  });
}

void run_conv2d_grad_input(const Call& c) {
  const View grad = c.in(0), weight = c.in(1), out = c.out(0);
  const std::vector<double> g = read_all<double>(grad), k = read_all<double>(weight);
  std::vector<double> dx = zeros<double>(out);
  for_products(c.node.attr<ConvAttrs>(), out.shape, weight.shape, grad.shape,
               [&](size_t i, size_t w, size_t o) { dx[i] += g[o] * k[w]; });
  write_all(out, dx);
}

void run_conv2d_grad_weight(const Call& c) {
  const View grad = c.in(0), in = c.in(1), out = c.out(0);
  const std::vector<double> g = read_all<double>(grad), x = read_all<double>(in);
  std::vector<double> dw = zeros<double>(out);
  for_products(c.node.attr<ConvAttrs>(), in.shape, out.shape, grad.shape,
               [&](size_t i, size_t w, size_t o) { dw[w] += g[o] * x[i]; });
  write_all(out, dw);
}

void run_max_pool2d(const Call& c) {
  with_compute_type(c.out(0).dtype, [&]<class T>() { max_pool<T>(c); });
}

void run_max_pool2d_grad(const Call& c) {
  const View grad = c.in(0), out = c.out(0);
  const Plane from(grad), to(out);
  const std::vector<double> g = read_all<double>(grad);
  const std::vector<int64_t> at = read_all<int64_t>(c.in(1));
  std::vector<double> dx = zeros<double>(out);
  for (int64_t p = 0; p < planes_of(out); ++p)
    for (int64_t o = p * from.size(); o < (p + 1) * from.size(); ++o)
      dx[static_cast<size_t>(p * to.size() + at[static_cast<size_t>(o)])] += g[static_cast<size_t>(o)];
  write_all(out, dx);
}

void run_avg_pool2d(const Call& c) {
  const auto a = c.node.attr<PoolAttrs>();
  const View in = c.in(0), out = c.out(0);
  const Plane from(in), to(out);
  const std::vector<double> x = read_all<double>(in);
  std::vector<double> y = zeros<double>(out);
  for (int64_t p = 0; p < planes_of(in); ++p)
    for (int64_t oh = 0; oh < to.h; ++oh)
      for (int64_t ow = 0; ow < to.w; ++ow) {
        double sum = 0;
        for_taps(window_of(a), from.h, from.w, oh, ow, [&](int64_t, int64_t, int64_t ih, int64_t iw) {
          sum += x[static_cast<size_t>(p * from.size() + ih * from.w + iw)];
        });
        y[static_cast<size_t>(p * to.size() + oh * to.w + ow)] = sum / pool_size(a, from.h, from.w, oh, ow);
      }
  write_all(out, y);
}

void run_avg_pool2d_grad(const Call& c) {
  const auto a = c.node.attr<PoolAttrs>();
  const View grad = c.in(0), out = c.out(0);
  const Plane from(grad), to(out);
  const std::vector<double> g = read_all<double>(grad);
  std::vector<double> dx = zeros<double>(out);
  for (int64_t p = 0; p < planes_of(out); ++p)
    for (int64_t oh = 0; oh < from.h; ++oh)
      for (int64_t ow = 0; ow < from.w; ++ow) {
        const double share =
            g[static_cast<size_t>(p * from.size() + oh * from.w + ow)] / pool_size(a, to.h, to.w, oh, ow);
        for_taps(window_of(a), to.h, to.w, oh, ow, [&](int64_t, int64_t, int64_t ih, int64_t iw) {
          dx[static_cast<size_t>(p * to.size() + ih * to.w + iw)] += share;
        });
      }
  write_all(out, dx);
}

void run_resample(const Call& c) {
  const int dim = static_cast<int>(c.node.attr<DimAttrs>().dim);
  const View in = c.in(0), out = c.out(0);
  const std::vector<double> x = read_all<double>(in), weight = read_all<double>(c.in(2));
  const std::vector<int64_t> begin = read_all<int64_t>(c.in(1));
  std::vector<double> y = zeros<double>(out);
  const int64_t taps = c.in(2).shape[1], from = in.shape[dim], to = out.shape[dim];
  int64_t inner = 1;
  for (int d = dim + 1; d < in.shape.size(); ++d) inner *= in.shape[d];
  for (int64_t e = 0; e < out.numel(); ++e) {
    const int64_t i = e / inner % to,
                  first = (e / inner / to * from + begin[static_cast<size_t>(i)]) * inner + e % inner;
    for (int64_t t = 0; t < taps; ++t) {
      const double w =
          weight[static_cast<size_t>(i * taps + t)];  // 0: the element does not count, even if it is infinite
      if (w != 0) y[static_cast<size_t>(e)] += w * x[static_cast<size_t>(first + t * inner)];
    }
  }
  write_all(out, y);
}

}  // namespace pyflame::reference
