// The gradient of attention on matrix cores. It gives the same bits in every run, because no workgroups add into the
// same sum. Tiles of keys that a mask with one row for all queries hides are skipped. The scores are computed twice from
// the logsumexp that the forward pass stored: once by workgroups that own keys and produce dk and dv, and once by
// workgroups that own queries and produce dq.
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
    grad += p.grad.row(b, h, q0 + t);
    out += p.out.row(b, h, q0 + t);
    for (i64 d = thread() % kLanes; d < p.dim; d += kLanes)
      sum = fmaf(load(grad + d * p.grad.d), load(out + d * p.out.d), sum);
  }
  sum = over_lanes<Sum, kLanes>(sum);
  if (row < rows && thread() % kLanes == 0) {
    const float x = there ? lse[(b * p.heads + h) * head_rows + q0 + t] : minus_infinity();
    stats[row] = x == minus_infinity() ? -minus_infinity() : x * Base2::kLog2E;
    stats[rows + row] = there ? sum : 0;
  }
}

// kKeys, kQueries: rows of a tile. kRows: rows of a workgroup, which are keys in one kernel and queries in the other.
template <int kWidth_, int kTiles_, int kWaves_, int kStep_, int kStages_>
struct BackwardTiles {
  static constexpr int kWidth = kWidth_, kTiles = kTiles_, kWaves = kWaves_, kStep = kStep_, kStages = kStages_;
  static constexpr int kRows = kWaves * kTiles * 16, kPitch = kWidth + 8, kThreads = kWaves * kWave;
};

// The probability of the score x of a query and a key of a head, from the query's logsumexp in base 2. asks: whether
// the mask may hide the key.
template <class T, MaskKind kMask>
PF_DEVICE float probability(float x, float factor, float log, bool asks, const void* mask, const Attention& p, i64 b,
                            i64 h, int query, int key) {
  if constexpr (kMask == kNoMask) {
    return fast_exp2(fmaf(x, factor, -log));
  } else {
    x *= factor;
    if (asks && query < p.queries && key < p.kv_length)
      x = masked<T, kMask>(x, mask, p.mask.row(b, h, query) + (i64)key * p.mask.d);
    return fast_exp2(x - log);
  }
}

