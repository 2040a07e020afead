#include "pyflame/backends/cpu/vec_rotary.h"

// The same versions as in vec.cpp.
#include <hwy/detect_targets.h>
#undef HWY_DISABLED_TARGETS
#ifdef HWY_AVX3_ZEN4
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_AVX3_ZEN4)
#else
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pyflame/backends/cpu/vec_rotary.cpp"
#include <hwy/foreach_target.h>  // before highway.h

#include <hwy/highway.h>

#include <algorithm>
#include <type_traits>

HWY_BEFORE_NAMESPACE();
namespace pyflame::cpu::vec {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int64_t kMaxLanes = 16;  // of float in the widest version

// Numbers of S are computed with as C.
template <class S>
using C = std::conditional_t<std::is_same_v<S, double>, double, float>;
template <class S>
using Tag = hn::ScalableTag<C<S>>;
template <class S>
using V = hn::Vec<Tag<S>>;

template <class S>
HWY_INLINE V<S> load(const S* p) {
  const Tag<S> d;
  if constexpr (std::is_same_v<S, bfloat16>) {
    const hn::RebindToUnsigned<Tag<S>> du;
    const hn::Rebind<uint16_t, Tag<S>> dh;
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(dh, reinterpret_cast<const uint16_t*>(p)))));
  } else if constexpr (std::is_same_v<S, float16>) {
#if HWY_TARGET <= HWY_AVX2
    const hn::Rebind<hwy::float16_t, Tag<S>> dh;
    return hn::PromoteTo(d, hn::LoadU(dh, reinterpret_cast<const hwy::float16_t*>(p)));
#else
    alignas(64) float buffer[kMaxLanes];
    for (size_t i = 0; i < hn::Lanes(d); ++i) buffer[i] = static_cast<float>(p[i]);
    return hn::Load(d, buffer);
#endif
  } else {
    return hn::LoadU(d, p);
  }
}

// v, whose numbers are rounded to bfloat16 (to the nearest, ties to even).
HWY_INLINE V<bfloat16> rounded_bf16(V<bfloat16> v) {
  const Tag<bfloat16> d;
  const hn::RebindToUnsigned<Tag<bfloat16>> du;
  const auto u = hn::BitCast(du, v), high = hn::Set(du, 0xffff0000u);
  const auto odd = hn::And(hn::ShiftRight<16>(u), hn::Set(du, 1u));
  const auto nearest = hn::And(hn::Add(hn::Add(u, hn::Set(du, 0x7fffu)), odd), high);
  const auto nan = hn::And(hn::Or(u, hn::Set(du, 0x400000u)), high);
  return hn::BitCast(d, hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), nan, nearest));
}

template <class S>
HWY_INLINE void store(V<S> v, S* p) {
  const Tag<S> d;
  if constexpr (std::is_same_v<S, bfloat16>) {
    const hn::RebindToUnsigned<Tag<S>> du;
    const hn::RebindToSigned<Tag<S>> di;
    const hn::Rebind<uint16_t, Tag<S>> dh;
    const auto bits = hn::ShiftRight<16>(hn::BitCast(du, rounded_bf16(v)));
    hn::StoreU(hn::DemoteTo(dh, hn::BitCast(di, bits)), dh, reinterpret_cast<uint16_t*>(p));
  } else if constexpr (std::is_same_v<S, float16>) {
#if HWY_TARGET <= HWY_AVX2  // the baseline's emulation truncates
    const hn::Rebind<hwy::float16_t, Tag<S>> dh;
    hn::StoreU(hn::DemoteTo(dh, v), dh, reinterpret_cast<hwy::float16_t*>(p));
#else
    alignas(64) float buffer[kMaxLanes];
    hn::Store(v, d, buffer);
    for (size_t i = 0; i < hn::Lanes(d); ++i) p[i] = float16(buffer[i]);
#endif
  } else {
    hn::StoreU(v, d, p);
  }
}

template <class S>
HWY_INLINE V<S> rounded(V<S> v) {
  if constexpr (std::is_same_v<S, bfloat16>) {
    return rounded_bf16(v);
  } else if constexpr (std::is_same_v<S, float16>) {
    S buffer[kMaxLanes];
    store<S>(v, buffer);
    return load(buffer);
  } else {
    return v;
  }
}

// The pairs (x[i], x[half + i]) of as many i as a vector has.
template <class S>
HWY_INLINE void rotate_pairs(const S* x, const S* cos, const S* sin, S* y, int64_t half) {
  const auto a = load(x), b = load(x + half);
  const auto product = [](V<S> p, V<S> q) HWY_ATTR { return rounded<S>(hn::Mul(p, q)); };
  store<S>(hn::Add(product(a, load(cos)), product(hn::Neg(b), load(sin))), y);
  store<S>(hn::Add(product(b, load(cos + half)), product(a, load(sin + half))), y + half);
}

template <class S>
HWY_INLINE void RotateT(const S* x, const S* cos, const S* sin, S* y, int64_t n) {
  const int64_t half = n / 2, w = static_cast<int64_t>(hn::Lanes(Tag<S>()));
  int64_t i = 0;
  for (; i + w <= half; i += w) rotate_pairs(x + i, cos + i, sin + i, y + i, half);
  if (i == half) return;
  S buffer[4][2 * kMaxLanes] = {};  // the last pairs
  const auto count = half - i;
  const S* const from[] = {x, cos, sin};
  for (int k = 0; k < 3; ++k)
    for (int side = 0; side < 2; ++side) std::copy_n(from[k] + side * half + i, count, buffer[k] + side * w);
  rotate_pairs(buffer[0], buffer[1], buffer[2], buffer[3], w);
  for (int side = 0; side < 2; ++side) std::copy_n(buffer[3] + side * w, count, y + side * half + i);
}

// Highway exports functions by name, not templates.
void RotateF32(const float* x, const float* cos, const float* sin, float* y, int64_t n) { RotateT(x, cos, sin, y, n); }
void RotateF64(const double* x, const double* cos, const double* sin, double* y, int64_t n) {
  RotateT(x, cos, sin, y, n);
}
void RotateBf16(const bfloat16* x, const bfloat16* cos, const bfloat16* sin, bfloat16* y, int64_t n) {
  RotateT(x, cos, sin, y, n);
}
void RotateF16(const float16* x, const float16* cos, const float16* sin, float16* y, int64_t n) {
  RotateT(x, cos, sin, y, n);
}

}  // namespace HWY_NAMESPACE
}  // namespace pyflame::cpu::vec
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pyflame::cpu::vec {

#define PF_ROTATE(T, S)                                                  \
  HWY_EXPORT(Rotate##S);                                                 \
  void rotate(const T* x, const T* cos, const T* sin, T* y, int64_t n) { \
    HWY_DYNAMIC_DISPATCH(Rotate##S)(x, cos, sin, y, n);                  \
  }
PF_ROTATE(float, F32)
PF_ROTATE(double, F64)
PF_ROTATE(bfloat16, Bf16)
PF_ROTATE(float16, F16)
#undef PF_ROTATE

}  // namespace pyflame::cpu::vec
#endif
