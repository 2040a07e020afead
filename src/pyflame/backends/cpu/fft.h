// Fourier transforms of one line on the CPU: the plan of a length, and the kernels of fft_line.cpp and fft_sides.cpp.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace pyflame::cpu::fft {

constexpr int64_t kMostLanes = 16;                // of a vector
constexpr int64_t kSlack = 16 * kMostLanes + 16;  // elements that passes may write behind those of a buffer

// Of a buffer of n elements.
constexpr int64_t pitch_of(int64_t n) { return (n + kMostLanes - 1) / kMostLanes * kMostLanes + kSlack; }

// One pass of Stockham's algorithm: transforms of `radix` elements that are m * s apart, over m * s places. Its results
// are multiplied by the twiddle factors at `twiddles`: m times radix - 1 of them if vectors take neighbours; else radix - 1
// tables of m * s.
struct Pass {
  enum Kind { kFirst, kHalves, kNeighbours };
  int radix = 1;
  Kind kind = kFirst;  // s is 1; half a vector; any other
  int64_t m = 1, s = 1;
  size_t twiddles = 0;
};

// The real and imaginary parts of twiddle factors are apart. All angles are computed in double.
template <class T>
struct Plan {
  explicit Plan(int64_t n);
  int64_t n;
  std::vector<Pass> passes;
  std::vector<T> re, im;
  // A length with a large prime factor: a convolution of `inner.n` elements. Rader's algorithm for a prime n where n - 1 has
  // small factors: inner.n is n - 1. Bluestein's for others: inner.n is at least 2 n - 1.
  std::vector<Plan> inner;              // none, or one
  std::vector<int32_t> order;           // Rader's: the powers of a generator modulo n
  std::vector<T> chirp_re, chirp_im;    // Bluestein's: exp(-i pi k^2 / n)
  std::vector<T> kernel_re, kernel_im;  // the transform of the roots or of the conjugate chirp, divided by inner.n
  int64_t work() const {
    return inner.empty() ? 4 * pitch_of(n) : 2 * inner[0].n + inner[0].work();
  }  // elements of scratch memory

 private:
  void plan_rader();
  void plan_bluestein();
  void convolve(const std::vector<T>& b_re, const std::vector<T>& b_im);
};

// Of this processor's vectors.
template <class T>
int64_t lanes();

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

constexpr int64_t kPairsOfLine = 8;  // complex64 numbers in a line of the cache

// Pair l of row k becomes pair k of row l. The pitches are of rows, in pairs. from_far: rows of `from` are apart, which are read
// ahead; else those of `to`.
template <class T>
void transpose_pairs(bool from_far, const T* from, int64_t from_pitch, int64_t rows, int64_t columns, T* to,
                     int64_t to_pitch);

// The pairs (re[i], im[i]) times eight factors, for the next eight places times these times the step, and so on. w_re and w_im
// have the eight factors and are changed.
void times_powers(int64_t n, const float* re, const float* im, double* w_re, double* w_im, double step_re,
                  double step_im, float* to);

}  // namespace pyflame::cpu::fft
