// Maps values to unsigned keys whose numerical order is the order of sorting, so that the digits of the keys can be
// sorted. NaN is the largest value. All NaN are equal, and so are the two zeros.
#pragma once

#ifndef PF_ON_DEVICE
#include "pyflame/kernels/device/launch.h"

#include "pyflame/kernels/device/scalar.h"
#endif

namespace pf {

template <class T, class U>
PF_DEVICE U bits_of(T x) {
  union Both {
    PF_DEVICE Both() {}
    T t;
    U u;
  } both;
  both.t = x;
  return both.u;
}

// Key of a float with kBits bits and the given exponent bits.
template <class U, int kBits>
PF_DEVICE U float_key(U b, U exponent) {
  const U sign = (U)1 << (kBits - 1), rest = b & (U)(sign - 1), all = (U)(sign | (U)(sign - 1));
  if (rest > exponent) return all;
  return (U)((b & sign) && rest ? all ^ b : sign | rest);
}
template <class U, int kBits>
PF_DEVICE U float_of_key(U key) {
  const U sign = (U)1 << (kBits - 1), all = (U)(sign | (U)(sign - 1));
  return key & sign ? key ^ sign : key ^ all;
}

// type: of the key; kBits: its bits; of(), back(): conversions in both directions, where `exact` says that the value
// can be recovered from the key.
template <class S>
struct Key {  // signed integers
  using type = u32;
  static constexpr int kBits = 8 * sizeof(S);
  static constexpr u32 kMask = kBits == 32 ? ~0u : (1u << (kBits % 32)) - 1u;
  static PF_DEVICE type of(S x) { return ((u32)x ^ (1u << (kBits - 1))) & kMask; }
  static PF_DEVICE S back(type key) { return (S)(key ^ (1u << (kBits - 1))); }
  static PF_DEVICE bool exact(type) { return true; }
};
template <>
struct Key<u8> {
  using type = u32;
  static constexpr int kBits = 8;
  static PF_DEVICE type of(u8 x) { return x; }
  static PF_DEVICE u8 back(type key) { return (u8)key; }
  static PF_DEVICE bool exact(type) { return true; }
};
template <>
struct Key<bool8> {
  using type = u32;
  static constexpr int kBits = 8;
  static PF_DEVICE type of(bool8 x) { return x.v; }
  static PF_DEVICE bool8 back(type key) { return {(u8)key}; }
  static PF_DEVICE bool exact(type) { return true; }
};
template <>
struct Key<i64> {
  using type = u64;
  static constexpr int kBits = 64;
  static PF_DEVICE type of(i64 x) { return (u64)x ^ ((u64)1 << 63); }
  static PF_DEVICE i64 back(type key) { return (i64)(key ^ ((u64)1 << 63)); }
  static PF_DEVICE bool exact(type) { return true; }
};
template <>
struct Key<float> {
  using type = u32;
  static constexpr int kBits = 32;
  static PF_DEVICE type of(float x) { return float_key<u32, 32>(bits_of_float(x), 0x7f800000u); }
  static PF_DEVICE float back(type key) { return float_of_bits(float_of_key<u32, 32>(key)); }
  static PF_DEVICE bool exact(type key) { return key != 0x80000000u && key != 0xffffffffu; }
};
template <>
struct Key<double> {
  using type = u64;
  static constexpr int kBits = 64;
  static PF_DEVICE type of(double x) { return float_key<u64, 64>(bits_of<double, u64>(x), (u64)0x7ff << 52); }
  static PF_DEVICE double back(type key) { return bits_of<u64, double>(float_of_key<u64, 64>(key)); }
  static PF_DEVICE bool exact(type key) { return key != (u64)1 << 63 && key != ~(u64)0; }
};
template <>
struct Key<f16> {
  using type = u32;
  static constexpr int kBits = 16;
  static PF_DEVICE type of(f16 x) { return float_key<u32, 16>(x.v, 0x7c00u); }
  static PF_DEVICE f16 back(type key) { return {(u16)float_of_key<u32, 16>(key)}; }
  static PF_DEVICE bool exact(type key) { return key != 0x8000u && key != 0xffffu; }
};
template <>
struct Key<bf16> {
  using type = u32;
  static constexpr int kBits = 16;
  static PF_DEVICE type of(bf16 x) { return float_key<u32, 16>(x.v, 0x7f80u); }
  static PF_DEVICE bf16 back(type key) { return {(u16)float_of_key<u32, 16>(key)}; }
  static PF_DEVICE bool exact(type key) { return key != 0x8000u && key != 0xffffu; }
};

// The key for ascending or descending order.
template <class S, bool kDescending>
PF_DEVICE typename Key<S>::type directed(typename Key<S>::type key) {
  using U = typename Key<S>::type;
  constexpr U all = (U)(~(U)0 >> (8 * sizeof(U) - Key<S>::kBits));
  return kDescending ? (U)(all ^ key) : key;
}

}  // namespace pf
