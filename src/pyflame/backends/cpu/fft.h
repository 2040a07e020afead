// Fourier transforms of one line on the CPU: the plan of a length, and the kernels of fft_line.cpp.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace pyflame::cpu::fft {

// One pass of Stockham's algorithm: transforms of `radix` elements that are m * s apart, over m * s places. Its results
// are multiplied by the twiddle factors at `twiddles`: radix - 1 tables of m factors, or of m * s if the pass is flat.
struct Pass {
  int radix = 1;
  int64_t m = 1, s = 1;
  bool flat = false;  // s is less than a vector: the vectors span several of the m groups
  size_t twiddles = 0;
};

// The real and imaginary parts of twiddle factors are apart. All angles are computed in double.
template <class T>
struct Plan {
  explicit Plan(int64_t n);
  int64_t n;
  std::vector<Pass> passes;
  std::vector<T> re, im;
  // Bluestein's algorithm, for a length with a large prime factor: a convolution of `inner.n` elements with a chirp.
  std::vector<Plan> inner;              // none, or one
  std::vector<T> chirp_re, chirp_im;    // exp(-i pi k^2 / n)
  std::vector<T> kernel_re, kernel_im;  // the transform of the conjugate chirp, divided by inner.n
  int64_t work() const {
    return inner.empty() ? 4 * n : 2 * inner[0].n + inner[0].work();
  }  // elements of scratch memory
};

constexpr int kMostRadix = 13;

// A line in one of two forms: pairs of parts in one array, or two arrays.
template <class T>
struct Line {
  T *re, *im;
  bool pairs;  // im == re + 1
};

// The transform of `in`, times scale, with exponent -2 pi i. The inverse: the parts of both lines exchanged. `work` has
// plan.work() elements. in and out may be the same memory.
template <class T>
void transform(const Plan<T>& plan, const Line<T>& in, const Line<T>& out, T scale, T* work);

// Between the transform z of n / 2 pairs of neighbours and the n / 2 + 1 frequencies of n real numbers. w: exp(-2 pi i k / n)
// for k up to n / 4.
template <class T>
void frequencies_of_pairs(int64_t half, const T* z_re, const T* z_im, const T* w_re, const T* w_im, T scale, T* out);
template <class T>
void pairs_of_frequencies(int64_t half, const T* in, const T* w_re, const T* w_im, T* z_re, T* z_im);

}  // namespace pyflame::cpu::fft
