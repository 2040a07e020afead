// Kernels with the habits that the analysis of machine code is to find, or not to find. tests/inspect/test_isa.py compiles them where a
// ROCm compiler is; the code objects in data/isa were made of this file by data/isa/make.sh.
#include <hip/hip_runtime.h>

typedef _Float16 half8 __attribute__((ext_vector_type(8)));
typedef _Float16 half4 __attribute__((ext_vector_type(4)));
typedef _Float16 half16 __attribute__((ext_vector_type(16)));
typedef float float8 __attribute__((ext_vector_type(8)));

// 16 bytes a lane, two at a time: nothing to say about widths.
extern "C" __global__ void vector_copy(float4* __restrict__ to, const float4* __restrict__ from, int n) {
  const int step = gridDim.x * blockDim.x;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) to[i] = from[i];
}

// Four neighbouring floats, which the compiler is kept from joining.
extern "C" __global__ void scalar_copy(float* __restrict__ to, const float* __restrict__ from, int n) {
  const int step = gridDim.x * blockDim.x;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
    float x[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      x[k] = from[4 * i + k];
      asm volatile("" ::: "memory");
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      to[4 * i + k] = x[k];
      asm volatile("" ::: "memory");
    }
  }
}

// A tile through LDS, one float at a time.
extern "C" __global__ __launch_bounds__(256) void lds_transpose(float* __restrict__ to, const float* __restrict__ from, int n) {
  __shared__ float tile[16][17];
  const int x = threadIdx.x % 16, y = threadIdx.x / 16;
  for (int t = blockIdx.x; t < n; t += gridDim.x) {
    tile[y][x] = from[t * 256 + threadIdx.x];
    __syncthreads();
    to[t * 256 + threadIdx.x] = tile[x][y];
    __syncthreads();
  }
}

// A matrix product in LDS on the matrix units.
extern "C" __global__ __launch_bounds__(64) void matrix_gemm(float* __restrict__ c, const _Float16* __restrict__ a,
                                                             const _Float16* __restrict__ b, int k) {
#if defined(__gfx90a__) || defined(__gfx942__) || defined(__gfx950__)
  typedef float float4v __attribute__((ext_vector_type(4)));
  float4v sum[4] = {};
  const half4* pa = (const half4*)a + threadIdx.x;
  const half4* pb = (const half4*)b + threadIdx.x;
  for (int i = 0; i < k; i += 16) {
    for (int t = 0; t < 4; ++t) sum[t] = __builtin_amdgcn_mfma_f32_16x16x16f16(pa[t * 64], pb[t * 64], sum[t], 0, 0, 0);
    pa += 256;
    pb += 256;
  }
  for (int t = 0; t < 4; ++t)
    for (int r = 0; r < 4; ++r) c[(t * 4 + r) * 64 + threadIdx.x] = sum[t][r];
#elif defined(__gfx1100__)
  float8 sum = {};
  const half16* pa = (const half16*)a + threadIdx.x;
  const half16* pb = (const half16*)b + threadIdx.x;
  for (int i = 0; i < k; i += 16) {
    sum = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(*pa, *pb, sum);
    pa += 32;
    pb += 32;
  }
  for (int r = 0; r < 8; ++r) c[r * 32 + threadIdx.x] = sum[r];
#elif defined(__gfx1201__)
  float8 sum = {};
  const half8* pa = (const half8*)a + threadIdx.x;
  const half8* pb = (const half8*)b + threadIdx.x;
  for (int i = 0; i < k; i += 16) {
    sum = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(*pa, *pb, sum);
    pa += 32;
    pb += 32;
  }
  for (int r = 0; r < 8; ++r) c[r * 32 + threadIdx.x] = sum[r];
#endif
}

