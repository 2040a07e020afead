// Tile kernels of the transcendental functions, for one type T.
#if defined(PYFLAME_TILE_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PYFLAME_TILE_MATH_INL_H_
#undef PYFLAME_TILE_MATH_INL_H_
#else
#define PYFLAME_TILE_MATH_INL_H_
#endif

#include "pyflame/backends/cpu/math-inl.h"
#include "pyflame/backends/cpu/tile_loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pyflame::cpu::tile {
namespace HWY_NAMESPACE {

#define PF_MATH_STRUCT(name)                        \
  struct Math_##name {                              \
    template <class D>                              \
    HWY_INLINE Math_##name(const Args&, D) {}       \
    template <class D, class... V>                  \
    HWY_INLINE auto operator()(D d, V... x) const { \
      return math::HWY_NAMESPACE::name(d, x...);    \
    }                                               \
  };
PF_MATH_OPS(PF_MATH_STRUCT)
#undef PF_MATH_STRUCT

struct Softplus {
  double beta, threshold;
  template <class D>
  HWY_INLINE Softplus(const Args& a, D) : beta(a.f64(0)), threshold(a.f64(1)) {}
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x) const {
    namespace m = math::HWY_NAMESPACE;
    return m::softplus(d, x, m::num(d, beta), m::num(d, threshold));
  }
};

// Common exponents are exact or faster; the choice depends on the element's own exponent only.
template <class T>
void pow_loop(const Args& a) {
  const T* x = static_cast<const T*>(a.src[0]);
  const T* y = static_cast<const T*>(a.src[1]);
  T* out = static_cast<T*>(a.dst);
  for (int64_t i = 0; i < a.n;) {
    const T e = y[i];
    int64_t end = i + 1;  // a run of equal exponents; the whole tile if the exponent is a number
    while (end < a.n && y[end] == e) ++end;
    if (e == 2) {
      PF_NO_ALIAS_LOOP
      for (int64_t j = i; j < end; ++j) out[j] = x[j] * x[j];
    } else if (e == 3) {
      PF_NO_ALIAS_LOOP
      for (int64_t j = i; j < end; ++j) out[j] = x[j] * x[j] * x[j];
    } else if (e == 1) {
      PF_NO_ALIAS_LOOP
      for (int64_t j = i; j < end; ++j) out[j] = x[j];
    } else if (e == -1) {
      PF_NO_ALIAS_LOOP
      for (int64_t j = i; j < end; ++j) out[j] = 1 / x[j];
    } else if (e == T{0.5}) {
      constexpr T inf = std::numeric_limits<T>::infinity();
      for (int64_t j = i; j < end; ++j) out[j] = x[j] == -inf ? inf : std::sqrt(x[j] + T{0});
    } else {
      for (int64_t j = i; j < end; ++j) out[j] = std::pow(x[j], y[j]);
    }
    i = end;
  }
}

template <class T>
constexpr Found pick_math(OpId op) {
  switch (op) {
#define PF_MATH_CASE(name) \
  case OpId::name: return vector_loop<T, Math_##name, op_info(OpId::name).arity>;
    PF_MATH_OPS(PF_MATH_CASE)
#undef PF_MATH_CASE
    case OpId::softplus: return vector_loop<T, Softplus, 1>;
    case OpId::pow: return pow_loop<T>;
    default: return {};
  }
}

#define OP(name, ...)                                                            \
  static_assert(!in_tile_math(OpId::name) || pick_math<float>(OpId::name).known, \
                "tile_math-inl.h has no instruction for " #name);
#include "pyflame/ops/ops.def"

}  // namespace HWY_NAMESPACE
}  // namespace pyflame::cpu::tile
HWY_AFTER_NAMESPACE();
#endif
