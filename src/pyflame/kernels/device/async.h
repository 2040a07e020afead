// Copies from global to shared memory that run while the thread continues, on architectures that have such
// instructions. Elsewhere a copy is complete when the call returns, and waiting does nothing.
#pragma once

namespace pf {

#ifdef PF_ON_DEVICE

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
constexpr bool kHasAsyncCopy = true;
#else
constexpr bool kHasAsyncCopy = false;
#endif

// Copies 16 bytes; both addresses are aligned to 16 bytes. If `there` is false, zeros are written and the source is not
// read.
template <class T>
PF_DEVICE void async_copy(T* to_shared, const T* from, bool there) {
  if constexpr (kHasAsyncCopy) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    const u32 at = (u32)__cvta_generic_to_shared(to_shared);
    const int bytes = there ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(bytes) : "memory");
#endif
  } else {
    constexpr int kCount = 16 / sizeof(T);
    Vec<T, kCount> x = {};
    if (there) x = load_vec<kCount>(from);
    store_vec(to_shared, x);
  }
}
// Ends a batch of copies.
PF_DEVICE void async_commit() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
// Waits until at most kLeft batches of this thread are unfinished. A barrier afterwards makes the copies of other
// threads visible.
template <int kLeft>
PF_DEVICE void async_wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
#endif
}

#endif

}  // namespace pf
