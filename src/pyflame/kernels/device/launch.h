// Where a thread is in a launch, and what both vendors' languages call that. This is the first of the device sources,
// and the only place that tests for a compiler.
#pragma once

#if defined(__HIPCC_RTC__) || defined(__HIPCC__) || defined(__CUDACC__)
#define PF_ON_DEVICE 1
#define PF_DEVICE __device__ __forceinline__
#define PF_SHARED __shared__
#define PF_KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads)

namespace pf {
struct Index {
  unsigned x, y, z;
};
PF_DEVICE unsigned thread() { return threadIdx.x; }
PF_DEVICE unsigned threads() { return blockDim.x; }
PF_DEVICE Index group() { return {blockIdx.x, blockIdx.y, blockIdx.z}; }
PF_DEVICE Index groups() { return {gridDim.x, gridDim.y, gridDim.z}; }
// Waits for all threads of the workgroup, and makes their writes to shared memory visible.
PF_DEVICE void barrier() { __syncthreads(); }
// In a replay, a kernel may start before the one in front of it has ended, on devices that can do that
// (GpuReplay::add_kernel): its workgroups are then in place when the other one ends. A kernel with many workgroups calls
// let_later_kernels_start() towards its end: those of the kernel behind would otherwise fill the places that are left, and
// be distributed unevenly.
PF_DEVICE void let_later_kernels_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}
// Every kernel calls this before it reads or writes the device's memory, unless it starts after the one in front (Start::after
// in jit/kernel.h). It waits until all kernels in front have ended.
PF_DEVICE void await_earlier_kernels() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  constexpr unsigned kFewGroups = 64;  // they leave most of a device to the kernel behind
  if (gridDim.x * gridDim.y * gridDim.z <= kFewGroups) let_later_kernels_start();
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// Has memory brought to the second-level cache, where that is possible. It may be called before await_earlier_kernels(),
// also for memory that an earlier kernel writes: nothing is read from it here. 16 bytes or a multiple, aligned to 16.
PF_DEVICE void bring_near(const void* p, unsigned bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(p), "r"(bytes) : "memory");
#endif
}
// Shared memory whose size is an argument of the launch.
template <class T>
PF_DEVICE T* dynamic_shared() {
  extern __shared__ __align__(16) char pf_dynamic_shared[];
  return (T*)pf_dynamic_shared;
}
// Atomic add; returns the previous value. Integers only: the result of a float sum would depend on the order.
PF_DEVICE int atomic_add(int* p, int x) { return atomicAdd(p, x); }
PF_DEVICE unsigned atomic_add(unsigned* p, unsigned x) { return atomicAdd(p, x); }
PF_DEVICE unsigned long long atomic_add(unsigned long long* p, unsigned long long x) { return atomicAdd(p, x); }
PF_DEVICE unsigned atomic_max(unsigned* p, unsigned x) { return atomicMax(p, x); }
PF_DEVICE int atomic_swap_if(int* p, int expected, int x) { return atomicCAS(p, expected, x); }
PF_DEVICE int count_bits(unsigned long long x) { return __popcll(x); }
PF_DEVICE float float_of_bits(unsigned x) { return __uint_as_float(x); }
PF_DEVICE unsigned bits_of_float(float x) { return __float_as_uint(x); }
}  // namespace pf
#elif defined(PF_EMULATED_WAVE)
// The wave emulator of the tests: compiled by the host's compiler, after a header of the emulator that declares
// `emulated`. Each thread of a launch is a fibre, and all fibres run alternately on one thread of the host.
#define PF_ON_DEVICE 1
#define PF_DEVICE inline
#define PF_SHARED static
#define PF_KERNEL(threads) extern "C" void

namespace pf {
struct Index {
  unsigned x, y, z;
};
PF_DEVICE unsigned thread() { return emulated.thread; }
PF_DEVICE unsigned threads() { return emulated.threads; }
PF_DEVICE Index group() { return {emulated.group[0], emulated.group[1], emulated.group[2]}; }
PF_DEVICE Index groups() { return {emulated.groups[0], emulated.groups[1], emulated.groups[2]}; }
PF_DEVICE void barrier(int line = __builtin_LINE()) { emulated_barrier(line); }
PF_DEVICE void let_later_kernels_start() {}
PF_DEVICE void await_earlier_kernels() {}
PF_DEVICE void bring_near(const void*, unsigned) {}
template <class T>
PF_DEVICE T* dynamic_shared() {
  return (T*)emulated.dynamic_shared;
}
template <class T>
PF_DEVICE T emulated_swap(T* p, T x) {
  const T before = *p;
  *p = x;
  return before;
}
PF_DEVICE int atomic_add(int* p, int x) { return emulated_swap(p, (int)((unsigned)*p + (unsigned)x)); }
PF_DEVICE unsigned atomic_add(unsigned* p, unsigned x) { return emulated_swap(p, *p + x); }
PF_DEVICE unsigned long long atomic_add(unsigned long long* p, unsigned long long x) {
  return emulated_swap(p, *p + x);
}
PF_DEVICE unsigned atomic_max(unsigned* p, unsigned x) { return emulated_swap(p, *p > x ? *p : x); }
PF_DEVICE int atomic_swap_if(int* p, int expected, int x) { return emulated_swap(p, *p == expected ? x : *p); }
PF_DEVICE int count_bits(unsigned long long x) { return __builtin_popcountll(x); }
PF_DEVICE float float_of_bits(unsigned x) {
  float y;
  __builtin_memcpy(&y, &x, sizeof y);
  return y;
}
PF_DEVICE unsigned bits_of_float(float x) {
  unsigned y;
  __builtin_memcpy(&y, &x, sizeof y);
  return y;
}
}  // namespace pf
#else
// On the host: code that does not use threads can be tested here.
#include <cmath>
#include <cstdint>
#include <cstring>
#define PF_DEVICE inline

namespace pf {
PF_DEVICE float float_of_bits(unsigned x) {
  float y;
  std::memcpy(&y, &x, sizeof y);
  return y;
}
PF_DEVICE unsigned bits_of_float(float x) {
  unsigned y;
  std::memcpy(&y, &x, sizeof y);
  return y;
}
}  // namespace pf
#endif

namespace pf {
// A number that a function gets in the type of an argument.
template <int kNumber>
struct Count {
  static constexpr int kValue = kNumber;
};
}  // namespace pf
