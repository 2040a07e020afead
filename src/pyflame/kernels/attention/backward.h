// The gradient of attention on matrix cores. It gives the same bits in every run, because no workgroups add into the
// same sum. The scores are computed twice from the logsumexp that the forward pass stored: once by workgroups that own
// keys and produce dk and dv, and once by workgroups that own queries and produce dq.
//
// With p the probabilities: dv = p^T g; ds = p * (g v^T - delta), delta = rowsum(g * out); dq = ds k scale; dk = ds^T q
// scale.
#pragma once

namespace pf {

#ifdef PF_ON_DEVICE

// Computes two numbers for each query: its logsumexp in base 2, and delta. For queries that see no key, and for rows
// beyond the last query, the logsumexp is infinite, so that all probabilities are 0. Rows are padded to `padded`.
template <class T, int kThreads, bool kPacked>
PF_DEVICE void attention_query_stats(const T* grad, const T* out, const float* lse, float* stats, i64 padded,
                                     Attention p) {
  constexpr int kLanes = 16;
  const i64 rows = p.batch * p.heads * padded, head_rows = p.queries;
  const float kNone = -1 / 0.0f;
  const i64 row = (i64)group().x * (kThreads / kLanes) + thread() / kLanes;
  const i64 h = row / padded % p.heads, b = row / padded / p.heads;
  i64 t = row % padded, q0 = 0;
  if constexpr (kPacked) {  // all rows of a workgroup belong to one sequence
    Place at = {};
    const i64 block = t / kStatsPadding, i = sequence_of(p.packed.from_q, p.packed.sequences, kStatsPadding, block);
    take_sequence(p, at, i);
    q0 = at.q0;
    t -= start_of(p.packed.from_q, i, kStatsPadding) * kStatsPadding;
  }
  const bool there = row < rows && t >= 0 && t < p.queries;
  float sum = 0;
  if (there) {
    grad += b * p.grad.b + h * p.grad.h + (q0 + t) * p.grad.t;
    out += b * p.out.b + h * p.out.h + (q0 + t) * p.out.t;
    for (i64 d = thread() % kLanes; d < p.dim; d += kLanes)
      sum = fmaf(load(grad + d * p.grad.d), load(out + d * p.out.d), sum);
  }
  sum = over_lanes<Sum, kLanes>(sum);
  if (row < rows && thread() % kLanes == 0) {
    const float x = there ? lse[(b * p.heads + h) * head_rows + q0 + t] : kNone;
    stats[row] = x == kNone ? -kNone : x * Base2::kLog2E;
    stats[rows + row] = there ? sum : 0;
  }
}

// kKeys, kQueries: rows of a tile. kRows: rows of a workgroup, which are keys in one kernel and queries in the other.
template <int kWidth_, int kTiles_, int kWaves_, int kStep_, int kStages_>
struct BackwardTiles {
  static constexpr int kWidth = kWidth_, kTiles = kTiles_, kWaves = kWaves_, kStep = kStep_, kStages = kStages_;
  static constexpr int kRows = kWaves * kTiles * 16, kPitch = kWidth + 8, kThreads = kWaves * kWave;
};

enum KeysGrad { kOfValues = 1, kOfKeys = 2 };  // which of dv and dk a kernel computes

template <class T, class S, MaskKind kMask, bool kCausal, bool kWide, int kParts, bool kPacked>
PF_DEVICE void attention_keys_grad(const T* grad, const T* q, const T* k, const T* v, const float* stats, i64 padded,
                                   const void* mask, T* dk, T* dv, Attention p) {
  using M = Mma<T>;
  constexpr int kSteps = S::kStep / 16, kWidthBlocks = S::kWidth / 16, kTile = S::kStep * S::kPitch;
  T* const ks = dynamic_shared<T>();
  T* const vs = ks + S::kRows * S::kPitch;
  T* const steps = vs + S::kRows * S::kPitch;
  float* const numbers = (float*)(steps + S::kStages * 2 * kTile);

  const unsigned blocks = blocks_of<S::kRows, kPacked>(p.keys, p);
  const i64 kv = group().x / blocks % p.kv_heads;
  const Place place = place_of<kKeys, S::kRows, kPacked>(p, group().x / blocks / p.kv_heads, group().x % blocks);
  if (place.none) return;
  const i64 first = place.first, b = place.b;
  const i64 together = p.heads / p.kv_heads, rows = p.batch * p.heads * padded;
  q += b * p.q.b + place.q0 * p.q.t;
  grad += b * p.grad.b + place.q0 * p.grad.t;
  k += b * p.k.b + kv * p.k.h + (place.k0 + first) * p.k.t;
  v += b * p.v.b + kv * p.v.h + (place.k0 + first) * p.v.t;
  load_rows<S::kRows, S::kWidth, S::kPitch, S::kThreads, kWide>(ks, k, p.k.t, p.k.d, p.kv_length - first, p.dim);
  load_rows<S::kRows, S::kWidth, S::kPitch, S::kThreads, kWide>(vs, v, p.v.t, p.v.d, p.kv_length - first, p.dim);

  // The queries that see a key of this workgroup: for each head, all tiles from `start` on.
  i64 start = kCausal ? first - (p.kv_length - p.queries) : 0;
  start = (start < 0 ? 0 : start) / S::kStep;
  i64 tiles = (p.queries + S::kStep - 1) / S::kStep - start;
  if (tiles < 0 || first >= p.kv_length) tiles = 0;
  const int each = (int)tiles, all = each * (int)together;

  const auto copy = [&](int at) {
    T* to = steps + at % S::kStages * 2 * kTile;
    float* stat = numbers + at % S::kStages * 2 * S::kStep;
    const i64 h = kv * together + at / each, t = (start + at % each) * S::kStep;
    load_rows<S::kStep, S::kWidth, S::kPitch, S::kThreads, kWide>(to, q + h * p.q.h + t * p.q.t, p.q.t, p.q.d,
                                                                  p.queries - t, p.dim);
    load_rows<S::kStep, S::kWidth, S::kPitch, S::kThreads, kWide>(to + kTile, grad + h * p.grad.h + t * p.grad.t,
                                                                  p.grad.t, p.grad.d, p.queries - t, p.dim);
    // A quarter of the step's threads copies logsumexps, another quarter copies deltas.
    if ((int)thread() < S::kStep / 2) {
      const int which = (int)thread() / (S::kStep / 4), at4 = (int)thread() % (S::kStep / 4) * 4;
      async_copy(stat + which * S::kStep + at4,
                 stats + which * rows + (b * p.heads + h) * padded + place.stats + t + at4, true);
    }
  };
  if (S::kStages > 1 && all > 0) copy(0);
  async_commit();

  typename M::C sums_v[kParts & kOfValues ? S::kTiles : 1][kParts & kOfValues ? kWidthBlocks : 1] = {};
  typename M::C sums_k[kParts & kOfKeys ? S::kTiles : 1][kParts & kOfKeys ? kWidthBlocks : 1] = {};
  const float factor = (float)(p.scale * Base2::kLog2E);
  const int wave_row = wave() * S::kTiles * 16;

  for (int at = 0; at < all; ++at) {
    if constexpr (S::kStages > 1) {
      async_wait<0>();
      barrier();
      if (at + 1 < all) copy(at + 1);
      async_commit();
    } else {
      barrier();
      copy(at);
      async_commit();
      async_wait<0>();
      barrier();
    }
    const T* const qs = steps + at % S::kStages * 2 * kTile;
    const T* const gs = qs + kTile;
    const float* const logs = numbers + at % S::kStages * 2 * S::kStep;
    const float* const deltas = logs + S::kStep;
    const int t0 = (int)(start + at % each) * S::kStep;
    const i64 h = kv * together + at / each;

    const int low = (int)first + wave_row;
    if (low >= p.seen(t0 + S::kStep - 1, kCausal)) continue;

    typename M::C s[S::kTiles][kSteps] = {};  // keys x queries
#pragma unroll
    for (int d = 0; d < kWidthBlocks; ++d) {
      typename M::A a[S::kTiles];
#pragma unroll
      for (int t = 0; t < S::kTiles; ++t) a[t] = M::load_a(ks + (wave_row + t * 16) * S::kPitch + d * 16, S::kPitch);
#pragma unroll
      for (int n = 0; n < kSteps; ++n) {
        schedule_barrier_if_narrow();
        const typename M::B x = M::load_b_t(qs + n * 16 * S::kPitch + d * 16, S::kPitch);
#pragma unroll
        for (int t = 0; t < S::kTiles; ++t) M::fma(s[t][n], a[t], x);
      }
    }
#pragma unroll
    for (int n = 0; n < kSteps; ++n)
#pragma unroll
      for (int i = 0; i < M::kC; ++i) {
        const int col = n * 16 + M::col(i);
        const float log = logs[col];
#pragma unroll
        for (int t = 0; t < S::kTiles; ++t) {
          float& x = s[t][n].v[i];
          if constexpr (kMask == kNoMask) {
            x = fast_exp2(fmaf(x, factor, -log));
          } else {
            const int key = low + t * 16 + M::row(i);
            if (t0 + col < p.queries && key < p.kv_length)
              x = masked<T, kMask>(x * factor, mask,
                                   b * p.mask.b + h * p.mask.h + (i64)(t0 + col) * p.mask.t + (i64)key * p.mask.d);
            x = fast_exp2(x - log);
          }
        }
      }
    if (low + S::kTiles * 16 > p.seen(t0, kCausal)) {  // the first query of the tile sees the fewest keys
#pragma unroll
      for (int n = 0; n < kSteps; ++n)
#pragma unroll
        for (int i = 0; i < M::kC; ++i) {
          const int seen = (int)p.seen(t0 + n * 16 + M::col(i), kCausal);
#pragma unroll
          for (int t = 0; t < S::kTiles; ++t)
            if (low + t * 16 + M::row(i) >= seen) s[t][n].v[i] = 0;
        }
    }

    if constexpr (kParts & kOfValues) {
#pragma unroll
      for (int n = 0; n < kSteps; ++n) {
        typename M::A a[S::kTiles];
#pragma unroll
        for (int t = 0; t < S::kTiles; ++t) a[t] = M::as_a(s[t][n]);
#pragma unroll
        for (int d = 0; d < kWidthBlocks; ++d) {
          schedule_barrier_if_narrow();
          const typename M::B x = M::load_b(gs + n * 16 * S::kPitch + d * 16, S::kPitch);
#pragma unroll
          for (int t = 0; t < S::kTiles; ++t) M::fma(sums_v[t][d], a[t], x);
        }
      }
    }
    if constexpr (kParts & kOfKeys) {
      typename M::C g[S::kTiles][kSteps] = {};
#pragma unroll
      for (int d = 0; d < kWidthBlocks; ++d) {
        typename M::A a[S::kTiles];
#pragma unroll
        for (int t = 0; t < S::kTiles; ++t) a[t] = M::load_a(vs + (wave_row + t * 16) * S::kPitch + d * 16, S::kPitch);
#pragma unroll
        for (int n = 0; n < kSteps; ++n) {
          schedule_barrier_if_narrow();
          const typename M::B x = M::load_b_t(gs + n * 16 * S::kPitch + d * 16, S::kPitch);
#pragma unroll
          for (int t = 0; t < S::kTiles; ++t) M::fma(g[t][n], a[t], x);
        }
      }
#pragma unroll
      for (int n = 0; n < kSteps; ++n)
#pragma unroll
        for (int i = 0; i < M::kC; ++i) {
          const float delta = deltas[n * 16 + M::col(i)];
#pragma unroll
          for (int t = 0; t < S::kTiles; ++t) {
            s[t][n].v[i] *= g[t][n].v[i] - delta;
          }
        }
#pragma unroll
      for (int n = 0; n < kSteps; ++n) {
        typename M::A a[S::kTiles];
#pragma unroll
        for (int t = 0; t < S::kTiles; ++t) a[t] = M::as_a(s[t][n]);
#pragma unroll
        for (int d = 0; d < kWidthBlocks; ++d) {
          schedule_barrier_if_narrow();
          const typename M::B x = M::load_b(qs + n * 16 * S::kPitch + d * 16, S::kPitch);
#pragma unroll
          for (int t = 0; t < S::kTiles; ++t) M::fma(sums_k[t][d], a[t], x);
        }
      }
    }
  }
  async_wait<0>();
  barrier();
  // ks and vs are no longer needed: the results are staged in them.
#pragma unroll
  for (int t = 0; t < S::kTiles; ++t)
#pragma unroll
    for (int d = 0; d < kWidthBlocks; ++d)
#pragma unroll
      for (int i = 0; i < M::kC; ++i) {
        const int at = (wave_row + t * 16 + M::row(i)) * S::kPitch + d * 16 + M::col(i);
        if constexpr (kParts & kOfKeys) store(ks + at, sums_k[t][d].v[i] * (float)p.scale);
        if constexpr (kParts & kOfValues) store(vs + at, sums_v[t][d].v[i]);
      }
  barrier();
  if constexpr (kParts & kOfKeys)
    store_rows<S::kRows, S::kWidth, S::kPitch, S::kThreads, kWide>(
        dk + b * p.dk.b + kv * p.dk.h + (place.k0 + first) * p.dk.t, ks, p.dk.t, p.dk.d, p.keys - first, p.dim);
  if constexpr (kParts & kOfValues)
    store_rows<S::kRows, S::kWidth, S::kPitch, S::kThreads, kWide>(
        dv + b * p.dv.b + kv * p.dv.h + (place.k0 + first) * p.dv.t, vs, p.dv.t, p.dv.d, p.keys - first, p.dim);
}

template <class T, class S, MaskKind kMask, bool kCausal, bool kWide, bool kPacked>
PF_DEVICE void attention_queries_grad(const T* grad, const T* q, const T* k, const T* v, const float* stats, i64 padded,
                                      const void* mask, T* dq, Attention p) {
  using M = Mma<T>;
  constexpr int kSteps = S::kStep / 16, kWidthBlocks = S::kWidth / 16, kTile = S::kStep * S::kPitch;
  T* const qs = dynamic_shared<T>();
  T* const gs = qs + S::kRows * S::kPitch;
  T* const steps = gs + S::kRows * S::kPitch;

  const unsigned blocks = blocks_of<S::kRows, kPacked>(p.queries, p);
  const i64 h = group().x / blocks % p.heads, kv = h / (p.heads / p.kv_heads);
  const Place place = place_of<kQueries, S::kRows, kPacked>(p, group().x / blocks / p.heads, group().x % blocks);
  if (place.none) return;
  const i64 first = place.first, b = place.b;
  const i64 rows = p.batch * p.heads * padded;
  stats += (b * p.heads + h) * padded + place.stats;
  q += b * p.q.b + h * p.q.h + (place.q0 + first) * p.q.t;
  grad += b * p.grad.b + h * p.grad.h + (place.q0 + first) * p.grad.t;
  k += b * p.k.b + kv * p.k.h + place.k0 * p.k.t;
  v += b * p.v.b + kv * p.v.h + place.k0 * p.v.t;
  load_rows<S::kRows, S::kWidth, S::kPitch, S::kThreads, kWide>(qs, q, p.q.t, p.q.d, p.queries - first, p.dim);
  load_rows<S::kRows, S::kWidth, S::kPitch, S::kThreads, kWide>(gs, grad, p.grad.t, p.grad.d, p.queries - first, p.dim);

  const i64 last = first + S::kRows < p.queries ? first + S::kRows - 1 : p.queries - 1;
  const int tiles = (int)((p.seen(last, kCausal) + S::kStep - 1) / S::kStep);
  const auto copy = [&](int tile) {
    T* at = steps + tile % S::kStages * 2 * kTile;
    const i64 key = (i64)tile * S::kStep;
    load_rows<S::kStep, S::kWidth, S::kPitch, S::kThreads, kWide>(at, k + key * p.k.t, p.k.t, p.k.d, p.kv_length - key,
                                                                  p.dim);
    load_rows<S::kStep, S::kWidth, S::kPitch, S::kThreads, kWide>(at + kTile, v + key * p.v.t, p.v.t, p.v.d,
                                                                  p.kv_length - key, p.dim);
  };
  if (S::kStages > 1 && tiles > 0) copy(0);
  async_commit();

  const int wave_row = wave() * S::kTiles * 16;
  float log[S::kTiles][M::kRows], delta[S::kTiles][M::kRows];
#pragma unroll
  for (int t = 0; t < S::kTiles; ++t)
#pragma unroll
    for (int r = 0; r < M::kRows; ++r) {
      const i64 row = first + wave_row + t * 16 + M::row_of(r);
      const bool there = row < p.queries;
      log[t][r] = there ? stats[row] : 1 / 0.0f;
      delta[t][r] = there ? stats[rows + row] : 0;
    }
  typename M::C sums[S::kTiles][kWidthBlocks] = {};
  const float factor = (float)(p.scale * Base2::kLog2E);
  const int seen_by_all = (int)p.seen(first + wave_row, kCausal);
  const int seen_by_any = (int)p.seen(first + wave_row + S::kTiles * 16 - 1, kCausal);

  for (int tile = 0; tile < tiles; ++tile) {
    if constexpr (S::kStages > 1) {
      async_wait<0>();
      barrier();
      if (tile + 1 < tiles) copy(tile + 1);
      async_commit();
    } else {
      barrier();
      copy(tile);
      async_commit();
      async_wait<0>();
      barrier();
    }
    const T* const ks = steps + tile % S::kStages * 2 * kTile;
    const T* const vs = ks + kTile;
    if (tile * S::kStep >= seen_by_any) continue;
    typename M::C s[S::kTiles][kSteps] = {}, g[S::kTiles][kSteps] = {};
#pragma unroll
    for (int d = 0; d < kWidthBlocks; ++d) {
      typename M::A a[S::kTiles];
#pragma unroll
      for (int t = 0; t < S::kTiles; ++t) a[t] = M::load_a(qs + (wave_row + t * 16) * S::kPitch + d * 16, S::kPitch);
#pragma unroll
      for (int n = 0; n < kSteps; ++n) {
        schedule_barrier_if_narrow();
        const typename M::B x = M::load_b_t(ks + n * 16 * S::kPitch + d * 16, S::kPitch);
#pragma unroll
        for (int t = 0; t < S::kTiles; ++t) M::fma(s[t][n], a[t], x);
      }
    }
#pragma unroll
    for (int d = 0; d < kWidthBlocks; ++d) {
      typename M::A a[S::kTiles];
#pragma unroll
      for (int t = 0; t < S::kTiles; ++t) a[t] = M::load_a(gs + (wave_row + t * 16) * S::kPitch + d * 16, S::kPitch);
#pragma unroll
      for (int n = 0; n < kSteps; ++n) {
        schedule_barrier_if_narrow();
        const typename M::B x = M::load_b_t(vs + n * 16 * S::kPitch + d * 16, S::kPitch);
#pragma unroll
        for (int t = 0; t < S::kTiles; ++t) M::fma(g[t][n], a[t], x);
      }
    }
    const int key = tile * S::kStep;
#pragma unroll
    for (int t = 0; t < S::kTiles; ++t)
#pragma unroll
      for (int n = 0; n < kSteps; ++n)
#pragma unroll
        for (int i = 0; i < M::kC; ++i) {
          const int r = M::slot(i);
          float x = s[t][n].v[i];
          if constexpr (kMask == kNoMask) {
            x = fast_exp2(fmaf(x, factor, -log[t][r]));
          } else {
            const int row = (int)first + wave_row + t * 16 + M::row(i), at = key + n * 16 + M::col(i);
            if (row < p.queries && at < p.kv_length)
              x = masked<T, kMask>(x * factor, mask,
                                   b * p.mask.b + h * p.mask.h + (i64)row * p.mask.t + (i64)at * p.mask.d);
            x = fast_exp2(x - log[t][r]);
          }
          s[t][n].v[i] = x * (g[t][n].v[i] - delta[t][r]);
        }
    if (key + S::kStep > seen_by_all) {
#pragma unroll
      for (int t = 0; t < S::kTiles; ++t)
#pragma unroll
        for (int i = 0; i < M::kC; ++i) {
          const int seen = (int)p.seen(first + wave_row + t * 16 + M::row(i), kCausal);
#pragma unroll
          for (int n = 0; n < kSteps; ++n)
            if (key + n * 16 + M::col(i) >= seen) s[t][n].v[i] = 0;
        }
    }
#pragma unroll
    for (int n = 0; n < kSteps; ++n) {
      typename M::A a[S::kTiles];
#pragma unroll
      for (int t = 0; t < S::kTiles; ++t) a[t] = M::as_a(s[t][n]);
#pragma unroll
      for (int d = 0; d < kWidthBlocks; ++d) {
        schedule_barrier_if_narrow();
        const typename M::B x = M::load_b(ks + n * 16 * S::kPitch + d * 16, S::kPitch);
#pragma unroll
        for (int t = 0; t < S::kTiles; ++t) M::fma(sums[t][d], a[t], x);
      }
    }
  }
  async_wait<0>();
  barrier();
#pragma unroll
  for (int t = 0; t < S::kTiles; ++t)
#pragma unroll
    for (int d = 0; d < kWidthBlocks; ++d)
#pragma unroll
      for (int i = 0; i < M::kC; ++i)
        store(qs + (wave_row + t * 16 + M::row(i)) * S::kPitch + d * 16 + M::col(i), sums[t][d].v[i] * (float)p.scale);
  barrier();
  store_rows<S::kRows, S::kWidth, S::kPitch, S::kThreads, kWide>(
      dq + b * p.dq.b + h * p.dq.h + (place.q0 + first) * p.dq.t, qs, p.dq.t, p.dq.d, p.queries - first, p.dim);
}

#endif

}  // namespace pf
