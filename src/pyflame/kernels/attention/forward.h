// Attention on matrix cores. A workgroup has kRows queries, 16 * kTiles of them per wave. It visits the keys once, tile
// by tile, with a running maximum and a running sum for each query. Scores stay in registers. While a tile is computed,
// the next one is copied to shared memory.
//
// If there are few queries and many keys, the keys are split among workgroups. Each workgroup stores its partial sums,
// and attention_combine adds them. In this case, the rows of a tile are the queries of all heads that share keys, unless
// sequences are packed.
//
// Keys beyond a length, and those of other packed sequences, are never read. If a mask has one row for all queries,
// tiles of keys that it hides, such as padding, are not read either, and with p.padding tiles of queries at the same
// positions are left out. Other hidden keys of a tile have weight 0. A NaN or
// an infinity in the values of such keys therefore makes these queries NaN; the reference backend skips hidden keys.
#pragma once

namespace pf {

#ifdef PF_ON_DEVICE

// kWidth: the head size, rounded up to a multiple of 16. kKeys: keys of a tile. kHeld: whether queries stay in
// registers.
template <int kWidth_, int kTiles_, int kWaves_, int kKeys_, int kStages_, bool kHeld_>
struct ForwardTiles {
  static constexpr int kWidth = kWidth_, kTiles = kTiles_, kWaves = kWaves_, kKeys = kKeys_, kStages = kStages_;
  static constexpr bool kHeld = kHeld_;
  static constexpr int kRows = kWaves * kTiles * 16, kPitch = kWidth + 8, kThreads = kWaves * kWave;
};

// What a query sees: the keys before `seen`, and its row of the mask, which begins at element `mask_at`.
struct Sight {
  int seen;
  i64 mask_at;
};

// Scales the scores of a tile, whose first key has number `key`, and hides keys. sight_of(t, r): what the query sees
// that belongs to slot r of the lane in tile t.
template <class T, class S, MaskKind kMask, bool kFolded, int kBlocks, class SightOf>
PF_DEVICE void scale_and_hide(Results<T, S, kBlocks>& s, int key, float scale, const void* mask, i64 mask_stride,
                              const SightOf& sight_of) {
  using M = Mma<T>;
#pragma unroll
  for (int t = 0; t < S::kTiles; ++t)
#pragma unroll
    for (int r = 0; r < M::kRows; ++r) {
      const Sight sight = sight_of(t, r);
#pragma unroll
      for (int n = 0; n < kBlocks; ++n)
#pragma unroll
        for (int i = 0; i < M::kC; ++i)
          if (M::slot(i) == r) {
            const int at = key + n * 16 + M::col(i);
            float& x = s[t][n].v[i];
            if (!kFolded) x *= scale;
            if (at >= sight.seen) x = minus_infinity();
            else if (kMask != kNoMask) x = masked<T, kMask>(x, mask, sight.mask_at + at * mask_stride);
          }
    }
}

// The weighted sums of the rows of a wave, which grow with each tile. They are relative to `top`, a maximum of the
// scores. `factor` is multiplied into the exponents.
template <class T, class S>
struct RunningSums {
  using M = Mma<T>;
  static constexpr int kWidthBlocks = S::kWidth / 16;
  Results<T, S, kWidthBlocks> sums = {};
  float top[S::kTiles][M::kRows], total[S::kTiles][M::kRows];

  PF_DEVICE RunningSums() {
#pragma unroll
    for (int t = 0; t < S::kTiles; ++t)
#pragma unroll
      for (int r = 0; r < M::kRows; ++r) top[t][r] = minus_infinity(), total[t][r] = 0;
  }

  // Adds a tile's values, weighted by its scores s; the weights replace the scores.
  template <int kBlocks>
  PF_DEVICE void add(Results<T, S, kBlocks>& s, const T* values, float factor) {
    raise(s, factor);
#pragma unroll
    for (int t = 0; t < S::kTiles; ++t)
#pragma unroll
      for (int r = 0; r < M::kRows; ++r) total[t][r] += weigh<kBlocks>(s[t], t, r, factor);
    add_weighted_rows<T, S, kBlocks>(sums, s, values);
  }

