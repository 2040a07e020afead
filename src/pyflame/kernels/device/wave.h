// Operations among the lanes of a wave. The width of a wave is a constant of the target, 32 or 64. No result depends on
// it: reductions always combine elements by the distances kThreads / 2, kThreads / 4, ... 1, whether a step goes
// through shared memory or between lanes.
#pragma once

namespace pf {

#ifdef PF_ON_DEVICE

#if defined(__HIPCC_RTC__) || defined(__HIPCC__)
#if defined(__GFX8__) || defined(__GFX9__)
constexpr int kWave = 64;
#else
constexpr int kWave = 32;
#endif
PF_DEVICE int lane() { return (int)__lane_id(); }
PF_DEVICE u32 word_of_lane(u32 x, int from) { return (u32)__builtin_amdgcn_ds_bpermute(from * 4, (int)x); }
// One bit for each lane of the wave.
PF_DEVICE u64 ballot(bool x) { return __ballot(x); }
#elif defined(PF_EMULATED_WAVE)
constexpr int kWave = PF_EMULATED_WAVE;
PF_DEVICE int lane() { return (int)(thread() % kWave); }
PF_DEVICE u32 word_of_lane(u32 x, int from) {
  return *(const u32*)emulated_exchange(&x, sizeof x, from, __builtin_LINE());
}
PF_DEVICE u64 ballot(bool x) {
  const bool* all = (const bool*)emulated_exchange(&x, sizeof x, 0, __builtin_LINE());
  u64 bits = 0;
  for (int i = 0; i < kWave && i < (int)(threads() - thread() / kWave * kWave); ++i) bits |= (u64)all[i] << i;
  return bits;
}
#else
constexpr int kWave = 32;
PF_DEVICE int lane() { return (int)(threadIdx.x % kWave); }
PF_DEVICE u32 word_of_lane(u32 x, int from) { return __shfl_sync(0xffffffffu, x, from); }
PF_DEVICE u64 ballot(bool x) { return __ballot_sync(0xffffffffu, x); }
#endif

// Waits for all lanes of the wave, and makes their writes to shared memory visible to each other.
PF_DEVICE void wave_barrier() {
#if defined(PF_EMULATED_WAVE)
  const char none = 0;
  emulated_exchange(&none, sizeof none, 0, __builtin_LINE());
#elif defined(__HIPCC_RTC__) || defined(__HIPCC__)
  __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront");
  __builtin_amdgcn_wave_barrier();
#else
  __syncwarp();
#endif
}

// A scheduling barrier: the compiler moves no instruction across it. Without it, compilers start all iterations of an
// unrolled loop at once and run out of registers.
PF_DEVICE void schedule_barrier() {
#if !defined(PF_EMULATED_WAVE) && (defined(__HIPCC_RTC__) || defined(__HIPCC__))
  __builtin_amdgcn_sched_barrier(0);
#endif
}

// Returns x, but hides from the compiler that the value is the same as before. Values that are computed from the result
// are therefore recomputed here, instead of being kept in registers through an earlier loop.
PF_DEVICE int opaque(int x) {
#if !defined(PF_EMULATED_WAVE) && (defined(__HIPCC_RTC__) || defined(__HIPCC__))
  asm volatile("" : "+v"(x));
#endif
  return x;
}

PF_DEVICE int wave() { return (int)thread() / kWave; }

// The x of another lane. All lanes of the wave must call this, and `from` must be one of them.
template <class T>
PF_DEVICE T from_lane(T x, int from) {
  constexpr int kWords = sizeof(T) > 4 ? sizeof(T) / 4 : 1;
  union Words {
    PF_DEVICE Words() {}
    u32 w[kWords];
    T x;
  } words;
  words.w[0] = 0;
  words.x = x;
  // The array is accessed by the union's name: through a reference to one word, clang assumes that x is unchanged.
  for (int i = 0; i < kWords; ++i) words.w[i] = word_of_lane(words.w[i], from);
  return words.x;
}
template <class T>
PF_DEVICE T xor_lane(T x, int mask) {
  return from_lane(x, lane() ^ mask);
}

struct Sum {
  template <class T>
  static PF_DEVICE T of(T a, T b) {
    return a + b;
  }
};
struct Largest {
  template <class T>
  static PF_DEVICE T of(T a, T b) {
    return maximum<T>(a, b);
  }
};

// Combines the x of kLanes adjacent lanes (a power of two, at most kWave); each of them gets the result.
template <class Op, int kLanes, class T>
PF_DEVICE T over_lanes(T x) {
  static_assert(kLanes <= kWave);
  for (int step = kLanes / 2; step > 0; step >>= 1) {
    const T other = xor_lane(x, step);
    // Every lane uses the same order of operands, so all get the same bits.
    x = lane() & step ? Op::of(other, x) : Op::of(x, other);
  }
  return x;
}

// Combines the x of all kThreads threads of the workgroup; each of them gets the result. `shared` has kThreads elements
// (it is not used if the workgroup is one wave) and may be reused after the call.
template <class Op, int kThreads, class T>
PF_DEVICE T over_group(T x, T* shared) {
  if constexpr (kThreads > kWave) {
    shared[thread()] = x;
    barrier();
    for (int step = kThreads / 2; step >= kWave; step >>= 1) {
      if ((int)thread() < step) shared[thread()] = Op::of(shared[thread()], shared[thread() + step]);
      barrier();
    }
    x = shared[lane()];
    barrier();
  }
  return over_lanes<Op, (kThreads < kWave ? kThreads : kWave)>(x);
}
#endif

}  // namespace pf
