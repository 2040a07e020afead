// What comes between a decoder's product for q, k and v and its attention: rotary embedding of q and k, and the new keys and values to their rows
// of the cache. A thread has kVec adjacent elements of one head. Each product and the sum are rounded to the dtype, as the elementwise ops do.
#pragma once

namespace pf {

#ifdef PF_ON_DEVICE

template <class S>
PF_DEVICE C<S> rounded_to(C<S> x) {
  S r;
  store(&r, x);
  return load(&r);
}

template <class S, int kVec, int kThreads>
PF_DEVICE void rotary_store(const S* q, const S* k, const S* v, const S* cos, const S* sin, const i64* positions,
                            const i64* slots, S* out, S* keys, S* values, const RotaryStore& p) {
  using T = C<S>;
  const int pieces = (int)p.dim / kVec, each = (int)(p.heads + 2 * p.kv_heads) * pieces;
  const i64 all = p.rows * each, step = (i64)groups().x * kThreads;
  const bool narrow = all < (i64)1 << 31;
  for (i64 e = (i64)group().x * kThreads + thread(); e < all; e += step) {
    const Division at_row = divided(e, each, narrow);
    const i64 t = at_row.quotient;
    const int rest = (int)at_row.rest, line = rest / pieces, column = rest % pieces * kVec;
    const int which = line < p.heads ? 0 : line < p.heads + p.kv_heads ? 1 : 2;
    const int head = line - (int)(which == 0 ? 0 : which == 1 ? p.heads : p.heads + p.kv_heads);
    const S* const from = which == 0   ? q + t * p.row[0] + head * p.head[0]
                          : which == 1 ? k + t * p.row[1] + head * p.head[1]
                                       : v + t * p.row[2] + head * p.head[2];
    S* to = out + (t * p.heads + head) * p.dim;
    if (which > 0) {
      const i64 slot = slots[t];
      if (slot == -1) continue;
      if (slot < 0 || slot >= p.slots) {
        if (rest == p.heads * pieces) raise(p.fault, (int)p.site, kIndexOutOfRange, slot, p.slots);
        continue;
      }
      to = (which == 1 ? keys : values) + (slot * p.kv_heads + head) * p.dim;
    }
    Vec<S, kVec> x = load_vec<kVec>(from + column);
    if (which < 2 && column < p.rotary_dim) {
      const i64 at = positions[t];
      const int half = (int)p.rotary_dim / 2;
      if (at < 0 || at >= p.positions) {
        if (rest == 0) raise(p.fault, (int)p.site, kIndexOutOfRange, at, p.positions);
        continue;
      }
      const bool first = column < half;
      const Vec<S, kVec> other = load_vec<kVec>(from + (first ? column + half : column - half)),
                         c = load_vec<kVec>(cos + at * p.rotary_dim + column),
                         s = load_vec<kVec>(sin + at * p.rotary_dim + column);
#pragma unroll
      for (int i = 0; i < kVec; ++i) {
        const T y = load(&other.v[i]);
        const T a = rounded_to<S>(load(&x.v[i]) * load(&c.v[i]));
        const T b = rounded_to<S>((first ? -y : y) * load(&s.v[i]));
        store(&x.v[i], add<T>(a, b));
      }
    }
    store_vec(to + column, x);
  }
}

#endif

}  // namespace pf
