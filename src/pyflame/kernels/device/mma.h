// Matrix tiles: a wave computes D[16x16] += A[16x16] * B[16x16] of 16-bit numbers in float32, with the instructions of
// the architecture (MFMA, WMMA, mma.sync) or with plain multiply-adds. Kernels find the positions of a lane's elements
// only through row() and col().
//
// On AMD the instruction computes the transposed product, D^T = B^T * A^T. The results of a lane are then adjacent in
// one row of D, in the positions that an A operand needs. So as_a() makes the next product's operand from a result
// without leaving the lane, which attention depends on.
#pragma once

namespace pf {

#ifdef PF_ON_DEVICE

// --- what the target provides
#if defined(PF_EMULATED_WAVE)
#if PF_EMULATED_DEPTH > 0
constexpr int kLineDepth = PF_EMULATED_DEPTH;
#define PF_MATRIX_LINES 1
#endif
#elif defined(__HIPCC_RTC__) || defined(__HIPCC__)
#if defined(__gfx908__) || defined(__gfx90a__) || defined(__gfx940__) || defined(__gfx941__) || defined(__gfx942__) || \
    defined(__gfx950__) || defined(__gfx9_4_generic__)
constexpr int kLineDepth = 4;
#define PF_MATRIX_LINES 1
#elif defined(__GFX11__)
constexpr int kLineDepth = 16;
#define PF_MATRIX_LINES 1
#elif defined(__GFX12__) && !defined(__gfx1250__) && !defined(__gfx1251__)
constexpr int kLineDepth = 8;
#define PF_MATRIX_LINES 1
#endif
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define PF_MATRIX_SYNC 1
#endif

// The least depth of a step of a product with tiles of 128 x 128. A step of 64 halves the barriers where the shared
// memory of a compute unit holds the tiles of several workgroups.
#if defined(PF_MATRIX_SYNC)
PF_DEVICE constexpr int least_step() { return 64; }
#else
PF_DEVICE constexpr int least_step() { return 32; }
#endif

// --- two adjacent 16-bit values in a word, the first one in the low half
template <class T>
PF_DEVICE u32 pair(T low, T high) {
  return low.v | (u32)high.v << 16;
}
template <class T>
PF_DEVICE u32 pack(float low, float high) {
  T a, b;
  store(&a, low);
  store(&b, high);
  return pair(a, b);
}
#if defined(PF_MATRIX_SYNC)
template <>
PF_DEVICE u32 pack<f16>(float low, float high) {
  u32 w;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(w) : "f"(high), "f"(low));
  return w;
}
template <>
PF_DEVICE u32 pack<bf16>(float low, float high) {
  u32 w;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(w) : "f"(high), "f"(low));
  return w;
}
#endif
// 2 to the power x by the hardware's instruction: exact to about 2 ulp; very small results may become 0.
PF_DEVICE float fast_exp2(float x) {
#if defined(PF_EMULATED_WAVE)
  return exp2f(x);
#elif defined(__HIPCC_RTC__) || defined(__HIPCC__)
  return __builtin_amdgcn_exp2f(x);
#else
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#endif
}

// A scheduling barrier for waves of 32 only: there, each lane holds twice as much of a tile.
PF_DEVICE void schedule_barrier_if_narrow() {
  if (kWave == 32) schedule_barrier();
}

