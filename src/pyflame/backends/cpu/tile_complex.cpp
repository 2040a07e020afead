// The parts of complex64 elements in tiles. An element of an int64 tile is a pair of floats.
#include "pyflame/backends/cpu/tile_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pyflame/backends/cpu/tile_complex.cpp"
#include <hwy/foreach_target.h>  // before highway.h

#include "pyflame/backends/cpu/tile_loop-inl.h"
#include "pyflame/kernels/device/launch.h"

#include "pyflame/kernels/device/scalar.h"  // after launch.h

HWY_BEFORE_NAMESPACE();
namespace pyflame::cpu::tile {
namespace HWY_NAMESPACE {

void pack_loop(const Args& a) {
  const Tag<float> d;
  const int64_t lanes = hn::Lanes(d);
  const float* re = static_cast<const float*>(a.src[0]);
  const float* im = static_cast<const float*>(a.src[1]);
  float* out = static_cast<float*>(a.dst);
  int64_t i = 0;
  for (; i + lanes <= a.n; i += lanes)
    hn::StoreInterleaved2(hn::LoadU(d, re + i), hn::LoadU(d, im + i), d, out + 2 * i);
  for (; i < a.n; ++i) {
    const float x = re[i], y = im[i];
    out[2 * i] = x, out[2 * i + 1] = y;
  }
}

template <int kPart>
void part_loop(const Args& a) {
  const Tag<float> d;
  const int64_t lanes = hn::Lanes(d);
  const float* pairs = static_cast<const float*>(a.src[0]);
  float* out = static_cast<float*>(a.dst);
  int64_t i = 0;
  for (; i + lanes <= a.n; i += lanes) {
    hn::Vec<decltype(d)> re, im;
    hn::LoadInterleaved2(d, pairs + 2 * i, re, im);
    hn::StoreU(kPart == 0 ? re : im, d, out + i);
  }
  for (; i < a.n; ++i) out[i] = pairs[2 * i + kPart];
}

// No fused multiply-add, whatever the instruction set: a * b has the same bits in any loop.
void mul_loop(const Args& a) {
  const Tag<float> d;
  const int64_t lanes = hn::Lanes(d);
  const float* x = static_cast<const float*>(a.src[0]);
  const float* y = static_cast<const float*>(a.src[1]);
  float* out = static_cast<float*>(a.dst);
  int64_t i = 0;
  for (; i + lanes <= a.n; i += lanes) {
    hn::Vec<decltype(d)> xr, xi, yr, yi;
    hn::LoadInterleaved2(d, x + 2 * i, xr, xi);
    hn::LoadInterleaved2(d, y + 2 * i, yr, yi);
    hn::StoreInterleaved2(hn::Sub(hn::Mul(xr, yr), hn::Mul(xi, yi)), hn::Add(hn::Mul(xr, yi), hn::Mul(xi, yr)), d,
                          out + 2 * i);
  }
  for (; i < a.n; ++i) {
    const float xr = x[2 * i], xi = x[2 * i + 1], yr = y[2 * i], yi = y[2 * i + 1];
    out[2 * i] = xr * yr - xi * yi, out[2 * i + 1] = xr * yi + xi * yr;
  }
}

// The formula of div_complex in kernels/device/scalar.h, step by step.
void div_loop(const Args& a) {
  const Tag<float> d;
  const int64_t lanes = hn::Lanes(d);
  const auto* x = static_cast<const int64_t*>(a.src[0]);
  const auto* y = static_cast<const int64_t*>(a.src[1]);
  auto* out = static_cast<int64_t*>(a.dst);
  int64_t i = 0;
  for (; i + lanes <= a.n; i += lanes) {
    hn::Vec<decltype(d)> ar, ai, br, bi;
    hn::LoadInterleaved2(d, reinterpret_cast<const float*>(x + i), ar, ai);
    hn::LoadInterleaved2(d, reinterpret_cast<const float*>(y + i), br, bi);
    const auto real = hn::Ge(hn::Abs(br), hn::Abs(bi));
    const auto large = hn::IfThenElse(real, br, bi), small = hn::IfThenElse(real, bi, br);
    const auto p = hn::IfThenElse(real, ar, ai), q = hn::IfThenElse(real, ai, ar);
    const auto ratio = hn::IfThenZeroElse(hn::Eq(large, hn::Zero(d)), hn::Div(small, large));
    const auto size = hn::Add(large, hn::Mul(small, ratio));
    const auto im = hn::Div(hn::Sub(q, hn::Mul(p, ratio)), size);
    hn::StoreInterleaved2(hn::Div(hn::Add(p, hn::Mul(q, ratio)), size), hn::IfThenElse(real, im, hn::Neg(im)), d,
                          reinterpret_cast<float*>(out + i));
  }
  for (; i < a.n; ++i) out[i] = pf::div_complex(x[i], y[i]);
}

Fn pick_bits(OpId op) {
  switch (op) {
    case OpId::div_complex: return div_loop;
    case OpId::mul_complex: return mul_loop;
    case OpId::pack_complex: return pack_loop;
    case OpId::real_part: return part_loop<0>;
    case OpId::imag_part: return part_loop<1>;
    default: return nullptr;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace pyflame::cpu::tile
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pyflame::cpu::tile {
HWY_EXPORT(pick_bits);
Fn find_bits(OpId op) {
  const Fn float8 = find_float8(op);
  return float8 ? float8 : HWY_DYNAMIC_DISPATCH(pick_bits)(op);
}
}  // namespace pyflame::cpu::tile
#endif
