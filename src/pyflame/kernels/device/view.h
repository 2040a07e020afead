// A strided operand as a kernel argument, and the workgroup's tree that every reduction of ours uses: its order is fixed by the
// workgroup's size and never by the wave's.
#pragma once

namespace pf {

constexpr int kMaxRank = 8;

struct View {
  i64 shape[kMaxRank], strides[kMaxRank];
  int rank;
  // Offset of element `i` in row-major order.
  PF_DEVICE i64 at(i64 i) const {
    i64 offset = 0;
    for (int d = rank - 1; d > 0; --d) {
      offset += i % shape[d] * strides[d];
      i /= shape[d];
    }
    return rank > 0 ? offset + i * strides[0] : 0;
  }
};

#ifdef PF_ON_DEVICE
struct Sum {
  template <class T>
  static PF_DEVICE T of(T a, T b) {
    return a + b;
  }
};
struct Largest {
  template <class T>
  static PF_DEVICE T of(T a, T b) {
    return maximum<T>(a, b);
  }
};

// The value over all threads of the workgroup, given to each of them. `shared` has kThreads elements and may be used again afterwards.
template <class Op, int kThreads, class T>
PF_DEVICE T over_group(T x, T* shared) {
  shared[thread()] = x;
  barrier();
  for (int step = kThreads / 2; step > 0; step >>= 1) {
    if ((int)thread() < step) shared[thread()] = Op::of(shared[thread()], shared[thread() + step]);
    barrier();
  }
  const T all = shared[0];
  barrier();
  return all;
}
#endif

}  // namespace pf
