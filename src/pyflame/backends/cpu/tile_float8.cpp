// 8-bit floats in tiles: the arithmetic of kernels/device/scalar.h on vectors.
#include "pyflame/backends/cpu/tile_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pyflame/backends/cpu/tile_float8.cpp"
#include <hwy/foreach_target.h>  // before highway.h

#include "pyflame/backends/cpu/tile_loop-inl.h"
#include "pyflame/tensor/float8.h"

HWY_BEFORE_NAMESPACE();
namespace pyflame::cpu::tile {
namespace HWY_NAMESPACE {

using F = Tag<float>;
using U = hn::Rebind<uint32_t, F>;
using Bytes = hn::Rebind<uint8_t, F>;
using VF = hn::Vec<F>;
using VU = hn::Vec<U>;

VU number(uint32_t v) { return hn::Set(U(), v); }

template <DType kFormat>
VF decoded(VU code) {
  constexpr Float8Format f = float8_format(kFormat);
  constexpr int kShift = 23 - f.fraction;
  const F d;
  const U u;
  const VU size = hn::And(code, number(127));
  const VF unit = hn::BitCast(d, number(static_cast<uint32_t>(128 - f.bias - f.fraction) << 23));
  const VF tiny = hn::Mul(hn::ConvertTo(d, hn::BitCast(hn::RebindToSigned<U>(), size)), unit);
  const VU normal = hn::Add(hn::ShiftLeft<kShift>(size), number(static_cast<uint32_t>(127 - f.bias) << 23));
  const auto is_tiny = hn::Lt(size, number(1U << f.fraction));
  VU bits = hn::IfThenElse(is_tiny, hn::BitCast(u, tiny), normal);
  if constexpr (f.codes == Float8Codes::InfinityAndNan) {
    const VU special = hn::Or(number(0x7f800000U), hn::ShiftLeft<21>(hn::And(size, number(3))));
    bits = hn::IfThenElse(hn::Gt(size, number(0x7b)), special, bits);
  }
  if constexpr (f.codes == Float8Codes::OneNan)
    bits = hn::IfThenElse(hn::Eq(size, number(127)), number(0x7fc00000U), bits);
  bits = hn::Or(bits, hn::ShiftLeft<24>(hn::And(code, number(128))));
  if constexpr (f.codes == Float8Codes::NanAtMinusZero)
    bits = hn::IfThenElse(hn::Eq(code, number(128)), number(0x7fc00000U), bits);
  return hn::BitCast(d, bits);
}

template <DType kFormat>
VU encoded(VF x) {
  constexpr Float8Format f = float8_format(kFormat);
  constexpr int kShift = 23 - f.fraction;
  const F d;
  const U u;
  const VU bits = hn::BitCast(u, x), sign = hn::And(hn::ShiftRight<24>(bits), number(128));
  const VU size = hn::And(bits, number(0x7fffffffU));
  const VU large = number(static_cast<uint32_t>(151 - f.bias - f.fraction) << 23);
  const VU tiny = hn::Sub(hn::BitCast(u, hn::Add(hn::BitCast(d, size), hn::BitCast(d, large))), large);
  const VU even = hn::And(hn::ShiftRight<kShift>(size), number(1));
  const VU rounding = number((1U << (kShift - 1)) - 1U - (static_cast<uint32_t>(127 - f.bias) << 23));
  const VU normal = hn::ShiftRight<kShift>(hn::Add(hn::Add(size, rounding), even));
  VU code = hn::IfThenElse(hn::Lt(size, number(static_cast<uint32_t>(128 - f.bias) << 23)), tiny, normal);
  if constexpr (f.codes == Float8Codes::InfinityAndNan)
    code = hn::IfThenElse(hn::Gt(size, number(0x7f800000U)), number(127), hn::Min(code, number(0x7c)));
  if constexpr (f.codes == Float8Codes::OneNan) code = hn::Min(code, number(127));
  if constexpr (f.codes == Float8Codes::NanAtMinusZero) {
    const VU with_sign = hn::IfThenZeroElse(hn::Eq(code, number(0)), hn::Or(code, sign));
    return hn::IfThenElse(hn::Gt(code, number(127)), number(128), with_sign);
  }
  return hn::Or(code, sign);
}

template <DType kFormat>
void decode_loop(const Args& a) {
  const F d;
  const Bytes bytes;
  const int64_t lanes = hn::Lanes(d);
  const uint8_t* codes = static_cast<const uint8_t*>(a.src[0]);
  float* out = static_cast<float*>(a.dst);
  int64_t i = 0;
  for (; i + lanes <= a.n; i += lanes)
    hn::StoreU(decoded<kFormat>(hn::PromoteTo(U(), hn::LoadU(bytes, codes + i))), d, out + i);
  if (i == a.n) return;
  HWY_ALIGN uint8_t rest[kMaxVectorBytes] = {};
  HWY_ALIGN float values[kMaxVectorBytes / sizeof(float)];
  std::memcpy(rest, codes + i, a.n - i);
  hn::Store(decoded<kFormat>(hn::PromoteTo(U(), hn::Load(bytes, rest))), d, values);
  std::memcpy(out + i, values, (a.n - i) * sizeof(float));
}

template <DType kFormat>
void encode_loop(const Args& a) {
  const F d;
  const Bytes bytes;
  const int64_t lanes = hn::Lanes(d);
  const float* x = static_cast<const float*>(a.src[0]);
  uint8_t* out = static_cast<uint8_t*>(a.dst);
  int64_t i = 0;
  for (; i + lanes <= a.n; i += lanes)
    hn::StoreU(hn::TruncateTo(bytes, encoded<kFormat>(hn::LoadU(d, x + i))), bytes, out + i);
  if (i == a.n) return;
  HWY_ALIGN float rest[kMaxVectorBytes / sizeof(float)] = {};
  HWY_ALIGN uint8_t codes[kMaxVectorBytes];
  std::memcpy(rest, x + i, (a.n - i) * sizeof(float));
  hn::Store(hn::TruncateTo(bytes, encoded<kFormat>(hn::Load(d, rest))), bytes, codes);
  std::memcpy(out + i, codes, a.n - i);
}

Fn pick_float8(OpId op) {
  switch (op) {
#define X(name, ...)                                       \
  case OpId::from_##name: return decode_loop<DType::name>; \
  case OpId::to_##name: return encode_loop<DType::name>;
    PF_FLOAT8_DTYPES(X)
#undef X
    default: return nullptr;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace pyflame::cpu::tile
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pyflame::cpu::tile {
HWY_EXPORT(pick_float8);
Fn find_float8(OpId op) { return HWY_DYNAMIC_DISPATCH(pick_float8)(op); }
}  // namespace pyflame::cpu::tile
#endif
