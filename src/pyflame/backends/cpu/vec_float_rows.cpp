#include "pyflame/backends/cpu/vec_float_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pyflame/backends/cpu/vec_float_rows.cpp"
#include <hwy/foreach_target.h>  // before highway.h

#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "pyflame/tensor/float8.h"

HWY_BEFORE_NAMESPACE();
namespace pyflame::cpu::vec {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Up to a unit of codes, so that a unit is a whole number of vectors.
using D = hn::CappedTag<float, static_cast<size_t>(kFloat8Unit)>;
using DCodes = hn::Rebind<uint8_t, D>;
using DHalfBits = hn::Rebind<uint16_t, D>;
using DHalf = hn::Rebind<hwy::float16_t, D>;
using V = hn::Vec<D>;
using VHalfBits = hn::Vec<DHalfBits>;

// The exponents of float16 have a bias of 15, those of e4m3 one of 7.
template <bool kWide>
constexpr float kFactor = kWide ? 1 : 256;
// The values of finite codes, divided by kFactor: the bits of a code become those of a float16, whose small numbers processors convert as fast as
// others. `special` gets bit 7 where a code is infinite or NaN: of some formats float16 has numbers there, and not every set converts the others.
template <bool kWide>
HWY_INLINE V Values(const uint8_t* codes, VHalfBits& special) {
  const D d;
  const DHalfBits bits;
  const auto code = hn::PromoteTo(bits, hn::LoadU(DCodes(), codes));
  const auto size = hn::And(code, hn::Set(bits, uint16_t{127}));
  special = hn::Or(special, hn::Add(size, hn::Set(bits, uint16_t{kWide ? 4 : 1})));
  auto half = hn::ShiftLeft<8>(code);
  if constexpr (!kWide) half = hn::Or(hn::And(half, hn::Set(bits, uint16_t{0x8000})), hn::ShiftLeft<7>(size));
  return hn::PromoteTo(d, hn::BitCast(DHalf(), half));
}
HWY_INLINE bool HasSpecial(VHalfBits special) {
  const DHalfBits bits;
  return !hn::AllTrue(bits, hn::Eq(hn::And(special, hn::Set(bits, uint16_t{128})), hn::Zero(bits)));
}

HWY_INLINE float ScaleAt(const Float8Rows& form, const uint8_t* weight, int64_t group) {
  float scale;
  std::memcpy(&scale, weight + form.columns + group * 4, sizeof scale);
  return scale;
}

// The product of a row of x and a row of weights of which some are infinite or NaN.
float SpecialSum(const Float8Rows& form, const uint8_t* weight, const float* x) {
  float sum = 0;
  for (int64_t k = 0; k < form.columns; ++k)
    sum += float8_value(form.dtype, weight[k]) * ScaleAt(form, weight, k / form.group) * x[k];
  return sum;
}

// kRows rows of x at once, for which the codes are decoded once.
template <bool kWide, int kRows>
void SomeRows(const Float8Rows& form, const uint8_t* weight, const float* x, float* y, int64_t ldy) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  VHalfBits special = hn::Zero(DHalfBits());
  // One sum of products for the vectors of an even number, and one for the others.
  V totals[kRows][2];
  for (int r = 0; r < kRows; ++r) totals[r][0] = totals[r][1] = hn::Zero(d);
  for (int64_t group = 0; group < form.scales(); ++group) {
    const int64_t begin = group * form.group, end = std::min(form.columns, begin + form.group);
    V sums[kRows][2];
    for (int r = 0; r < kRows; ++r) sums[r][0] = sums[r][1] = hn::Zero(d);
    int64_t k = begin;
    for (; k + 2 * lanes <= end; k += 2 * lanes) {
      const V first = Values<kWide>(weight + k, special), second = Values<kWide>(weight + k + lanes, special);
      for (int r = 0; r < kRows; ++r) {
        sums[r][0] = hn::MulAdd(first, hn::LoadU(d, x + r * form.columns + k), sums[r][0]);
        sums[r][1] = hn::MulAdd(second, hn::LoadU(d, x + r * form.columns + k + lanes), sums[r][1]);
      }
    }
    for (; k < end; k += lanes) {
      const V values = Values<kWide>(weight + k, special);
      for (int r = 0; r < kRows; ++r)
        sums[r][0] = hn::MulAdd(values, hn::LoadU(d, x + r * form.columns + k), sums[r][0]);
    }
    const V scale = hn::Set(d, ScaleAt(form, weight, group)), factor = hn::Set(d, kFactor<kWide>);
    for (int r = 0; r < kRows; ++r)
      for (int i = 0; i < 2; ++i) totals[r][i] = hn::MulAdd(hn::Mul(sums[r][i], factor), scale, totals[r][i]);
  }
  for (int r = 0; r < kRows; ++r)
    y[r * ldy] = HasSpecial(special) ? SpecialSum(form, weight, x + r * form.columns)
                                     : hn::GetLane(hn::SumOfLanes(d, hn::Add(totals[r][0], totals[r][1])));
}

template <bool kWide>
void RowProduct(const Float8Rows& form, const uint8_t* weight, const float* x, int64_t rows, float* y, int64_t ldy) {
  for (; rows >= 4; rows -= 4, x += 4 * form.columns, y += 4 * ldy) SomeRows<kWide, 4>(form, weight, x, y, ldy);
  if (rows == 3) return SomeRows<kWide, 3>(form, weight, x, y, ldy);
  if (rows == 2) return SomeRows<kWide, 2>(form, weight, x, y, ldy);
  if (rows == 1) SomeRows<kWide, 1>(form, weight, x, y, ldy);
}

void FloatRowProduct(const Float8Rows& form, const uint8_t* weight, const float* x, int64_t rows, float* y,
                     int64_t ldy) {
  if (form.dtype == DType::float8_e5m2) return RowProduct<true>(form, weight, x, rows, y, ldy);
  RowProduct<false>(form, weight, x, rows, y, ldy);
}

template <bool kWide>
void DecodeRow(const Float8Rows& form, const uint8_t* weight, float* to) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  VHalfBits special = hn::Zero(DHalfBits());
  for (int64_t group = 0; group < form.scales(); ++group) {
    const V scale = hn::Set(d, ScaleAt(form, weight, group)), factor = hn::Set(d, kFactor<kWide>);
    const int64_t begin = group * form.group, end = std::min(form.columns, begin + form.group);
    for (int64_t k = begin; k < end; k += lanes)
      hn::StoreU(hn::Mul(hn::Mul(Values<kWide>(weight + k, special), factor), scale), d, to + k);
  }
  if (HasSpecial(special)) form.decode(weight, to);
}

void DecodeFloatRow(const Float8Rows& form, const uint8_t* weight, float* to) {
  if (form.dtype == DType::float8_e5m2) return DecodeRow<true>(form, weight, to);
  DecodeRow<false>(form, weight, to);
}

}  // namespace HWY_NAMESPACE
}  // namespace pyflame::cpu::vec
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pyflame::cpu::vec {

HWY_EXPORT(FloatRowProduct);
HWY_EXPORT(DecodeFloatRow);
void float_row_product(const Float8Rows& form, const uint8_t* weight, const float* x, int64_t rows, float* y,
                       int64_t ldy) {
  HWY_DYNAMIC_DISPATCH(FloatRowProduct)(form, weight, x, rows, y, ldy);
}
void decode_float_row(const Float8Rows& form, const uint8_t* weight, float* to) {
  HWY_DYNAMIC_DISPATCH(DecodeFloatRow)(form, weight, to);
}

}  // namespace pyflame::cpu::vec
#endif
