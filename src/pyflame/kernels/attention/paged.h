// Attention of one query for each sequence over keys and values in pages. The time goes into reading them, so each is read once for the query
// heads that share it, 16 bytes at a time, and the pages of the next keys are looked up while the last ones are computed with. A team of lanes
// has kAhead adjacent keys at a time; a workgroup has a part of the keys of a sequence (see paged_args.h), a head of keys, and up to kHeads of
// its query heads. paged_combine adds the parts in their order.
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
// Elements of pages as a type of their own: the codes of 8-bit floats F.
template <class F>
struct PagedCode {
  u8 v;
};
template <class S>
PF_DEVICE C<S> paged_load(const S* p) {
  return load(p);
}
template <class F>
PF_DEVICE float paged_load(const PagedCode<F>* p) {
  return F::value(p->v);
}
// Element i of a vector.
template <class S, int N, bool kWords>
PF_DEVICE auto paged_load(const InFlight<S, N, kWords>& x, int i) {
  return paged_load(&x[i]);
}
template <class F, int N, bool kWords>
PF_DEVICE float paged_load(const InFlight<PagedCode<F>, N, kWords>& x, int i) {
  if constexpr (kWords && kDecodesFloat8<F>) return decoded_float8<F>(x.words[i / 4], i % 4);
  else return paged_load(&x[i]);
}
struct PagedTop {  // a NaN need not win: it reaches the result through the sum
  template <class X>
  static PF_DEVICE X of(X a, X b) {
    return a > b ? a : b;
  }
};
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

// Adds each of the first kLeft values over lanes that differ in the bits of 2 kStep - 1. A lane gets one sum. At each step, half of the values go to
// the other half of the lanes: all sums together take about as many exchanges as one sum takes if every lane gets it.
template <int kStep, int kLeft, int kCount, class X>
PF_DEVICE void divide_sums(X (&x)[kCount]) {
  if constexpr (kStep > 0) {
    constexpr int kHalf = kLeft > 1 ? kLeft / 2 : 1;
    const bool upper = (lane() & kStep) != 0;
#pragma unroll
    for (int i = 0; i < kHalf; ++i) {
      if constexpr (kLeft > 1) {
        const X lower = x[i], higher = x[i + kHalf];
        const X mine = upper ? higher : lower, other = upper ? lower : higher;
        x[i] = mine + xor_lane(other, kStep);
      } else {
        x[i] += xor_lane(x[i], kStep);  // the same bits in both lanes: addition commutes
      }
    }
    divide_sums<kStep / 2, kHalf>(x);
  }
}

// kTeam lanes share a key: each has kPieces vectors of kVec elements, kTeam * kVec apart. Of the scores, a lane has the one of key `my_key` and
// query head `my_head`; all lanes have the sums of all heads for their own elements. S: the type of keys and values. If it has 8 bits, the rows of a
// head have scales: the score is multiplied by the key's, the weight by the value's.
template <class T, class S, int kVec, int kTeam, int kPieces, int kHeads, int kAhead, int kThreads>
PF_DEVICE void paged_attention(const T* q, const S* keys, const S* values, const int* table, const int* lengths,
                               const float* key_scales, const float* value_scales, T* out, C<T>* parts,
                               const PagedAttention& p) {
  using X = C<T>;
  constexpr bool kScaled = sizeof(S) == 1;
  constexpr int kTeams = kThreads / kTeam, kSize = kPieces * kVec, kRow = kTeam * kSize + 2;
  static_assert(kHeads <= 8);
  constexpr int kScores = (kHeads > 4 ? 8 : kHeads > 2 ? 4 : kHeads) * kAhead;
  constexpr int kSame = kTeam / kScores;  // lanes that have the same score
  static_assert(kScores <= kTeam && (kAhead & (kAhead - 1)) == 0);
  // The teams' sums are added for so many heads at a time.
  constexpr int kFit = 24576 / (int)(kTeams * kRow * sizeof(X));
  constexpr int kBatch = kFit < 1 ? 1 : kFit < kHeads ? kFit : kHeads;
  PF_SHARED X shared[kTeams * kBatch * kRow];
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
  const int* const pages = table + sequence * p.columns;
  // The pages of this team's keys from `base` on; -1: there is no such key.
  const auto look_up = [&](i64 base, int(&page)[kAhead]) {
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      const i64 key = base + team * kAhead + a;
      page[a] = key < end ? pages[key >> p.page_log2] : -1;
      if (key < end && (page[a] < 0 || page[a] >= p.pages)) {
        if (me == 0) raise(p.fault, (int)p.site, kIndexOutOfRange, page[a], p.pages);
        page[a] = -1;
      }
    }
  };
  int page[kAhead];
  look_up(begin, page);

  X query[kHeads][kSize], sums[kHeads][kSize];
  const X scale = (X)p.scale * (p.cap > 0 ? (X)1 : kPagedBase<X>), cap = (X)p.cap;