// The same by multiply-adds of vectors of two halves, summed in 16 registers.
typedef _Float16 half2v __attribute__((ext_vector_type(2)));
extern "C" __global__ __launch_bounds__(64) void vector_gemm(half2v* __restrict__ c, const half2v* __restrict__ a,
                                                             const half2v* __restrict__ b, int k) {
  __shared__ half2v ta[256], tb[256];
  half2v sum[16] = {};
  for (int i = 0; i < k; i += 8) {
    for (int j = 0; j < 4; ++j) {
      ta[j * 64 + threadIdx.x] = a[i * 64 + j * 64 + threadIdx.x];
      tb[j * 64 + threadIdx.x] = b[i * 64 + j * 64 + threadIdx.x];
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      half2v x[4], y[4];
      for (int r = 0; r < 4; ++r) x[r] = ta[(j * 32 + threadIdx.x % 8 * 4 + r) % 256];
      for (int r = 0; r < 4; ++r) y[r] = tb[(j * 32 + threadIdx.x / 8 * 4 + r) % 256];
      for (int r = 0; r < 16; ++r) sum[r] = __builtin_elementwise_fma(x[r / 4], y[r % 4], sum[r]);
    }
    __syncthreads();
  }
  for (int r = 0; r < 16; ++r) c[r * 64 + threadIdx.x] = sum[r];
}

// 16 registers for what needs forty, in a loop.
extern "C" __global__ __launch_bounds__(1024) __attribute__((amdgpu_num_vgpr(16))) void spilling(float* __restrict__ to,
                                                                                            const float* __restrict__ from, int n) {
  float v[32];
  for (int i = 0; i < 32; ++i) v[i] = from[i * 1024 + threadIdx.x];
  for (int k = 0; k < n; ++k) {
#pragma unroll
    for (int i = 0; i < 32; ++i) v[i] = v[i] * v[(i + 7) % 32] + v[(i + 13) % 32];
    __syncthreads();
  }
  for (int i = 0; i < 32; ++i) to[i * 1024 + threadIdx.x] = v[i];
}

// A transposition, arithmetic, and a second change of layout.
extern "C" __global__ __launch_bounds__(256) void double_conversion(float* __restrict__ to, const float* __restrict__ from, int n) {
  __shared__ float tile[256], again[256];
  const int t = threadIdx.x;
  for (int k = 0; k < n; ++k) {
    tile[t] = from[k * 256 + t];
    __syncthreads();
    const float x = tile[(t % 16) * 16 + t / 16];
    again[(t * 5 + 3) % 256] = x * 3.0f + 1.0f;
    __syncthreads();
    to[k * 256 + t] = again[t];
  }
}

// Far more code than an instruction cache has room for, so that it is left out of the code objects that are kept.
#ifdef BIG
extern "C" __global__ __launch_bounds__(64) void big_unroll(float* __restrict__ to, const float* __restrict__ from, int n) {
  float s = 0;
  for (int k = 0; k < n; ++k) {
    const float x = from[k * 64 + threadIdx.x];
#pragma unroll
    for (int i = 0; i < 12000; ++i) s = __builtin_fmaf(s, x, (float)i * 0.37f);
  }
  to[threadIdx.x] = s;
}
#endif

extern "C" __global__ void atomics(int* __restrict__ counts, const int* __restrict__ keys, int n) {
  for (int i = threadIdx.x; i < n; i += 256) atomicAdd(&counts[keys[i]], 1);
}

// A sum of floats by compare and swap, as it is often written by hand.
extern "C" __global__ void cas_sum(unsigned* __restrict__ to, const float* __restrict__ from, int n) {
  for (int i = threadIdx.x; i < n; i += 256) {
    unsigned seen = *(volatile unsigned*)to, was;
    do {
      was = seen;
      seen = atomicCAS(to, was, __float_as_uint(__uint_as_float(was) + from[i]));
    } while (seen != was);
  }
}

// A double literal in single-precision code, a division and a remainder.
extern "C" __global__ void slow_arithmetic(float* __restrict__ to, const float* __restrict__ from,
                                           const unsigned* __restrict__ m, int n) {
  for (int i = threadIdx.x; i < n; i += 256) to[i % m[i]] = from[i] * 1.1 + from[i + 1] / from[i + 2];
}

// A pointer to memory or to LDS, which is only known when it runs.
extern "C" __global__ void flat_pointer(float* __restrict__ to, float* from, int n) {
  __shared__ float own[256];
  own[threadIdx.x] = to[threadIdx.x];
  __syncthreads();
  float* p = n & 1 ? own : from;
  float s = 0;
  for (int i = 0; i < n; ++i) s += p[i * 3 % 256];
  to[threadIdx.x] = s;
}
