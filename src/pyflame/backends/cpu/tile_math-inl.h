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

#define PF_MATH1(Name, function)                  \
  struct Name {                                   \
    template <class D>                            \
    HWY_INLINE Name(const Args&, D) {}            \
    template <class D, class V>                   \
    HWY_INLINE V operator()(D d, V x) const {     \
      return math::HWY_NAMESPACE::function(d, x); \
    }                                             \
  };
#define PF_MATH2(Name, function)                     \
  struct Name {                                      \
    template <class D>                               \
    HWY_INLINE Name(const Args&, D) {}               \
    template <class D, class V>                      \
    HWY_INLINE V operator()(D d, V x, V y) const {   \
      return math::HWY_NAMESPACE::function(d, x, y); \
    }                                                \
  };
PF_MATH1(Exp, exp)
PF_MATH1(Expm1, expm1)
PF_MATH1(Log, log)
PF_MATH1(Log1p, log1p)
PF_MATH1(Sin, sin)
PF_MATH1(Cos, cos)
PF_MATH1(Tanh, tanh)
PF_MATH1(Erf, erf)
PF_MATH1(Sigmoid, sigmoid)
PF_MATH1(Gelu, gelu)
PF_MATH1(GeluTanh, gelu_tanh)
PF_MATH1(Silu, silu)
PF_MATH2(GeluGrad, gelu_grad)
PF_MATH2(GeluTanhGrad, gelu_tanh_grad)
PF_MATH2(SiluGrad, silu_grad)

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
Fn pick_math(OpId op) {
  switch (op) {
    case OpId::exp: return vector_loop<T, Exp, 1>;
    case OpId::expm1: return vector_loop<T, Expm1, 1>;
    case OpId::log: return vector_loop<T, Log, 1>;
    case OpId::log1p: return vector_loop<T, Log1p, 1>;
    case OpId::sin: return vector_loop<T, Sin, 1>;
    case OpId::cos: return vector_loop<T, Cos, 1>;
    case OpId::tanh: return vector_loop<T, Tanh, 1>;
    case OpId::erf: return vector_loop<T, Erf, 1>;
    case OpId::sigmoid: return vector_loop<T, Sigmoid, 1>;
    case OpId::gelu: return vector_loop<T, Gelu, 1>;
    case OpId::gelu_tanh: return vector_loop<T, GeluTanh, 1>;
    case OpId::silu: return vector_loop<T, Silu, 1>;
    case OpId::softplus: return vector_loop<T, Softplus, 1>;
    case OpId::gelu_grad: return vector_loop<T, GeluGrad, 2>;
    case OpId::gelu_tanh_grad: return vector_loop<T, GeluTanhGrad, 2>;
    case OpId::silu_grad: return vector_loop<T, SiluGrad, 2>;
    case OpId::pow: return pow_loop<T>;
    default: return nullptr;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace pyflame::cpu::tile
HWY_AFTER_NAMESPACE();
#endif
