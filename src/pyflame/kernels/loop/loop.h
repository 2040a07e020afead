// Building blocks of the generated kernels of fused groups: index arithmetic, units of adjacent elements, and the order
// in which reductions combine. The order depends on the shape alone, so it is the same fused or not, for every wave
// width and on every device:
//
//   rows of n elements: a row is cut into segments (a single one, unless there are few long rows), and a segment into units of 8
//     adjacent elements. Lane t of T takes the units t, t + T, …; a unit is combined by the distances 4, 2, 1, and lanes by the
//     distances T/2, …, 1. Segments: lane t of 256 takes the segments t, t + 256, …, and lanes are combined as above.
//   columns: rows are cut into segments. Within one, lane g of G takes the rows g, g + G, …, and lanes are combined by the
//     distances G/2, …, 1. Segments are combined in the same way by 32 lanes.
//
// Missing elements at the end count as the neutral element of the operation. loop_shape.h has T, G and the segments.
#pragma once

namespace pf {

template <class I>
PF_DEVICE I least(I a, I b) {
  return a < b ? a : b;
}

// V adjacent elements as they are stored.
template <class S, int V>
struct Neighbours {
  static constexpr int kPiece = V * sizeof(S) > 16 ? 16 / sizeof(S) : V;
  Vec<S, kPiece> piece[V / kPiece];
  PF_DEVICE S& operator[](int j) { return piece[j / kPiece].v[j % kPiece]; }
  PF_DEVICE const S& operator[](int j) const { return piece[j / kPiece].v[j % kPiece]; }
  // p is aligned to 16 bytes, or to the size of all elements if that is smaller.
  PF_DEVICE void load(const S* p) {
#pragma unroll
    for (int k = 0; k < V / kPiece; ++k) piece[k] = load_vec<kPiece>(p + k * kPiece);
  }
  PF_DEVICE void store(S* p) const {
#pragma unroll
    for (int k = 0; k < V / kPiece; ++k) store_vec(p + k * kPiece, piece[k]);
  }
};

// --- operations; `start` is the neutral element
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
// Combines over `lanes` adjacent lanes of a wave (a power of two, at most 32); each of them gets the result.
template <class Op, class A>
PF_DEVICE A over_row_lanes(A x, int lanes) {
  for (int step = lanes / 2; step > 0; step >>= 1) {
    const A other = xor_lane(x, step);
    x = lane() & step ? Op::of(other, x) : Op::of(x, other);
  }
  return x;
}

// Combines over the threads whose numbers are equal modulo `across`. Each thread has V values, and the threads below
// `across` get the results. All threads of the workgroup must call this. `shared` has threads() * V elements and may be
// reused afterwards.
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

// Combines the segments of a row; one workgroup of 256 threads per row.
template <class Op, class A>
PF_DEVICE A over_segments(const A* parts, int segments, A* shared) {
  A a = Op::start();
  for (int s = (int)thread(); s < segments; s += 256) a = Op::of(a, parts[s]);
  return over_group<Op, 256>(a, shared);
}
#endif

}  // namespace pf
