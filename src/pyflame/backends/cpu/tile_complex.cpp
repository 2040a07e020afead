// The parts of complex64 elements in tiles. An element of an int64 tile is a pair of floats.
#include "pyflame/backends/cpu/tile_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pyflame/backends/cpu/tile_complex.cpp"
#include <hwy/foreach_target.h>  // before highway.h

#include "pyflame/backends/cpu/tile_loop-inl.h"

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

Fn pick_bits(OpId op) {
  switch (op) {
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
