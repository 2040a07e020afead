// What the transforms of lines (fft_line.cpp) and their inputs and results (fft_sides.cpp) share: vectors of pairs in the forms of a line,
// and transposed stores.
#include <hwy/highway.h>

#include "pyflame/backends/cpu/fft.h"

#if defined(PYFLAME_CPU_FFT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PYFLAME_CPU_FFT_INL_H_
#undef PYFLAME_CPU_FFT_INL_H_
#else
#define PYFLAME_CPU_FFT_INL_H_
#endif

#ifndef PYFLAME_UNROLL
#define PYFLAME_UNROLL _Pragma("GCC unroll 16")
#endif

HWY_BEFORE_NAMESPACE();
namespace pyflame::cpu::fft {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class V>
HWY_INLINE void twiddle(V& a, V& b, V wr, V wi) {
  const V x = hn::NegMulAdd(b, wi, hn::Mul(a, wr));
  b = hn::MulAdd(b, wr, hn::Mul(a, wi));
  a = x;
}

enum class Form { kPairs, kExchangedPairs, kArrays };
template <class T>
Form form_of(const Line<T>& x) {  // of pairs whose parts are exchanged, re points behind im
  return !x.pairs ? Form::kArrays : x.im < x.re ? Form::kExchangedPairs : Form::kPairs;
}

template <Form kForm, class D, class V, class T>
HWY_INLINE void read(D d, const Line<T>& x, int64_t at, V& a, V& b) {
  if constexpr (kForm == Form::kArrays) {
    a = hn::LoadU(d, x.re + at), b = hn::LoadU(d, x.im + at);
  } else {
    const T* from = (kForm == Form::kPairs ? x.re : x.im) + 2 * at;
#if HWY_TARGET == HWY_SCALAR
    V even, odd;
    hn::LoadInterleaved2(d, from, even, odd);
#else
    const V low = hn::LoadU(d, from), high = hn::LoadU(d, from + hn::Lanes(d));
    const V even = hn::ConcatEven(d, high, low), odd = hn::ConcatOdd(d, high, low);
#endif
    a = kForm == Form::kPairs ? even : odd, b = kForm == Form::kPairs ? odd : even;
  }
}
template <Form kForm, class D, class V, class T>
HWY_INLINE void write(D d, const Line<T>& y, int64_t at, V a, V b) {
  if constexpr (kForm == Form::kArrays) hn::StoreU(a, d, y.re + at), hn::StoreU(b, d, y.im + at);
  else if constexpr (kForm == Form::kPairs) hn::StoreInterleaved2(a, b, d, y.re + 2 * at);
  else hn::StoreInterleaved2(b, a, d, y.im + 2 * at);
}

#if HWY_TARGET == HWY_SCALAR
template <int R, class D, class V, class T>
HWY_INLINE void store_transposed(D d, const V* v, T* to, int64_t) {
  for (int k = 0; k < R; ++k) hn::StoreU(v[k], d, to + k);
}
#else
// Block k, of 16 bytes, of a vector.
template <int k, class D, class V>
HWY_INLINE auto block_of(D, V v) {
  constexpr int kBlocks = static_cast<int>(hn::MaxLanes(D()) * sizeof(hn::TFromD<D>) / 16);
  if constexpr (kBlocks <= 1) {
    return v;
  } else {
    const hn::Half<D> half;
    if constexpr (k < kBlocks / 2) return block_of<k>(half, hn::LowerHalf(half, v));
    else return block_of<k - kBlocks / 2>(half, hn::UpperHalf(half, v));
  }
}
// In every block, the transpose of the square that kN vectors have there.
template <int kN, class D, class V>
HWY_INLINE void transpose_blocks(D d, V* t) {
  if constexpr (kN == 2) {
    const V low = hn::InterleaveLower(d, t[0], t[1]);
    t[1] = hn::InterleaveUpper(d, t[0], t[1]), t[0] = low;
  } else {
    const hn::Repartition<double, D> wide;
    const auto low = hn::BitCast(wide, hn::InterleaveLower(d, t[0], t[1])),
               high = hn::BitCast(wide, hn::InterleaveUpper(d, t[0], t[1])),
               low2 = hn::BitCast(wide, hn::InterleaveLower(d, t[2], t[3])),
               high2 = hn::BitCast(wide, hn::InterleaveUpper(d, t[2], t[3]));
    t[0] = hn::BitCast(d, hn::InterleaveLower(wide, low, low2));
    t[1] = hn::BitCast(d, hn::InterleaveUpper(wide, low, low2));
    t[2] = hn::BitCast(d, hn::InterleaveLower(wide, high, high2));
    t[3] = hn::BitCast(d, hn::InterleaveUpper(wide, high, high2));
  }
}
template <int R, int kBlock, class D, class V, class T>
HWY_INLINE void store_block(D d, const V* t, T* to, int64_t pitch) {
  constexpr int kN = 16 / sizeof(T), kGroups = (R + kN - 1) / kN;
  if constexpr (kBlock * kN < static_cast<int>(hn::MaxLanes(D()))) {
    const hn::CappedTag<T, kN> block;
    PYFLAME_UNROLL
    for (int j = 0; j < kN; ++j) PYFLAME_UNROLL
    for (int q = 0; q < kGroups; ++q)
      hn::StoreU(block_of<kBlock>(d, t[q * kN + j]), block, to + pitch * (kN * kBlock + j) + kN * q);
    store_block<R, kBlock + 1>(d, t, to, pitch);
  }
}
// Lane l of vector k goes to to[pitch * l + k]; up to three elements behind those of a lane are written too, in the order of
// the lanes.
template <int R, class D, class V, class T>
HWY_INLINE void store_transposed(D d, const V* v, T* to, int64_t pitch) {
  constexpr int kN = 16 / sizeof(T), kGroups = (R + kN - 1) / kN;
  V t[kGroups * kN];
  PYFLAME_UNROLL
  for (int q = 0; q < kGroups; ++q) {
    PYFLAME_UNROLL
    for (int j = 0; j < kN; ++j) t[q * kN + j] = v[q * kN + j < R ? q * kN + j : R - 1];
    transpose_blocks<kN>(d, t + q * kN);
  }
  store_block<R, 0>(d, t, to, pitch);
}
#endif

}  // namespace HWY_NAMESPACE
}  // namespace pyflame::cpu::fft
HWY_AFTER_NAMESPACE();
#endif
