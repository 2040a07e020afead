// Transforms of one long line by all threads, in the four steps of Bailey: the line is a matrix of a rows and b columns; its columns are
// transformed, their results are multiplied by twiddle factors, and the rows of these are transformed. A thread takes a few neighbouring columns or
// rows at a time, which fit its cache, so that memory is read and written twice. No table is as long as the line.
#pragma once
#include <cstdint>
#include <vector>

#include "pyflame/backends/cpu/fft.h"

namespace pyflame::cpu::fft {

template <class T>
class LongLine {
 public:
  // Whether a line of n elements is long, and can be divided. The length alone decides, so results do not depend on the number of threads.
  static bool takes(int64_t n);
  explicit LongLine(int64_t n);
  // As fft::transform; from outside of parallel_for. middle: 2 n elements.
  void transform(const Line<T>& in, const Line<T>& out, T scale, T* middle) const;

 private:
  struct Factor {
    double re, im;
  };
  // exp(-2 pi i k / n)
  Factor factor(int64_t k) const;
  void columns(const Line<T>& in, int64_t first, int64_t count, T* middle) const;
  void rows(const T* middle, int64_t first, int64_t count, const Line<T>& out, T scale) const;
  void times_factors(int64_t column, const T* re, const T* im, T* to) const;

  int64_t a_, b_;
  Plan<T> of_columns_, of_rows_;  // of lengths a and b
  std::vector<Factor> low_, high_;
};

}  // namespace pyflame::cpu::fft
