// What the wave emulator puts in front of a kernel's text, as a vendor's run-time compiler does with its built-in names: the thread's
// position, barriers, lane exchange, the C library's mathematics, and the entry by which the emulator calls the kernel. The emulator
// includes it too, so both sides read one declaration. No other header: including <math.h> would double the time of a compilation.
#pragma once

// The running thread's position; the emulator sets it before it lets a thread go on.
struct EmulatedThread {
  unsigned thread, threads, group[3], groups[3];
  void* dynamic_shared;
};

// Calls a kernel with parameters by address, and what the emulator must know to copy and check them.
struct EmulatedParameter {
  unsigned bytes;
  bool pointer;
};
struct EmulatedEntry {
  void (*call)(void** parameters);
  const EmulatedParameter* parameters;
  unsigned count, most_threads, wave;
  char *shared_begin, *shared_end;  // the kernel's static shared memory: its module has no other variable
};

extern "C" {
extern EmulatedThread emulated;
// A rendezvous of all threads of the workgroup. The line tells one barrier from another.
void emulated_barrier(int line);
// A rendezvous of all lanes of the wave: each brings `bytes` (at most 64) and gets those of lane `from`; those of the other lanes lie beside
// them, lane after lane. What is pointed to stays until this lane's next call.
const void* emulated_exchange(const void* mine, unsigned bytes, int from, int line);
}

#ifdef PF_EMULATED_WAVE
extern "C" {
#define PF_C_MATH_1(name)       \
  double name(double) noexcept; \
  float name##f(float) noexcept;
#define PF_C_MATH_2(name)               \
  double name(double, double) noexcept; \
  float name##f(float, float) noexcept;
PF_C_MATH_1(exp)
PF_C_MATH_1(exp2)
PF_C_MATH_1(expm1)
PF_C_MATH_1(log)
PF_C_MATH_1(log2)
PF_C_MATH_1(log1p)
PF_C_MATH_1(sin)
PF_C_MATH_1(cos)
PF_C_MATH_1(tanh)
PF_C_MATH_1(erf)
PF_C_MATH_1(erfc)
PF_C_MATH_1(sqrt)
PF_C_MATH_1(floor)
PF_C_MATH_1(ceil)
PF_C_MATH_1(rint)
PF_C_MATH_1(trunc)
PF_C_MATH_1(fabs)
PF_C_MATH_2(pow)
PF_C_MATH_2(fmod)
PF_C_MATH_2(copysign)
PF_C_MATH_2(fmax)
PF_C_MATH_2(fmin)
double fma(double, double, double) noexcept;
float fmaf(float, float, float) noexcept;
double ldexp(double, int) noexcept;
float ldexpf(float, int) noexcept;
#undef PF_C_MATH_1
#undef PF_C_MATH_2

// The linker's names for the beginning and the end of the module's variables.
extern char __bss_start __attribute__((visibility("hidden"))), _end __attribute__((visibility("hidden")));
}
inline double sinpi(double x) { return sin(3.141592653589793 * x); }
inline double cospi(double x) { return cos(3.141592653589793 * x); }
inline float sinpif(float x) { return (float)sinpi(x); }
inline float cospif(float x) { return (float)cospi(x); }

template <class T>
struct EmulatedIsPointer {
  static constexpr bool value = false;
};
template <class T>
struct EmulatedIsPointer<T*> {
  static constexpr bool value = true;
};
template <int...>
struct EmulatedIndices {};
template <int kCount, int... kIndices>
struct EmulatedCount : EmulatedCount<kCount - 1, kCount - 1, kIndices...> {};
template <int... kIndices>
struct EmulatedCount<0, kIndices...> {
  using type = EmulatedIndices<kIndices...>;
};

template <auto kKernel>
struct EmulatedKernel;
template <class... Args, void (*kKernel)(Args...)>
struct EmulatedKernel<kKernel> {
  template <int... kIndices>
  static void call(void** p, EmulatedIndices<kIndices...>) {
    kKernel(*(Args*)p[kIndices]...);
  }
  static void call(void** p) { call(p, typename EmulatedCount<sizeof...(Args)>::type()); }
  static constexpr EmulatedParameter parameters[] = {{sizeof(Args), EmulatedIsPointer<Args>::value}..., {0, false}};
  static constexpr unsigned count = sizeof...(Args);
};

// The emulator's compiler adds one of these at the end for each PF_KERNEL that it finds.
#define PF_EMULATED_ENTRY(kernel, threads)                                           \
  extern "C" __attribute__((visibility("default")))                                  \
  const EmulatedEntry emulated_entry_##kernel = {EmulatedKernel<kernel>::call,       \
                                                 EmulatedKernel<kernel>::parameters, \
                                                 EmulatedKernel<kernel>::count,      \
                                                 threads,                            \
                                                 PF_EMULATED_WAVE,                   \
                                                 &__bss_start,                       \
                                                 &_end};
#endif
