// Several adjacent elements in one access: 16 bytes are one 128-bit load or store on every GPU.
#pragma once

namespace pf {

template <class T, int N>
struct alignas(sizeof(T) * N) Vec {
  T v[N];
  PF_DEVICE T& operator[](int i) { return v[i]; }
  PF_DEVICE const T& operator[](int i) const { return v[i]; }
};

// p must be aligned to the whole vector.
template <int N, class T>
PF_DEVICE Vec<T, N> load_vec(const T* p) {
  return *(const Vec<T, N>*)p;
}
// The same for memory that this launch reads once and does not write: it should not displace anything else from the
// first-level cache. It is volatile, because a compiler could otherwise move it before await_earlier_kernels().
template <int N, class T>
PF_DEVICE Vec<T, N> load_once(const T* p) {
#if defined(__CUDA_ARCH__)
  if constexpr (sizeof(T) * N == 16) {
    union Bytes {
      PF_DEVICE Bytes() {}
      unsigned w[4];
      Vec<T, N> v;
    } b;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(b.w[0]), "=r"(b.w[1]), "=r"(b.w[2]), "=r"(b.w[3])
                 : "l"(p));
    return b.v;
  }
#endif
  return load_vec<N>(p);
}
// A vector that is being loaded, as 32-bit words; zeros at first. A compiler that merges elements of 16 bits after a load
// waits for the load right there; words can be left in flight. Smaller vectors are elements.
template <class T, int N, bool kWords = sizeof(T) * N % 4 == 0>
union InFlight {
  static constexpr int kCount = sizeof(T) * N / 4;
  Vec<unsigned, kCount> words;
  Vec<T, N> elements;
  PF_DEVICE InFlight() : words{} {}
  // The words at p, which must be aligned to the whole vector.
  PF_DEVICE void load(const T* p) { words = load_vec<kCount>((const unsigned*)p); }
  PF_DEVICE void once(const T* p) { words = load_once<kCount>((const unsigned*)p); }
  PF_DEVICE const T& operator[](int i) const { return elements.v[i]; }
};
template <class T, int N>
union InFlight<T, N, false> {
  Vec<T, N> elements;
  PF_DEVICE InFlight() : elements{} {}
  PF_DEVICE void load(const T* p) { elements = load_vec<N>(p); }
  PF_DEVICE void once(const T* p) { elements = load_vec<N>(p); }
  PF_DEVICE const T& operator[](int i) const { return elements.v[i]; }
};
template <class T, int N>
PF_DEVICE void store_vec(T* p, const Vec<T, N>& x) {
  *(Vec<T, N>*)p = x;
}
template <class T, int N>
PF_DEVICE void store_vec(T* p, const InFlight<T, N, true>& x) {
  store_vec((unsigned*)p, x.words);
}

}  // namespace pf