#pragma unroll
  for (int h = 0; h < kHeads; ++h) {
    const int head = head0 + h < together ? head0 + h : together - 1;
    const T* const from = q + (sequence * p.heads + kv * together + head) * p.dim;
#pragma unroll
    for (int j = 0; j < kPieces; ++j) {
      Vec<T, kVec> v = {};
      if (column(j) < p.dim) v = load_vec<kVec>(from + column(j));
#pragma unroll
      for (int i = 0; i < kVec; ++i) query[h][j * kVec + i] = (X)load(&v.v[i]) * scale, sums[h][j * kVec + i] = 0;
    }
  }
  const int my_key = me / kSame % kAhead;
  const int team0 = lane() - me;  // the team's first lane
  static_assert(kTeam <= kWave);
  X top = paged_none(), total = 0;  // of this lane's head; total: of this lane's keys
  const i64 row = p.kv_heads * p.dim, mask = ((i64)1 << p.page_log2) - 1;
  for (i64 base = begin; base < end; base += kTeams * kAhead) {
    InFlight<S, kVec> k[kAhead][kPieces], v[kAhead][kPieces];
    bool there = false;  // is this lane's key
    int my_page = 0;     // of this lane's key, where there are scales
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      const i64 key = base + team * kAhead + a;
      const i64 at = (((i64)page[a] << p.page_log2) + (key & mask)) * row + kv * p.dim;
      there |= my_key == a && page[a] >= 0;
      if (kScaled && my_key == a) my_page = page[a];
#pragma unroll
      for (int j = 0; j < kPieces; ++j) {
        if (page[a] >= 0 && column(j) < p.dim) {
          k[a][j].once(keys + at + column(j));
          v[a][j].once(values + at + column(j));
        }
      }
    }
    X key_scale = 1, value_scale = 1;  // of this lane's key
    if (kScaled && there) {
      const i64 at = (((i64)my_page << p.page_log2) + ((base + team * kAhead + my_key) & mask)) * p.kv_heads + kv;
      key_scale = (X)key_scales[at], value_scale = (X)value_scales[at];
    }
    look_up(base + kTeams * kAhead, page);
    X dots[kScores];
#pragma unroll
    for (int s = 0; s < kScores; ++s) {
      dots[s] = 0;
      if (s / kAhead >= kHeads) continue;
#pragma unroll
      for (int j = 0; j < kPieces; ++j)
#pragma unroll
        for (int i = 0; i < kVec; ++i)
          dots[s] = paged_fused(query[s / kAhead < kHeads ? s / kAhead : 0][j * kVec + i],
                                (X)paged_load(k[s % kAhead][j], i), dots[s]);
    }
    divide_sums<kTeam / 2, kScores>(dots);  // this lane's is that of key my_key and head me / (kSame * kAhead)
    X score = kScaled ? dots[0] * key_scale : dots[0];
    if (cap > 0) score = cap * m_tanh(score / cap) * kPagedBase<X>;
    if (!there) score = paged_none();
    X best = score;
#pragma unroll
    for (int step = kSame; step < kSame * kAhead; step *= 2) {
      const X other = xor_lane(best, step);
      best = other > best ? other : best;
    }
    best = best > top ? best : top;
    if (ballot(best > top) != 0) {
      const X fade = best == (X)paged_none() ? (X)1 : paged_exp(top - best);
      total *= fade;
#pragma unroll
      for (int h = 0; h < kHeads; ++h) {
        const X of_head = from_lane(fade, team0 + h * kAhead * kSame);
#pragma unroll
        for (int i = 0; i < kSize; ++i) sums[h][i] *= of_head;
      }
      top = best;
    }
    const X weight = there ? paged_exp(score - top) : (X)0;
    total += weight;
    const X share = kScaled ? weight * value_scale : weight;
#pragma unroll
    for (int h = 0; h < kHeads; ++h)