#if defined(PF_MATRIX_LINES)
// --- AMD's register layouts. X is 16 x 16 with one row per lane: lane l holds X[l % 16][k] for kLineDepth consecutive
// k (on gfx11: all k, in both halves of the wave). Y is the same with columns. Element i of the result in lane l has
// column l % 16 and row 4 (l / 16) + i (MFMA), 2 i + l / 16 (gfx11) or 8 (l / 16) + i (gfx12).
constexpr int kLineWords = kLineDepth / 2, kLineResults = 256 / kWave;
struct Line {
  u32 w[kLineWords];
};
#if defined(PF_EMULATED_WAVE)
template <class T>
PF_DEVICE void multiply_lines(float* c, const Line& x, const Line& y) {
  emulated_multiply(c, x.w, y.w, [](u16 bits) {
    const T number = {bits};
    return load(&number);
  });
}
#else
template <class T>
struct LineInstruction;
typedef float LineResult __attribute__((ext_vector_type(kLineResults)));
typedef _Float16 LineHalves __attribute__((ext_vector_type(kLineDepth)));
typedef short LineBits __attribute__((ext_vector_type(kLineDepth)));
template <>
struct LineInstruction<f16> {
  static PF_DEVICE LineResult of(Line x, Line y, LineResult c) {
    const LineHalves a = __builtin_bit_cast(LineHalves, x), b = __builtin_bit_cast(LineHalves, y);
#if defined(__GFX11__)
    return __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(a, b, c);
#elif defined(__GFX12__)
    return __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(a, b, c);
#else
    return __builtin_amdgcn_mfma_f32_16x16x16f16(a, b, c, 0, 0, 0);
#endif
  }
};
template <>
struct LineInstruction<bf16> {
  static PF_DEVICE LineResult of(Line x, Line y, LineResult c) {
#if defined(__gfx908__)  // an instruction covers half the depth; which k are paired in it does not matter
    typedef short Short2 __attribute__((ext_vector_type(2)));
    for (int i = 0; i < 2; ++i)
      c = __builtin_amdgcn_mfma_f32_16x16x8bf16(__builtin_bit_cast(Short2, x.w[i]), __builtin_bit_cast(Short2, y.w[i]),
                                                c, 0, 0, 0);
    return c;
#else
    const LineBits a = __builtin_bit_cast(LineBits, x), b = __builtin_bit_cast(LineBits, y);
#if defined(__GFX11__)
    return __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(a, b, c);
#elif defined(__GFX12__)
    return __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(a, b, c);
#else
    return __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a, b, c, 0, 0, 0);
#endif
#endif
  }
};
template <class T>
PF_DEVICE void multiply_lines(float* c, const Line& x, const Line& y) {
  LineResult r;
  for (int i = 0; i < kLineResults; ++i) r[i] = c[i];
  r = LineInstruction<T>::of(x, y, r);
  for (int i = 0; i < kLineResults; ++i) c[i] = r[i];
}
#endif

template <class T>
struct Mma {
  using A = Line;
  using B = Line;
  static constexpr int kC = kLineResults;
  static constexpr int kRows = 1;  // the number of rows of the result in which a lane has elements
  struct C {
    float v[kC];
  };
  static PF_DEVICE int row(int) { return lane() % 16; }
  static PF_DEVICE int row_of(int) { return lane() % 16; }  // the row that belongs to a slot
  static PF_DEVICE int col(int i) { return kLineDepth == 16 ? 2 * i + lane() / 16 : lane() / 16 * kLineDepth + i; }
  static PF_DEVICE int slot(int) { return 0; }  // which of the lane's rows element i is in
  static PF_DEVICE A load_a(const T* s, int stride) { return along(s, stride); }
  static PF_DEVICE A load_a_t(const T* s, int stride) { return across(s, stride); }
  static PF_DEVICE B load_b(const T* s, int stride) { return across(s, stride); }
  static PF_DEVICE B load_b_t(const T* s, int stride) { return along(s, stride); }
  static PF_DEVICE void fma(C& c, const A& a, const B& b) { multiply_lines<T>(c.v, b, a); }
  // The result, rounded to T, as the A operand of the next product.
  static PF_DEVICE A as_a(const C& c) {
    A a;
    if constexpr (kLineDepth == 16) {
      for (int i = 0; i < kLineWords; i += 2) {
        const u32 mine = pack<T>(c.v[i], c.v[i + 1]), other = xor_lane(mine, 16);
        const u32 even = lane() < 16 ? mine : other, odd = lane() < 16 ? other : mine;
        a.w[i] = (even & 0xffffu) | odd << 16;
        a.w[i + 1] = even >> 16 | (odd & 0xffff0000u);
      }
    } else {
      for (int i = 0; i < kLineWords; ++i) a.w[i] = pack<T>(c.v[2 * i], c.v[2 * i + 1]);
    }
    return a;
  }
  // Combines x over all lanes that share this lane's rows; each of them gets the result.
  template <class Op, class X>
  static PF_DEVICE X over_row(X x) {
    for (int step = 16; step < kWave; step *= 2) x = Op::of(x, xor_lane(x, step));
    return x;
  }

 private:
  static PF_DEVICE int first() { return lane() / 16 * kLineDepth % 16; }
  static PF_DEVICE Line along(const T* s, int stride) {
    s += lane() % 16 * stride + first();
    Line x;
    constexpr int kEach = kLineDepth < 8 ? kLineDepth : 8;
    for (int i = 0; i < kLineDepth; i += kEach) {
      const Vec<T, kEach> v = load_vec<kEach>(s + i);
      for (int j = 0; j < kEach; j += 2) x.w[(i + j) / 2] = pair(v[j], v[j + 1]);
    }
    return x;
  }
  static PF_DEVICE Line across(const T* s, int stride) {
    s += first() * stride + lane() % 16;
    Line x;
    for (int i = 0; i < kLineWords; ++i) x.w[i] = pair(s[2 * i * stride], s[(2 * i + 1) * stride]);
    return x;
  }
};