 private:
  // Raises the maximum to the true one, but only if that has grown by more than kSlack, because then the sums must be
  // rescaled.
  template <int kBlocks>
  PF_DEVICE void raise(const Results<T, S, kBlocks>& s, float factor) {
    constexpr float kSlack = 8;  // weights may grow to 2^8, far below float16's maximum
    bool grown = false;
    float best[S::kTiles][M::kRows];
#pragma unroll
    for (int t = 0; t < S::kTiles; ++t)
#pragma unroll
      for (int r = 0; r < M::kRows; ++r) {
        best[t][r] = largest<kBlocks>(s[t], r);
        grown |= best[t][r] * factor > fmaf(top[t][r], factor, kSlack);
      }
    if (ballot(grown) == 0) return;
#pragma unroll
    for (int t = 0; t < S::kTiles; ++t)
#pragma unroll
      for (int r = 0; r < M::kRows; ++r) rescale(t, r, fmaxf(top[t][r], best[t][r]), factor);
  }
  // The largest score of a row.
  template <int kBlocks>
  static PF_DEVICE float largest(const typename M::C (&s)[kBlocks], int r) {
    float x = minus_infinity();
#pragma unroll
    for (int n = 0; n < kBlocks; ++n)
#pragma unroll
      for (int i = 0; i < M::kC; ++i)
        if (M::slot(i) == r) x = fmaxf(x, s[n].v[i]);
    return M::template over_row<Top>(x);
  }
  PF_DEVICE void rescale(int t, int r, float now, float factor) {
    const float fade = now == minus_infinity() ? 1 : fast_exp2((top[t][r] - now) * factor);
    top[t][r] = now;
    total[t][r] *= fade;
#pragma unroll
    for (int d = 0; d < kWidthBlocks; ++d)
#pragma unroll
      for (int i = 0; i < M::kC; ++i)
        if (M::slot(i) == r) sums[t][d].v[i] *= fade;
  }
  // Replaces a row's scores by their exponentials; returns the sum of those of this lane.
  template <int kBlocks>
  PF_DEVICE float weigh(typename M::C (&s)[kBlocks], int t, int r, float factor) const {
    const float shift = top[t][r] == minus_infinity() ? 0 : top[t][r] * factor;
    float sum = 0;
#pragma unroll
    for (int n = 0; n < kBlocks; ++n)
#pragma unroll
      for (int i = 0; i < M::kC; ++i)
        if (M::slot(i) == r) sum += s[n].v[i] = fast_exp2(fmaf(s[n].v[i], factor, -shift));
    return sum;
  }
};

// kFolded: the scale is positive and nothing is added to the scores, so the scale can be multiplied into the exponent.
template <class T, class S, MaskKind kMask, bool kCausal, bool kWide, bool kFolded, bool kSplit, bool kPacked>
PF_DEVICE void attention_forward(const T* q, const T* k, const T* v, const void* mask, T* out, float* lse, float* parts,
                                 Attention p) {
  using M = Mma<T>;
  constexpr int kKeyBlocks = S::kKeys / 16, kWidthBlocks = S::kWidth / 16, kTile = S::kKeys * S::kPitch;
  T* const rows_shared = dynamic_shared<T>();
  T* const keys_shared = rows_shared + (S::kHeld ? 0 : S::kRows * S::kPitch);

  // Rows are queries. If they are folded, they are the queries of all heads of a group.
  constexpr bool kRowsFolded = kSplit && !kPacked;
  const i64 all_rows = p.batch * p.heads * p.queries;
  if (kPacked && group().x == 0 && group().y == 0) check_offsets(p);
  const i64 together = kRowsFolded ? p.heads / p.kv_heads : 1, row_heads = p.heads / together;
  const unsigned blocks = blocks_of<S::kRows, kPacked>(p.queries * together, p);
  const i64 head_rows = p.queries * together, rh = group().x / blocks % row_heads;
  p.queries *= together;
  const Place place = place_of<kQueries, S::kRows, kPacked>(p, group().x / blocks / row_heads, group().x % blocks);
  const i64 count = p.queries, first = place.first, b = place.b;
  p.queries /= together;
  if (place.none) return;
  const i64 kv = kRowsFolded ? rh : rh / (p.heads / p.kv_heads);
  q += p.q.row(b, rh * together, place.q0 + first);
  k += p.k.row(b, kv, place.k0);
  v += p.v.row(b, kv, place.k0);

  const i64 last = first + S::kRows < count ? first + S::kRows - 1 : count - 1;
  const i64 end = p.seen(kRowsFolded ? p.queries - 1 : last, kCausal);
  const int tiles = (int)((end + S::kKeys - 1) / S::kKeys);
  const int share = kSplit ? (tiles + (int)groups().y - 1) / (int)groups().y : tiles;
  const int from = kSplit ? share * (int)group().y : 0;
  const bool one_row = kMask != kNoMask && p.mask.t == 0 && (!kRowsFolded || p.mask.h == 0);
  const bool left_out = !kRowsFolded && one_row && is_padding<T, kMask, S::kRows>(mask, p, b, rh, first);
  const int to = left_out ? from : from + share < tiles ? from + share : tiles;

  // The row of a lane's element. It is computed where it is needed instead of being kept, to save registers.
  const auto row_of = [&](int t, int r) { return (int)first + wave_row<S>() + t * 16 + M::row_of(r); };
  const int seen_by_all = (int)p.seen(kRowsFolded ? 0 : first + wave_row<S>(), kCausal);
  const int seen_by_any =
      (int)p.seen(kRowsFolded ? p.queries - 1 : first + wave_row<S>() + S::kTiles * 16 - 1, kCausal);
  const auto sight_of = [&](int t, int r) {
    const int row = row_of(t, r), query = kRowsFolded ? row % (int)p.queries : row;
    Sight sight = {row < count ? (int)p.seen(query, kCausal) : 0, 0};
    if (kMask != kNoMask) sight.mask_at = p.mask.row(b, kRowsFolded ? rh * together + row / (int)p.queries : rh, query);
    return sight;
  };

  load_tile<S, S::kRows, kWide>(rows_shared, q, p.q, count - first, p.dim);
  const RowsInShared<T, S> in_shared = {rows_shared};
  RowsInRegisters<T, S> in_registers;
  if constexpr (S::kHeld) {
    async_commit();
    end_tiles();
    in_registers.load(in_shared);
    barrier();
  }
  const VisibleTiles<T, kMask, S::kKeys> visible = {
      mask, kMask == kNoMask ? 0 : p.mask.row(b, rh * together, 0), p.mask.d, p.kv_length, one_row, to};
  Shown shown, shown_next;
  int visit = from, tile = visible.next(from, shown), following = tile;  // `visit` numbers the visited tiles
  const auto tile_at = [&](int i) { return keys_shared + i % S::kStages * 2 * kTile; };
  const auto copy = [&](int i) {
    load_keys_and_values<S, S::kKeys, kWide>(tile_at(i), k, v, p, (i64)(i == visit ? tile : following) * S::kKeys);
  };
  begin_tiles<S>(visit, tile < to ? visit + 1 : visit, copy);

  RunningSums<T, S> running;
  const float scale = (float)(p.scale * Base2::kLog2E), factor = kFolded ? scale : 1;
  for (; tile < to; tile = following, shown = shown_next, ++visit) {
    following = visible.next(tile + 1, shown_next);
    await_tile<S>(visit, following < to ? visit + 2 : visit + 1, copy);
    const T* const ks = tile_at(visit);
    const int key = tile * S::kKeys;
    if (key >= seen_by_any) continue;
    Results<T, S, kKeyBlocks> s = {};
    if constexpr (S::kHeld) add_products<T, S, kKeyBlocks>(s, in_registers, ks);
    else add_products<T, S, kKeyBlocks>(s, in_shared, ks);
    if (!kFolded || shown != kShowsAll || key + S::kKeys > seen_by_all)
      scale_and_hide<T, S, kMask, kFolded, kKeyBlocks>(s, key, scale, mask, p.mask.d, sight_of);
    running.template add<kKeyBlocks>(s, ks + kTile, factor);
  }
  end_tiles();

  const i64 out_row = (b * row_heads + rh) * head_rows + place.q0;  // for the logsumexps and the partial sums
#pragma unroll
  for (int t = 0; t < S::kTiles; ++t)
#pragma unroll
    for (int r = 0; r < M::kRows; ++r) {
      const int row = row_of(t, r);
      const float top = running.top[t][r], sum = M::template over_row<Sum>(running.total[t][r]);
      const float inverse = kSplit ? 1 : sum == 0 ? 0 : 1 / sum;
      float* const part = kSplit ? parts + ((i64)group().y * all_rows + out_row + row) * (p.dim + 2) : nullptr;
      if (row < count && M::col(0) == 0) {
        if constexpr (kSplit) part[p.dim] = top * factor, part[p.dim + 1] = sum;
        else lse[out_row + row] = sum == 0 ? minus_infinity() : fmaf(top * factor, Base2::kLn2, m_log(sum));
      }
#pragma unroll
      for (int d = 0; d < kWidthBlocks; ++d)
#pragma unroll
        for (int i = 0; i < M::kC; ++i)
          if (M::slot(i) == r) {
            const int col = d * 16 + M::col(i);
            const float x = running.sums[t][d].v[i] * inverse;
            if constexpr (!kSplit) store(rows_shared + (wave_row<S>() + t * 16 + M::row_of(r)) * S::kPitch + col, x);
            else if (row < count && col < p.dim) part[col] = x;
          }
    }
  if constexpr (!kSplit) {
    barrier();
    store_tile<S, kWide>(out + p.out.row(b, rh, place.q0 + first), rows_shared, p.out, count - first, p.dim);
  }
}

// Adds the partial sums of a query in a fixed order. One workgroup per query.
template <class T>
PF_DEVICE void attention_combine(const float* parts, T* out, float* lse, const Attention& p, int splits) {
  const i64 rows = p.batch * p.heads * p.queries, row = group().x, each = p.dim + 2;
  float top = minus_infinity(), total = 0;
  for (int i = 0; i < splits; ++i) top = fmaxf(top, parts[(i * rows + row) * each + p.dim]);
  const float shift = top == minus_infinity() ? 0 : top;
  for (int i = 0; i < splits; ++i) {
    const float* part = parts + (i * rows + row) * each + p.dim;
    total += part[1] * fast_exp2(part[0] - shift);
  }
  if (thread() == 0) lse[row] = total == 0 ? minus_infinity() : fmaf(top, Base2::kLn2, m_log(total));
  const float inverse = total == 0 ? 0 : 1 / total;
  const i64 h = row / p.queries % p.heads, b = row / p.queries / p.heads, t = row % p.queries;
  out += p.out.row(b, h, t);
  for (i64 d = thread(); d < p.dim; d += threads()) {
    float sum = 0;
    for (int i = 0; i < splits; ++i) {
      const float* part = parts + (i * rows + row) * each;
      sum += part[d] * fast_exp2(part[p.dim] - shift);
    }
    store(out + d * p.out.d, sum * inverse);
  }
}

#endif

}  // namespace pf