#pragma unroll
      for (int a = 0; a < kAhead; ++a) {
        const X w = from_lane(share, team0 + (h * kAhead + a) * kSame);
#pragma unroll
        for (int j = 0; j < kPieces; ++j)
#pragma unroll
          for (int i = 0; i < kVec; ++i)
            sums[h][j * kVec + i] = paged_fused(w, (X)paged_load(v[a][j], i), sums[h][j * kVec + i]);
      }
  }
#pragma unroll
  for (int step = kSame; step < kSame * kAhead; step *= 2) total += xor_lane(total, step);
    // The sums of all teams, in their order, relative to the largest score of all.
#pragma unroll
  for (int first = 0; first < kHeads; first += kBatch) {
    if (first > 0) barrier();
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int h = first + b;
      if (h >= kHeads) continue;
      X* const to = shared + (b * kTeams + team) * kRow;
      if (me == h * kAhead * kSame) to[0] = top, to[1] = total;
#pragma unroll
      for (int i = 0; i < kSize; ++i) to[2 + column(i / kVec) + i % kVec] = sums[h < kHeads ? h : 0][i];
    }
    barrier();
    constexpr int kColumns = kTeam * kSize;
    for (int e = (int)thread(); e < kBatch * kColumns; e += kThreads) {
      const int b = e / kColumns, d = e % kColumns, h = first + b;
      if (h >= kHeads || head0 + h >= together || d >= p.dim) continue;
      const X* const from = shared + b * kTeams * kRow;
      X largest = from[0], sum = 0, all = 0;
#pragma unroll
      for (int t = 1; t < kTeams; ++t) largest = from[t * kRow] > largest ? from[t * kRow] : largest;
#pragma unroll
      for (int t = 0; t < kTeams; ++t) {
        const X share = largest == (X)paged_none() ? (X)0 : paged_exp(from[t * kRow] - largest);
        all = paged_fused(from[t * kRow + 1], share, all);
        sum = paged_fused(from[t * kRow + 2 + d], share, sum);
      }
      const i64 line = sequence * p.heads + kv * together + head0 + h;
      if (p.most_parts > 1) {
        X* const to = parts + (line * p.most_parts + part) * (p.dim + 2);
        to[d] = sum;
        if (d == 0) to[p.dim] = largest, to[p.dim + 1] = all;
      } else {
        store(out + line * p.dim + d, all == 0 ? (X)0 : sum * (1 / all));
      }
    }
  }
}

// Adds the parts of a query head, each with its weight, in their order. One workgroup for each.
template <class T, int kThreads>
PF_DEVICE void paged_combine(const C<T>* parts, const int* lengths, T* out, const PagedAttention& p) {
  using X = C<T>;
  constexpr int kAhead = 8;
  static_assert(kThreads >= kPagedParts);
  PF_SHARED X weights[kPagedParts], shared[kThreads];
  const i64 line = group().x, each = p.dim + 2;
  const PagedKeys seen(lengths, line / p.heads, p, false);
  const int me = (int)thread(), count = (int)seen.parts;
  const X* const from = parts + line * p.most_parts * each;
  X x[kAhead];
  const auto load = [&](int first, i64 d) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) x[i] = first + i < count && d < p.dim ? from[(first + i) * each + d] : (X)0;
  };
  load(0, me);  // on the way while the weights are computed
  const X mine = me < count ? from[me * each + p.dim] : (X)paged_none();
  const X sum_of_mine = me < count ? from[me * each + p.dim + 1] : (X)0;
  const X top = over_group<PagedTop, kThreads>(mine, shared);
  const X share = me < count ? paged_exp(mine - (top == (X)paged_none() ? (X)0 : top)) : (X)0;
  if (me < kPagedParts) weights[me] = share;
  const X total = over_group<Sum, kThreads>(share * sum_of_mine, shared);
  barrier();
  const X inverse = total == 0 ? (X)0 : 1 / total;
  for (i64 d = me; d < p.dim; d += kThreads) {
    X sum = 0;
    if (d != me) load(0, d);
    for (int first = 0; first < count; first += kAhead) {
      X now[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) now[i] = x[i];
      load(first + kAhead, d);
#pragma unroll
      for (int i = 0; i < kAhead; ++i)
        if (first + i < count) sum = paged_fused(now[i], weights[first + i], sum);
    }
    store(out + line * p.dim + d, sum * inverse);
  }
}

#endif

}  // namespace pf
