// batch_norm and its gradient over [outer][channel][inner], channels first or last. A channel is cut into segments by
// the shape alone; sums over segments are combined in a fixed order, and one more pass writes the result. Squares are
// summed relative to the channel's first element, so that little cancels.
#pragma once

namespace pf {

#ifdef PF_ON_DEVICE

constexpr int kNormThreads = 256, kNormChannels = 64;

// Calls f(offset of kVec adjacent elements) for the elements of this workgroup's segment that belong to this thread.
// Channels last: the elements belong to the channels from channel() on, the same ones in every call. Channels first:
// they belong to one channel.
template <bool kLast, int kVec>
struct NormSweep {
  static constexpr int kAcross = kNormChannels / kVec, kLanes = kNormThreads / kAcross, kOwn = kLast ? kVec : 1;
  static PF_DEVICE i64 channel() {
    return kLast ? (i64)group().x * kNormChannels + thread() % kAcross * kVec : (i64)group().x;
  }
  template <class F>
  static PF_DEVICE void each(const BatchNorm& p, F f) {
    const i64 begin = group().y * p.segment, c = channel();
    if (c >= p.channels) return;
    if constexpr (kLast) {
      const i64 rows = p.outer * p.inner, end = begin + p.segment < rows ? begin + p.segment : rows;
      for (i64 r = begin + thread() / kAcross; r < end; r += kLanes) f(r * p.channels + c);
    } else {
      const i64 end = begin + p.segment < p.outer ? begin + p.segment : p.outer;
      const int at = (int)thread() % p.along, lane = (int)thread() / p.along, lanes = kNormThreads / p.along;
      for (i64 n = begin + lane; n < end; n += lanes)
        for (i64 i = (i64)at * kVec; i < p.inner; i += (i64)p.along * kVec) f((n * p.channels + c) * p.inner + i);
    }
  }
};

// parts[segment][2][channel]: the sums of x - pivot and of its square, where pivot is the channel's first element; with
// kGrad the sums of g and of g * (x - mean).
template <class S, bool kGrad, bool kLast, int kVec>
PF_DEVICE void batch_norm_sums(const S* x, const S* g, const C<S>* mean, C<S>* parts, const BatchNorm& p) {
  using T = C<S>;
  using Sweep = NormSweep<kLast, kVec>;
  constexpr int kOwn = Sweep::kOwn;
  T pivot[kOwn], a[kOwn], b[kOwn];
  const i64 c0 = Sweep::channel();
  for (int k = 0; k < kOwn; ++k) {
    a[k] = b[k] = pivot[k] = 0;
    if (c0 + k < p.channels) pivot[k] = kGrad ? mean[c0 + k] : load(x + (kLast ? c0 + k : c0 * p.inner));
  }
  Sweep::each(p, [&](i64 at) {
    const Vec<S, kVec> v = load_vec<kVec>(x + at);
    Vec<S, kVec> w = v;
    if constexpr (kGrad) w = load_vec<kVec>(g + at);
    for (int k = 0; k < kVec; ++k) {
      const int own = kLast ? k : 0;
      const T d = load(&v[k]) - pivot[own], q = kGrad ? load(&w[k]) : d;
      a[own] += q;
      b[own] += q * d;
    }
  });
  T* to = parts + (i64)group().y * 2 * p.channels;
  if constexpr (kLast) {
    // Combines the lanes that share a channel, as a tree.
    PF_SHARED T sums[2][kNormThreads * kVec];
    const int lane = (int)thread() / Sweep::kAcross, column = (int)thread() % Sweep::kAcross * kVec;
    for (int k = 0; k < kVec; ++k) {
      sums[0][lane * kNormChannels + column + k] = a[k];
      sums[1][lane * kNormChannels + column + k] = b[k];
    }
    barrier();
    for (int lanes = Sweep::kLanes / 2; lanes > 0; lanes /= 2) {
      for (int e = (int)thread(); e < lanes * kNormChannels; e += kNormThreads) {
        sums[0][e] += sums[0][e + lanes * kNormChannels];
        sums[1][e] += sums[1][e + lanes * kNormChannels];
      }
      barrier();
    }
    const i64 first = (i64)group().x * kNormChannels;
    if ((int)thread() < kNormChannels && first + thread() < p.channels) {
      to[first + thread()] = sums[0][thread()];
      to[p.channels + first + thread()] = sums[1][thread()];
    }
  } else {
    PF_SHARED T shared[kNormThreads];
    const T sum = over_group<Sum, kNormThreads>(a[0], shared), square = over_group<Sum, kNormThreads>(b[0], shared);
    if (thread() == 0) {
      to[c0] = sum;
      to[p.channels + c0] = square;
    }
  }
}

// A workgroup per channel combines its segments. Forward: mean, variance, and the factors [mean, scale, bias].
// Gradient: those of weight and bias, and the factors [mean, scale, mean of g, mean of g * normalised / deviation].
template <class S, class W, bool kGrad, bool kLast>
PF_DEVICE void batch_norm_join(const S* x, const W* weight, const W* bias, const C<S>* parts, C<S>* mean,
                               C<S>* variance, W* weight_grad, W* bias_grad, C<S>* factors, double eps,
                               const BatchNorm& p) {
  using T = C<S>;
  PF_SHARED T shared[kNormThreads];
  const i64 c = group().x;
  T a = 0, b = 0;
  for (int s = (int)thread(); s < p.segments; s += kNormThreads) {
    a += parts[(i64)s * 2 * p.channels + c];
    b += parts[((i64)s * 2 + 1) * p.channels + c];
  }
  a = over_group<Sum, kNormThreads>(a, shared);
  b = over_group<Sum, kNormThreads>(b, shared);
  if (thread() != 0) return;
  const T count = (T)(p.outer * p.inner), w = weight ? (T)load(weight + c) : (T)1;
  if constexpr (kGrad) {
    const T deviation = 1 / m_sqrt(variance[c] + (T)eps);
    store(weight_grad + c, (C<W>)(b * deviation));
    store(bias_grad + c, (C<W>)a);
    factors[c] = mean[c];
    factors[p.channels + c] = w * deviation;
    factors[2 * p.channels + c] = a / count;
    factors[3 * p.channels + c] = b * deviation * deviation / count;
  } else {
    const T pivot = load(x + (kLast ? c : c * p.inner)), shift = a / count, v = (b - a * shift) / count;
    mean[c] = pivot + shift;
    variance[c] = v < 0 ? (T)0 : v;
    factors[c] = pivot + shift;
    factors[p.channels + c] = w / m_sqrt(variance[c] + (T)eps);
    factors[2 * p.channels + c] = bias ? (T)load(bias + c) : (T)0;
  }
}

template <class S, bool kGrad, bool kLast, int kVec>
PF_DEVICE void batch_norm_apply(const S* x, const S* g, const C<S>* factors, S* y, const BatchNorm& p) {
  using T = C<S>;
  using Sweep = NormSweep<kLast, kVec>;
  constexpr int kOwn = Sweep::kOwn;
  T mean[kOwn], scale[kOwn], third[kOwn], fourth[kOwn];
  const i64 c0 = Sweep::channel();
  for (int k = 0; k < kOwn; ++k) {
    const i64 c = c0 + k < p.channels ? c0 + k : p.channels - 1;
    mean[k] = factors[c];
    scale[k] = factors[p.channels + c];
    third[k] = factors[2 * p.channels + c];
    fourth[k] = kGrad ? factors[3 * p.channels + c] : (T)0;
  }
  Sweep::each(p, [&](i64 at) {
    const Vec<S, kVec> v = load_vec<kVec>(x + at);
    Vec<S, kVec> w = v;
    if constexpr (kGrad) w = load_vec<kVec>(g + at);
    Vec<S, kVec> out;
    for (int k = 0; k < kVec; ++k) {
      const int own = kLast ? k : 0;
      const T d = load(&v[k]) - mean[own];
      store(&out[k], kGrad ? scale[own] * (load(&w[k]) - third[own] - d * fourth[own]) : d * scale[own] + third[own]);
    }
    store_vec(y + at, out);
  });
}
#endif

}  // namespace pf
