// Attention of one query for each sequence over keys and values in pages. The time goes into reading them, so each is read once for the query
// heads that share it, 16 bytes at a time. A team of lanes has a key at a time; a workgroup has a part of the keys of a sequence (see
// paged_args.h), a head of keys, and up to kHeads of its query heads. paged_combine adds the parts in their order.
#pragma once

namespace pf {

#ifdef PF_ON_DEVICE

PF_DEVICE float paged_fused(float a, float b, float c) { return fmaf(a, b, c); }
PF_DEVICE double paged_fused(double a, double b, double c) { return ::fma(a, b, c); }
// Scores of float are in base 2, because 2^x is one instruction.
PF_DEVICE float paged_exp(float x) { return fast_exp2(x); }
PF_DEVICE double paged_exp(double x) { return m_exp(x); }
template <class X>
constexpr X kPagedBase = (X)1;
template <>
constexpr float kPagedBase<float> = 1.44269504088896340736f;
PF_DEVICE float paged_none() { return float_of_bits(0xff800000u); }  // minus infinity: no key was seen

// The keys of a sequence that its query sees, and the parts that they are divided into.
struct PagedKeys {
  i64 first, end, each, parts;
  PF_DEVICE PagedKeys(const int* lengths, i64 sequence, const PagedAttention& p, bool speak) {
    const i64 room = p.columns << p.page_log2, length = lengths[sequence];
    if (speak && (length < 0 || length > room)) raise(p.fault, (int)p.site, kIndexOutOfRange, length, room + 1);
    end = length < 0 ? 0 : length > room ? room : length;
    first = p.window > 0 && end > p.window ? end - p.window : 0;
    const i64 steps = (end - first + kPagedKeys - 1) / kPagedKeys;
    each = kPagedKeys * ((steps + kPagedParts - 1) / kPagedParts);
    parts = steps == 0 ? 0 : (end - first + each - 1) / each;
  }
};

// Weighted sums of values with the largest score that they are relative to.
template <class X, int kSize>
struct PagedSums {
  X top, total, sums[kSize];
  PF_DEVICE void clear() {
    top = paged_none(), total = 0;
#pragma unroll
    for (int i = 0; i < kSize; ++i) sums[i] = 0;
  }
  PF_DEVICE void fade_to(X now) {
    const X fade = now == (X)paged_none() ? (X)1 : paged_exp(top - now);
    top = now, total *= fade;
#pragma unroll
    for (int i = 0; i < kSize; ++i) sums[i] *= fade;
  }
};

// kTeam lanes share a key: each has kPieces vectors of kVec elements, kTeam * kVec apart.
template <class T, int kVec, int kTeam, int kPieces, int kHeads, int kAhead, int kThreads>
PF_DEVICE void paged_attention(const T* q, const T* keys, const T* values, const int* table, const int* lengths, T* out,
                               C<T>* parts, const PagedAttention& p) {
  using X = C<T>;
  constexpr int kTeams = kThreads / kTeam, kSize = kPieces * kVec, kRow = kTeam * kSize + 2;
  PF_SHARED X shared[kTeams > 1 ? kTeams / 2 * kHeads * kRow : 1];
  const int me = (int)thread() % kTeam, team = (int)thread() / kTeam;
  const int together = (int)(p.heads / p.kv_heads), chunks = (together + kHeads - 1) / kHeads;
  const i64 groups_each = p.kv_heads * chunks, sequence = group().x / groups_each, rest = group().x % groups_each;
  const i64 kv = rest / chunks;
  const int head0 = (int)(rest % chunks) * kHeads;  // among those that share the keys
  const bool speaks = group().y == 0 && rest == 0 && thread() == 0;
  const PagedKeys seen(lengths, sequence, p, speaks);
  const i64 part = group().y;
  if (part >= seen.parts && part > 0) return;
  const i64 begin = seen.first + part * seen.each;
  const i64 end = begin + seen.each < seen.end ? begin + seen.each : seen.end;
  const auto column = [&](int piece) { return (piece * kTeam + me) * kVec; };

  X query[kHeads][kSize];
  PagedSums<X, kSize> mine[kHeads];
  const X scale = (X)p.scale * (p.cap > 0 ? (X)1 : kPagedBase<X>), cap = (X)p.cap;
#pragma unroll
  for (int h = 0; h < kHeads; ++h) {
    mine[h].clear();
    const int head = head0 + h < together ? head0 + h : together - 1;
    const T* const from = q + (sequence * p.heads + kv * together + head) * p.dim;
#pragma unroll
    for (int j = 0; j < kPieces; ++j) {
      Vec<T, kVec> v = {};
      if (column(j) < p.dim) v = load_vec<kVec>(from + column(j));
#pragma unroll
      for (int i = 0; i < kVec; ++i) query[h][j * kVec + i] = (X)load(&v.v[i]) * scale;
    }
  }
  const i64 row = p.kv_heads * p.dim;
  for (i64 base = begin; base < end; base += kTeams * kAhead) {
    Vec<T, kVec> k[kAhead][kPieces], v[kAhead][kPieces];
    bool there[kAhead];
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      const i64 key = base + a * kTeams + team;
      i64 page = 0;
      there[a] = key < end;
      if (there[a]) {
        page = table[sequence * p.columns + (key >> p.page_log2)];
        if (page < 0 || page >= p.pages) {
          if (me == 0) raise(p.fault, (int)p.site, kIndexOutOfRange, page, p.pages);
          there[a] = false;
        }
      }
      const i64 at = ((page << p.page_log2) + (key & (((i64)1 << p.page_log2) - 1))) * row + kv * p.dim;
#pragma unroll
      for (int j = 0; j < kPieces; ++j) {
        k[a][j] = v[a][j] = Vec<T, kVec>{};
        if (there[a] && column(j) < p.dim) {
          k[a][j] = load_vec<kVec>(keys + at + column(j));
          v[a][j] = load_vec<kVec>(values + at + column(j));
        }
      }
    }
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      X score[kAhead], best = mine[h].top;
#pragma unroll
      for (int a = 0; a < kAhead; ++a) {
        X dot = 0;
#pragma unroll
        for (int j = 0; j < kPieces; ++j)
#pragma unroll
          for (int i = 0; i < kVec; ++i) dot = paged_fused(query[h][j * kVec + i], (X)load(&k[a][j].v[i]), dot);
        X x = over_lanes<Sum, kTeam>(dot);
        if (cap > 0) x = cap * m_tanh(x / cap) * kPagedBase<X>;
        score[a] = there[a] ? x : (X)paged_none();
        best = score[a] > best ? score[a] : best;
      }
      if (best > mine[h].top) mine[h].fade_to(best);
#pragma unroll
      for (int a = 0; a < kAhead; ++a) {
        const X weight = there[a] ? paged_exp(score[a] - best) : (X)0;
        mine[h].total += weight;
#pragma unroll
        for (int j = 0; j < kPieces; ++j)
#pragma unroll
          for (int i = 0; i < kVec; ++i)
            mine[h].sums[j * kVec + i] = paged_fused(weight, (X)load(&v[a][j].v[i]), mine[h].sums[j * kVec + i]);
      }
    }
  }
  // The second half of the teams gives its sums to the first half, and so on.
