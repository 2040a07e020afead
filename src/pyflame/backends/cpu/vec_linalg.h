// Inner loops of factorizations of matrices, for several instruction sets, on the calling thread. The best one is selected at run time.
#pragma once
#include <cmath>
#include <complex>
#include <cstdint>

namespace pyflame::cpu::vec {

constexpr int64_t kMostSolvedRows = 16;

#define PF_VEC_LINALG(T)                                                                                                                \
  /* y -= factor * x, for n elements. */                                                                                                \
  void subtract_multiple(int64_t n, T factor, const T* x, T* y);                                                                        \
  /* x /= divisor */                                                                                                                    \
  void divide(int64_t n, T divisor, T* x);                                                                                              \
  /* The first place of the largest absolute value of n > 0 elements. NaN counts only if it is the first one. */                        \
  int64_t place_of_largest(int64_t n, const T* x);                                                                                      \
  /* Substitution: row i of X, which begins at x + i * step, becomes (row i - sum over j < i of c[i, j] row j) / c[i, i], without the \
     division if unit. c is [rows, rows], and rows at most kMostSolvedRows. */ \
  void substitute(int64_t rows, const T* c, bool unit, int64_t width, T* x, int64_t step);
PF_VEC_LINALG(float)
PF_VEC_LINALG(double)
#undef PF_VEC_LINALG

// The sum of x[i] * y[i] in float64.
double sum_of_products(int64_t n, const float* x, const float* y);
// x /= divisor in float64.
void divide(int64_t n, double divisor, float* x);

// The same for complex numbers. Products have no checks for infinity; the size of a number is |re| + |im|, as in LAPACK's pivots.
template <class R>
std::complex<R> product_of(std::complex<R> a, std::complex<R> b) {
  return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
}
template <class R>
void subtract_multiple(int64_t n, std::complex<R> factor, const std::complex<R>* x, std::complex<R>* y) {
  for (int64_t i = 0; i < n; ++i) y[i] -= product_of(factor, x[i]);
}
template <class R>
void divide(int64_t n, std::complex<R> divisor, std::complex<R>* x) {
  for (int64_t i = 0; i < n; ++i) x[i] /= divisor;
}
template <class R>
int64_t place_of_largest(int64_t n, const std::complex<R>* x) {
  const auto size = [](const std::complex<R>& v) { return std::abs(v.real()) + std::abs(v.imag()); };
  int64_t at = 0;
  for (int64_t i = 1; i < n; ++i)
    if (size(x[i]) > size(x[at])) at = i;
  return at;
}
template <class R>
void substitute(int64_t rows, const std::complex<R>* c, bool unit, int64_t width, std::complex<R>* x, int64_t step) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < i; ++j) subtract_multiple(width, c[i * rows + j], x + j * step, x + i * step);
    if (!unit) divide(width, c[i * rows + i], x + i * step);
  }
}

}  // namespace pyflame::cpu::vec
