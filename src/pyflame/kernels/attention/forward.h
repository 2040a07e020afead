// Attention on matrix cores. A workgroup has kRows queries, 16 * kTiles of them per wave. It visits the keys once, tile
// by tile, with a running maximum and a running sum for each query. Scores stay in registers. While a tile is computed,
// the next one is copied to shared memory.
//
// If there are few queries and many keys, the keys are split among workgroups. Each workgroup stores its partial sums,
// and attention_combine adds them. In this case, the rows of a tile are the queries of all heads that share keys.
//
// Keys beyond a length, and those of other packed sequences, are never read. Keys that causality or a mask hides from
// some queries of a tile have weight 0 there. A NaN or an infinity in the values of such keys therefore makes these
// queries NaN; the reference backend skips hidden keys.
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

// kFolded: the scale is positive and nothing is added to the scores, so the scale can be multiplied into the exponent.
template <class T, class S, MaskKind kMask, bool kCausal, bool kWide, bool kFolded, bool kSplit, bool kPacked>
PF_DEVICE void attention_forward(const T* q, const T* k, const T* v, const void* mask, T* out, float* lse, float* parts,
                                 Attention p) {
  using M = Mma<T>;
  constexpr int kKeyBlocks = S::kKeys / 16, kWidthBlocks = S::kWidth / 16, kTile = S::kKeys * S::kPitch;
  constexpr float kSlack = 8;  // weights may grow to 2^8, far below float16's maximum
  const float kNone = -1 / 0.0f;
  T* const rows_shared = dynamic_shared<T>();
  T* const keys_shared = rows_shared + (S::kHeld ? 0 : S::kRows * S::kPitch);

  // Rows are queries. If the keys are split, they are the queries of all heads of a group.
  if (kPacked && group().x == 0) check_offsets(p);
  const i64 together = kSplit ? p.heads / p.kv_heads : 1, row_heads = p.heads / together;
  const unsigned blocks = blocks_of<S::kRows, kPacked>(p.queries * together, p);
  const i64 head_rows = p.queries * together, rh = group().x / blocks % row_heads;
  p.queries *= together;
  const Place place = place_of<kQueries, S::kRows, kPacked>(p, group().x / blocks / row_heads, group().x % blocks);
  const i64 count = p.queries, first = place.first, b = place.b;
  p.queries /= together;
  if (place.none) return;
  const i64 kv = kSplit ? rh : rh / (p.heads / p.kv_heads);
  q += b * p.q.b + rh * together * p.q.h + (place.q0 + first) * p.q.t;
  k += b * p.k.b + kv * p.k.h + place.k0 * p.k.t;
  v += b * p.v.b + kv * p.v.h + place.k0 * p.v.t;

  const i64 last = first + S::kRows < count ? first + S::kRows - 1 : count - 1;
  const i64 end = p.seen(kSplit ? p.queries - 1 : last, kCausal);
  const int tiles = (int)((end + S::kKeys - 1) / S::kKeys);
  const int share = kSplit ? (tiles + (int)groups().y - 1) / (int)groups().y : tiles;
  const int from = kSplit ? share * (int)group().y : 0, to = from + share < tiles ? from + share : tiles;

  const int wave_row = wave() * S::kTiles * 16;
  // The row of a lane's element. It is computed where it is needed instead of being kept, to save registers.
  const auto row_of = [&](int t, int r) { return (int)first + wave_row + t * 16 + M::row_of(r); };
  const auto query_of = [&](int row) { return kSplit ? row % (int)p.queries : row; };
  const int seen_by_all = (int)p.seen(kSplit ? 0 : first + wave_row, kCausal);
  const int seen_by_any = (int)p.seen(kSplit ? p.queries - 1 : first + wave_row + S::kTiles * 16 - 1, kCausal);

  const auto copy = [&](int tile) {
    T* at = keys_shared + tile % S::kStages * 2 * kTile;
    const i64 key = (i64)tile * S::kKeys;
    load_rows<S::kKeys, S::kWidth, S::kPitch, S::kThreads, kWide>(at, k + key * p.k.t, p.k.t, p.k.d, p.kv_length - key,
                                                                  p.dim);
    load_rows<S::kKeys, S::kWidth, S::kPitch, S::kThreads, kWide>(at + kTile, v + key * p.v.t, p.v.t, p.v.d,
                                                                  p.kv_length - key, p.dim);
  };

  load_rows<S::kRows, S::kWidth, S::kPitch, S::kThreads, kWide>(rows_shared, q, p.q.t, p.q.d, count - first, p.dim);
  typename M::A held[S::kHeld ? S::kTiles : 1][S::kHeld ? kWidthBlocks : 1];
  if constexpr (S::kHeld) {
    async_commit();
    async_wait<0>();
    barrier();
#pragma unroll
    for (int t = 0; t < S::kTiles; ++t)
#pragma unroll
      for (int d = 0; d < kWidthBlocks; ++d)
        held[t][d] = M::load_a(rows_shared + (wave_row + t * 16) * S::kPitch + d * 16, S::kPitch);
    barrier();
  }
  if (S::kStages > 1 && from < to) copy(from);
  async_commit();

  typename M::C sums[S::kTiles][kWidthBlocks] = {};
  float top[S::kTiles][M::kRows], total[S::kTiles][M::kRows];
#pragma unroll
  for (int t = 0; t < S::kTiles; ++t)
#pragma unroll
    for (int r = 0; r < M::kRows; ++r) top[t][r] = kNone, total[t][r] = 0;
  const float scale = (float)(p.scale * Base2::kLog2E), factor = kFolded ? scale : 1;

  for (int tile = from; tile < to; ++tile) {
    if constexpr (S::kStages > 1) {
      async_wait<0>();
      barrier();  // the tile has arrived, and no wave still reads the previous one
      if (tile + 1 < to) copy(tile + 1);
      async_commit();
    } else {
      barrier();
      copy(tile);
      async_commit();
      async_wait<0>();
      barrier();
    }
    const T* const ks = keys_shared + tile % S::kStages * 2 * kTile;
    const T* const vs = ks + kTile;

    if (tile * S::kKeys >= seen_by_any) continue;
    typename M::C s[S::kTiles][kKeyBlocks] = {};
#pragma unroll
    for (int d = 0; d < kWidthBlocks; ++d) {
      typename M::A a[S::kTiles];
#pragma unroll
      for (int t = 0; t < S::kTiles; ++t) {
        if constexpr (S::kHeld) a[t] = held[t][d];
        else a[t] = M::load_a(rows_shared + (wave_row + t * 16) * S::kPitch + d * 16, S::kPitch);
      }
#pragma unroll
      for (int n = 0; n < kKeyBlocks; ++n) {
        schedule_barrier_if_narrow();
        const typename M::B x = M::load_b_t(ks + n * 16 * S::kPitch + d * 16, S::kPitch);
#pragma unroll
        for (int t = 0; t < S::kTiles; ++t) M::fma(s[t][n], a[t], x);
      }
    }

    const int key = tile * S::kKeys;
    if (!kFolded || kMask != kNoMask || key + S::kKeys > seen_by_all) {
#pragma unroll
      for (int t = 0; t < S::kTiles; ++t)
#pragma unroll
        for (int r = 0; r < M::kRows; ++r) {
          const int row = row_of(t, r), query = query_of(row);
          const int seen = row < count ? (int)p.seen(query, kCausal) : 0;
          i64 mask_at = 0;
          if (kMask != kNoMask)
            mask_at = b * p.mask.b + (kSplit ? rh * together + row / (int)p.queries : rh) * p.mask.h + query * p.mask.t;
#pragma unroll
          for (int n = 0; n < kKeyBlocks; ++n)
#pragma unroll
            for (int i = 0; i < M::kC; ++i)
              if (M::slot(i) == r) {
                const int at = key + n * 16 + M::col(i);
                float& x = s[t][n].v[i];
                if (!kFolded) x *= scale;
                if (at >= seen) x = kNone;
                else if (kMask != kNoMask) x = masked<T, kMask>(x, mask, mask_at + at * p.mask.d);
              }
        }
    }

    // The sums are relative to a maximum. It is raised to the true maximum only if that has grown by more than kSlack,
    // because raising it means rescaling the sums.
    bool grown = false;
    float best[S::kTiles][M::kRows];
#pragma unroll
    for (int t = 0; t < S::kTiles; ++t)
#pragma unroll
      for (int r = 0; r < M::kRows; ++r) {
        float x = kNone;
#pragma unroll
        for (int n = 0; n < kKeyBlocks; ++n)
#pragma unroll
          for (int i = 0; i < M::kC; ++i)
            if (M::slot(i) == r) x = fmaxf(x, s[t][n].v[i]);
        best[t][r] = M::template over_row<Top>(x);
        grown |= best[t][r] * factor > fmaf(top[t][r], factor, kSlack);
      }
    if (ballot(grown) != 0) {
#pragma unroll
      for (int t = 0; t < S::kTiles; ++t)
#pragma unroll
        for (int r = 0; r < M::kRows; ++r) {
          const float before = top[t][r], now = fmaxf(before, best[t][r]);
          const float fade = now == kNone ? 1 : fast_exp2((before - now) * factor);
          top[t][r] = now;
          total[t][r] *= fade;
#pragma unroll
          for (int d = 0; d < kWidthBlocks; ++d)
#pragma unroll
            for (int i = 0; i < M::kC; ++i)
              if (M::slot(i) == r) sums[t][d].v[i] *= fade;
        }
    }
#pragma unroll
    for (int t = 0; t < S::kTiles; ++t)
#pragma unroll
      for (int r = 0; r < M::kRows; ++r) {
        const float shift = top[t][r] == kNone ? 0 : top[t][r] * factor;
        float sum = 0;
#pragma unroll
        for (int n = 0; n < kKeyBlocks; ++n)
#pragma unroll
          for (int i = 0; i < M::kC; ++i)
            if (M::slot(i) == r) sum += s[t][n].v[i] = fast_exp2(fmaf(s[t][n].v[i], factor, -shift));
        total[t][r] += sum;
      }

#pragma unroll
    for (int n = 0; n < kKeyBlocks; ++n) {
      typename M::A a[S::kTiles];
#pragma unroll
      for (int t = 0; t < S::kTiles; ++t) a[t] = M::as_a(s[t][n]);
#pragma unroll
      for (int d = 0; d < kWidthBlocks; ++d) {
        schedule_barrier_if_narrow();
        const typename M::B x = M::load_b(vs + n * 16 * S::kPitch + d * 16, S::kPitch);
#pragma unroll
        for (int t = 0; t < S::kTiles; ++t) M::fma(sums[t][d], a[t], x);
      }
    }
  }
  async_wait<0>();
  barrier();

  const i64 out_row = (b * row_heads + rh) * head_rows + place.q0;  // for the logsumexps and the partial sums
#pragma unroll
  for (int t = 0; t < S::kTiles; ++t)
#pragma unroll
    for (int r = 0; r < M::kRows; ++r) {
      const int row = row_of(t, r);
      const float sum = M::template over_row<Sum>(total[t][r]), inverse = kSplit ? 1 : sum == 0 ? 0 : 1 / sum;
      if (row < count && M::col(0) == 0) {
        if constexpr (kSplit) {
          float* part = parts + ((i64)group().y * p.batch * p.heads * p.queries + out_row + row) * (p.dim + 2);
          part[p.dim] = top[t][r] * factor;
          part[p.dim + 1] = sum;
        } else {
          lse[out_row + row] = sum == 0 ? kNone : fmaf(top[t][r] * factor, Base2::kLn2, m_log(sum));
        }
      }
#pragma unroll
      for (int d = 0; d < kWidthBlocks; ++d)
#pragma unroll
        for (int i = 0; i < M::kC; ++i)
          if (M::slot(i) == r) {
            const int col = d * 16 + M::col(i);
            if constexpr (kSplit) {
              if (row < count && col < p.dim)
                parts[((i64)group().y * p.batch * p.heads * p.queries + out_row + row) * (p.dim + 2) + col] =
                    sums[t][d].v[i];
            } else {
              store(rows_shared + (wave_row + t * 16 + M::row_of(r)) * S::kPitch + col, sums[t][d].v[i] * inverse);
            }
          }
    }
  if constexpr (!kSplit) {
    barrier();
    store_rows<S::kRows, S::kWidth, S::kPitch, S::kThreads, kWide>(
        out + b * p.out.b + rh * p.out.h + (place.q0 + first) * p.out.t, rows_shared, p.out.t, p.out.d, count - first,
        p.dim);
  }
}

// Adds the partial sums of a query in a fixed order. One workgroup per query.
template <class T>
PF_DEVICE void attention_combine(const float* parts, T* out, float* lse, const Attention& p, int splits) {
  const float kNone = -1 / 0.0f;
  const i64 rows = p.batch * p.heads * p.queries, row = group().x, each = p.dim + 2;
  float top = kNone, total = 0;
  for (int i = 0; i < splits; ++i) top = fmaxf(top, parts[(i * rows + row) * each + p.dim]);
  const float shift = top == kNone ? 0 : top;
  for (int i = 0; i < splits; ++i) {
    const float* part = parts + (i * rows + row) * each + p.dim;
    total += part[1] * fast_exp2(part[0] - shift);
  }
  if (thread() == 0) lse[row] = total == 0 ? kNone : fmaf(top, Base2::kLn2, m_log(total));
  const float inverse = total == 0 ? 0 : 1 / total;
  const i64 h = row / p.queries % p.heads, b = row / p.queries / p.heads, t = row % p.queries;
  out += b * p.out.b + h * p.out.h + t * p.out.t;
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
