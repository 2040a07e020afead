// Attention without matrix cores, forward and backward, for every dtype, head size and stride. Each row has a
// workgroup. Its threads first take kThreads keys (or queries) at a time, then one element of the head each. The
// gradient recomputes the sums of the scores in the computation's own type, because the stored logsumexp is float32,
// which is too inexact for float64.
#pragma once

namespace pf {

#ifdef PF_ON_DEVICE

PF_DEVICE float fused(float a, float b, float c) { return fmaf(a, b, c); }
PF_DEVICE double fused(double a, double b, double c) { return ::fma(a, b, c); }

// The product of two rows; a is in shared memory, in the type of the computation.
template <class T>
PF_DEVICE C<T> dot(const C<T>* a, const T* b, i64 stride, int n) {
  C<T> sum = 0;
#pragma unroll 1
  for (int i = 0; i < n; ++i, b += stride) sum = fused(a[i], load(b), sum);
  return sum;
}
template <class T>
PF_DEVICE C<T> dot(const T* a, i64 a_stride, const T* b, i64 b_stride, i64 n) {
  C<T> sum = 0;
#pragma unroll 1
  for (int i = 0; i < (int)n; ++i, a += a_stride, b += b_stride) sum = fused(load(a), load(b), sum);
  return sum;
}

template <class T, MaskKind kMask>
PF_DEVICE C<T> plain_score(C<T> x, const void* mask, i64 at) {
  if constexpr (kMask == kBoolMask) return load((const bool8*)mask + at) ? x : minus_infinity();
  else if constexpr (kMask == kAddedMask) return x + load((const T*)mask + at);
  else return x;
}

// The query of a workgroup: its head, its position in its batch entry or sequence, and its row among all logsumexps.
struct QueryRow {
  i64 b, h, kv, t, q0, k0, row;
  bool none;
  // Its row of an operand, and where the keys or values of its head begin.
  template <class T>
  PF_DEVICE T* row_of(T* x, const Strides4& s) const {
    return x + s.row(b, h, q0 + t);
  }
  template <class T>
  PF_DEVICE const T* keys_of(const T* x, const Strides4& s) const {
    return x + s.row(b, kv, k0);
  }
  PF_DEVICE i64 mask_at(const Attention& p) const { return p.mask.row(b, h, t); }
};
template <bool kPacked>
PF_DEVICE QueryRow query_row(Attention& p) {
  const unsigned queries = (unsigned)p.queries, heads = (unsigned)p.heads;
  const unsigned row = group().x, bh = row / queries, h = bh % heads;
  const Place at = place_of<kQueries, 1, kPacked>(p, bh / heads, row % queries);
  return {at.b,  h,     h / (heads / (unsigned)p.kv_heads),   at.first,
          at.q0, at.k0, (i64)bh * queries + at.q0 + at.first, at.none};
}

// How many keys the query sees; none if it is left out.
template <class T, MaskKind kMask, bool kCausal>
PF_DEVICE int keys_seen(const QueryRow& at, const void* mask, const Attention& p) {
  if (kMask != kNoMask && p.mask.t == 0 && is_padding<T, kMask, 1>(mask, p, at.b, at.h, at.t)) return 0;
  return (int)p.seen(at.t, kCausal);
}

// The running softmax of a query. `total` is the sum of the weights, relative to the maximum `top`.
template <class X, int kThreads>
struct RunningSoftmax {
  X top = minus_infinity(), total = 0;
  struct Step {
    X weight, fade;  // the weight of this thread's score, and the factor of the sums before
  };
  // Takes kThreads scores, of which this thread has x.
  PF_DEVICE Step add(X x, X* shared) {
    const X best = over_group<Largest, kThreads>(maximum<X>(top, x), shared);
    const X shift = best == (X)minus_infinity() ? 0 : best;
    const Step step = {m_exp(x - shift), m_exp(top - shift)};
    total = fused(total, step.fade, over_group<Sum, kThreads>(step.weight, shared));
    top = best;
    return step;
  }
};

// sums = sums * fade + the weighted sum of `count` rows. A thread has each kThreads-th element.
template <int kThreads, class T>
PF_DEVICE void add_rows(C<T>* sums, C<T> fade, const C<T>* weights, const T* rows, const Strides4& s, int count,
                        int dim) {
  for (int d = (int)thread(); d < dim; d += kThreads) {
    C<T> sum = sums[d] * fade;
    const T* from = rows + d * s.d;
#pragma unroll 1
    for (int j = 0; j < count; ++j, from += s.t)
      if (weights[j] != 0) sum = fused(weights[j], load(from), sum);
    sums[d] = sum;
  }
}

template <class T, MaskKind kMask, bool kCausal, int kThreads, bool kPacked>
PF_DEVICE void attention_plain(const T* q, const T* k, const T* v, const void* mask, T* out, float* lse, Attention p) {
  using X = C<T>;
  const X scale = (X)p.scale;
  const int dim = (int)p.dim;
  PF_SHARED X shared[kThreads], weights[kThreads];
  X* const sums = dynamic_shared<X>();
  X* const line = sums + dim;
  if (kPacked && group().x == 0) check_offsets(p);
  const QueryRow at = query_row<kPacked>(p);
  if (at.none) return;
  const int seen = keys_seen<T, kMask, kCausal>(at, mask, p);
  const T* const qr = at.row_of(q, p.q);
  const T* const kh = at.keys_of(k, p.k);
  const T* const vh = at.keys_of(v, p.v);
  const i64 mask_at = at.mask_at(p);
  T* const to = at.row_of(out, p.out);
  RunningSoftmax<X, kThreads> softmax;
  for (int d = (int)thread(); d < dim; d += kThreads) {
    sums[d] = 0;
    line[d] = load(qr + d * p.q.d);
  }
  barrier();
  for (int first = 0; first < seen; first += kThreads) {
    const int key = first + (int)thread();
    X x = minus_infinity();
    if (key < seen)
      x = plain_score<T, kMask>(dot<T>(line, kh + key * p.k.t, p.k.d, dim) * scale, mask, mask_at + key * p.mask.d);
    const auto step = softmax.add(x, shared);
    weights[thread()] = step.weight;
    barrier();
    add_rows<kThreads>(sums, step.fade, weights, vh + first * p.v.t, p.v, minimum(seen - first, kThreads), dim);
    barrier();
  }
  const X top = softmax.top, total = softmax.total;
  for (int d = (int)thread(); d < dim; d += kThreads) store(to + d * p.out.d, total == 0 ? X(0) : sums[d] / total);
  if (thread() == 0) lse[at.row] = total == 0 ? minus_infinity() : (float)(top + m_log(total));
}

// Computes three numbers for each query. stats[0], stats[1] and stats[2] hold, for all rows, the largest score, the
// inverse of the sum relative to it, and delta.
template <class T, MaskKind kMask, bool kCausal, int kThreads, bool kPacked>
PF_DEVICE void attention_plain_query_stats(const T* grad, const T* q, const T* k, const T* v, C<T>* stats,
                                           const void* mask, Attention p) {
  using X = C<T>;
  const X scale = (X)p.scale;
  const int dim = (int)p.dim;
  PF_SHARED X shared[kThreads];
  const i64 rows = p.batch * p.heads * p.queries;
  const QueryRow at = query_row<kPacked>(p);
  if (at.none) return;
  const int seen = keys_seen<T, kMask, kCausal>(at, mask, p);
  const T* const qr = at.row_of(q, p.q);
  const T* const gr = at.row_of(grad, p.grad);
  const T* const kh = at.keys_of(k, p.k);
  const T* const vh = at.keys_of(v, p.v);
  const i64 mask_at = at.mask_at(p);
  RunningSoftmax<X, kThreads> softmax;
  X delta = 0;
  for (int first = 0; first < seen; first += kThreads) {
    const int key = first + (int)thread();
    X x = minus_infinity();
    if (key < seen)
      x = plain_score<T, kMask>(dot(qr, p.q.d, kh + key * p.k.t, p.k.d, dim) * scale, mask, mask_at + key * p.mask.d);
    const auto step = softmax.add(x, shared);
    const X product = step.weight == 0 ? 0 : step.weight * dot(gr, p.grad.d, vh + key * p.v.t, p.v.d, dim);
    delta = fused(delta, step.fade, over_group<Sum, kThreads>(product, shared));
  }
  if (thread() != 0) return;
  const X inverse = softmax.total == 0 ? 0 : 1 / softmax.total;
  // If the query sees no key or is left out, all its weights are 0.
  stats[at.row] = softmax.top == (X)minus_infinity() ? (X)-minus_infinity() : softmax.top;
  stats[rows + at.row] = inverse;
  stats[2 * rows + at.row] = delta * inverse;
}

template <class T, MaskKind kMask, bool kCausal, int kThreads, bool kPacked>
PF_DEVICE void attention_plain_queries_grad(const T* grad, const T* q, const T* k, const T* v, const C<T>* stats,
                                            const void* mask, T* dq, Attention p) {
  using X = C<T>;
  const X scale = (X)p.scale;
  const int dim = (int)p.dim;
  PF_SHARED X weights[kThreads];
  X* const sums = dynamic_shared<X>();
  const i64 rows = p.batch * p.heads * p.queries;
  const QueryRow at = query_row<kPacked>(p);
  if (at.none) return;
  const int seen = keys_seen<T, kMask, kCausal>(at, mask, p);
  const T* const qr = at.row_of(q, p.q);
  const T* const gr = at.row_of(grad, p.grad);
  const T* const kh = at.keys_of(k, p.k);
  const T* const vh = at.keys_of(v, p.v);
  T* const to = at.row_of(dq, p.dq);
  const i64 mask_at = at.mask_at(p);
  const X shift = stats[at.row], inverse = stats[rows + at.row], delta = stats[2 * rows + at.row];
  for (int d = (int)thread(); d < dim; d += kThreads) sums[d] = 0;
  for (int first = 0; first < seen; first += kThreads) {
    const int key = first + (int)thread();
    X slope = 0;
    if (key < seen) {
      const X x =
          plain_score<T, kMask>(dot(qr, p.q.d, kh + key * p.k.t, p.k.d, dim) * scale, mask, mask_at + key * p.mask.d);
      const X weight = m_exp(x - shift) * inverse;
      if (weight != 0) slope = weight * (dot(gr, p.grad.d, vh + key * p.v.t, p.v.d, dim) - delta) * scale;
    }
    weights[thread()] = slope;
    barrier();
    add_rows<kThreads>(sums, X(1), weights, kh + first * p.k.t, p.k, minimum(seen - first, kThreads), dim);
    barrier();
  }
  for (int d = (int)thread(); d < dim; d += kThreads) store(to + d * p.dq.d, sums[d]);
}

template <class T, MaskKind kMask, bool kCausal, int kThreads, bool kPacked>
PF_DEVICE void attention_plain_keys_grad(const T* grad, const T* q, const T* k, const T* v, const C<T>* stats,
                                         const void* mask, T* dk, T* dv, Attention p) {
  using X = C<T>;
  const X scale = (X)p.scale;
  const int dim = (int)p.dim;
  PF_SHARED X weights[kThreads], slopes[kThreads];
  X* const sums_k = dynamic_shared<X>();
  X* const sums_v = sums_k + dim;
  X* const line_k = sums_v + dim;
  X* const line_v = line_k + dim;
  const i64 heads = p.heads, together = heads / p.kv_heads, head_rows = p.queries, rows = p.batch * heads * head_rows;
  const unsigned keys = (unsigned)p.keys, kv_heads = (unsigned)p.kv_heads;
  const i64 kv = group().x / keys % kv_heads;
  const Place place = place_of<kKeys, 1, kPacked>(p, group().x / keys / kv_heads, group().x % keys);
  if (place.none) return;
  const i64 key = place.first, b = place.b;
  const int queries = (int)p.queries;
  const T* const kr = k + p.k.row(b, kv, place.k0 + key);
  const T* const vr = v + p.v.row(b, kv, place.k0 + key);
  T* const to_k = dk + p.dk.row(b, kv, place.k0 + key);
  T* const to_v = dv + p.dv.row(b, kv, place.k0 + key);
  for (int d = (int)thread(); d < dim; d += kThreads) {
    sums_k[d] = sums_v[d] = 0;
    line_k[d] = load(kr + d * p.k.d);
    line_v[d] = load(vr + d * p.v.d);
  }
  barrier();
  // The first query that sees the key.
  const i64 from = kCausal ? (i64)key - (p.kv_length - queries) : 0;
  const int start = key >= p.kv_length ? queries : from < 0 ? 0 : (int)from;
  for (i64 h = kv * together; h < (kv + 1) * together; ++h) {
    const T* const qh = q + p.q.row(b, h, place.q0);
    const T* const gh = grad + p.grad.row(b, h, place.q0);
    for (int first = start; first < queries; first += kThreads) {
      const int t = first + (int)thread();
      const i64 at = (b * heads + h) * head_rows + place.q0 + t;
      X weight = 0, slope = 0;
      if (t < queries) {
        const X x = plain_score<T, kMask>(dot<T>(line_k, qh + t * p.q.t, p.q.d, dim) * scale, mask,
                                          p.mask.row(b, h, t) + key * p.mask.d);
        weight = m_exp(x - stats[at]) * stats[rows + at];
        if (weight != 0)
          slope = weight * (dot<T>(line_v, gh + t * p.grad.t, p.grad.d, dim) - stats[2 * rows + at]) * scale;
      }
      weights[thread()] = weight;
      slopes[thread()] = slope;
      barrier();
      const int count = minimum(queries - first, kThreads);
      for (int d = (int)thread(); d < dim; d += kThreads) {
        X sum_k = sums_k[d], sum_v = sums_v[d];
        const T* from_q = qh + first * p.q.t + d * p.q.d;
        const T* from_g = gh + first * p.grad.t + d * p.grad.d;
#pragma unroll 1
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
  for (int d = (int)thread(); d < dim; d += kThreads) {
    store(to_k + d * p.dk.d, sums_k[d]);
    store(to_v + d * p.dv.d, sums_v[d]);
  }
}

#endif

}  // namespace pf
