// Attention of one query for each sequence over keys and values in pages, on matrix cores. A workgroup has a part of the keys of a sequence (see
// paged_args.h), a head of keys, and up to 16 of the query heads that share it, which are the rows of a tile. Each of its kWaves waves has 16 keys
// at a time: it copies them and their values to shared memory, multiplies them with all queries, and adds the weighted values to sums of its own.
// The next keys are on their way meanwhile. At the end, the sums of the waves are added in their order. paged_combine adds the parts.
#pragma once

namespace pf {

#ifdef PF_ON_DEVICE

// Sums are scaled again when the largest score has grown by more than this; weights stay below 2^8 then.
constexpr float kPagedSlack = 8;

// 16 rows of keys or of values, which a wave copies to shared memory, 8 elements at a time.
template <class T, int kWidth>
struct PagedRows {
  static constexpr int kPitch = kWidth + 8, kAcross = kWidth / 8, kEach = (16 * kAcross + kWave - 1) / kWave;
  static constexpr u32 kNone = 0xffffffffu;  // there is no such row, or no such element of a row
  // The row of the i-th vector of this lane, and its first element.
  static PF_DEVICE int row(int i) {
    return kWave % kAcross == 0 ? i * (kWave / kAcross) + lane() / kAcross : (i * kWave + lane()) / kAcross % 16;
  }
  static PF_DEVICE int col(int i) {
    return (kWave % kAcross == 0 ? lane() % kAcross : (i * kWave + lane()) % kAcross) * 8;
  }
  static PF_DEVICE bool mine(int i) { return 16 * kAcross % kWave == 0 || i * kWave + lane() < 16 * kAcross; }
  static PF_DEVICE T* in(T* shared, int i) { return shared + row(i) * kPitch + col(i); }
};
// Where the 16 keys of a wave are.
template <class T, int kWidth>
struct PagedPlace {
  u32 from[PagedRows<T, kWidth>::kEach];  // of the lane's vectors, in units of 8 elements
  u64 there;                              // bit i: key i is read
};

// Rows on their way to shared memory: as copies that run by themselves, or in registers until put().
template <class T, int kWidth>
struct PagedCopy {
  using Rows = PagedRows<T, kWidth>;
  InFlight<T, 8> held[kHasAsyncCopy ? 1 : Rows::kEach];
  PF_DEVICE void fetch(T* to, const T* from, const PagedPlace<T, kWidth>& place) {
#pragma unroll
    for (int i = 0; i < Rows::kEach; ++i) {
      if (!Rows::mine(i)) continue;
      const bool inside = place.from[i] != Rows::kNone;
      const T* const vector = from + (inside ? (u64)place.from[i] * 8 : 0);
      if constexpr (kHasAsyncCopy) {
        async_copy(Rows::in(to, i), vector, inside);
      } else {
        held[i] = InFlight<T, 8>();
        if (inside) held[i].load(vector);
      }
    }
    async_commit();
  }
  PF_DEVICE void put(T* to) const {
    if constexpr (!kHasAsyncCopy) {
#pragma unroll
      for (int i = 0; i < Rows::kEach; ++i)
        if (Rows::mine(i)) store_vec(Rows::in(to, i), held[i].elements);
    }
  }
};

// kWidth: the head size, rounded up to a multiple of 16. The head size is a multiple of 8, and all rows begin at multiples of 16 bytes.
template <class T, int kWidth, int kWaves>
PF_DEVICE void paged_tiles(const T* q, const T* keys, const T* values, const int* table, const int* lengths, T* out,
                           float* parts, const PagedAttention& p) {
  using M = Mma<T>;
  constexpr int kPitch = kWidth + 8, kTile = 16 * kPitch, kBlocks = kWidth / 16, kAcross = kWidth / 8;
  constexpr int kThreads = kWaves * kWave, kRow = kWidth + 2;
  T* const queries = dynamic_shared<T>();
  T* const mine = queries + kTile + wave() * 2 * kTile;  // this wave's keys, and behind them their values
  static_assert(16 * kRow * sizeof(float) <= 2 * kTile * sizeof(T), "a wave's sums take the place of its keys");
  const int together = (int)(p.heads / p.kv_heads), chunks = (together + 15) / 16;
  const i64 groups_each = p.kv_heads * chunks, sequence = group().x / groups_each, rest = group().x % groups_each;
  const i64 kv = rest / chunks;
  const int head0 = (int)(rest % chunks) * 16, heads = together - head0 < 16 ? together - head0 : 16;
  const bool speaks = group().y == 0 && rest == 0 && thread() == 0;
  const PagedKeys seen(lengths, sequence, p, speaks);
  const i64 part = group().y;
  if (part >= seen.parts && part > 0) return;
  const i64 begin = seen.first + part * seen.each;
  const i64 end = begin + seen.each < seen.end ? begin + seen.each : seen.end;

  const int* const pages = table + sequence * p.columns;
  const i64 mask = ((i64)1 << p.page_log2) - 1;
  const u32 row_units = (u32)(p.kv_heads * p.dim / 8), head_units = (u32)(kv * p.dim / 8);
  using Rows = PagedRows<T, kWidth>;
  // Lane i looks up the page of key i % 16. All lanes of the wave must call this.
  const auto look_up = [&](i64 base) {
    const i64 key = base + wave() * 16 + lane() % 16;
    int page = key < end ? pages[key >> p.page_log2] : -1;
    if (key < end && (page < 0 || page >= p.pages)) {
      if (lane() < 16) raise(p.fault, (int)p.site, kIndexOutOfRange, page, p.pages);
      page = -1;
    }
    PagedPlace<T, kWidth> place;
    const u32 of_key = page < 0 ? Rows::kNone : ((u32)page << p.page_log2 | (u32)(key & mask)) * row_units + head_units;
#pragma unroll
    for (int i = 0; i < Rows::kEach; ++i) {
      const u32 from = from_lane(of_key, Rows::row(i));
      place.from[i] = from == Rows::kNone || Rows::col(i) >= p.dim ? Rows::kNone : from + (u32)Rows::col(i) / 8;
    }
    place.there = ballot(page >= 0);
    return place;
  };
  PagedCopy<T, kWidth> next_keys, next_values;
  PagedPlace<T, kWidth> now = look_up(begin);
  next_keys.fetch(mine, keys, now);
  next_values.fetch(mine + kTile, values, now);

  const T* const first_query = q + (sequence * p.heads + kv * together + head0) * p.dim;
  for (int at = (int)thread(); at < 16 * kAcross; at += kThreads) {
    const int row = at / kAcross, col = at % kAcross * 8;
    Vec<T, 8> x = {};
    if (row < heads && col < p.dim) x = load_vec<8>(first_query + row * p.dim + col);
    store_vec(queries + row * kPitch + col, x);
  }
  barrier();

  const float scale = (float)p.scale * (p.cap > 0 ? 1 : kPagedBase<float>), cap = (float)p.cap;
  typename M::C sums[kBlocks] = {};
  float top[M::kRows], total[M::kRows];
#pragma unroll
  for (int r = 0; r < M::kRows; ++r) top[r] = paged_none(), total[r] = 0;

  constexpr int kStep = kWaves * 16;
  for (i64 base = begin; base < end; base += kStep) {
    const bool more = base + kStep < end;
    const u64 there = now.there;
    next_keys.put(mine);
    next_values.put(mine + kTile);
    if (more) now = look_up(base + kStep);
    if (!kHasAsyncCopy && more) {
      next_keys.fetch(mine, keys, now);
      next_values.fetch(mine + kTile, values, now);
    }
    async_wait<1>();
    wave_barrier();

    typename M::C s = {};
#pragma unroll
    for (int d = 0; d < kBlocks; ++d) {
      schedule_barrier_if_narrow();
      M::fma(s, M::load_a(queries + d * 16, kPitch), M::load_b_t(mine + d * 16, kPitch));
    }
    wave_barrier();
    if (kHasAsyncCopy && more) next_keys.fetch(mine, keys, now);
    else async_commit();  // an empty batch, so that async_wait counts the same
    float best[M::kRows];
#pragma unroll
    for (int r = 0; r < M::kRows; ++r) best[r] = paged_none();
#pragma unroll
    for (int i = 0; i < M::kC; ++i) {
      float x = s.v[i] * scale;
      if (cap > 0) x = cap * m_tanh(x / cap) * kPagedBase<float>;
      s.v[i] = there >> M::col(i) & 1 ? x : paged_none();
      best[M::slot(i)] = fmaxf(best[M::slot(i)], s.v[i]);
    }
    bool grown = false;
#pragma unroll
    for (int r = 0; r < M::kRows; ++r) {
      best[r] = M::template over_row<PagedTop>(best[r]);
      grown |= best[r] > top[r] + kPagedSlack || (top[r] == paged_none() && best[r] != paged_none());
    }
    if (ballot(grown) != 0) {
#pragma unroll
      for (int r = 0; r < M::kRows; ++r) {
        const float now = fmaxf(top[r], best[r]), fade = now == paged_none() ? 1 : fast_exp2(top[r] - now);
        top[r] = now, total[r] *= fade;
#pragma unroll
        for (int d = 0; d < kBlocks; ++d)
#pragma unroll
          for (int i = 0; i < M::kC; ++i)
            if (M::slot(i) == r) sums[d].v[i] *= fade;
      }
    }
#pragma unroll
    for (int i = 0; i < M::kC; ++i) {
      const float shift = top[M::slot(i)];
      s.v[i] = s.v[i] == paged_none() ? 0 : fast_exp2(s.v[i] - shift);
      total[M::slot(i)] += s.v[i];
    }
    const typename M::A weights = M::as_a(s);
    async_wait<1>();
    wave_barrier();
#pragma unroll
    for (int d = 0; d < kBlocks; ++d) {
      schedule_barrier_if_narrow();
      M::fma(sums[d], weights, M::load_b(mine + kTile + d * 16, kPitch));
    }
    wave_barrier();
    if (kHasAsyncCopy && more) next_values.fetch(mine + kTile, values, now);
    else async_commit();
  }
  async_wait<0>();  // where there was no key at all
  wave_barrier();

  float* const all = (float*)(queries + kTile);
  constexpr int kSums = 2 * kTile * (int)sizeof(T) / (int)sizeof(float);  // from one wave's to the next one's
  float* const my_sums = all + wave() * kSums;
#pragma unroll
  for (int r = 0; r < M::kRows; ++r) {
    const float sum = M::template over_row<Sum>(total[r]);
    const int row = M::row_of(r);
    if (M::col(0) == 0) my_sums[row * kRow] = top[r], my_sums[row * kRow + 1] = sum;
#pragma unroll
    for (int d = 0; d < kBlocks; ++d)
#pragma unroll
      for (int i = 0; i < M::kC; ++i)
        if (M::slot(i) == r) my_sums[row * kRow + 2 + d * 16 + M::col(i)] = sums[d].v[i];
  }
  barrier();
  for (int at = (int)thread(); at < heads * kWidth; at += kThreads) {
    const int row = at / kWidth, d = at % kWidth;
    if (d >= p.dim) continue;
    const float* const from = all + row * kRow;
    float largest = from[0], sum = 0, weight = 0;
#pragma unroll
    for (int w = 1; w < kWaves; ++w) largest = fmaxf(largest, from[w * kSums]);
#pragma unroll
    for (int w = 0; w < kWaves; ++w) {
      const float share = largest == paged_none() ? 0 : fast_exp2(from[w * kSums] - largest);
      weight = fmaf(from[w * kSums + 1], share, weight);
      sum = fmaf(from[w * kSums + 2 + d], share, sum);
    }
    const i64 line = sequence * p.heads + kv * together + head0 + row;
    if (p.most_parts > 1) {
      float* const to = parts + (line * p.most_parts + part) * (p.dim + 2);
      to[d] = sum;
      if (d == 0) to[p.dim] = largest, to[p.dim + 1] = weight;
    } else {
      store(out + line * p.dim + d, weight == 0 ? 0.0f : sum * (1 / weight));
    }
  }
}

#endif

}  // namespace pf