// The logsumexps and the deltas of S::kStep queries are copied behind the tiles, in one piece.
template <class S>
PF_DEVICE void load_query_stats(float* to, const float* logs, const float* deltas) {
  // A quarter of the step's threads copies logsumexps, another quarter copies deltas.
  if ((int)thread() >= S::kStep / 2) return;
  const int which = (int)thread() / (S::kStep / 4), at = (int)thread() % (S::kStep / 4) * 4;
  async_copy(to + which * S::kStep + at, (which == 0 ? logs : deltas) + at, true);
}

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
  q += p.q.row(b, 0, place.q0);
  grad += p.grad.row(b, 0, place.q0);
  load_tile<S, S::kRows, kWide>(ks, k + p.k.row(b, kv, place.k0 + first), p.k, p.kv_length - first, p.dim);
  load_tile<S, S::kRows, kWide>(vs, v + p.v.row(b, kv, place.k0 + first), p.v, p.kv_length - first, p.dim);

  // The queries that see a key of this workgroup: for each head, all tiles from `start` on.
  i64 start = kCausal ? first - (p.kv_length - p.queries) : 0;
  start = (start < 0 ? 0 : start) / S::kStep;
  i64 tiles = (p.queries + S::kStep - 1) / S::kStep - start;
  if (tiles < 0 || first >= p.kv_length) tiles = 0;
  const bool one_row = kMask != kNoMask && p.mask.t == 0 && p.mask.h == 0;
  const VisibleTiles<T, kMask, S::kRows> visible = {
      mask, kMask == kNoMask ? 0 : p.mask.row(b, 0, 0) + first * p.mask.d, p.mask.d, p.kv_length - first, one_row, 1};
  const Shown shown = visible.shown(0);  // of the keys of this workgroup
  if (shown == kShowsNone) tiles = 0;
  const int each = (int)tiles, all = each * (int)together;

  const auto tile_at = [&](int at) { return steps + at % S::kStages * 2 * kTile; };
  const auto numbers_at = [&](int at) { return numbers + at % S::kStages * 2 * S::kStep; };
  const auto copy = [&](int at) {
    const i64 h = kv * together + at / each, t = (start + at % each) * S::kStep;
    load_tile<S, S::kStep, kWide>(tile_at(at), q + p.q.row(0, h, t), p.q, p.queries - t, p.dim);
    load_tile<S, S::kStep, kWide>(tile_at(at) + kTile, grad + p.grad.row(0, h, t), p.grad, p.queries - t, p.dim);
    const float* const logs = stats + (b * p.heads + h) * padded + place.stats + t;
    load_query_stats<S>(numbers_at(at), logs, logs + rows);
  };
  begin_tiles<S>(0, all, copy);

  Results<T, S, kWidthBlocks> sums_v = {}, sums_k = {};
  const float factor = (float)(p.scale * Base2::kLog2E);
  const int low = (int)first + wave_row<S>();

  for (int at = 0; at < all; ++at) {
    await_tile<S>(at, all, copy);
    const T* const qs = tile_at(at);
    const T* const gs = qs + kTile;
    const float* const logs = numbers_at(at);
    const float* const deltas = logs + S::kStep;
    const int t0 = (int)(start + at % each) * S::kStep;
    const i64 h = kv * together + at / each;
    if (low >= p.seen(t0 + S::kStep - 1, kCausal)) continue;
    if (one_row && is_padding<T, kMask, S::kStep>(mask, p, b, h, t0)) continue;

    Results<T, S, kSteps> s = {};  // keys x queries
    add_products<T, S, kSteps>(s, RowsInShared<T, S>{ks}, qs);
#pragma unroll
    for (int n = 0; n < kSteps; ++n)
#pragma unroll
      for (int i = 0; i < M::kC; ++i) {
        const int col = n * 16 + M::col(i);
        const float log = logs[col];
#pragma unroll
        for (int t = 0; t < S::kTiles; ++t) {
          const int key = low + t * 16 + M::row(i);
          s[t][n].v[i] =
              probability<T, kMask>(s[t][n].v[i], factor, log, shown != kShowsAll, mask, p, b, h, t0 + col, key);
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

    if constexpr (kParts & kOfValues) add_weighted_rows<T, S, kSteps>(sums_v, s, gs);
    if constexpr (kParts & kOfKeys) {
      Results<T, S, kSteps> g = {};
      add_products<T, S, kSteps>(g, RowsInShared<T, S>{vs}, gs);
#pragma unroll
      for (int n = 0; n < kSteps; ++n)
#pragma unroll
        for (int i = 0; i < M::kC; ++i) {
          const float delta = deltas[n * 16 + M::col(i)];
#pragma unroll
          for (int t = 0; t < S::kTiles; ++t) s[t][n].v[i] *= g[t][n].v[i] - delta;
        }
      add_weighted_rows<T, S, kSteps>(sums_k, s, qs);
    }
  }
  end_tiles();
  // ks and vs are no longer needed: the results are staged in them.
  if constexpr (kParts & kOfKeys) write_rows<T, S>(ks, sums_k, (float)p.scale);
  if constexpr (kParts & kOfValues) write_rows<T, S>(vs, sums_v, 1);
  barrier();
  if constexpr (kParts & kOfKeys)
    store_tile<S, kWide>(dk + p.dk.row(b, kv, place.k0 + first), ks, p.dk, p.keys - first, p.dim);
  if constexpr (kParts & kOfValues)
    store_tile<S, kWide>(dv + p.dv.row(b, kv, place.k0 + first), vs, p.dv, p.keys - first, p.dim);
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
  k += p.k.row(b, kv, place.k0);
  v += p.v.row(b, kv, place.k0);
  load_tile<S, S::kRows, kWide>(qs, q + p.q.row(b, h, place.q0 + first), p.q, p.queries - first, p.dim);
  load_tile<S, S::kRows, kWide>(gs, grad + p.grad.row(b, h, place.q0 + first), p.grad, p.queries - first, p.dim);

  const i64 last = first + S::kRows < p.queries ? first + S::kRows - 1 : p.queries - 1;
  const bool one_row = kMask != kNoMask && p.mask.t == 0;
  const bool left_out = one_row && is_padding<T, kMask, S::kRows>(mask, p, b, h, first);
  const int tiles = left_out ? 0 : (int)((p.seen(last, kCausal) + S::kStep - 1) / S::kStep);
  const VisibleTiles<T, kMask, S::kStep> visible = {
      mask, kMask == kNoMask ? 0 : p.mask.row(b, h, 0), p.mask.d, p.kv_length, one_row, tiles};
  Shown shown, shown_next;
  int visit = 0, tile = visible.next(0, shown), following = tile;  // `visit` numbers the visited tiles
  const auto tile_at = [&](int i) { return steps + i % S::kStages * 2 * kTile; };
  const auto copy = [&](int i) {
    load_keys_and_values<S, S::kStep, kWide>(tile_at(i), k, v, p, (i64)(i == visit ? tile : following) * S::kStep);
  };
  begin_tiles<S>(visit, tile < tiles ? visit + 1 : visit, copy);

  const i64 low = first + wave_row<S>();
  const float infinite = -minus_infinity();
  float log[S::kTiles][M::kRows], delta[S::kTiles][M::kRows];
#pragma unroll
  for (int t = 0; t < S::kTiles; ++t)
#pragma unroll
    for (int r = 0; r < M::kRows; ++r) {
      const i64 row = low + t * 16 + M::row_of(r);
      const bool there = row < p.queries;
      log[t][r] = there ? stats[row] : infinite;
      delta[t][r] = there ? stats[rows + row] : 0;
    }
  Results<T, S, kWidthBlocks> sums = {};
  const float factor = (float)(p.scale * Base2::kLog2E);
  const int seen_by_all = (int)p.seen(low, kCausal);
  const int seen_by_any = (int)p.seen(low + S::kTiles * 16 - 1, kCausal);

  for (; tile < tiles; tile = following, shown = shown_next, ++visit) {
    following = visible.next(tile + 1, shown_next);
    await_tile<S>(visit, following < tiles ? visit + 2 : visit + 1, copy);
    const T* const ks = tile_at(visit);
    const int key = tile * S::kStep;
    if (key >= seen_by_any) continue;
    Results<T, S, kSteps> s = {}, g = {};
    add_products<T, S, kSteps>(s, RowsInShared<T, S>{qs}, ks);
    add_products<T, S, kSteps>(g, RowsInShared<T, S>{gs}, ks + kTile);
#pragma unroll
    for (int t = 0; t < S::kTiles; ++t)
#pragma unroll
      for (int n = 0; n < kSteps; ++n)
#pragma unroll
        for (int i = 0; i < M::kC; ++i) {
          const int r = M::slot(i), row = (int)low + t * 16 + M::row(i), at = key + n * 16 + M::col(i);
          const float x =
              probability<T, kMask>(s[t][n].v[i], factor, log[t][r], shown != kShowsAll, mask, p, b, h, row, at);
          s[t][n].v[i] = x * (g[t][n].v[i] - delta[t][r]);
        }
    if (key + S::kStep > seen_by_all) {
#pragma unroll
      for (int t = 0; t < S::kTiles; ++t)
#pragma unroll
        for (int i = 0; i < M::kC; ++i) {
          const int seen = (int)p.seen(low + t * 16 + M::row(i), kCausal);
#pragma unroll
          for (int n = 0; n < kSteps; ++n)
            if (key + n * 16 + M::col(i) >= seen) s[t][n].v[i] = 0;
        }
    }
    add_weighted_rows<T, S, kSteps>(sums, s, ks);
  }
  end_tiles();
  write_rows<T, S>(qs, sums, (float)p.scale);
  barrier();
  store_tile<S, kWide>(dq + p.dq.row(b, h, place.q0 + first), qs, p.dq, p.queries - first, p.dim);
}

#endif

}  // namespace pf
