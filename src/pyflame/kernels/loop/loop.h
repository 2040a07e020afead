// What the generated kernels of fused groups are made of: index arithmetic, units of neighbouring elements, and the order in which
// reductions combine. That order is a function of the shape alone, so it is the same fused or not, on every wave width and device:
//
//   rows, n elements each: a row is cut into segments (one, unless there are few long rows), a segment into units of 8 neighbours. Lane
//     t of T takes the units t, t + T, …; a unit is combined by distance 4, 2, 1, lanes by distance T/2, …, 1. Segments: lane t of 256
//     takes the segments t, t + 256, …, lanes as above.
//   columns: rows are cut into segments; in one, lane g of G takes the rows g, g + G, …, lanes are combined by distance G/2, …, 1.
//     Segments likewise with 32 lanes.
//
// What is missing at the end is the operation's neutral element. loop_shape.h has the numbers T, G and the segments.
#pragma once

namespace pf {

// n / d for n < 2^31 by a multiplication; the host prepares it.
struct Divider {
  u32 d, multiplier, shift;
  PF_DEVICE u32 div(u32 n) const { return (u32)((((u64)n * multiplier) >> 32) + n) >> shift; }
};
struct WideDivider {
  i64 d;
  PF_DEVICE i64 div(i64 n) const { return n / d; }
};

template <class I>
PF_DEVICE I least(I a, I b) {
  return a < b ? a : b;
}

// V neighbours, as they are stored.
template <class S, int V>
struct Neighbours {
  static constexpr int kPiece = V * sizeof(S) > 16 ? 16 / sizeof(S) : V;
  Vec<S, kPiece> piece[V / kPiece];
  PF_DEVICE S& operator[](int j) { return piece[j / kPiece].v[j % kPiece]; }
  PF_DEVICE const S& operator[](int j) const { return piece[j / kPiece].v[j % kPiece]; }
  // p is aligned to 16 bytes, or to all of them when they are fewer.
  PF_DEVICE void load(const S* p) {
#pragma unroll
    for (int k = 0; k < V / kPiece; ++k) piece[k] = load_vec<kPiece>(p + k * kPiece);
  }
  PF_DEVICE void store(S* p) const {
#pragma unroll
    for (int k = 0; k < V / kPiece; ++k) store_vec(p + k * kPiece, piece[k]);
  }
};

// --- operations; `start` is neutral
template <class A>
struct Sums {
  static PF_DEVICE A start() { return (A)0; }
  static PF_DEVICE A of(A a, A b) { return add<A>(a, b); }
};
template <class A>
struct Products {
  static PF_DEVICE A start() { return (A)1; }
  static PF_DEVICE A of(A a, A b) { return mul<A>(a, b); }
};
template <class A>
struct Anys {
  static PF_DEVICE A start() { return (A)0; }
  static PF_DEVICE A of(A a, A b) { return (A)(a != 0 || b != 0); }
};
template <class A>
struct Alls {
  static PF_DEVICE A start() { return (A)1; }
  static PF_DEVICE A of(A a, A b) { return (A)(a != 0 && b != 0); }
};
template <class A>
PF_DEVICE A lowest() {
  if constexpr (is_floating<A>::value) return (A)float_of_bits(0xff800000u);
  else if constexpr ((A)-1 > (A)0) return (A)0;
  else return (A)((u64)1 << (8 * sizeof(A) - 1));
}
template <class A>
struct Largests {
  static PF_DEVICE A start() { return lowest<A>(); }
  static PF_DEVICE A of(A a, A b) { return maximum<A>(a, b); }
};
template <class A>
struct Smallests {
  static PF_DEVICE A start() {
    if constexpr (is_floating<A>::value) return -lowest<A>();
    else return (A)~lowest<A>();
  }
  static PF_DEVICE A of(A a, A b) { return minimum<A>(a, b); }
};

template <class Op, class A>
PF_DEVICE A over_unit(const A* x) {
  return Op::of(Op::of(Op::of(x[0], x[4]), Op::of(x[2], x[6])), Op::of(Op::of(x[1], x[5]), Op::of(x[3], x[7])));
}

#ifdef PF_ON_DEVICE
// Over `lanes` neighbouring lanes of a wave (a power of two, at most 32), given to each.
template <class Op, class A>
PF_DEVICE A over_row_lanes(A x, int lanes) {
  for (int step = lanes / 2; step > 0; step >>= 1) {
    const A other = xor_lane(x, step);
    x = lane() & step ? Op::of(other, x) : Op::of(x, other);
  }
  return x;
}

// Over the threads whose number is the same modulo `across`; each has V values, and those below `across` get the results. All threads of
// the workgroup take part. `shared` has threads() * V elements and may be used again afterwards.
template <class Op, int V, class A>
PF_DEVICE void over_column_lanes(A* x, int across, A* shared) {
  const int t = (int)thread();
#pragma unroll
  for (int j = 0; j < V; ++j) shared[j * (int)threads() + t] = x[j];
  barrier();
  for (int step = (int)threads() / 2; step >= across; step >>= 1) {
    if (t < step) {
#pragma unroll
      for (int j = 0; j < V; ++j) {
        A* s = shared + j * (int)threads() + t;
        *s = Op::of(*s, s[step]);
      }
    }
    barrier();
  }
#pragma unroll
  for (int j = 0; j < V; ++j) x[j] = shared[j * (int)threads() + t];
  barrier();
}

// The end of a row that was cut into segments: one workgroup of 256.
template <class Op, class A>
PF_DEVICE A over_segments(const A* parts, int segments, A* shared) {
  A a = Op::start();
  for (int s = (int)thread(); s < segments; s += 256) a = Op::of(a, parts[s]);
  return over_group<Op, 256>(a, shared);
}
#endif

}  // namespace pf
