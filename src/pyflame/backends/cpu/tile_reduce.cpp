// Reductions over tiles. The order (tile_kernels.h) is defined by lanes, so every instruction set adds the same numbers
// in the same order. float32 sums accumulate in float32 within a block of 512, and in float64 beyond.
#include "pyflame/backends/cpu/tile_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pyflame/backends/cpu/tile_reduce.cpp"
#include <hwy/foreach_target.h>  // before highway.h

#include <algorithm>
#include <limits>
#include <type_traits>

#include "pyflame/backends/cpu/tile_loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pyflame::cpu::tile {
namespace HWY_NAMESPACE {

struct SumOp {
  template <class S>
  static constexpr S identity() {
    return 0;
  }
  template <class S>
  static HWY_INLINE S apply(S a, S b) {
    if constexpr (std::is_same_v<S, int64_t>)
      return static_cast<S>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
    else return a + b;
  }
  template <class V>
  static HWY_INLINE V vector(V a, V b) {
    return hn::Add(a, b);
  }
};
struct ProdOp {
  template <class S>
  static constexpr S identity() {
    return 1;
  }
  template <class S>
  static HWY_INLINE S apply(S a, S b) {
    if constexpr (std::is_same_v<S, int64_t>)
      return static_cast<S>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    else return a * b;
  }
  template <class V>
  static HWY_INLINE V vector(V a, V b) {
    return hn::Mul(a, b);
  }
};
struct MaxOp {
  template <class S>
  static constexpr S identity() {
    return std::is_floating_point_v<S> ? -std::numeric_limits<S>::infinity() : std::numeric_limits<S>::lowest();
  }
  template <class S>
  static HWY_INLINE S apply(S a, S b) {
    return ((a > b) | (a != a)) ? a : b;
  }
  template <class V>
  static HWY_INLINE V vector(V a, V b) {
    return hn::IfThenElse(hn::Or(hn::Gt(a, b), hn::IsNaN(a)), a, b);
  }
};
struct MinOp {
  template <class S>
  static constexpr S identity() {
    return std::is_floating_point_v<S> ? std::numeric_limits<S>::infinity() : std::numeric_limits<S>::max();
  }
  template <class S>
  static HWY_INLINE S apply(S a, S b) {
    return ((a < b) | (a != a)) ? a : b;
  }
  template <class V>
  static HWY_INLINE V vector(V a, V b) {
    return hn::IfThenElse(hn::Or(hn::Lt(a, b), hn::IsNaN(a)), a, b);
  }
};
struct AnyOp {
  template <class S>
  static constexpr S identity() {
    return 0;
  }
  template <class S>
  static HWY_INLINE S apply(S a, S b) {
    return a | b;
  }
};
struct AllOp {
  template <class S>
  static constexpr S identity() {
    return 1;
  }
  template <class S>
  static HWY_INLINE S apply(S a, S b) {
    return a & b;
  }
};

template <class T>
using State = std::conditional_t<std::is_floating_point_v<T>, double, int64_t>;

// Combines the first half of the lanes with the second one, until kTo are left. Constant lengths make vectors of the loops.
template <class Op, int64_t kFrom, int64_t kTo = 1, class T>
HWY_INLINE void tree(T* lane) {
  if constexpr (kFrom > kTo) {
    for (int64_t j = 0; j < kFrom / 2; ++j) lane[j] = Op::apply(lane[j], lane[j + kFrom / 2]);
    tree<Op, kFrom / 2, kTo>(lane);
  }
}
// The same of vectors, in which the lanes follow each other; those of the last one are stored.
template <class Op, int64_t kVectors, class D, class V, class T>
HWY_INLINE void tree_of_vectors(D d, V* acc, T* lane) {
  for (int64_t v = kVectors / 2; v > 0; v /= 2)
    for (int64_t j = 0; j < v; ++j) acc[j] = Op::vector(acc[j], acc[j + v]);
  hn::Store(acc[0], d, lane);
}

// Elements of a row, and parts of complex elements.
template <class T>
struct Plain {
  const T* x;
  T at(int64_t i) const { return x[i]; }
  template <class D>
  HWY_INLINE hn::Vec<D> vector(D d, int64_t i) const {
    return hn::LoadU(d, x + i);
  }
};
template <int kPart>
struct PartOf {
  const float* x;
  float at(int64_t i) const { return x[2 * i + kPart]; }
  template <class D>
  HWY_INLINE hn::Vec<D> vector(D d, int64_t i) const {
    hn::Vec<D> re, im;
    hn::LoadInterleaved2(d, x + 2 * i, re, im);
    return kPart == 0 ? re : im;
  }
};

// One block of floats: kLanes accumulators in as many vectors as that takes.
template <class Op, class T, class Row>
T float_block(const Row& x, int64_t begin, int64_t n) {
  const hn::CappedTag<T, kLanes> d;
  constexpr int64_t kN = hn::MaxLanes(d);
  constexpr int64_t kVectors = kLanes / kN;
  const auto identity = hn::Set(d, Op::template identity<T>());
  hn::Vec<decltype(d)> acc[kVectors];
  for (int64_t v = 0; v < kVectors; ++v) acc[v] = identity;
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
#if HWY_COMPILER_GCC_ACTUAL
#pragma GCC unroll 32
#endif
    for (int64_t v = 0; v < kVectors; ++v) acc[v] = Op::vector(acc[v], x.vector(d, begin + i + v * kN));
  }
  HWY_ALIGN T lane[kLanes];
  if (i < n) {
    for (int64_t v = 0; v < kVectors; ++v) hn::Store(acc[v], d, lane + v * kN);
    for (int64_t j = 0; i + j < n; ++j) lane[j] = Op::apply(lane[j], x.at(begin + i + j));
    for (int64_t v = 0; v < kVectors; ++v) acc[v] = hn::Load(d, lane + v * kN);
  }
  tree_of_vectors<Op, kVectors>(d, acc, lane);
  tree<Op, kN>(lane);
  return lane[0];
}

