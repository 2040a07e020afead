// Interprets a group of elementwise nodes while its own kernel is still being compiled. Each thread runs the program
// for one element at a time; its registers are a column of shared memory. The functions are those of the generated
// kernels, so the bits are the same. The host writes the switch over ops from the op table (interpret.cpp).
#pragma once

namespace pf {

// A register holds a float or an integer.
union Register {
  float f;
  i64 i;
};

PF_DEVICE double double_of_bits(u64 x) {
  union {
    u64 bits;
    double value;
  } u;
  u.bits = x;
  return u.value;
}

// The dtypes in the order of the host's DType. float64 is the first; the interpreter does not support it.
#define PF_STORED_TYPES(CASE) \
  CASE(1, float)              \
  CASE(2, f16) CASE(3, bf16) CASE(4, i64) CASE(5, i32) CASE(6, i16) CASE(7, i8) CASE(8, u8) CASE(9, bool8)

template <class S>
struct is_stored_float {
  static constexpr bool value = is_floating<S>::value;
};
template <>
struct is_stored_float<f16> {
  static constexpr bool value = true;
};
template <>
struct is_stored_float<bf16> {
  static constexpr bool value = true;
};

template <class S>
PF_DEVICE Register held(C<S> x) {
  Register r;
  if constexpr (is_stored_float<S>::value) r.f = (float)x;
  else r.i = (i64)x;
  return r;
}
PF_DEVICE Register read(int stored, const void* p, i64 at) {
  switch (stored) {
#define PF_READ(number, S) \
  case number: return held<S>(load((const S*)p + at));
    PF_STORED_TYPES(PF_READ)
#undef PF_READ
  }
  return {};
}
PF_DEVICE void write(int stored, void* p, i64 at, Register r) {
  switch (stored) {
#define PF_WRITE(number, S)                                                \
  case number:                                                             \
    if constexpr (is_stored_float<S>::value) store((S*)p + at, (C<S>)r.f); \
    else store((S*)p + at, (C<S>)r.i);                                     \
    break;
    PF_STORED_TYPES(PF_WRITE)
#undef PF_WRITE
  }
}
// Rounds x to a dtype.
template <class T>
PF_DEVICE Register rounded(int stored, T x) {
  switch (stored) {
#define PF_ROUND(number, S) \
  case number: return held<S>(as<S>(x));
    PF_STORED_TYPES(PF_ROUND)
#undef PF_ROUND
  }
  return {};
}

}  // namespace pf
