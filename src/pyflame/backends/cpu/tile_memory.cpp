// How values are loaded into tiles and stored: splatting, strided copies, 16-bit floats. Also arange.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "pyflame/backends/cpu/tile_kernels.h"
#include "pyflame/backends/cpu/vec.h"

namespace pyflame::cpu::tile {

float round_to_odd(double v) {
  const auto f = static_cast<float>(v);
  if (static_cast<double>(f) == v || v != v) return f;
  if (std::isinf(f)) return std::copysign(std::numeric_limits<float>::max(), f);  // already odd
  const auto bits = std::bit_cast<uint32_t>(f);
  if (bits & 1u) return f;
  return std::bit_cast<float>(std::fabs(v) > std::fabs(static_cast<double>(f)) ? bits + 1 : bits - 1);
}

double round_param(double v, DType dtype) {
  switch (dtype) {
    case DType::float32: return static_cast<double>(static_cast<float>(v));
    case DType::float16: return static_cast<double>(static_cast<float>(float16(round_to_odd(v))));
    case DType::bfloat16: return static_cast<double>(static_cast<float>(bfloat16(round_to_odd(v))));
    default: return v;
  }
}

double Args::f64(int i) const { return round_param(params[param[i]].as_f64(), param_type[i]); }

void fill(Reg r, void* dst, const Param& value, DType dtype, int64_t n) {
  const auto put = [&]<class T>(T v) { std::fill_n(static_cast<T*>(dst), n, v); };
  if (dtype == DType::bool_)
    return put(static_cast<uint8_t>(value.kind == Category::Float ? value.f != 0 : value.i != 0));
  switch (r) {
    case Reg::f64: return put(value.as_f64());
    case Reg::f32: {
      const double v = value.kind == Category::Float ? value.f : static_cast<double>(value.i);
      return put(static_cast<float>(round_param(v, dtype)));
    }
    case Reg::i64: return put(value.as_i64());
    case Reg::i32: return put(static_cast<int32_t>(value.as_i64()));
    case Reg::i16: return put(static_cast<int16_t>(value.as_i64()));
    case Reg::i8: return put(static_cast<int8_t>(value.as_i64()));
    case Reg::u8: return put(static_cast<uint8_t>(value.as_i64()));
  }
}

void load_convert(DType half, const void* src, float* dst, int64_t n) {
  if (half == DType::float16) vec::from_f16(static_cast<const float16*>(src), dst, n);
  else vec::from_bf16(static_cast<const bfloat16*>(src), dst, n);
}

void store_convert(DType half, const float* src, void* dst, int64_t n) {
  if (half == DType::float16) vec::to_f16(src, static_cast<float16*>(dst), n);
  else vec::to_bf16(src, static_cast<bfloat16*>(dst), n);
}

namespace {

template <class T>
void copy_elements(void* dst, int64_t dst_stride, const void* src, int64_t src_stride, int64_t n) {
  const char* s = static_cast<const char*>(src);
  char* d = static_cast<char*>(dst);
  if (src_stride == 0 && dst_stride == sizeof(T)) {
    T v;
    std::memcpy(&v, s, sizeof(T));
    std::fill_n(static_cast<T*>(dst), n, v);
    return;
  }
  for (int64_t i = 0; i < n; ++i) std::memcpy(d + i * dst_stride, s + i * src_stride, sizeof(T));
}

template <DType kHalf>
void round_to_half_loop(const Args& a) {
  constexpr int64_t kPart = 256;
  uint16_t bits[kPart];
  const float* x = static_cast<const float*>(a.src[0]);
  float* out = static_cast<float*>(a.dst);
  for (int64_t i = 0; i < a.n; i += kPart) {
    const int64_t n = std::min(kPart, a.n - i);
    store_convert(kHalf, x + i, bits, n);
    load_convert(kHalf, bits, out + i, n);
  }
}

// Floats are computed in double, so that long ranges stay as exact as the type allows.
template <DType kOut>
void arange_float(const Args& a) {
  const double start = a.f64(0), step = a.f64(1);
  for (int64_t i = 0; i < a.n; ++i) {
    const double v = start + static_cast<double>(a.index + i) * step;
    if constexpr (kOut == DType::float64) static_cast<double*>(a.dst)[i] = v;
    else if constexpr (kOut == DType::float32) static_cast<float*>(a.dst)[i] = static_cast<float>(v);
    else static_cast<float*>(a.dst)[i] = static_cast<float>(round_param(v, kOut));
  }
}
template <class T>
void arange_int(const Args& a) {
  const auto start = static_cast<uint64_t>(a.i64(0)), step = static_cast<uint64_t>(a.i64(1));
  T* out = static_cast<T*>(a.dst);
  for (int64_t i = 0; i < a.n; ++i) out[i] = static_cast<T>(start + static_cast<uint64_t>(a.index + i) * step);
}

}  // namespace

void copy_strided(void* dst, int64_t dst_stride, const void* src, int64_t src_stride, int size, int64_t n) {
  if (dst_stride == size && src_stride == size) {
    std::memcpy(dst, src, n * size);
    return;
  }
  switch (size) {
    case 1: return copy_elements<uint8_t>(dst, dst_stride, src, src_stride, n);
    case 2: return copy_elements<uint16_t>(dst, dst_stride, src, src_stride, n);
    case 4: return copy_elements<uint32_t>(dst, dst_stride, src, src_stride, n);
    default: return copy_elements<uint64_t>(dst, dst_stride, src, src_stride, n);
  }
}

Fn find_round(DType half) {
  return half == DType::float16 ? round_to_half_loop<DType::float16> : round_to_half_loop<DType::bfloat16>;
}

Fn find_source(OpId op, DType out) {
  if (op != OpId::arange) return find_random(op, out);
  switch (out) {
    case DType::float64: return arange_float<DType::float64>;
    case DType::float32: return arange_float<DType::float32>;
    case DType::float16: return arange_float<DType::float16>;
    case DType::bfloat16: return arange_float<DType::bfloat16>;
    case DType::int64: return arange_int<int64_t>;
    case DType::int32: return arange_int<int32_t>;
    case DType::int16: return arange_int<int16_t>;
    case DType::int8: return arange_int<int8_t>;
    case DType::uint8: return arange_int<uint8_t>;
    default: return nullptr;
  }
  return nullptr;
}

}  // namespace pyflame::cpu::tile
