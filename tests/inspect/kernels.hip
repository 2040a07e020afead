// The kernels of tests/inspect/data/co, made by tools/make_inspect_data.sh. They need no header, so that a plain clang compiles them: each
// shows one figure that inspect reports.
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))

// What clang's host side of a kernel calls.
struct dim3 {
  unsigned x, y, z;
};
extern "C" int hipLaunchKernel(const void* f, dim3 grid, dim3 block, void** args, __SIZE_TYPE__ shared, void* stream);
extern "C" int __hipPushCallConfiguration(dim3 grid, dim3 block, __SIZE_TYPE__ shared, void* stream);
extern "C" int __hipPopCallConfiguration(dim3* grid, dim3* block, __SIZE_TYPE__* shared, void** stream);

namespace sample {

// A template: its name is mangled.
template <class T>
__global__ void scale(T* x, T factor, int n) {
  const int i = __builtin_amdgcn_workgroup_id_x() * 256 + __builtin_amdgcn_workitem_id_x();
  if (i < n) x[i] *= factor;
}
template __global__ void scale<float>(float*, float, int);

}  // namespace sample

// 4 KiB of LDS and a loop.
extern "C" __global__ __attribute__((amdgpu_flat_work_group_size(1, 256))) void tile_sum(const float* x, float* y,
                                                                                         int n) {
  __shared__ float tile[1024];
  const int lane = __builtin_amdgcn_workitem_id_x();
  float sum = 0;
  for (int i = 0; i < n; i += 1024) {
    for (int k = 0; k < 4; ++k) tile[lane + 256 * k] = x[i + lane + 256 * k];
    __builtin_amdgcn_s_barrier();
    for (int k = 0; k < 4; ++k) sum += tile[(lane * 4 + k) & 1023];
    __builtin_amdgcn_s_barrier();
  }
  y[lane] = sum;
}

// An array with a variable index: scratch memory.
extern "C" __global__ void indexed(const int* x, int* y) {
  int table[200];
  const int lane = __builtin_amdgcn_workitem_id_x();
#pragma unroll 1
  for (int i = 0; i < 200; ++i) table[x[i] % 200u] = i + lane;
  y[lane] = table[x[lane] % 200u];
}

// More live values than registers: spills.
extern "C" __global__ __attribute__((amdgpu_num_vgpr(24))) void spilling(const float* x, float* y) {
  const int lane = __builtin_amdgcn_workitem_id_x();
  float v[32];
#pragma unroll
  for (int i = 0; i < 32; ++i) v[i] = x[lane * 32 + i];
  __builtin_amdgcn_s_barrier();
  asm volatile("" ::: "memory");
#pragma unroll
  for (int i = 0; i < 32; ++i) y[lane * 32 + i] = v[i] * v[31 - i] + v[(i * 7) & 31];
}

// Accumulation registers, where there are any.
extern "C" __global__ void accumulators(float* x) {
#if defined(__gfx90a__) || defined(__gfx942__) || defined(__gfx950__)
  float r;
  asm volatile("v_accvgpr_write_b32 a31, %1\n v_accvgpr_read_b32 %0, a31" : "=v"(r) : "v"(x[0]) : "a31");
  x[1] = r;
#else
  x[1] = x[0];
#endif
}
