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
template <class T, int N>
PF_DEVICE void store_vec(T* p, const Vec<T, N>& x) {
  *(Vec<T, N>*)p = x;
}

}  // namespace pf
