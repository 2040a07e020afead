#include "pyflame/backends/cpu/vec_float_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pyflame/backends/cpu/vec_float_rows.cpp"
#include <hwy/foreach_target.h>  // before highway.h

#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace pyflame::cpu::vec {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Up to a unit of codes, so that a unit is a whole number of vectors.
using D = hn::CappedTag<float, static_cast<size_t>(kFloat8Unit)>;
using DCodes = hn::Rebind<uint8_t, D>;
using DBits = hn::Rebind<uint32_t, D>;
using V = hn::Vec<D>;

// The values of codes. Exponent and fraction are moved to the places of a float's, and a product corrects the bias.
template <bool kWide>
HWY_INLINE V Values(const uint8_t* codes) {
  const D d;
  const DBits bits;
  constexpr int kFraction = kWide ? 2 : 3, kBias = kWide ? 15 : 7;
  const auto code = hn::PromoteTo(bits, hn::LoadU(DCodes(), codes));
  const auto size = hn::And(code, hn::Set(bits, 127U));
  const auto sign = hn::ShiftLeft<24>(hn::Xor(code, size));
  const auto factor = hn::BitCast(d, hn::Set(bits, static_cast<uint32_t>(254 - kBias) << 23));
  auto value = hn::Mul(hn::BitCast(d, hn::ShiftLeft<23 - kFraction>(size)), factor);
  // NaN, and infinity of the format that has it.
  const auto special = hn::Gt(size, hn::Set(bits, kWide ? 123U : 126U));
  const auto nan = hn::Set(bits, 0x7FC00000U);
  const auto other = kWide ? hn::IfThenElse(hn::Eq(size, hn::Set(bits, 124U)), hn::Set(bits, 0x7F800000U), nan) : nan;
  value = hn::IfThenElse(hn::RebindMask(d, special), hn::BitCast(d, other), value);
  return hn::Or(value, hn::BitCast(d, sign));
}

HWY_INLINE float ScaleAt(const Float8Rows& form, const uint8_t* weight, int64_t group) {
  float scale;
  std::memcpy(&scale, weight + form.columns + group * 4, sizeof scale);
  return scale;
}

// kRows rows of x at once, for which the codes are decoded once.
template <bool kWide, int kRows>
void SomeRows(const Float8Rows& form, const uint8_t* weight, const float* x, float* y, int64_t ldy) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  // One sum of products for the vectors of an even number, and one for the others.
  V totals[kRows][2];
  for (int r = 0; r < kRows; ++r) totals[r][0] = totals[r][1] = hn::Zero(d);
  for (int64_t group = 0; group < form.scales(); ++group) {
    const int64_t begin = group * form.group, end = std::min(form.columns, begin + form.group);
    V sums[kRows][2];
    for (int r = 0; r < kRows; ++r) sums[r][0] = sums[r][1] = hn::Zero(d);
    int64_t k = begin;
    for (; k + 2 * lanes <= end; k += 2 * lanes) {
      const V first = Values<kWide>(weight + k), second = Values<kWide>(weight + k + lanes);
      for (int r = 0; r < kRows; ++r) {
        sums[r][0] = hn::MulAdd(first, hn::LoadU(d, x + r * form.columns + k), sums[r][0]);
        sums[r][1] = hn::MulAdd(second, hn::LoadU(d, x + r * form.columns + k + lanes), sums[r][1]);
      }
    }
    for (; k < end; k += lanes) {
      const V values = Values<kWide>(weight + k);
      for (int r = 0; r < kRows; ++r)
        sums[r][0] = hn::MulAdd(values, hn::LoadU(d, x + r * form.columns + k), sums[r][0]);
    }
    const V scale = hn::Set(d, ScaleAt(form, weight, group));
    for (int r = 0; r < kRows; ++r)
      for (int i = 0; i < 2; ++i) totals[r][i] = hn::MulAdd(sums[r][i], scale, totals[r][i]);
  }
  for (int r = 0; r < kRows; ++r) y[r * ldy] = hn::GetLane(hn::SumOfLanes(d, hn::Add(totals[r][0], totals[r][1])));
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
  for (int64_t group = 0; group < form.scales(); ++group) {
    const V scale = hn::Set(d, ScaleAt(form, weight, group));
    const int64_t begin = group * form.group, end = std::min(form.columns, begin + form.group);
    for (int64_t k = begin; k < end; k += lanes) hn::StoreU(hn::Mul(Values<kWide>(weight + k), scale), d, to + k);
  }
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