// Products whose operands come straight from memory. Along the sum the elements are in an order of their own, which is
// the same in both operands: a lane has kEach times 8 adjacent ones of each of its lines. kLanes: how many lanes share a
// line, of which this one is number part().
template <class T>
struct DirectMma {
  static constexpr int kEach = kLineDepth == 16 ? 2 : 1, kA = 1,
                       kB = 1;  // kA, kB: the lines of an operand that a lane has
  static constexpr int kLanes = kLineDepth == 16 ? 1 : kWave / 16;
  struct A {
    InFlight<T, 8> v[1][kEach];
  };
  using B = A;
  static PF_DEVICE int line(int) { return lane() % 16; }
  static PF_DEVICE int part() { return kLineDepth == 16 ? 0 : lane() / 16; }
  // Only the first kCols columns of the result are needed.
  template <int kCols>
  static PF_DEVICE void fma(typename Mma<T>::C& c, const A& a, const B& b) {
#pragma unroll
    for (int s = 0; s < 4 * kEach; s += kLineWords) {
      Line x, y;
#pragma unroll
      for (int i = 0; i < kLineWords; ++i)
        x.w[i] = a.v[0][(s + i) / 4].words[(s + i) % 4], y.w[i] = b.v[0][(s + i) / 4].words[(s + i) % 4];
      Mma<T>::fma(c, x, y);
    }
  }
};

#elif defined(PF_MATRIX_SYNC)
// --- NVIDIA's m16n8k16, two instructions per tile. Lane l holds the rows l / 4 and l / 4 + 8 of A, and the columns l /
// 4 and l / 4 + 8 of B. Columns of the result, and k, are 2 (l % 4) + {0, 1} and the same + 8.
struct Fragment {
  u32 w[4];
};
template <class T>
struct SyncInstruction;
#define PF_SYNC_INSTRUCTION(T, type)                                                      \
  template <>                                                                             \
  struct SyncInstruction<T> {                                                             \
    static PF_DEVICE void of(float* c, const u32* a, u32 b0, u32 b1) {                    \
      asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type                 \
                   ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
                   : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                       \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));       \
    }                                                                                     \
  };
PF_SYNC_INSTRUCTION(f16, "f16")
PF_SYNC_INSTRUCTION(bf16, "bf16")
#undef PF_SYNC_INSTRUCTION

template <class T>
struct Mma {
  using A = Fragment;
  using B = Fragment;
  static constexpr int kC = 8, kRows = 2;
  struct C {
    float v[kC];
  };
  static PF_DEVICE int row(int i) { return row_of(slot(i)); }
  static PF_DEVICE int row_of(int slot) { return lane() / 4 + slot * 8; }
  static PF_DEVICE int col(int i) { return lane() % 4 * 2 + (i & 1) + (i & 4) * 2; }
  static PF_DEVICE int slot(int i) { return i >> 1 & 1; }
  // A fragment has four 8 x 8 blocks. Its second block is further down the rows for A, and further along k for B.
  static PF_DEVICE A load_a(const T* s, int stride) { return blocks<false>(s, stride, true); }
  static PF_DEVICE A load_a_t(const T* s, int stride) { return blocks<true>(s, stride, false); }
  static PF_DEVICE B load_b(const T* s, int stride) { return blocks<true>(s, stride, true); }
  static PF_DEVICE B load_b_t(const T* s, int stride) { return blocks<false>(s, stride, false); }
  static PF_DEVICE void fma(C& c, const A& a, const B& b) {
    SyncInstruction<T>::of(c.v, a.w, b.w[0], b.w[1]);
    SyncInstruction<T>::of(c.v + 4, a.w, b.w[2], b.w[3]);
  }
  static PF_DEVICE A as_a(const C& c) {
    A a;
    for (int i = 0; i < 4; ++i) a.w[i] = pack<T>(c.v[2 * i], c.v[2 * i + 1]);
    return a;
  }
  template <class Op, class X>
  static PF_DEVICE X over_row(X x) {
    x = Op::of(x, xor_lane(x, 1));
    return Op::of(x, xor_lane(x, 2));
  }

 private:
  // Block i begins (i % 2) * 8 lines down and (i / 2) * 8 elements along, or the other way round. kTransposed: the blocks
  // are transposed.
  template <bool kTransposed>
  static PF_DEVICE Fragment blocks(const T* s, int stride, bool down_first) {
    Fragment f;
    const int l = lane();
    if (__isShared(s)) {
      const int i = l / 8, line = down_first ? i % 2 : i / 2, place = down_first ? i / 2 : i % 2;
      const u32 at = (u32)__cvta_generic_to_shared(s + (line * 8 + l % 8) * stride + place * 8);
      if constexpr (kTransposed)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(f.w[0]), "=r"(f.w[1]), "=r"(f.w[2]), "=r"(f.w[3])
                     : "r"(at)
                     : "memory");
      else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(f.w[0]), "=r"(f.w[1]), "=r"(f.w[2]), "=r"(f.w[3])
                     : "r"(at)
                     : "memory");
      return f;
    }
    for (int i = 0; i < 4; ++i) {
      const int line = (down_first ? i % 2 : i / 2) * 8, place = (down_first ? i / 2 : i % 2) * 8;
      if constexpr (kTransposed) {
        const T* p = s + (line + l % 4 * 2) * stride + place + l / 4;
        f.w[i] = pair(p[0], p[stride]);
      } else {
        const Vec<T, 2> v = load_vec<2>(s + (line + l / 4) * stride + place + l % 4 * 2);
        f.w[i] = pair(v[0], v[1]);
      }
    }
    return f;
  }
};