template <class Op, class T>
void row(void* state, const void* src, int64_t n) {
  using S = State<T>;
  S total = *static_cast<S*>(state);
  const T* x = static_cast<const T*>(src);
  if constexpr (std::is_floating_point_v<T> && !std::is_same_v<Op, ProdOp>) {
    for (int64_t i = 0; i < n; i += kBlock)
      total = Op::apply(total, static_cast<S>(float_block<Op, T>(Plain<T>{x}, i, std::min(kBlock, n - i))));
  } else if constexpr (std::is_floating_point_v<T>) {
    // Products easily leave float32's range, so they accumulate in double.
    for (int64_t b = 0; b < n; b += kBlock) {
      const int64_t end = std::min(kBlock, n - b);
      S lane[kLanes];
      std::fill_n(lane, kLanes, Op::template identity<S>());
      for (int64_t i = 0; i < end; ++i) lane[i % kLanes] = Op::apply(lane[i % kLanes], static_cast<S>(x[b + i]));
      tree<Op, kLanes>(lane);
      total = Op::apply(total, lane[0]);
    }
  } else {
    for (int64_t i = 0; i < n; ++i) total = Op::apply(total, static_cast<S>(x[i]));
  }
  *static_cast<S*>(state) = total;
}

// The same of one part of complex elements: the bits are those of a row of such parts.
template <int kPart>
void part_row(void* state, const void* src, int64_t n) {
  double& total = *static_cast<double*>(state);
  const PartOf<kPart> x{static_cast<const float*>(src)};
  for (int64_t i = 0; i < n; i += kBlock) total += float_block<SumOp, float>(x, i, std::min(kBlock, n - i));
}

// Both parts: elements lie in the accumulators as they lie in memory, so each part has the lanes that it has alone.
void both_parts(void* re, void* im, const void* src, int64_t n) {
  const hn::CappedTag<float, kLanes> d;
  constexpr int64_t kN = hn::MaxLanes(d), kVectors = 2 * kLanes / kN;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const float* x = static_cast<const float*>(src) + 2 * begin;
    const int64_t count = 2 * std::min(kBlock, n - begin);
    hn::Vec<decltype(d)> acc[kVectors];
    for (int64_t v = 0; v < kVectors; ++v) acc[v] = hn::Zero(d);
    int64_t i = 0;
    for (; i + 2 * kLanes <= count; i += 2 * kLanes) {
#if HWY_COMPILER_GCC_ACTUAL
#pragma GCC unroll 32
#endif
      for (int64_t v = 0; v < kVectors; ++v) acc[v] = hn::Add(acc[v], hn::LoadU(d, x + i + v * kN));
    }
    HWY_ALIGN float lane[2 * kLanes];
    if (i < count) {
      for (int64_t v = 0; v < kVectors; ++v) hn::Store(acc[v], d, lane + v * kN);
      for (int64_t j = 0; i + j < count; ++j) lane[j] += x[i + j];
      for (int64_t v = 0; v < kVectors; ++v) acc[v] = hn::Load(d, lane + v * kN);
    }
    tree_of_vectors<SumOp, kVectors>(d, acc, lane);
    tree<SumOp, kN, 2>(lane);
    *static_cast<double*>(re) += lane[0];
    *static_cast<double*>(im) += lane[1];
  }
}

