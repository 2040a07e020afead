// Division by a number that the host knows: a multiplication and a shift.
#pragma once

#ifndef PF_ON_DEVICE  // a kernel is compiled as one text
#include <bit>

#include "pyflame/kernels/device/launch.h"
#include "pyflame/kernels/device/scalar.h"
#endif

namespace pf {

// n / d for n < 2^31.
struct Divider {
  u32 d = 1, multiplier = 1, shift = 0;
  PF_DEVICE u32 div(u32 n) const { return (u32)(((u64)n * multiplier >> 32) + n) >> shift; }
};
// The same for any n and d: a real division.
struct WideDivider {
  i64 d = 1;
  PF_DEVICE i64 div(i64 n) const { return n / d; }
};
static_assert(sizeof(Divider) == 12 && sizeof(WideDivider) == 8);

#ifndef PF_ON_DEVICE
inline Divider divider_of(u32 d) {
  const u32 shift = d <= 1 ? 0 : (u32)std::bit_width(d - 1);
  const u64 multiplier = ((u64{1} << 32) * ((u64{1} << shift) - d)) / d + 1;
  return {d, (u32)multiplier, shift};
}
#endif

}  // namespace pf