template <class T>
struct DirectMma {
  static constexpr int kEach = 1, kA = 2, kB = 2, kLanes = 4;
  struct A {
    InFlight<T, 8> v[2][1];
  };
  using B = A;
  static PF_DEVICE int line(int i) { return lane() / 4 + 8 * i; }
  static PF_DEVICE int part() { return lane() % 4; }
  template <int kCols>
  static PF_DEVICE void fma(typename Mma<T>::C& c, const A& a, const B& b) {
#pragma unroll
    for (int s = 0; s < 4; s += 2) {
      const u32 x[4] = {a.v[0][0].words[s], a.v[1][0].words[s], a.v[0][0].words[s + 1], a.v[1][0].words[s + 1]};
      SyncInstruction<T>::of(c.v, x, b.v[0][0].words[s], b.v[0][0].words[s + 1]);
      if constexpr (kCols > 8) SyncInstruction<T>::of(c.v + 4, x, b.v[1][0].words[s], b.v[1][0].words[s + 1]);
    }
  }
};

#else
// --- without matrix cores: eight adjacent lanes share 128 / kWave rows, and each has two columns
template <class T>
struct Mma {
  static constexpr int kC = 256 / kWave, kRows = kC / 2;
  struct A {
    u32 w[kRows][8];
  };
  struct B {
    u32 w[2][8];
  };
  struct C {
    float v[kC];
  };
  static PF_DEVICE int row(int i) { return row_of(slot(i)); }
  static PF_DEVICE int row_of(int slot) { return lane() / 8 * kRows + slot; }
  static PF_DEVICE int col(int i) { return lane() % 8 * 2 + i % 2; }
  static PF_DEVICE int slot(int i) { return i / 2; }
  static PF_DEVICE A load_a(const T* s, int stride) { return along<A, kRows>(s + row(0) * stride, stride); }
  static PF_DEVICE A load_a_t(const T* s, int stride) { return across<A, kRows>(s + row(0), stride); }
  static PF_DEVICE B load_b(const T* s, int stride) { return across<B, 2>(s + col(0), stride); }
  static PF_DEVICE B load_b_t(const T* s, int stride) { return along<B, 2>(s + col(0) * stride, stride); }
  static PF_DEVICE void fma(C& c, const A& a, const B& b) {
#pragma unroll
    for (int k = 0; k < 16; ++k)
#pragma unroll
      for (int i = 0; i < kC; ++i) c.v[i] = fmaf(number(a.w[i / 2], k), number(b.w[i % 2], k), c.v[i]);
  }
  static PF_DEVICE A as_a(const C& c) {
    A a;
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
      for (int i = 0; i < 8; ++i) a.w[r][i] = from_lane(pack<T>(c.v[2 * r], c.v[2 * r + 1]), lane() / 8 * 8 + i);
    return a;
  }
  template <class Op, class X>
  static PF_DEVICE X over_row(X x) {
    return over_lanes<Op, 8>(x);
  }

 private:
  static PF_DEVICE float number(const u32* line, int k) {
    const T x = {(u16)(line[k / 2] >> 16 * (k % 2))};
    return load(&x);
  }
  template <class Operand, int kLines>
  static PF_DEVICE Operand along(const T* s, int stride) {
    Operand x;
#pragma unroll
    for (int r = 0; r < kLines; ++r)
#pragma unroll
      for (int i = 0; i < 16; i += 8) {
        const Vec<T, 8> v = load_vec<8>(s + r * stride + i);
        for (int j = 0; j < 8; j += 2) x.w[r][(i + j) / 2] = pair(v[j], v[j + 1]);
      }
    return x;
  }
  template <class Operand, int kLines>
  static PF_DEVICE Operand across(const T* s, int stride) {
    Operand x;
#pragma unroll
    for (int r = 0; r < kLines; ++r)
#pragma unroll
      for (int i = 0; i < 8; ++i) x.w[r][i] = pair(s[2 * i * stride + r], s[(2 * i + 1) * stride + r]);
    return x;
  }
};
#endif

#endif

}  // namespace pf
