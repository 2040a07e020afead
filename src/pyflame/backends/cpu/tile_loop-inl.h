// Loops over a tile. Vector code copies the last, incomplete vector through a buffer, so that every element is computed
// by the same instructions.
#if defined(PYFLAME_TILE_LOOP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PYFLAME_TILE_LOOP_INL_H_
#undef PYFLAME_TILE_LOOP_INL_H_
#else
#define PYFLAME_TILE_LOOP_INL_H_
#endif

#include <hwy/highway.h>

#include <cstring>

#include "pyflame/backends/cpu/tile_kernels.h"

#if defined(__clang__)
#define PF_NO_ALIAS_LOOP _Pragma("clang loop vectorize(assume_safety)")
#else
#define PF_NO_ALIAS_LOOP _Pragma("GCC ivdep")
#endif

HWY_BEFORE_NAMESPACE();
namespace pyflame::cpu::tile {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class T>
using Tag = hn::ScalableTag<T>;
constexpr int64_t kMaxVectorBytes = 64;

// Op::apply(args, d, v...) -> vector of the same type.
template <class T, class Op, int kInputs>
void vector_loop(const Args& a) {
  const Tag<T> d;
  const int64_t lanes = hn::Lanes(d);
  const T* x = static_cast<const T*>(a.src[0]);
  const T* y = static_cast<const T*>(a.src[1]);
  T* out = static_cast<T*>(a.dst);
  const Op op(a, d);
  int64_t i = 0;
  for (; i + lanes <= a.n; i += lanes) {
    if constexpr (kInputs == 1) hn::StoreU(op(d, hn::LoadU(d, x + i)), d, out + i);
    else hn::StoreU(op(d, hn::LoadU(d, x + i), hn::LoadU(d, y + i)), d, out + i);
  }
  if (i == a.n) return;
  const size_t bytes = (a.n - i) * sizeof(T);
  HWY_ALIGN T bx[kMaxVectorBytes / sizeof(T)] = {};
  HWY_ALIGN T by[kMaxVectorBytes / sizeof(T)] = {};
  std::memcpy(bx, x + i, bytes);
  if constexpr (kInputs == 1) {
    hn::Store(op(d, hn::Load(d, bx)), d, bx);
  } else {
    std::memcpy(by, y + i, bytes);
    hn::Store(op(d, hn::Load(d, bx), hn::Load(d, by)), d, bx);
  }
  std::memcpy(out + i, bx, bytes);
}

// Scalar code whose result does not depend on vectorisation by the compiler (no rounding, or one rounding per
// operation).
template <class Out, class In, class F>
HWY_INLINE void plain_loop1(const Args& a, F f) {
  const In* x = static_cast<const In*>(a.src[0]);
  Out* out = static_cast<Out*>(a.dst);
  const int64_t n = a.n;
  PF_NO_ALIAS_LOOP
  for (int64_t i = 0; i < n; ++i) out[i] = f(x[i]);
}
template <class Out, class In, class F>
HWY_INLINE void plain_loop2(const Args& a, F f) {
  const In* x = static_cast<const In*>(a.src[0]);
  const In* y = static_cast<const In*>(a.src[1]);
  Out* out = static_cast<Out*>(a.dst);
  const int64_t n = a.n;
  PF_NO_ALIAS_LOOP
  for (int64_t i = 0; i < n; ++i) out[i] = f(x[i], y[i]);
}

}  // namespace HWY_NAMESPACE
}  // namespace pyflame::cpu::tile
HWY_AFTER_NAMESPACE();
#endif
