// The routines of LAPACK that are used, for float and double. They are in OpenBLAS. Matrices are column-major; each character argument
// has a hidden length at the end, as Fortran compilers pass it.
#pragma once
#include <cstddef>

namespace pyflame::lapack {

// type: s or d
#define PF_LAPACK_ROUTINES(type, T)                                                                                    \
  void type##potrf_(const char*, const int*, T*, const int*, int*, size_t);                                            \
  void type##getrf_(const int*, const int*, T*, const int*, int*, int*);                                               \
  void type##getrs_(const char*, const int*, const int*, const T*, const int*, const int*, T*, const int*, int*,       \
                    size_t);                                                                                           \
  void type##trsm_(const char*, const char*, const char*, const char*, const int*, const int*, const T*, const T*,     \
                   const int*, T*, const int*, size_t, size_t, size_t, size_t);                                        \
  void type##gemm_(const char*, const char*, const int*, const int*, const int*, const T*, const T*, const int*,       \
                   const T*, const int*, const T*, T*, const int*, size_t, size_t);                                    \
  void type##laswp_(const int*, T*, const int*, const int*, const int*, const int*, const int*);                       \
  void type##larft_(const char*, const char*, const int*, const int*, const T*, const int*, const T*, T*, const int*,  \
                    size_t, size_t);                                                                                   \
  void type##larfb_(const char*, const char*, const char*, const char*, const int*, const int*, const int*, const T*,  \
                    const int*, const T*, const int*, T*, const int*, T*, const int*, size_t, size_t, size_t, size_t); \
  void type##geqrf_(const int*, const int*, T*, const int*, T*, T*, const int*, int*);                                 \
  void type##orgqr_(const int*, const int*, const int*, T*, const int*, const T*, T*, const int*, int*);               \
  void type##syevd_(const char*, const char*, const int*, T*, const int*, T*, T*, const int*, int*, const int*, int*,  \
                    size_t, size_t);                                                                                   \
  void type##sytrd_(const char*, const int*, T*, const int*, T*, T*, T*, T*, const int*, int*, size_t);                \
  void type##stedc_(const char*, const int*, T*, T*, T*, const int*, T*, const int*, int*, const int*, int*, size_t);  \
  void type##laed1_(const int*, T*, T*, const int*, int*, const T*, const int*, T*, int*, int*);                       \
  void type##geev_(const char*, const char*, const int*, T*, const int*, T*, T*, T*, const int*, T*, const int*, T*,   \
                   const int*, int*, size_t, size_t);                                                                  \
  void type##gesdd_(const char*, const int*, const int*, T*, const int*, T*, T*, const int*, T*, const int*, T*,       \
                    const int*, int*, int*, size_t);                                                                   \
  void type##sytrf_(const char*, const int*, T*, const int*, int*, T*, const int*, int*, size_t);                      \
  void type##sytrs_(const char*, const int*, const int*, const T*, const int*, const int*, T*, const int*, int*,       \
                    size_t);                                                                                           \
  void type##gels_(const char*, const int*, const int*, const int*, T*, const int*, T*, const int*, T*, const int*,    \
                   int*, size_t);                                                                                      \
  void type##gelsy_(const int*, const int*, const int*, T*, const int*, T*, const int*, int*, const T*, int*, T*,      \
                    const int*, int*);                                                                                 \
  void type##gelsd_(const int*, const int*, const int*, T*, const int*, T*, const int*, T*, const T*, int*, T*,        \
                    const int*, int*, int*);                                                                           \
  void type##gelss_(const int*, const int*, const int*, T*, const int*, T*, const int*, T*, const T*, int*, T*,        \
                    const int*, int*);

extern "C" {
PF_LAPACK_ROUTINES(s, float)
PF_LAPACK_ROUTINES(d, double)
}
#undef PF_LAPACK_ROUTINES

// One name for both types: Of<double>::potrf.
template <class T>
struct Of;
#define PF_LAPACK_NAMES(type, T)                                                                                  \
  template <>                                                                                                     \
  struct Of<T> {                                                                                                  \
    static constexpr auto potrf = type##potrf_, getrf = type##getrf_, getrs = type##getrs_, trsm = type##trsm_;   \
    static constexpr auto gemm = type##gemm_, laswp = type##laswp_, larft = type##larft_, larfb = type##larfb_;   \
    static constexpr auto geqrf = type##geqrf_, syevd = type##syevd_, gesdd = type##gesdd_, sytrf = type##sytrf_; \
    static constexpr auto sytrs = type##sytrs_, gels = type##gels_, gelsy = type##gelsy_, gelsd = type##gelsd_;   \
    static constexpr auto gelss = type##gelss_, geev = type##geev_, sytrd = type##sytrd_, stedc = type##stedc_;   \
    static constexpr auto laed1 = type##laed1_, orgqr = type##orgqr_;                                             \
  };
PF_LAPACK_NAMES(s, float)
PF_LAPACK_NAMES(d, double)
#undef PF_LAPACK_NAMES

}  // namespace pyflame::lapack