#pragma unroll 1
  for (int half = kTeams / 2; half > 0; half /= 2) {
    const int other = team - half;
    if (team >= half && team < 2 * half)
#pragma unroll
      for (int h = 0; h < kHeads; ++h) {
        X* const to = shared + (other * kHeads + h) * kRow;
        if (me == 0) to[0] = mine[h].top, to[1] = mine[h].total;
#pragma unroll
        for (int i = 0; i < kSize; ++i) to[2 + i * kTeam + me] = mine[h].sums[i];
      }
    barrier();
    if (team < half)
#pragma unroll
      for (int h = 0; h < kHeads; ++h) {
        const X* const from = shared + (team * kHeads + h) * kRow;
        const X top = from[0], best = top > mine[h].top ? top : mine[h].top;
        const X share = best == (X)paged_none() ? (X)1 : paged_exp(top - best);
        mine[h].fade_to(best);
        mine[h].total = paged_fused(from[1], share, mine[h].total);
#pragma unroll
        for (int i = 0; i < kSize; ++i) mine[h].sums[i] = paged_fused(from[2 + i * kTeam + me], share, mine[h].sums[i]);
      }
    barrier();
  }
  if (team > 0) return;
#pragma unroll
  for (int h = 0; h < kHeads; ++h) {
    if (head0 + h >= together) continue;
    const i64 line = sequence * p.heads + kv * together + head0 + h;
    const X inverse = p.most_parts > 1 ? (X)1 : mine[h].total == 0 ? (X)0 : 1 / mine[h].total;
    X* const to = parts + (line * p.most_parts + part) * (p.dim + 2);
    if (p.most_parts > 1 && me == 0) to[p.dim] = mine[h].top, to[p.dim + 1] = mine[h].total;
#pragma unroll
    for (int j = 0; j < kPieces; ++j)
#pragma unroll
      for (int i = 0; i < kVec; ++i) {
        if (column(j) + i >= p.dim) continue;
        const X x = mine[h].sums[j * kVec + i] * inverse;
        if (p.most_parts > 1) to[column(j) + i] = x;
        else store(out + line * p.dim + column(j) + i, x);
      }
  }
}

// Adds the parts of a query head, each with its weight, in their order. One workgroup for each.
template <class T, int kThreads>
PF_DEVICE void paged_combine(const C<T>* parts, const int* lengths, T* out, const PagedAttention& p) {
  using X = C<T>;
  constexpr int kAhead = 8;
  static_assert(kThreads >= kPagedParts);
  PF_SHARED X tops[kPagedParts], weights[kPagedParts];
  const i64 line = group().x, each = p.dim + 2;
  const PagedKeys seen(lengths, line / p.heads, p, false);
  const int me = (int)thread(), count = (int)seen.parts;
  const X* const from = parts + line * p.most_parts * each;
  const X mine = me < count ? from[me * each + p.dim] : (X)paged_none();
  const X sum_of_mine = me < count ? from[me * each + p.dim + 1] : (X)0;
  if (me < kPagedParts) tops[me] = mine;
  barrier();
  X top = paged_none(), total = 0;
  for (int i = 0; i < count; ++i) top = tops[i] > top ? tops[i] : top;
  const X share = me < count ? paged_exp(mine - (top == (X)paged_none() ? (X)0 : top)) : (X)0;
  barrier();
  if (me < kPagedParts) weights[me] = share, tops[me] = share * sum_of_mine;
  barrier();
  for (int i = 0; i < count; ++i) total += tops[i];
  const X inverse = total == 0 ? (X)0 : 1 / total;
  for (i64 d = me; d < p.dim; d += kThreads) {
    X sum = 0;
    for (int first = 0; first < count; first += kAhead) {
      X x[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) x[i] = first + i < count ? from[(first + i) * each + d] : (X)0;
#pragma unroll
      for (int i = 0; i < kAhead; ++i)
        if (first + i < count) sum = paged_fused(x[i], weights[first + i], sum);
    }
    store(out + line * p.dim + d, sum * inverse);
  }
}

#endif

}  // namespace pf
