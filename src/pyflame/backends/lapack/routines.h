// The routines of LAPACK that are used, for real and complex numbers of both precisions. They are in OpenBLAS. Matrices are column-major; each
// character argument has a hidden length at the end, as Fortran compilers pass it.
#pragma once
#include <complex>
#include <cstddef>

namespace pyflame::lapack {

// type: s, d, c or z; orthogonal: orgqr, or ungqr for complex numbers
#define PF_LAPACK_ROUTINES(type, orthogonal, T)                                                                        \
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
  void type##orthogonal##_(const int*, const int*, const int*, T*, const int*, const T*, T*, const int*, int*);        \
  void type##sytrf_(const char*, const int*, T*, const int*, int*, T*, const int*, int*, size_t);                      \
  void type##sytrs_(const char*, const int*, const int*, const T*, const int*, const int*, T*, const int*, int*,       \
                    size_t);                                                                                           \
  void type##gels_(const char*, const int*, const int*, const int*, T*, const int*, T*, const int*, T*, const int*,    \
                   int*, size_t);

#define PF_LAPACK_REAL(type, T)                                                                                       \
  void type##syevd_(const char*, const char*, const int*, T*, const int*, T*, T*, const int*, int*, const int*, int*, \
                    size_t, size_t);                                                                                  \
  void type##sytrd_(const char*, const int*, T*, const int*, T*, T*, T*, T*, const int*, int*, size_t);               \
  void type##stedc_(const char*, const int*, T*, T*, T*, const int*, T*, const int*, int*, const int*, int*, size_t); \
  void type##laed1_(const int*, T*, T*, const int*, int*, const T*, const int*, T*, int*, int*);                      \
  void type##geev_(const char*, const char*, const int*, T*, const int*, T*, T*, T*, const int*, T*, const int*, T*,  \
                   const int*, int*, size_t, size_t);                                                                 \
  void type##gesdd_(const char*, const int*, const int*, T*, const int*, T*, T*, const int*, T*, const int*, T*,      \
                    const int*, int*, int*, size_t);                                                                  \
  void type##gelsy_(const int*, const int*, const int*, T*, const int*, T*, const int*, int*, const T*, int*, T*,     \
                    const int*, int*);                                                                                \
  void type##gelsd_(const int*, const int*, const int*, T*, const int*, T*, const int*, T*, const T*, int*, T*,       \
                    const int*, int*, int*);                                                                          \
  void type##gelss_(const int*, const int*, const int*, T*, const int*, T*, const int*, T*, const T*, int*, T*,       \
                    const int*, int*);

// The same for complex numbers T, with work memory of their real parts R.
#define PF_LAPACK_COMPLEX(type, T, R)                                                                               \
  void type##hetrf_(const char*, const int*, T*, const int*, int*, T*, const int*, int*, size_t);                   \
  void type##hetrs_(const char*, const int*, const int*, const T*, const int*, const int*, T*, const int*, int*,    \
                    size_t);                                                                                        \
  void type##heevd_(const char*, const char*, const int*, T*, const int*, R*, T*, const int*, R*, const int*, int*, \
                    const int*, int*, size_t, size_t);                                                              \
  void type##geev_(const char*, const char*, const int*, T*, const int*, T*, T*, const int*, T*, const int*, T*,    \
                   const int*, R*, int*, size_t, size_t);                                                           \
  void type##gesdd_(const char*, const int*, const int*, T*, const int*, R*, T*, const int*, T*, const int*, T*,    \
                    const int*, R*, int*, int*, size_t);                                                            \
  void type##gelsy_(const int*, const int*, const int*, T*, const int*, T*, const int*, int*, const R*, int*, T*,   \
                    const int*, R*, int*);                                                                          \
  void type##gelsd_(const int*, const int*, const int*, T*, const int*, T*, const int*, R*, const R*, int*, T*,     \
                    const int*, R*, int*, int*);                                                                    \
  void type##gelss_(const int*, const int*, const int*, T*, const int*, T*, const int*, R*, const R*, int*, T*,     \
                    const int*, R*, int*);

extern "C" {
PF_LAPACK_ROUTINES(s, orgqr, float)
PF_LAPACK_ROUTINES(d, orgqr, double)
PF_LAPACK_ROUTINES(c, ungqr, std::complex<float>)
PF_LAPACK_ROUTINES(z, ungqr, std::complex<double>)
PF_LAPACK_REAL(s, float)
PF_LAPACK_REAL(d, double)
PF_LAPACK_COMPLEX(c, std::complex<float>, float)
PF_LAPACK_COMPLEX(z, std::complex<double>, double)
}
#undef PF_LAPACK_ROUTINES
#undef PF_LAPACK_REAL
#undef PF_LAPACK_COMPLEX

// One name for all types: Of<double>::potrf. What takes other arguments for complex numbers has its own name.
template <class T>
struct Of;
#define PF_LAPACK_NAMES(type, orthogonal)                                                                              \
  static constexpr auto potrf = type##potrf_, getrf = type##getrf_, getrs = type##getrs_, trsm = type##trsm_;          \
  static constexpr auto gemm = type##gemm_, laswp = type##laswp_, larft = type##larft_, larfb = type##larfb_;          \
  static constexpr auto geqrf = type##geqrf_, orgqr = type##orthogonal##_, sytrf = type##sytrf_, sytrs = type##sytrs_; \
  static constexpr auto gels = type##gels_, geev = type##geev_, gesdd = type##gesdd_, gelsy = type##gelsy_;            \
  static constexpr auto gelsd = type##gelsd_, gelss = type##gelss_
#define PF_LAPACK_OF_REAL(type, T)                                                                                \
  template <>                                                                                                     \
  struct Of<T> {                                                                                                  \
    PF_LAPACK_NAMES(type, orgqr);                                                                                 \
    static constexpr auto syevd = type##syevd_, sytrd = type##sytrd_, stedc = type##stedc_, laed1 = type##laed1_; \
  };
#define PF_LAPACK_OF_COMPLEX(type, T)                                                       \
  template <>                                                                               \
  struct Of<T> {                                                                            \
    PF_LAPACK_NAMES(type, ungqr);                                                           \
    static constexpr auto heevd = type##heevd_, hetrf = type##hetrf_, hetrs = type##hetrs_; \
  };
PF_LAPACK_OF_REAL(s, float)
PF_LAPACK_OF_REAL(d, double)
PF_LAPACK_OF_COMPLEX(c, std::complex<float>)
PF_LAPACK_OF_COMPLEX(z, std::complex<double>)
#undef PF_LAPACK_NAMES
#undef PF_LAPACK_OF_REAL
#undef PF_LAPACK_OF_COMPLEX

}  // namespace pyflame::lapack
