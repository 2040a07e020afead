// draw_tokens: the choice of the next token of a text from its logits, one workgroup for each text. Tokens are put in order by their logits, of equal ones
// the lower id first; a prefix of this order is kept, and the drawn number chooses among the kept tokens in the order of their ids.
#pragma once

namespace pf {

#ifdef PF_ON_DEVICE

// Larger floats have larger keys.
PF_DEVICE u32 draw_key(float x) {
  const u32 bits = bits_of_float(x + 0.0f);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// The tokens that are kept: those with a larger key, and of those with this key the ones with a lower id.
struct DrawKept {
  u32 key;
  int ids;
  PF_DEVICE bool has(u32 k, int id) const { return k > key || (k == key && id < ids); }
};

// Measures of tokens: 1 each, or their probability relative to the likeliest.
struct DrawOne {
  using T = int;
  PF_DEVICE int of(float) const { return 1; }
};
struct DrawWeight {
  using T = float;
  float highest, scale;
  PF_DEVICE float of(float x) const { return pf::exp<float>((x - highest) * scale); }
};

// The first of sums[first] to sums[last - 1] that reaches beyond the target, or the last that is not 0; `before` grows
// by those in front of it.
PF_DEVICE int draw_place(const float* sums, int first, int last, float target, float& before) {
  int found = first;
  float in_front = before;
#pragma unroll 1
  for (int i = first; i < last; ++i) {
    if (sums[i] > 0) found = i, in_front = before;
    if (sums[i] > 0 && before + sums[i] > target) break;
    before += sums[i];
  }
  before = in_front;
  return found;
}

// How many of the `known` tokens with this key `in` keeps below the id `end`.
template <int kThreads>
PF_DEVICE int draw_count(const float* x, int end, const DrawKept& in, u32 key, int* counts) {
  int below = 0;
  for (int i = (int)thread(); i < end; i += kThreads) {
    const u32 k = draw_key(x[i]);
    below += k == key && in.has(k, i);
  }
  return over_group<Sum, kThreads>(below, counts);
}

// The first of the tokens that `in` keeps, in their order, whose measures add up to at least `wanted`. Each pass finds
// two bits of the key.
template <int kThreads, class M>
PF_DEVICE DrawKept draw_fewest(const float* x, int known, const DrawKept& in, const M& measure, typename M::T wanted,
                               typename M::T* shared, int* counts) {
  using T = typename M::T;
  u32 key = 0;
#pragma unroll 1
  for (int bit = 30; bit >= 0; bit -= 2) {
    T sums[3] = {0, 0, 0};
    for (int i = (int)thread(); i < known; i += kThreads) {
      const u32 k = draw_key(x[i]);
      if (!in.has(k, i) || k < (key | 1u << bit)) continue;
      const T m = measure.of(x[i]);
      sums[0] += m;
      if (k >= (key | 2u << bit)) sums[1] += m;
      if (k >= (key | 3u << bit)) sums[2] += m;
    }
    for (int s = 0; s < 3; ++s) sums[s] = over_group<Sum, kThreads>(sums[s], shared);
    if (sums[2] >= wanted) key |= 3u << bit;
    else if (sums[1] >= wanted) key |= 2u << bit;
    else if (sums[0] >= wanted) key |= 1u << bit;
  }
  // Of the tokens with this key, so many that the sum is reached, those with the lowest ids.
  T larger = 0, each = 0;
  for (int i = (int)thread(); i < known; i += kThreads) {
    const u32 k = draw_key(x[i]);
    if (!in.has(k, i)) continue;
    if (k > key) larger += measure.of(x[i]);
    if (k == key) each = measure.of(x[i]);
  }
  larger = over_group<Sum, kThreads>(larger, shared);
  each = over_group<Largest, kThreads>(each, shared);
  const int equal = draw_count<kThreads>(x, known, in, key, counts);
  if (key < in.key) return in;  // rounding leads beyond the sum
  const int take = wanted - larger <= each ? 1 : (int)m_ceil((float)(wanted - larger) / (float)each);
  if (take >= equal) return DrawKept{key, in.key == key ? in.ids : known};
  int low = 0;  // fewer than `take` of them have a lower id
#pragma unroll 1
  for (int step = 1 << 30; step > 0; step >>= 1) {
    if (low + step > known || low + step < 0) continue;
    if (draw_count<kThreads>(x, low + step, in, key, counts) < take) low += step;
  }
  return DrawKept{key, low + 1};
}

// The token in whose part of the sum of the kept probabilities the drawn number lies: thread 0 gets it. Each thread has
// tokens that lie side by side.
template <int kThreads>
PF_DEVICE int draw_kept(const float* x, int known, const DrawKept& kept, const DrawWeight& weight, float min_p,
                        float drawn, float* shared) {
  constexpr int kGroups = 32, kEach = kThreads / kGroups;
  PF_SHARED float groups[kGroups];
  const int me = (int)thread(), each = (known + kThreads - 1) / kThreads;
  const int begin = me * each, end = begin + each < known ? begin + each : known;
  float mine = 0;
  for (int i = begin; i < end; ++i) {
    const float w = weight.of(x[i]);
    if (w >= min_p && kept.has(draw_key(x[i]), i)) mine += w;
  }
  shared[me] = mine;
  barrier();
  if (me < kGroups) {
    float sum = 0;
    for (int t = 0; t < kEach; ++t) sum += shared[me * kEach + t];
    groups[me] = sum;
  }
  barrier();
  int id = 0;
  if (me == 0) {
    float sum = 0;
    for (int g = 0; g < kGroups; ++g) sum += groups[g];
    const float target = sum * drawn;
    float before = 0;
    const int g = draw_place(groups, 0, kGroups, target, before);
    const int t = draw_place(shared, g * kEach, (g + 1) * kEach, target, before);
    for (int i = t * each; i < (t + 1) * each && i < known; ++i) {
      const float w = weight.of(x[i]);
      if (w == 0 || !(w >= min_p) || !kept.has(draw_key(x[i]), i)) continue;
      id = i;
      before += w;
      if (before > target) break;
    }
  }
  return id;
}

// logits: rows that begin every `width` elements, of which the first `known` count; settings: temperature, top_k, top_p,
// min_p and the drawn number of each row. Without a finite largest logit the id is 0.
template <int kThreads>
PF_DEVICE void draw_tokens(const float* logits, const float* settings, i64* ids, float* highest, i64 width, i64 known) {
  PF_SHARED float shared[kThreads];
  PF_SHARED int counts[kThreads];
  const i64 row = (i64)group().x;
  const int me = (int)thread(), n = (int)known;
  const float* const x = logits + row * width;
  const float* const set = settings + row * 5;
  const float infinite = float_of_bits(0x7f800000u);
  float most = -infinite;
  int wrong = 0;
  for (int i = me; i < n; i += kThreads) {
    const float v = x[i];
    wrong |= v != v;
    most = v > most ? v : most;
  }
  wrong = over_group<Sum, kThreads>(wrong, counts);
  most = over_group<Largest, kThreads>(most, shared);
  int id = 0;
  if (wrong || !(most > -infinite) || most == infinite) {
    most = wrong ? float_of_bits(0x7fc00000u) : most;
  } else if (set[0] < 1e-30f) {
    int first = n;
    for (int i = me; i < n; i += kThreads)
      if (x[i] == most && i < first) first = i;
    id = -over_group<Largest, kThreads>(-first, counts);
  } else {
    const DrawWeight weight{most, 1.0f / set[0]};
    DrawKept kept{0u, n};
    const int top_k = set[1] < (float)n ? (int)set[1] : 0;
    if (top_k > 0) kept = draw_fewest<kThreads>(x, n, kept, DrawOne{}, top_k, counts, counts);
    if (set[2] < 1.0f) {
      float sum = 0;
      for (int i = me; i < n; i += kThreads)
        if (kept.has(draw_key(x[i]), i)) sum += weight.of(x[i]);
      sum = over_group<Sum, kThreads>(sum, shared);
      kept = draw_fewest<kThreads>(x, n, kept, weight, sum * set[2], shared, counts);
    }
    id = draw_kept<kThreads>(x, n, kept, weight, set[3], set[4], shared);
  }
  if (me == 0) ids[row] = id, highest[row] = most;
}

#endif

}  // namespace pf
