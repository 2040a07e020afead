// Pooling over windows of a plane, for tensors with any strides; each element of the result has a thread. Gradients
// gather from the windows that contain an element, in the order of the windows, instead of adding to the element
// atomically.
#pragma once

namespace pf {

struct PoolPlace {  // strides, in elements
  i64 n, c, h, w;
};

struct Pool {
  PoolPlace from, to, at;           // `at`: the flat index of the maximum
  Divider by_w, by_h, by_channels;  // by the sizes of the result, if `narrow`: it has less than 2^31 elements
  i64 images, channels;
  int height, width;         // of the plane that contains the windows
  int windows_h, windows_w;  // number of windows
  int kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w, count_padding, narrow;
};

#ifdef PF_ON_DEVICE

struct PoolAt {
  i64 n, c;
  int h, w;
};
// Consecutive threads take neighbouring pixels of a plane, or neighbouring channels if those are adjacent in memory.
PF_DEVICE PoolAt pool_at(i64 e, const Pool& p, int h, int w, bool channels_last) {
  PoolAt a;
  if (p.narrow) {
    u32 rest = (u32)e;
    const auto take = [&rest](const Divider& d) {
      const u32 quotient = d.div(rest), part = rest - quotient * d.d;
      rest = quotient;
      return part;
    };
    if (channels_last) a.c = take(p.by_channels);
    a.w = (int)take(p.by_w), a.h = (int)take(p.by_h);
    if (!channels_last) a.c = take(p.by_channels);
    a.n = rest;
    return a;
  }
  if (channels_last) {
    a.c = e % p.channels;
    e /= p.channels;
  }
  a.w = (int)(e % w);
  e /= w;
  a.h = (int)(e % h);
  e /= h;
  if (!channels_last) {
    a.c = e % p.channels;
    e /= p.channels;
  }
  a.n = e;
  return a;
}

template <class S>
PF_DEVICE void max_pool(const S* x, S* y, i64* at, const Pool& p) {
  const i64 count = p.images * p.channels * p.windows_h * p.windows_w;
  for (i64 e = (i64)group().x * threads() + thread(); e < count; e += (i64)groups().x * threads()) {
    const PoolAt o = pool_at(e, p, p.windows_h, p.windows_w, p.to.c == 1);
    const S* plane = x + o.n * p.from.n + o.c * p.from.c;
    C<S> best = 0;
    i64 found = -1;
    for (int kh = 0; kh < p.kernel_h; ++kh) {
      const int h = o.h * p.stride_h - p.pad_h + kh * p.dilation_h;
      if ((u32)h >= (u32)p.height) continue;
      for (int kw = 0; kw < p.kernel_w; ++kw) {
        const int w = o.w * p.stride_w - p.pad_w + kw * p.dilation_w;
        if ((u32)w >= (u32)p.width) continue;
        const C<S> v = load(plane + h * p.from.h + w * p.from.w);
        if (found < 0 || (!m_nan(best) && (m_nan(v) || v > best))) {
          best = v;
          found = (i64)h * p.width + w;
        }
      }
    }
    store(y + o.n * p.to.n + o.c * p.to.c + o.h * p.to.h + o.w * p.to.w, best);
    if (at) at[o.n * p.at.n + o.c * p.at.c + o.h * p.at.h + o.w * p.at.w] = found;
  }
}

// The divisor of a window: the number of its taps in the padded plane, or in the plane alone.
PF_DEVICE int pool_taps(int first, int kernel, int size, int pad, int count_padding) {
  const int begin = count_padding ? -pad : 0, end = count_padding ? size + pad : size;
  const int from = first < begin ? begin : first, to = first + kernel < end ? first + kernel : end;
  return to > from ? to - from : 0;
}

template <class S>
PF_DEVICE void avg_pool(const S* x, S* y, const Pool& p) {
  const i64 count = p.images * p.channels * p.windows_h * p.windows_w;
  for (i64 e = (i64)group().x * threads() + thread(); e < count; e += (i64)groups().x * threads()) {
    const PoolAt o = pool_at(e, p, p.windows_h, p.windows_w, p.to.c == 1);
    const S* plane = x + o.n * p.from.n + o.c * p.from.c;
    const int h0 = o.h * p.stride_h - p.pad_h, w0 = o.w * p.stride_w - p.pad_w;
    C<S> sum = 0;
    for (int h = h0 < 0 ? 0 : h0; h < h0 + p.kernel_h && h < p.height; ++h)
      for (int w = w0 < 0 ? 0 : w0; w < w0 + p.kernel_w && w < p.width; ++w)
        sum += load(plane + h * p.from.h + w * p.from.w);
    const i64 taps = (i64)pool_taps(h0, p.kernel_h, p.height, p.pad_h, p.count_padding) *
                     pool_taps(w0, p.kernel_w, p.width, p.pad_w, p.count_padding);
    store(y + o.n * p.to.n + o.c * p.to.c + o.h * p.to.h + o.w * p.to.w, sum / (C<S>)taps);
  }
}

// `from`: the gradient; `at`: the element that each window selected.
template <class S>
PF_DEVICE void max_pool_grad(const S* grad, const i64* taken, S* dx, const Pool& p) {
  const i64 count = p.images * p.channels * p.height * p.width;
  for (i64 e = (i64)group().x * threads() + thread(); e < count; e += (i64)groups().x * threads()) {
    const PoolAt o = pool_at(e, p, p.height, p.width, p.to.c == 1);
    const S* plane = grad + o.n * p.from.n + o.c * p.from.c;
    const i64* indices = taken + o.n * p.at.n + o.c * p.at.c;
    const i64 mine = (i64)o.h * p.width + o.w;
    // From the first window that reaches the element to the last one that begins before it.
    const int up = o.h + p.pad_h - (p.kernel_h - 1) * p.dilation_h - 1,
              along = o.w + p.pad_w - (p.kernel_w - 1) * p.dilation_w - 1;
    C<S> sum = 0;
    for (int h = up < 0 ? 0 : up / p.stride_h + 1; h <= (o.h + p.pad_h) / p.stride_h && h < p.windows_h; ++h)
      for (int w = along < 0 ? 0 : along / p.stride_w + 1; w <= (o.w + p.pad_w) / p.stride_w && w < p.windows_w; ++w)
        if (indices[h * p.at.h + w * p.at.w] == mine) sum += load(plane + h * p.from.h + w * p.from.w);
    store(dx + o.n * p.to.n + o.c * p.to.c + o.h * p.to.h + o.w * p.to.w, sum);
  }
}

template <class S>
PF_DEVICE void avg_pool_grad(const S* grad, S* dx, const Pool& p) {
  const i64 count = p.images * p.channels * p.height * p.width;
  for (i64 e = (i64)group().x * threads() + thread(); e < count; e += (i64)groups().x * threads()) {
    const PoolAt o = pool_at(e, p, p.height, p.width, p.to.c == 1);
    const S* plane = grad + o.n * p.from.n + o.c * p.from.c;
    // From the first window that reaches the element to the last one that begins before it.
    const int up = o.h + p.pad_h - p.kernel_h, along = o.w + p.pad_w - p.kernel_w;
    C<S> sum = 0;
    for (int h = up < 0 ? 0 : up / p.stride_h + 1; h <= (o.h + p.pad_h) / p.stride_h && h < p.windows_h; ++h)
      for (int w = along < 0 ? 0 : along / p.stride_w + 1; w <= (o.w + p.pad_w) / p.stride_w && w < p.windows_w; ++w) {
        const i64 taps = (i64)pool_taps(h * p.stride_h - p.pad_h, p.kernel_h, p.height, p.pad_h, p.count_padding) *
                         pool_taps(w * p.stride_w - p.pad_w, p.kernel_w, p.width, p.pad_w, p.count_padding);
        sum += load(plane + h * p.from.h + w * p.from.w) / (C<S>)taps;
      }
    store(dx + o.n * p.to.n + o.c * p.to.c + o.h * p.to.h + o.w * p.to.w, sum);
  }
}
#endif

}  // namespace pf