template <class Op, class T>
void col(void* states, const void* src, int64_t n) {
  using S = State<T>;
  S* s = static_cast<S*>(states);
  const T* x = static_cast<const T*>(src);
  PF_NO_ALIAS_LOOP
  for (int64_t i = 0; i < n; ++i) s[i] = Op::apply(s[i], static_cast<S>(x[i]));
}
// Several rows at a time, with the accumulators in registers. Each column adds its numbers in the order of the rows, as
// in col.
template <class Op>
void cols(void* states, const void* src, int64_t n, int64_t rows) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> half;
  const int64_t kN = hn::Lanes(d);
  auto* s = static_cast<double*>(states);
  const auto* x = static_cast<const float*>(src);
  int64_t c = 0;
  for (; c + 4 * kN <= n; c += 4 * kN) {
    auto a0 = hn::LoadU(d, s + c), a1 = hn::LoadU(d, s + c + kN);
    auto a2 = hn::LoadU(d, s + c + 2 * kN), a3 = hn::LoadU(d, s + c + 3 * kN);
    const float* at = x + c;
    for (int64_t r = 0; r < rows; ++r, at += n) {
      a0 = Op::vector(a0, hn::PromoteTo(d, hn::LoadU(half, at)));
      a1 = Op::vector(a1, hn::PromoteTo(d, hn::LoadU(half, at + kN)));
      a2 = Op::vector(a2, hn::PromoteTo(d, hn::LoadU(half, at + 2 * kN)));
      a3 = Op::vector(a3, hn::PromoteTo(d, hn::LoadU(half, at + 3 * kN)));
    }
    hn::StoreU(a0, d, s + c);
    hn::StoreU(a1, d, s + c + kN);
    hn::StoreU(a2, d, s + c + 2 * kN);
    hn::StoreU(a3, d, s + c + 3 * kN);
  }
  for (; c < n; ++c)
    for (int64_t r = 0; r < rows; ++r) s[c] = Op::apply(s[c], static_cast<double>(x[r * n + c]));
}
template <class Op, class S>
void init(void* states, int64_t n) {
  std::fill_n(static_cast<S*>(states), n, Op::template identity<S>());
}
template <class Op, class S>
void combine(void* states, const void* with, int64_t n) {
  S* s = static_cast<S*>(states);
  const S* w = static_cast<const S*>(with);
  PF_NO_ALIAS_LOOP
  for (int64_t i = 0; i < n; ++i) s[i] = Op::apply(s[i], w[i]);
}
template <class S, class Out>
void finish(const void* states, void* dst, int64_t n) {
  const S* s = static_cast<const S*>(states);
  Out* out = static_cast<Out*>(dst);
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<Out>(s[i]);
}

template <class Op, class T>
bool fill_in(Reg out, Reduction* r) {
  using S = State<T>;
  r->init = init<Op, S>;
  r->row = row<Op, T>;
  r->col = col<Op, T>;
  r->combine = combine<Op, S>;
  if constexpr (std::is_same_v<T, float> && std::is_same_v<Op, SumOp>) {
    r->cols = cols<Op>;
    r->part_row[0] = part_row<0>, r->part_row[1] = part_row<1>, r->both_parts = both_parts;
  }
  if constexpr (std::is_floating_point_v<T>) {
    if (out == Reg::f32) r->finish = finish<S, float>;
    else if (out == Reg::f64) r->finish = finish<S, double>;
    else return false;
  } else {
    switch (out) {
      case Reg::i64: r->finish = finish<S, int64_t>; break;
      case Reg::i32: r->finish = finish<S, int32_t>; break;
      case Reg::i16: r->finish = finish<S, int16_t>; break;
      case Reg::i8: r->finish = finish<S, int8_t>; break;
      case Reg::u8: r->finish = finish<S, uint8_t>; break;
      default: return false;
    }
  }
  return true;
}
template <class Op>
bool by_type(Reg in, Reg out, Reduction* r) {
  switch (in) {
    case Reg::f32: return fill_in<Op, float>(out, r);
    case Reg::f64: return fill_in<Op, double>(out, r);
    case Reg::i64: return fill_in<Op, int64_t>(out, r);
    case Reg::i32: return fill_in<Op, int32_t>(out, r);
    case Reg::i16: return fill_in<Op, int16_t>(out, r);
    case Reg::i8: return fill_in<Op, int8_t>(out, r);
    case Reg::u8: return fill_in<Op, uint8_t>(out, r);
  }
  return false;
}
bool pick_reduction(OpId op, Reg in, Reg out, Reduction* r) {
  switch (op) {
    case OpId::sum: return by_type<SumOp>(in, out, r);
    case OpId::prod: return by_type<ProdOp>(in, out, r);
    case OpId::amax: return by_type<MaxOp>(in, out, r);
    case OpId::amin: return by_type<MinOp>(in, out, r);
    case OpId::any: return in == Reg::u8 && fill_in<AnyOp, uint8_t>(out, r);
    case OpId::all: return in == Reg::u8 && fill_in<AllOp, uint8_t>(out, r);
    default: return false;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace pyflame::cpu::tile
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pyflame::cpu::tile {
HWY_EXPORT(pick_reduction);
bool find_reduction(OpId op, Reg in, Reg out, Reduction* r) {
  return HWY_DYNAMIC_DISPATCH(pick_reduction)(op, in, out, r);
}
}  // namespace pyflame::cpu::tile
#endif
