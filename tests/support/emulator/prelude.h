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
  const char* module;               // its first byte; shared_end is its last
};

extern "C" {
extern EmulatedThread emulated;
// A rendezvous of all threads of the workgroup. The line tells one barrier from another.
void emulated_barrier(int line);
// A rendezvous of all lanes of the wave: each brings `bytes` (at most 64) and gets those of lane `from`; those of the other lanes lie beside
// them, lane after lane. The pointers stay valid until this lane's next call.
const void* emulated_exchange(const void* mine, unsigned bytes, int from, int line);
// A tensor of this launch, of which the kernel gets a copy that lies apart. What is `written` goes back when the launch has ended.
void* emulated_tensor(const char* name, void* data, unsigned long bytes, bool written);
}

// Where a matrix instruction keeps element A[i][k] (B[k][i] lies as A[i][k] does) and D[i][j]. `depth` names the layout by the numbers of A
// that a lane holds: 4 is MFMA's (gfx908, gfx90a, gfx94x, gfx950), 16 WMMA's of gfx11, where lane + 16 holds the same, 8 that of gfx12.
// matrix_layouts.txt is what AMD publishes, and a test compares.
struct EmulatedPlace {
  int lane, item;
};
inline EmulatedPlace emulated_place_a(int depth, int i, int k) {
  if (depth == 4) return {i + 16 * (k / 4), k % 4};
  if (depth == 8) return {i + 16 * (k / 4 % 2), k % 4 + 4 * (k / 8)};
  return {i, k};
}
inline EmulatedPlace emulated_place_d(int depth, int i, int j) {
  if (depth == 4) return {j + 16 * (i / 4), i % 4};
  if (depth == 8) return {j + 16 * (i / 8), i % 8};
  return {j + 16 * (i % 2), i / 2};
}

#ifdef PF_EMULATED_WAVE
// D += A B of one wave: each lane brings its 16-bit numbers of A and B and gets its numbers of D.
template <class ToFloat>
inline void emulated_multiply(float* d, const void* a, const void* b, ToFloat to_float, int line = __builtin_LINE()) {
  constexpr int kDepth = PF_EMULATED_DEPTH, kLaneBytes = 4 * kDepth;
  struct Mine {
    unsigned short a[kDepth], b[kDepth];
  } mine;
  __builtin_memcpy(mine.a, a, kLaneBytes / 2);
  __builtin_memcpy(mine.b, b, kLaneBytes / 2);
  const Mine* all = (const Mine*)emulated_exchange(&mine, sizeof mine, 0, line);
  const int lane = (int)emulated.thread % PF_EMULATED_WAVE;
#ifdef PF_EMULATED_FLUSH  // the instructions of gfx90a take subnormal numbers for 0
  const unsigned exponent = to_float(0x3c00) == 1 ? 0x7c00 : 0x7f80;  // of float16 and of bfloat16
  const auto operand = [&](unsigned short bits) { return (bits & exponent) != 0 ? to_float(bits) : 0; };
#else
  const auto& operand = to_float;
#endif
  for (int i = 0; i < 16; ++i) {
    const int j = lane % 16;
    const EmulatedPlace at = emulated_place_d(kDepth, i, j);
    if (at.lane != lane) continue;
    for (int k = 0; k < 16; ++k) {
      EmulatedPlace x = emulated_place_a(kDepth, i, k), y = emulated_place_a(kDepth, j, k);
      // gfx11 wants the same in both halves of the wave: whoever gave it to one half only is found out.
      if (kDepth == 16 && k >= 8) x.lane += 16, y.lane += 16;
      d[at.item] = __builtin_fmaf(operand(all[x.lane].a[x.item]), operand(all[y.lane].b[y.item]), d[at.item]);
    }
  }
}

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
PF_C_MATH_1(log10)
PF_C_MATH_1(log1p)
PF_C_MATH_1(sin)
PF_C_MATH_1(cos)
PF_C_MATH_1(tan)
PF_C_MATH_1(asin)
PF_C_MATH_1(acos)
PF_C_MATH_1(atan)
PF_C_MATH_1(sinh)
PF_C_MATH_1(cosh)
PF_C_MATH_1(tanh)
PF_C_MATH_1(asinh)
PF_C_MATH_1(acosh)
PF_C_MATH_1(atanh)
PF_C_MATH_1(erf)
PF_C_MATH_1(erfc)
PF_C_MATH_1(sqrt)
PF_C_MATH_1(floor)
PF_C_MATH_1(ceil)
PF_C_MATH_1(rint)
PF_C_MATH_1(trunc)
PF_C_MATH_1(fabs)
PF_C_MATH_2(atan2)
PF_C_MATH_2(pow)
PF_C_MATH_2(fmod)
PF_C_MATH_2(copysign)
PF_C_MATH_2(nextafter)
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
extern const char __ehdr_start __attribute__((visibility("hidden")));
}
// What PyFlame writes at the begin of kernels that say which tensors they access.
#define PF_TENSOR(name, size) name = emulated_own(#name, name, size);
template <class T>
inline T* emulated_own(const char* name, T* data, long size) {
  return (T*)emulated_tensor(name, data, size * sizeof(T), true);
}
template <class T>
inline const T* emulated_own(const char* name, const T* data, long size) {
  return (const T*)emulated_tensor(name, (void*)data, size * sizeof(T), false);
}
inline double sinpi(double x) { return sin(3.141592653589793 * x); }
inline double cospi(double x) { return cos(3.141592653589793 * x); }
inline float sinpif(float x) { return (float)sinpi(x); }
inline float cospif(float x) { return (float)cospi(x); }
inline void sincospif(float x, float* sine, float* cosine) { *sine = sinpif(x), *cosine = cospif(x); }

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
                                                 &_end,                              \
                                                 &__ehdr_start};
#endif
