// Where a place of a grid is in an image, and what the elements around it weigh. The reference, and the kernels in sample.h, call this; the
// CPU's backend has the same formulas as vectors (backends/cpu/vec_grid.cpp).
#pragma once

#ifndef PF_ON_DEVICE  // a kernel is compiled as one text
#include "pyflame/kernels/device/launch.h"

#include "pyflame/kernels/device/scalar.h"  // after launch.h
#endif

namespace pf {

// In the order of GridAttrs in ops/attrs.h.
enum GridMode { kLinear, kNearest, kCubic };
enum GridPadding { kZeros, kBorder, kReflection };

PF_DEVICE constexpr int grid_taps(int mode) { return mode == kLinear ? 2 : mode == kNearest ? 1 : 4; }
PF_DEVICE constexpr int grid_corners(int mode, int dims) {
  return dims == 0 ? 1 : grid_taps(mode) * grid_corners(mode, dims - 1);
}

// In units of elements, and how much it moves with the grid's number.
template <class T>
struct GridPlace {
  T at, slope;
};

template <class T>
PF_DEVICE GridPlace<T> grid_place(T g, T size, bool align) {
  if (align) return {(g + 1) * ((size - 1) / 2), (size - 1) / 2};
  return {((g + 1) * size - 1) / 2, size / 2};
}

// Mirrored at the centres of the first and the last element (align), or at their outer edges.
template <class T>
PF_DEVICE GridPlace<T> reflected(GridPlace<T> x, T size, bool align) {
  const T low = align ? (T)0 : (T)-0.5, span = align ? size - 1 : size;
  if (span == 0) return {0, 0};
  const T away = x.at - low, distance = away < 0 ? -away : away, turns = m_floor(distance / span);
  const T rest = distance - turns * span, slope = away < 0 ? -x.slope : x.slope;
  if (turns - 2 * m_floor(turns / 2) == 0) return {rest + low, slope};
  return {(span + low) - rest, -slope};
}

// Moved into the image, unless everything outside of it is 0. NaN becomes 0.
template <class T>
PF_DEVICE GridPlace<T> padded(GridPlace<T> x, T size, int padding, bool align) {
  if (padding == kZeros) return x;
  if (padding == kReflection) x = reflected(x, size, align);
  if (!(x.at > 0)) return {0, 0};
  if (!(x.at < size - 1)) return {size - 1, 0};
  return x;
}

// Elements along a dim: where they are (-1: outside), what they weigh, and how that changes with the grid's number.
template <class T, int kTaps>
struct GridTaps {
  i32 at[kTaps];
  T weight[kTaps], slope[kTaps];
  PF_DEVICE void set(int k, T where, T size, T w, T s) {
    at[k] = where >= 0 && where <= size - 1 ? (i32)where : -1;
    weight[k] = w, slope[k] = s;
  }
};

// Cubic convolution (Keys, 1981) with a = -0.75: the weights of distances up to 1, and from there to 2; their derivatives.
template <class T>
PF_DEVICE T cubic_near(T d) {
  return ((T)1.25 * d - (T)2.25) * d * d + 1;
}
template <class T>
PF_DEVICE T cubic_far(T d) {
  return (((T)-0.75 * d + (T)3.75) * d - 6) * d + 3;
}
template <class T>
PF_DEVICE T cubic_near_slope(T d) {
  return ((T)3.75 * d - (T)4.5) * d;
}
template <class T>
PF_DEVICE T cubic_far_slope(T d) {
  return ((T)-2.25 * d + (T)7.5) * d - 6;
}

template <int kMode, class T>
PF_DEVICE GridTaps<T, grid_taps(kMode)> taps_along(T g, i64 elements, int padding, bool align) {
  GridTaps<T, grid_taps(kMode)> r;
  const T size = (T)elements;
  GridPlace<T> x = grid_place<T>(g, size, align);
  if constexpr (kMode == kCubic) {
    const T low = m_floor(x.at), t = x.at - low;
    const T w[4] = {cubic_far(t + 1), cubic_near(t), cubic_near(1 - t), cubic_far(2 - t)};
    const T s[4] = {cubic_far_slope(t + 1), cubic_near_slope(t), -cubic_near_slope(1 - t), -cubic_far_slope(2 - t)};
    for (int k = 0; k < 4; ++k)
      r.set(k, padded<T>({low + (T)(k - 1), 0}, size, padding, align).at, size, w[k], s[k] * x.slope);
  } else {
    x = padded(x, size, padding, align);
    if constexpr (kMode == kNearest) {
      r.set(0, m_rint(x.at), size, 1, 0);
    } else {
      const T low = m_floor(x.at);
      r.set(0, low, size, (low + 1) - x.at, -x.slope);
      r.set(1, low + 1, size, x.at - low, x.slope);
    }
  }
  return r;
}

// Calls f(GridNumber<0>()), f(GridNumber<1>()), ..
template <int k>
struct GridNumber {
  static constexpr int value = k;
};
template <int kCount, int k = 0, class F>
PF_DEVICE void for_numbers(const F& f) {
  if constexpr (k < kCount) {
    f(GridNumber<k>());
    for_numbers<kCount, k + 1>(f);
  }
}

// The elements around a place: where each is in its image (-1: outside), and the taps along each dim.
template <int kMode, int kDims, class T>
struct GridCorners {
  static constexpr int kTaps = grid_taps(kMode), kCount = grid_corners(kMode, kDims);
  GridTaps<T, kTaps> along[kDims];
  // Corners are numbered as the elements of an array with kTaps along each dim. The numbers are constants, so that all stays in registers.
  template <int k, int d>
  static constexpr int kTap = k / grid_corners(kMode, kDims - 1 - d) % kTaps;
  template <int k, int d, int by>
  PF_DEVICE T factor() const {
    if constexpr (d == by) return along[d].slope[kTap<k, d>];
    else return along[d].weight[kTap<k, d>];
  }
  // `steps`: from one element to the next along each dim.
  template <int k>
  PF_DEVICE i64 offset(const i64* steps) const {
    const i32 a = along[0].at[kTap<k, 0>], b = along[1].at[kTap<k, 1>];
    if constexpr (kDims == 2) {
      return (a | b) < 0 ? -1 : a * steps[0] + b * steps[1];
    } else {
      const i32 c = along[2].at[kTap<k, 2>];
      return (a | b | c) < 0 ? -1 : a * steps[0] + b * steps[1] + c * steps[2];
    }
  }
  // Its weight; or the derivative of that by the place along one dim.
  template <int k, int by = -1>
  PF_DEVICE T weight() const {
    if constexpr (kDims == 2) return factor<k, 0, by>() * factor<k, 1, by>();
    else return factor<k, 0, by>() * factor<k, 1, by>() * factor<k, 2, by>();
  }
};

}  // namespace pf
