#include "pyflame/backends/cpu/common.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "pyflame/backends/cpu/vec.h"

namespace pyflame::cpu {

namespace {
struct Scratch {
  void* data[kScratchSlots] = {};
  size_t size[kScratchSlots] = {};
  ~Scratch() {
    for (void* p : data) std::free(p);
  }
};
thread_local Scratch t_scratch;
}  // namespace

void* scratch_bytes(int slot, size_t nbytes) {
  Scratch& s = t_scratch;
  if (s.size[slot] < nbytes) {
    std::free(s.data[slot]);
    const size_t want = (nbytes + nbytes / 4 + 4095) / 4096 * 4096;
    s.data[slot] = std::aligned_alloc(64, want);
    s.size[slot] = s.data[slot] ? want : 0;
    PF_CHECK(s.data[slot], OutOfMemory, "scratch: no memory for a kernel's scratch; got {} bytes; expected them free",
             want);
  }
  return s.data[slot];
}

template <class T>
void load_run(const void* src, DType dtype, int64_t n, T* dst) {
  if (dtype == compute_dtype<T>()) {
    std::copy_n(static_cast<const T*>(src), n, dst);
    return;
  }
  if constexpr (std::is_same_v<T, float>) {
    if (dtype == DType::bfloat16) return vec::from_bf16(static_cast<const bfloat16*>(src), dst, n);
    if (dtype == DType::float16) return vec::from_f16(static_cast<const float16*>(src), dst, n);
  }
  dispatch(dtype, [&]<class S>() {
    const S* s = static_cast<const S*>(src);
    for (int64_t i = 0; i < n; ++i) {
      if constexpr (std::is_same_v<S, float16> || std::is_same_v<S, bfloat16>)
        dst[i] = static_cast<T>(static_cast<float>(s[i]));
      else dst[i] = static_cast<T>(s[i]);
    }
  });
}

template <class T>
void store_run(const T* src, void* dst, DType dtype, int64_t n) {
  if (dtype == compute_dtype<T>()) {
    std::copy_n(src, n, static_cast<T*>(dst));
    return;
  }
  if constexpr (std::is_same_v<T, float>) {
    if (dtype == DType::bfloat16) return vec::to_bf16(src, static_cast<bfloat16*>(dst), n);
    if (dtype == DType::float16) return vec::to_f16(src, static_cast<float16*>(dst), n);
  }
  dispatch(dtype, [&]<class S>() {
    S* d = static_cast<S*>(dst);
    for (int64_t i = 0; i < n; ++i) {
      if constexpr (std::is_same_v<S, float16> || std::is_same_v<S, bfloat16>) d[i] = S(static_cast<float>(src[i]));
      else d[i] = static_cast<S>(src[i]);
    }
  });
}

namespace {

// Calls row(offset in the strided operand, linear index) for every innermost row, in parallel.
template <class F>
void for_rows(const Dims& shape, const Dims& strides, const F& row) {
  const int rank = shape.size();
  const int64_t inner = rank ? shape.back() : 1;
  const int64_t total = shape.numel();
  if (total == 0) return;
  const int64_t rows = total / inner;
  parallel_for(rows, std::max<int64_t>(1, kGrainElements / inner), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      int64_t offset = 0, rest = r;
      for (int d = rank - 2; d >= 0; --d) {
        offset += rest % shape[d] * strides[d];
        rest /= shape[d];
      }
      row(offset, r * inner);
    }
  });
}

}  // namespace

template <class T>
void load_strided(const void* src, DType dtype, const Dims& shape, const Dims& strides, T* dst) {
  const int64_t esize = dtype_size(dtype);
  const char* base = static_cast<const char*>(src);
  if (is_contiguous(shape, strides)) {
    parallel_for(shape.numel(), kGrainElements,
                 [&](int64_t b, int64_t e) { load_run(base + b * esize, dtype, e - b, dst + b); });
    return;
  }
  const int64_t inner = shape.back(), step = strides.back();
  for_rows(shape, strides, [&](int64_t offset, int64_t linear) {
    if (step == 1) return load_run(base + offset * esize, dtype, inner, dst + linear);
    if (step == 0) {  // expanded, as the gradient of a sum is
      load_run(base + offset * esize, dtype, 1, dst + linear);
      return std::fill_n(dst + linear, inner, dst[linear]), void();
    }
    for (int64_t i = 0; i < inner; ++i) load_run(base + (offset + i * step) * esize, dtype, 1, dst + linear + i);
  });
}

template <class T>
void store_strided(const T* src, void* dst, DType dtype, const Dims& shape, const Dims& strides) {
  const int64_t esize = dtype_size(dtype);
  char* base = static_cast<char*>(dst);
  if (is_contiguous(shape, strides)) {
    parallel_for(shape.numel(), kGrainElements,
                 [&](int64_t b, int64_t e) { store_run(src + b, base + b * esize, dtype, e - b); });
    return;
  }
  const int64_t inner = shape.back(), step = strides.back();
  for_rows(shape, strides, [&](int64_t offset, int64_t linear) {
    if (step == 1) return store_run(src + linear, base + offset * esize, dtype, inner);
    for (int64_t i = 0; i < inner; ++i) store_run(src + linear + i, base + (offset + i * step) * esize, dtype, 1);
  });
}

template void load_run(const void*, DType, int64_t, float*);
template void load_run(const void*, DType, int64_t, double*);
template void store_run(const float*, void*, DType, int64_t);
template void store_run(const double*, void*, DType, int64_t);
template void load_strided(const void*, DType, const Dims&, const Dims&, float*);
template void load_strided(const void*, DType, const Dims&, const Dims&, double*);
template void store_strided(const float*, void*, DType, const Dims&, const Dims&);
template void store_strided(const double*, void*, DType, const Dims&, const Dims&);

Refusal accept_float(const Problem& p) {
  if (auto r = accept_single(p)) return r;
  bool any = false;
  for (const auto* list : {&p.root().ins, &p.root().outs})
    for (const Operand& o : *list) {
      if (o.is_param) continue;
      if (is_float(o.dtype)) any = true;
      else if (o.dtype != DType::int64 && o.dtype != DType::bool_)
        return "takes floating point data only; got " + std::string(dtype_name(o.dtype));
    }
  if (!any) return "takes floating point data only";
  return {};
}

}  // namespace pyflame::cpu
