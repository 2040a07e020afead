// Attention for every dtype, head size and stride, forward and backward: a workgroup for each row, a thread for each of kThreads keys (or
// queries) at a time, then a thread for each element of the head. The gradient finds the scores' sums again in the computation's own
// type: float64 is not left with a float32 logsumexp.
#pragma once

namespace pf {

#ifdef PF_ON_DEVICE

PF_DEVICE float fused(float a, float b, float c) { return fmaf(a, b, c); }
PF_DEVICE double fused(double a, double b, double c) { return ::fma(a, b, c); }

template <class T>
PF_DEVICE C<T> dot(const T* a, i64 a_stride, const T* b, i64 b_stride, i64 n) {
  C<T> sum = 0;
#pragma unroll 4
  for (int i = 0; i < (int)n; ++i, a += a_stride, b += b_stride) sum = fused(load(a), load(b), sum);
  return sum;
}

template <class T, MaskKind kMask>
PF_DEVICE C<T> plain_score(C<T> x, const void* mask, i64 at) {
  if constexpr (kMask == kBoolMask) return load((const bool8*)mask + at) ? x : -1 / C<T>(0);
  else if constexpr (kMask == kAddedMask) return x + load((const T*)mask + at);
  else return x;
}

template <class T, MaskKind kMask, bool kCausal, int kThreads>
PF_DEVICE void attention_plain(const T* q, const T* k, const T* v, const void* mask, T* out, float* lse,
                               const Attention& p) {
  using X = C<T>;
  const X kNone = -1 / X(0), scale = (X)p.scale;
  PF_SHARED X shared[kThreads], weights[kThreads];
  X* const sums = dynamic_shared<X>();
  const unsigned queries = (unsigned)p.queries;
  const unsigned row = group().x;
  const unsigned t = row % queries, bh = row / queries, h = bh % (unsigned)p.heads, b = bh / (unsigned)p.heads;
  const unsigned kv = h / (unsigned)(p.heads / p.kv_heads);
  const i64 seen = p.seen(t, kCausal);
  const T* const qr = q + b * p.q.b + h * p.q.h + t * p.q.t;
  const T* const kh = k + b * p.k.b + kv * p.k.h;
  const T* const vh = v + b * p.v.b + kv * p.v.h;
  const i64 mask_at = b * p.mask.b + h * p.mask.h + t * p.mask.t;
  X top = kNone, total = 0;
  for (i64 d = thread(); d < p.dim; d += kThreads) sums[d] = 0;
  for (i64 first = 0; first < seen; first += kThreads) {
    const i64 key = first + thread();
    X x = kNone;
    if (key < seen)
      x = plain_score<T, kMask>(dot(qr, p.q.d, kh + key * p.k.t, p.k.d, p.dim) * scale, mask, mask_at + key * p.mask.d);
    const X best = over_group<Largest, kThreads>(maximum<X>(top, x), shared);
    const X shift = best == kNone ? 0 : best, fade = m_exp(top - shift), weight = m_exp(x - shift);
    weights[thread()] = weight;
    total = fused(total, fade, over_group<Sum, kThreads>(weight, shared));
    top = best;
    barrier();
    const int count = seen - first < kThreads ? (int)(seen - first) : kThreads;
    for (i64 d = thread(); d < p.dim; d += kThreads) {
      X sum = sums[d] * fade;
      const T* from = vh + first * p.v.t + d * p.v.d;
#pragma unroll 4
      for (int j = 0; j < count; ++j, from += p.v.t)
        if (weights[j] != 0) sum = fused(weights[j], load(from), sum);
      sums[d] = sum;
    }
    barrier();
  }
  T* const to = out + b * p.out.b + h * p.out.h + t * p.out.t;
  for (i64 d = thread(); d < p.dim; d += kThreads) store(to + d * p.out.d, total == 0 ? X(0) : sums[d] / total);
  if (thread() == 0) lse[row] = total == 0 ? -1 / 0.0f : (float)(top + m_log(total));
}

// dq, and for each query what the keys' kernel needs: stats[0..2] of all rows are the largest score, the sum over it, delta.
template <class T, MaskKind kMask, bool kCausal, int kThreads>
PF_DEVICE void attention_plain_queries_grad(const T* grad, const T* q, const T* k, const T* v, C<T>* stats,
                                            const void* mask, T* dq, const Attention& p) {
  using X = C<T>;
  const X kNone = -1 / X(0), scale = (X)p.scale;
  PF_SHARED X shared[kThreads], weights[kThreads];
  X* const sums = dynamic_shared<X>();
  const unsigned rows = (unsigned)(p.batch * p.heads * p.queries), queries = (unsigned)p.queries;
  const unsigned row = group().x;
  const unsigned t = row % queries, bh = row / queries, h = bh % (unsigned)p.heads, b = bh / (unsigned)p.heads;
  const unsigned kv = h / (unsigned)(p.heads / p.kv_heads);
  const i64 seen = p.seen(t, kCausal);
  const T* const qr = q + b * p.q.b + h * p.q.h + t * p.q.t;
  const T* const gr = grad + b * p.grad.b + h * p.grad.h + t * p.grad.t;
  const T* const kh = k + b * p.k.b + kv * p.k.h;
  const T* const vh = v + b * p.v.b + kv * p.v.h;
  const i64 mask_at = b * p.mask.b + h * p.mask.h + t * p.mask.t;
  const auto score = [&](i64 key) {
    if (key >= seen) return kNone;
    return plain_score<T, kMask>(dot(qr, p.q.d, kh + key * p.k.t, p.k.d, p.dim) * scale, mask,
                                 mask_at + key * p.mask.d);
  };
  X top = kNone, total = 0, delta = 0;
  for (i64 first = 0; first < seen; first += kThreads) {
    const i64 key = first + thread();
    const X x = score(key), best = over_group<Largest, kThreads>(maximum<X>(top, x), shared);
    const X shift = best == kNone ? 0 : best, fade = m_exp(top - shift), weight = m_exp(x - shift);
    const X product = weight == 0 ? 0 : weight * dot(gr, p.grad.d, vh + key * p.v.t, p.v.d, p.dim);
    total = fused(total, fade, over_group<Sum, kThreads>(weight, shared));
    delta = fused(delta, fade, over_group<Sum, kThreads>(product, shared));
    top = best;
  }
  const X shift = top == kNone ? 0 : top, inverse = total == 0 ? 0 : 1 / total;
  delta *= inverse;
  if (thread() == 0) stats[row] = shift, stats[rows + row] = inverse, stats[2 * rows + row] = delta;
  for (i64 d = thread(); d < p.dim; d += kThreads) sums[d] = 0;
  for (i64 first = 0; first < seen; first += kThreads) {
    const i64 key = first + thread();
    const X weight = m_exp(score(key) - shift) * inverse;
    weights[thread()] = weight == 0 ? 0 : weight * (dot(gr, p.grad.d, vh + key * p.v.t, p.v.d, p.dim) - delta) * scale;
    barrier();
    const int count = seen - first < kThreads ? (int)(seen - first) : kThreads;
    for (i64 d = thread(); d < p.dim; d += kThreads) {
      X sum = sums[d];
      const T* from = kh + first * p.k.t + d * p.k.d;
#pragma unroll 4
      for (int j = 0; j < count; ++j, from += p.k.t)
        if (weights[j] != 0) sum = fused(weights[j], load(from), sum);
      sums[d] = sum;
    }
    barrier();
  }
  T* const to = dq + b * p.dq.b + h * p.dq.h + t * p.dq.t;
  for (i64 d = thread(); d < p.dim; d += kThreads) store(to + d * p.dq.d, sums[d]);
}

template <class T, MaskKind kMask, bool kCausal, int kThreads>
PF_DEVICE void attention_plain_keys_grad(const T* grad, const T* q, const T* k, const T* v, const C<T>* stats,
                                         const void* mask, T* dk, T* dv, const Attention& p) {
  using X = C<T>;
  const X scale = (X)p.scale;
  PF_SHARED X weights[kThreads], slopes[kThreads];
  X* const sums_k = dynamic_shared<X>();
  X* const sums_v = sums_k + p.dim;
  const unsigned rows = (unsigned)(p.batch * p.heads * p.queries), together = (unsigned)(p.heads / p.kv_heads);
  const unsigned keys = (unsigned)p.keys;
  const unsigned row = group().x;
  const unsigned key = row % keys, bh = row / keys, kv = bh % (unsigned)p.kv_heads, b = bh / (unsigned)p.kv_heads;
  const T* const kr = k + b * p.k.b + kv * p.k.h + key * p.k.t;
  const T* const vr = v + b * p.v.b + kv * p.v.h + key * p.v.t;
  for (i64 d = thread(); d < p.dim; d += kThreads) sums_k[d] = sums_v[d] = 0;
  // The first query that sees the key.
  i64 start = kCausal ? key - (p.kv_length - p.queries) : 0;
  start = key >= p.kv_length ? p.queries : start < 0 ? 0 : start;
  for (unsigned h = kv * together; h < (kv + 1) * together; ++h) {
    const T* const qh = q + b * p.q.b + h * p.q.h;
    const T* const gh = grad + b * p.grad.b + h * p.grad.h;
    for (i64 first = start; first < p.queries; first += kThreads) {
      const i64 t = first + thread(), at = (b * p.heads + h) * p.queries + t;
      X weight = 0, slope = 0;
      if (t < p.queries) {
        const X x = plain_score<T, kMask>(dot(qh + t * p.q.t, p.q.d, kr, p.k.d, p.dim) * scale, mask,
                                          b * p.mask.b + h * p.mask.h + t * p.mask.t + key * p.mask.d);
        weight = m_exp(x - stats[at]) * stats[rows + at];
        if (weight != 0)
          slope = weight * (dot(gh + t * p.grad.t, p.grad.d, vr, p.v.d, p.dim) - stats[2 * rows + at]) * scale;
      }
      weights[thread()] = weight;
      slopes[thread()] = slope;
      barrier();
      const int count = p.queries - first < kThreads ? (int)(p.queries - first) : kThreads;
      for (i64 d = thread(); d < p.dim; d += kThreads) {
        X sum_k = sums_k[d], sum_v = sums_v[d];
        const T* from_q = qh + first * p.q.t + d * p.q.d;
        const T* from_g = gh + first * p.grad.t + d * p.grad.d;
#pragma unroll 4
        for (int j = 0; j < count; ++j, from_q += p.q.t, from_g += p.grad.t)
          if (weights[j] != 0) {
            sum_k = fused(slopes[j], load(from_q), sum_k);
            sum_v = fused(weights[j], load(from_g), sum_v);
          }
        sums_k[d] = sum_k, sums_v[d] = sum_v;
      }
      barrier();
    }
  }
  for (i64 d = thread(); d < p.dim; d += kThreads) {
    store(dk + b * p.dk.b + kv * p.dk.h + key * p.dk.t + d * p.dk.d, sums_k[d]);
    store(dv + b * p.dv.b + kv * p.dv.h + key * p.dv.t + d * p.dv.d, sums_v[d]);
  }
}

#endif

}  // namespace pf
