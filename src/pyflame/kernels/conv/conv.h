// The three convolutions (forward, gradient of the input, gradient of the weight) as one implicit GEMM: a matrix
// product whose operands are read directly from the tensors, without im2col. Strides and sizes are run-time numbers, so
// one compiled kernel serves every shape.
//
//   C[i][j] = sum over k of A[i][k] * B[k][j]
//   forward, gradient of the input   i: channel of the result  j: pixel of the result    k: tap and channel of B
//   gradient of the weight           i: output channel         j: tap and input channel  k: output pixel
//
// A pixel and a tap each contribute an offset into the plane that B reads. Their sum says whether the element of B is
// inside the plane or in the padding. The gradient of the input is computed in phases, one for each remainder of a
// pixel's position modulo the stride: within a phase the same taps contribute to all pixels, so no products with zeros
// between the pixels are computed.
#pragma once

namespace pf {

struct ConvPlace {  // strides, in elements, of a tensor with dims (outer, channel, h, w)
  i64 n, c, h, w;
};

struct Conv {
  ConvPlace read, weight,
      // `weight`: (result channel, operand channel, kh, kw) of a group. `made`: the tensor that has the pixels
      made;
  i64 weight_group;  // elements from the weights of one group to those of the next
  i64 images;
  int made_channels, read_channels;  // within a group
  int read_h, read_w;                // the plane that B reads
  int made_h, made_w;                // the plane of the pixels
  int kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
  int groups, phases_h, phases_w;  // number of phases: the stride for the gradient of the input, 1 otherwise
  int backward;                    // 1: pixels are those of the input, and taps are visited in the opposite direction
  int a_along_k, b_along_k;        // 1: consecutive threads take neighbours along k; 0: along i or j
  int splits;                      // gradient of the weight: parts of the sum, each stored in its own slice
  i64 split_depth;
};

#ifdef PF_ON_DEVICE

PF_DEVICE float conv_fma(float a, float b, float c) { return fmaf(a, b, c); }
PF_DEVICE double conv_fma(double a, double b, double c) { return ::fma(a, b, c); }

// A pixel or a tap: its offset in A or C, its offset in B, and its contribution to the position in B's plane.
struct ConvPoint {
  i64 other, read;
  int h, w;
};

// One dim of a phase. Its pixels are first + i * stride, its taps are tap + t * tap_step, and they meet at position
// start + i - t * back.
struct ConvPhase {
  int first, pixels, tap, taps, tap_step, start, move, step;
};

PF_DEVICE int conv_gcd(int a, int b) {
  while (b != 0) {
    const int r = a % b;
    a = b;
    b = r;
  }
  return a;
}

PF_DEVICE ConvPhase conv_phase(bool backward, int phase, int pixels, int kernel, int stride, int pad, int dilation) {
  // Pixel i reads the position i * stride - pad + t * dilation.
  if (!backward) return {0, pixels, 0, kernel, 1, -pad, stride, dilation};
  // Pixel first + i * stride was read by the output pixels o with o * stride = pixel + pad - tap * dilation.
  const int common = conv_gcd(stride, dilation), tap_step = stride / common;
  ConvPhase p = {phase, (pixels - phase + stride - 1) / stride, 0, 0, tap_step, 0, 1, -(dilation / common)};
  for (int t = 0; t < tap_step && t < kernel; ++t)
    if ((phase + pad - t * dilation) % stride == 0) {
      p.tap = t;
      p.taps = (kernel - t + tap_step - 1) / tap_step;
      p.start = (phase + pad - t * dilation) / stride;
    }
  return p;
}

struct ConvGeometry {
  ConvPhase h, w;
  int group, split;
  i64 rows, columns, depth_begin, depth_end;
};

template <bool kWeight>
PF_DEVICE ConvGeometry conv_geometry(const Conv& p, int z) {
  ConvGeometry g;
  const int inner = kWeight ? p.splits : p.phases_h * p.phases_w;
  g.group = z / inner;
  const int rest = z % inner;
  g.split = kWeight ? rest : 0;
  const bool backward = !kWeight && p.backward;
  g.h = conv_phase(backward, rest / p.phases_w, p.made_h, p.kernel_h, p.stride_h, p.pad_h, p.dilation_h);
  g.w = conv_phase(backward, rest % p.phases_w, p.made_w, p.kernel_w, p.stride_w, p.pad_w, p.dilation_w);
  const i64 taps = (i64)g.h.taps * g.w.taps * p.read_channels, pixels = p.images * g.h.pixels * g.w.pixels;
  g.rows = p.made_channels;
  g.columns = kWeight ? taps : pixels;
  const i64 depth = kWeight ? pixels : taps;
  g.depth_begin = kWeight ? g.split * p.split_depth : 0;
  g.depth_end = kWeight && g.depth_begin + p.split_depth < depth ? g.depth_begin + p.split_depth : depth;
  return g;
}

// Taps in the order (kh, kw, channel). `other`: the offset in the weight.
PF_DEVICE ConvPoint conv_tap(const Conv& p, const ConvGeometry& g, i64 index) {
  const u32 e = (u32)index, c = e % (u32)p.read_channels, t = e / (u32)p.read_channels;
  const int tw = (int)(t % (u32)g.w.taps), th = (int)(t / (u32)g.w.taps);
  const int h = th * g.h.step, w = tw * g.w.step;
  return {(i64)c * p.weight.c + (g.h.tap + th * g.h.tap_step) * p.weight.h + (g.w.tap + tw * g.w.tap_step) * p.weight.w,
          (i64)c * p.read.c + h * p.read.h + w * p.read.w, h, w};
}

// Pixels in the order (image, h, w). `other`: the offset in the tensor that has these pixels.
PF_DEVICE ConvPoint conv_pixel(const Conv& p, const ConvGeometry& g, i64 index) {
  i64 n, ih, iw;
  if (index < 0x7fffffff) {
    const u32 e = (u32)index, r = e / (u32)g.w.pixels;
    iw = e % (u32)g.w.pixels, ih = r % (u32)g.h.pixels, n = r / (u32)g.h.pixels;
  } else {
    const i64 r = index / g.w.pixels;
    iw = index % g.w.pixels, ih = r % g.h.pixels, n = r / g.h.pixels;
  }
  const int h = g.h.start + (int)ih * g.h.move, w = g.w.start + (int)iw * g.w.move;
  const int stride_h = p.backward ? p.stride_h : 1, stride_w = p.backward ? p.stride_w : 1;
  return {n * p.made.n + (g.h.first + ih * stride_h) * p.made.h + (g.w.first + iw * stride_w) * p.made.w,
          n * p.read.n + h * p.read.h + w * p.read.w, h, w};
}

PF_DEVICE bool conv_inside(const Conv& p, const ConvPoint& a, const ConvPoint& b) {
  return (u32)(a.h + b.h) < (u32)p.read_h && (u32)(a.w + b.w) < (u32)p.read_w;
}

// Stores an element of the result. An `out` is called with the element's offset in the result, its channel and the sum.
template <class S>
struct ConvStore {
  S* c;
  PF_DEVICE void operator()(i64 at, i64, C<S> x) const { store(c + at, x); }
};

// Each workgroup of (kRows / kEach) * (kColumns / kEach) threads computes a tile of kRows x kColumns of C. Forward and
// gradient of the input: a = weight, b = the tensor that is read. Gradient of the weight: a = the gradient of the
// output (whose pixels are described by `made`), b = the input. The result is the gradient of the weight, or with
// several splits the partial sums [split][group][i][j].
template <class S, bool kWeight, int kRows, int kColumns, int kDepth, int kEach, class Out>
PF_DEVICE void conv(const S* a, const S* b, C<S>* slices, const Conv& p, const Out& out) {
  using T = C<S>;
  constexpr int kAcross = kColumns / kEach, kDown = kRows / kEach, kThreads = kAcross * kDown;
  PF_SHARED T as[kDepth][kRows + 1], bs[kDepth][kColumns + 1];
  PF_SHARED ConvPoint mids[kDepth], cols[kColumns];
  const ConvGeometry g = conv_geometry<kWeight>(p, (int)group().z);
  const i64 row0 = (i64)group().y * kRows, col0 = (i64)group().x * kColumns;
  if (col0 >= g.columns) return;
  for (int j = thread(); j < kColumns; j += kThreads)
    if (col0 + j < g.columns) cols[j] = kWeight ? conv_tap(p, g, col0 + j) : conv_pixel(p, g, col0 + j);
  const i64 first = (i64)g.group * g.rows;  // first channel of the result
  const i64 a_row = kWeight ? p.made.c : p.weight.n;
  a += kWeight ? first * p.made.c : g.group * p.weight_group;
  b += (i64)g.group * p.read_channels * p.read.c;
  T sums[kEach][kEach] = {};
  const int tx = thread() % kAcross, ty = thread() / kAcross;
  for (i64 k0 = g.depth_begin; k0 < g.depth_end; k0 += kDepth) {
    const int depth = g.depth_end - k0 < kDepth ? (int)(g.depth_end - k0) : kDepth;
    barrier();
    if ((int)thread() < depth)
      mids[thread()] = kWeight ? conv_pixel(p, g, k0 + thread()) : conv_tap(p, g, k0 + thread());
    barrier();
    for (int e = thread(); e < kRows * kDepth; e += kThreads) {
      const int i = p.a_along_k ? e / kDepth : e % kRows, d = p.a_along_k ? e % kDepth : e / kRows;
      as[d][i] = row0 + i < g.rows && d < depth ? load(a + (row0 + i) * a_row + mids[d].other) : T(0);
    }
    for (int e = thread(); e < kColumns * kDepth; e += kThreads) {
      const int j = p.b_along_k ? e / kDepth : e % kColumns, d = p.b_along_k ? e % kDepth : e / kColumns;
      T value = 0;
      if (col0 + j < g.columns && d < depth && conv_inside(p, mids[d], cols[j]))
        value = load(b + mids[d].read + cols[j].read);
      bs[d][j] = value;
    }
    barrier();
    for (int d = 0; d < kDepth; ++d) {
      T x[kEach], y[kEach];
      for (int i = 0; i < kEach; ++i) x[i] = as[d][ty + i * kDown], y[i] = bs[d][tx + i * kAcross];
      for (int i = 0; i < kEach; ++i)
        for (int j = 0; j < kEach; ++j) sums[i][j] = conv_fma(x[i], y[j], sums[i][j]);
    }
  }
  barrier();
  const i64 c_row = kWeight ? p.weight.n : p.made.c;
  const i64 base = kWeight ? g.group * p.weight_group : first * p.made.c;
  for (int i = 0; i < kEach; ++i)
    for (int j = 0; j < kEach; ++j) {
      const int column = tx + j * kAcross;
      const i64 row = row0 + ty + i * kDown, col = col0 + column;
      if (row >= g.rows || col >= g.columns) continue;
      if (kWeight && p.splits > 1)
        slices[(((i64)g.split * p.groups + g.group) * g.rows + row) * g.columns + col] = sums[i][j];
      else out(base + row * c_row + cols[column].other, first + row, sums[i][j]);
    }
}

// Adds the partial sums of a weight's gradient in their order.
template <class S>
PF_DEVICE void conv_join(const C<S>* slices, S* c, const Conv& p) {
  const ConvGeometry g = conv_geometry<true>(p, 0);
  const i64 count = (i64)p.groups * g.rows * g.columns;
  for (i64 e = (i64)group().x * threads() + thread(); e < count; e += (i64)groups().x * threads()) {
    C<S> sum = slices[e];
    for (int s = 1; s < p.splits; ++s) sum += slices[s * count + e];
    const i64 row = e / g.columns;
    store(c + row / g.rows * p.weight_group + row % g.rows * p.weight.n + conv_tap(p, g, e % g.columns).other, sum);
  }
}

// Convolutions with few channels per group (depthwise): each element of the result has a thread, which adds a few
// products. kBackward is Conv::backward as a compile-time constant, because there are not enough scalar registers for
// the numbers of both directions.
template <class S, bool kBackward, class Out>
PF_DEVICE void conv_direct(const S* weight, const S* read, const Conv& p, const Out& out) {
  const i64 plane = (i64)p.made_h * p.made_w, channels = (i64)p.groups * p.made_channels;
  const i64 count = p.images * channels * plane;
  for (i64 e = (i64)group().x * threads() + thread(); e < count; e += (i64)groups().x * threads()) {
    // Consecutive threads take neighbouring pixels of a plane, or neighbouring channels if those are adjacent in
    // memory.
    const bool last = p.made.c == 1;
    const i64 n = e / plane / channels, rest = e % (plane * channels), channel = last ? rest % channels : rest / plane;
    const i64 pixel = last ? rest / channels : rest % plane, g = channel / p.made_channels;
    const int iw = (int)(pixel % p.made_w), ih = (int)(pixel / p.made_w);
    const S* row = weight + g * p.weight_group + channel % p.made_channels * p.weight.n;
    const S* plane0 = read + n * p.read.n + g * p.read_channels * p.read.c;
    C<S> sum = 0;
    for (int kh = 0; kh < p.kernel_h; ++kh) {
      const int up = kBackward ? ih + p.pad_h - kh * p.dilation_h : ih * p.stride_h - p.pad_h + kh * p.dilation_h;
      const int h = kBackward ? up / p.stride_h : up;
      if (up < 0 || h >= p.read_h || (kBackward && up % p.stride_h != 0)) continue;
      for (int kw = 0; kw < p.kernel_w; ++kw) {
        const int along = kBackward ? iw + p.pad_w - kw * p.dilation_w : iw * p.stride_w - p.pad_w + kw * p.dilation_w;
        const int w = kBackward ? along / p.stride_w : along;
        if (along < 0 || w >= p.read_w || (kBackward && along % p.stride_w != 0)) continue;
        for (int c = 0; c < p.read_channels; ++c)
          sum = conv_fma(load(plane0 + c * p.read.c + h * p.read.h + w * p.read.w),
                         load(row + c * p.weight.c + kh * p.weight.h + kw * p.weight.w), sum);
      }
    }
    out(n * p.made.n + channel * p.made.c + ih * p.made.h + iw * p.made.w, channel, sum);
  }
}

// Its gradient of the weight: each element of the weight has a workgroup.
template <class S, int kThreads>
PF_DEVICE void conv_direct_weight(const S* grad, const S* read, S* weight, const Conv& p) {
  PF_SHARED C<S> shared[kThreads];
  const ConvGeometry g = conv_geometry<true>(p, 0);
  const i64 channel = group().x / g.columns;
  const ConvPoint tap = conv_tap(p, g, group().x % g.columns);
  grad += channel * p.made.c;
  read += channel / p.made_channels * p.read_channels * p.read.c;
  C<S> sum = 0;
  for (i64 e = thread(); e < g.depth_end; e += kThreads) {
    const ConvPoint pixel = conv_pixel(p, g, e);
    if (conv_inside(p, pixel, tap)) sum = conv_fma(load(grad + pixel.other), load(read + pixel.read + tap.read), sum);
  }
  sum = over_group<Sum, kThreads>(sum, shared);
  if (thread() == 0)
    store(weight + channel / p.made_channels * p.weight_group + channel % p.made_channels * p.weight.n + tap.other,
          sum);
}
#endif

}  // namespace pf
