#include "pyflame/backends/cpu/fft_long.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "pyflame/backends/cpu/common.h"

namespace pyflame::cpu::fft {

namespace {

constexpr int64_t kShortest = 1 << 16;  // of a long line
constexpr int64_t kLow = 1024;          // entries of the table of small angles
constexpr int kLongSlot = 1;            // of this thread's scratch memory

// The neighbours that a thread takes at a time: two lines of the cache.
template <class T>
constexpr int64_t kTogether = 64 / static_cast<int64_t>(sizeof(T));

bool is_smooth(int64_t n) {
  for (const int64_t f : {2, 3, 5, 7, 11, 13})
    while (n % f == 0) n /= f;
  return n == 1;
}
// The largest divisor up to the square root.
int64_t divisor(int64_t n) {
  auto a = static_cast<int64_t>(std::sqrt(static_cast<double>(n)));
  while (n % a != 0) --a;
  return a;
}

template <class T>
struct Pair {
  T first, second;
};
// Scratch memory for some lines of n elements, each as pairs and then as two arrays. Lines are a little longer than n, so that those of 2^k
// elements do not compete for the same lines of the cache.
template <class T>
struct Room {
  Room(const Plan<T>& plan, int64_t lines)
      : pitch(plan.n + 24),
        pairs(scratch<T>(kLongSlot, 4 * lines * pitch + plan.work())),
        arrays(pairs + 2 * lines * pitch),
        work(arrays + 2 * lines * pitch) {}
  int64_t pitch;
  T *pairs, *arrays, *work;
  Pair<T>* line_of_pairs(int64_t i) const { return reinterpret_cast<Pair<T>*>(pairs) + i * pitch; }
  T* re(int64_t i) const { return arrays + 2 * i * pitch; }
  T* im(int64_t i) const { return re(i) + pitch; }
};

}  // namespace

template <class T>
bool LongLine<T>::takes(int64_t n) {
  return n >= kShortest && is_smooth(n) && divisor(n) >= 64;
}

template <class T>
LongLine<T>::LongLine(int64_t n) : a_(divisor(n)), b_(n / a_), of_columns_(a_), of_rows_(b_) {
  const auto table = [n](std::vector<Factor>& to, int64_t step) {
    for (int64_t k = 0; k < n; k += step) {
      if (step == 1 && k == kLow) break;
      const double angle = -2 * std::numbers::pi * static_cast<double>(k) / static_cast<double>(n);
      to.push_back({std::cos(angle), std::sin(angle)});
    }
  };
  table(low_, 1), table(high_, kLow);
}

template <class T>
auto LongLine<T>::factor(int64_t k) const -> Factor {
  const Factor x = low_[static_cast<size_t>(k % kLow)], y = high_[static_cast<size_t>(k / kLow)];
  return {x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re};
}

template <class T>
void LongLine<T>::transform(const Line<T>& in, const Line<T>& out, T scale, T* middle) const {
  const auto in_blocks = [](int64_t n, const auto& some) {
    parallel_for(ceil_div(n, kTogether<T>), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) some(i * kTogether<T>, std::min(kTogether<T>, n - i * kTogether<T>));
    });
  };
  in_blocks(b_, [&](int64_t first, int64_t count) { columns(in, first, count, middle); });
  in_blocks(a_, [&](int64_t first, int64_t count) { rows(middle, first, count, out, scale); });
}

// Column j of the matrix to row j of `middle`, which has b rows of a pairs.
template <class T>
void LongLine<T>::columns(const Line<T>& in, int64_t first, int64_t count, T* middle) const {
  const Room<T> room(of_columns_, kTogether<T>);
  if (in.pairs) {
    transpose_pairs<T>(true, std::min(in.re, in.im) + 2 * first, b_, a_, count, room.pairs, room.pitch);
  } else {
    const T *re = in.re + first, *im = in.im + first;
    for (int64_t i = 0; i < a_; ++i, re += b_, im += b_)
      for (int64_t j = 0; j < count; ++j) room.line_of_pairs(j)[i] = {re[j], im[j]};
  }
  const bool exchanged = in.pairs && in.re > in.im;
  for (int64_t j = 0; j < count; ++j) {
    T* line = room.pairs + 2 * j * room.pitch;
    fft::transform<T>(of_columns_, {line + exchanged, line + !exchanged, true}, {room.re(0), room.im(0), false}, T{1},
                      room.work);
    times_factors(first + j, room.re(0), room.im(0), middle + 2 * (first + j) * a_);
  }
}

// Element i of a column by exp(-2 pi i column / n): eight neighbouring factors, and all eight times the factor of eight places.
template <class T>
void LongLine<T>::times_factors(int64_t column, const T* re, const T* im, T* to) const {
  if constexpr (sizeof(T) == 8) {  // products of products of factors would lose some of its digits
    for (int64_t i = 0, k = 0; i < a_; ++i, k = (k + column) % (a_ * b_)) {
      const Factor f = factor(k);
      to[2 * i] = re[i] * f.re - im[i] * f.im, to[2 * i + 1] = re[i] * f.im + im[i] * f.re;
    }
    return;
  }
  constexpr int64_t kLanes = 8;
  double w_re[kLanes], w_im[kLanes];
  for (int64_t l = 0; l < kLanes; ++l) {
    const Factor f = factor(l * column % (a_ * b_));
    w_re[l] = f.re, w_im[l] = f.im;
  }
  const Factor step = factor(kLanes * column % (a_ * b_));
  if constexpr (sizeof(T) == 4) times_powers(a_, re, im, w_re, w_im, step.re, step.im, to);
}

template <class T>
void LongLine<T>::rows(const T* middle, int64_t first, int64_t count, const Line<T>& out, T scale) const {
  const Room<T> room(of_rows_, kTogether<T>);
  transpose_pairs<T>(true, middle + 2 * first, a_, b_, count, room.pairs, room.pitch);
  const bool exchanged = out.pairs && out.re > out.im;
  for (int64_t j = 0; j < count; ++j) {
    T* line = room.pairs + 2 * j * room.pitch;
    const Line<T> result =
        out.pairs ? Line<T>{line + exchanged, line + !exchanged, true} : Line<T>{room.re(j), room.im(j), false};
    fft::transform<T>(of_rows_, {line, line + 1, true}, result, scale, room.work);
  }
  if (out.pairs) {
    return transpose_pairs<T>(false, room.pairs, room.pitch, count, b_, std::min(out.re, out.im) + 2 * first, a_);
  }
  T *re = out.re + first, *im = out.im + first;
  for (int64_t i = 0; i < b_; ++i, re += a_, im += a_)
    for (int64_t j = 0; j < count; ++j) re[j] = room.re(j)[i], im[j] = room.im(j)[i];
}

template class LongLine<float>;
template class LongLine<double>;

}  // namespace pyflame::cpu::fft
