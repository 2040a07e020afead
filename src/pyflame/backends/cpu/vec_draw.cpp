// draw_tokens: the choice of the next token of each text. Nothing is sorted but the tokens of one bin: logits fall into bins by their distance from the
// largest, a prefix of the bins has what is wanted, and where the prefix ends is found in the order of that bin's tokens. A text is one task.
#include "pyflame/backends/cpu/common.h"
#include "pyflame/backends/cpu/vec.h"
#include "pyflame/backends/cpu/vec_order.h"

// The same versions as in vec.cpp.
#include <hwy/detect_targets.h>
#undef HWY_DISABLED_TARGETS
#ifdef HWY_AVX3_ZEN4
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_AVX3_ZEN4)
#else
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pyflame/backends/cpu/vec_draw.cpp"
#include <hwy/foreach_target.h>  // before highway.h

#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

#include "pyflame/backends/cpu/math-inl.h"

#ifndef PYFLAME_CPU_DRAW_ONCE
#define PYFLAME_CPU_DRAW_ONCE
namespace pyflame::cpu::vec {

constexpr int64_t kDrawBlock = 1024;  // tokens whose probabilities are in the first-level cache

constexpr int32_t kDrawBins = 2048;

// The tokens that are kept: those with a larger logit than `least`, and of those with this one the ids before `end`.
struct DrawKept {
  float least;
  int32_t end;
};
constexpr DrawKept kAllTokens{-std::numeric_limits<float>::infinity(), std::numeric_limits<int32_t>::max()};
// A text's logits, the largest of them, and 1 / temperature.
struct DrawRow {
  const float* x;
  int64_t n;
  float highest, scale;
};

}  // namespace pyflame::cpu::vec
#endif

HWY_BEFORE_NAMESPACE();
namespace pyflame::cpu::vec {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using DI = hn::RebindToSigned<D>;
using V = hn::Vec<D>;

// The logits at i; those behind the block are -inf.
HWY_INLINE V loaded(const float* x, int64_t count) {
  const D d;
  if (count >= static_cast<int64_t>(hn::Lanes(d))) return hn::LoadU(d, x);
  alignas(64) std::array<float, 64> some;
  hn::Store(hn::Set(d, -std::numeric_limits<float>::infinity()), d, some.data());
  std::copy_n(x, count, some.data());
  return hn::Load(d, some.data());
}

// Whether the tokens with these logits and the ids from `id` on are kept.
HWY_INLINE hn::Mask<D> is_kept(V x, int64_t id, const DrawKept& kept) {
  const D d;
  const DI di;
  const V least = hn::Set(d, kept.least);
  const auto before = hn::Lt(hn::Iota(di, static_cast<int32_t>(id)), hn::Set(di, kept.end));
  return hn::Or(hn::Gt(x, least), hn::And(hn::Eq(x, least), hn::RebindMask(d, before)));
}

// A token's bin: 64 for each power of two of its distance from the largest logit, from 2^-22 to 2^10.
constexpr int32_t kBinShift = 23 - 6, kFirstBin = (127 - 22) * 64;
HWY_INLINE hn::Vec<DI> bins_of(V x, const DrawRow& row) {
  const D d;
  const DI di;
  const auto bits = hn::BitCast(di, hn::Sub(hn::Set(d, row.highest), x));
  const auto bin = hn::Sub(hn::ShiftRight<kBinShift>(bits), hn::Set(di, kFirstBin));
  return hn::Min(hn::Max(bin, hn::Zero(di)), hn::Set(di, kDrawBins - 1));
}

// exp((x - highest) / temperature), with 0 where that would be subnormal.
HWY_INLINE V weight_of(V x, const DrawRow& row) {
  const D d;
  const V z = hn::Mul(hn::Sub(x, hn::Set(d, row.highest)), hn::Set(d, row.scale)), low = hn::Set(d, -87.0F);
  return hn::IfThenZeroElse(hn::Lt(z, low), math::HWY_NAMESPACE::exp(d, hn::Max(z, low)));
}

// Probabilities relative to the likeliest token, of `count` tokens from `begin` on; 0 for those that are not kept and
// for those that are less than min_p.
HWY_INLINE void weights_of(const DrawRow& row, int64_t begin, int64_t count, const DrawKept& kept, float min_p,
                           float* w) {
  const D d;
  for (int64_t i = 0; i < count; i += static_cast<int64_t>(hn::Lanes(d))) {
    const V x = loaded(row.x + begin + i, count - i);
    const auto mask = is_kept(x, begin + i, kept);
    V y = hn::Zero(d);
    if (!hn::AllFalse(d, mask)) {
      y = hn::IfThenElseZero(mask, weight_of(x, row));
      y = hn::IfThenElseZero(hn::Ge(y, hn::Set(d, min_p)), y);
    }
    hn::StoreU(y, d, w + i);
  }
}

// Calls f(begin, count) for each block of n tokens.
template <class F>
HWY_INLINE void for_blocks(int64_t n, const F& f) {
  for (int64_t begin = 0; begin < n; begin += kDrawBlock) f(begin, std::min(kDrawBlock, n - begin));
}

using Block = std::array<float, kDrawBlock + 64>;  // a vector may be written behind the end

// The probabilities of the kept tokens, added by bin.
void sum_bins(const DrawRow& row, const DrawKept& kept, double* sums) {
  const D d;
  const DI di;
  constexpr int64_t kLanes = hn::MaxLanes(d);
  alignas(64) std::array<float, kLanes> w;
  alignas(64) std::array<int32_t, kLanes> bin;
  for (int64_t i = 0; i < row.n; i += kLanes) {
    const V x = loaded(row.x + i, row.n - i);
    const auto mask = is_kept(x, i, kept);
    if (hn::AllFalse(d, mask)) continue;
    hn::Store(hn::IfThenElseZero(mask, weight_of(x, row)), d, w.data());
    hn::Store(bins_of(x, row), di, bin.data());
    for (size_t k = 0; k < kLanes; ++k) sums[bin[k]] += static_cast<double>(w[k]);
  }
}

// The number of tokens by bin. Bins behind those that have the first `wanted` tokens count some of theirs only: what has
// been counted says more and more often which these are.
void count_bins(const DrawRow& row, int64_t wanted, double* sums) {
  const D d;
  const DI di;
  constexpr int64_t kLanes = hn::MaxLanes(d);
  alignas(64) std::array<int32_t, kLanes> bin;
  int32_t last = kDrawBins - 1;
  for (int64_t i = 0, next = kDrawBlock; i < row.n; i += kLanes) {
    if (i >= next) {
      double sum = 0;
      for (int32_t b = 0; b < last; ++b)
        if ((sum += sums[b]) >= static_cast<double>(wanted)) last = b;
      next = 2 * i;
    }
    const auto bins = bins_of(loaded(row.x + i, row.n - i), row);
    if (hn::AllFalse(di, hn::Lt(bins, hn::Set(di, last + 1)))) continue;
    hn::Store(bins, di, bin.data());
    for (size_t k = 0; k < static_cast<size_t>(std::min(kLanes, row.n - i)); ++k) sums[bin[k]] += 1;
  }
}

// The ids of the kept tokens of a bin, in their order.
void ids_of_bin(const DrawRow& row, const DrawKept& kept, int32_t bin, std::vector<int32_t>& ids) {
  const D d;
  const DI di;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < row.n; i += lanes) {
    const V x = loaded(row.x + i, row.n - i);
    const auto in_bin = hn::RebindMask(d, hn::Eq(bins_of(x, row), hn::Set(di, bin)));
    if (hn::AllFalse(d, in_bin)) continue;
    std::array<uint8_t, 8> bytes{};
    hn::StoreMaskBits(d, hn::And(in_bin, is_kept(x, i, kept)), bytes.data());
    uint32_t bits = bytes[0] | static_cast<uint32_t>(bytes[1]) << 8;
    for (; bits != 0; bits &= bits - 1)
      if (const int64_t id = i + std::countr_zero(bits); id < row.n) ids.push_back(static_cast<int32_t>(id));
  }
}

// The probabilities of some tokens.
void weights_at(const DrawRow& row, const std::vector<int32_t>& ids, std::vector<double>& w) {
  w.resize(ids.size());
  alignas(64) Block x, y;
  for_blocks(static_cast<int64_t>(ids.size()), [&](int64_t begin, int64_t count) HWY_ATTR {
    const auto b = static_cast<size_t>(begin), n = static_cast<size_t>(count);
    for (size_t i = 0; i < n; ++i) x[i] = row.x[ids[b + i]];
    weights_of({x.data(), count, row.highest, row.scale}, 0, count, kAllTokens, 0, y.data());
    std::copy_n(y.begin(), n, w.begin() + begin);
  });
}

// The token in whose part of the sum of the kept probabilities the drawn number lies.
int64_t drawn_token(const DrawRow& row, const DrawKept& kept, float min_p, float drawn) {
  alignas(64) Block w;
  std::vector<double> sums;
  double all = 0;
  for_blocks(row.n, [&](int64_t begin, int64_t count) HWY_ATTR {
    weights_of(row, begin, count, kept, min_p, w.data());
    sums.push_back(static_cast<double>(vec::sum(w.data(), count)));
    all += sums.back();
  });
  const double target = all * static_cast<double>(drawn);
  double before = 0;
  size_t at = 0;
  double in_front = 0;  // of the last block that has tokens: rounding may lead beyond the sum
  for (size_t b = 0; b < sums.size(); ++b) {
    if (sums[b] == 0) continue;
    at = b, in_front = before;
    if ((before += sums[b]) > target) break;
  }
  const int64_t begin = static_cast<int64_t>(at) * kDrawBlock, count = std::min(kDrawBlock, row.n - begin);
  weights_of(row, begin, count, kept, min_p, w.data());
  int64_t id = begin;
  for (int64_t i = 0; i < count; ++i) {
    const auto here = static_cast<double>(w[static_cast<size_t>(i)]);
    if (here == 0) continue;
    id = begin + i;
    if ((in_front += here) > target) break;
  }
  return id;
}

}  // namespace HWY_NAMESPACE
}  // namespace pyflame::cpu::vec
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pyflame::cpu {

namespace vec {
namespace {
HWY_EXPORT(sum_bins);
HWY_EXPORT(count_bins);
HWY_EXPORT(ids_of_bin);
HWY_EXPORT(weights_at);
HWY_EXPORT(drawn_token);

// The kept tokens of a bin in their order.
std::vector<int32_t> ordered(const DrawRow& row, const DrawKept& kept, int32_t bin) {
  std::vector<int32_t> ids;
  HWY_DYNAMIC_DISPATCH(ids_of_bin)(row, kept, bin, ids);
  std::vector<uint64_t> keys(ids.size());  // larger logits, and of equal ones lower ids, have smaller keys
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto bits = std::bit_cast<uint32_t>(row.x[ids[i]] + 0.0F);
    keys[i] = static_cast<uint64_t>(bits >> 31 ? bits : ~bits & 0x7fffffffU) << 32 | static_cast<uint32_t>(ids[i]);
  }
  sort_keys(keys.data(), static_cast<int64_t>(keys.size()));
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(keys[i] & 0xffffffffU);
  return ids;
}

// The first bin with which the sum reaches what is wanted, or kDrawBins; `sum` becomes that of the bins before it.
int32_t reaching(const std::vector<double>& sums, double wanted, double& sum) {
  int32_t bin = 0;
  for (; bin < kDrawBins && sum + sums[static_cast<size_t>(bin)] < wanted; ++bin) sum += sums[static_cast<size_t>(bin)];
  return bin;
}

// The first k tokens.
DrawKept first_of(const DrawRow& row, int64_t k) {
  std::vector<double> sums(kDrawBins);
  HWY_DYNAMIC_DISPATCH(count_bins)(row, k, sums.data());
  double before = 0;
  const int32_t bin = reaching(sums, static_cast<double>(k), before);
  const int32_t last = ordered(row, kAllTokens, bin)[static_cast<size_t>(k - static_cast<int64_t>(before) - 1)];
  return {row.x[last], last + 1};
}

// The fewest of the kept tokens whose share of the probability is at least this one.
DrawKept likeliest(const DrawRow& row, const DrawKept& kept, double share) {
  std::vector<double> sums(kDrawBins), w;
  HWY_DYNAMIC_DISPATCH(sum_bins)(row, kept, sums.data());
  double sum = 0;
  const double wanted = share * std::accumulate(sums.begin(), sums.end(), 0.0);
  const int32_t bin = reaching(sums, wanted, sum);
  if (bin == kDrawBins) return kept;  // rounding leads beyond the sum
  const std::vector<int32_t> ids = ordered(row, kept, bin);
  HWY_DYNAMIC_DISPATCH(weights_at)(row, ids, w);
  size_t last = 0;
  while (last + 1 < ids.size() && (sum += w[last]) < wanted) ++last;
  return {row.x[ids[last]], ids[last] + 1};
}

// The id and the largest logit of a row of n logits.
std::pair<int64_t, float> draw(const float* x, int64_t n, const float* set) {
  const int64_t best = arg_best(x, n, true);
  const float highest = x[best];
  if (!std::isfinite(highest)) return {0, highest};
  if (set[0] < 1e-30F) return {best, highest};
  const DrawRow row{x, n, highest, 1.0F / set[0]};
  DrawKept kept = kAllTokens;
  const int64_t top_k = set[1] < static_cast<float>(n) ? static_cast<int64_t>(set[1]) : 0;
  if (top_k > 0) kept = first_of(row, top_k);
  if (set[2] < 1.0F) kept = likeliest(row, kept, static_cast<double>(set[2]));
  return {HWY_DYNAMIC_DISPATCH(drawn_token)(row, kept, set[3], set[4]), highest};
}

}  // namespace
}  // namespace vec

namespace {

class DrawTokens final : public Exec {
 public:
  explicit DrawTokens(const Node& node) : node_(node) {}
  void run(const RunContext& ctx) override {
    const Operand& logits = node_.ins[0];
    const int64_t n = logits.shape[1], stride = logits.strides[0];
    const auto *x = ctx.ptr<const float>(logits), *settings = ctx.ptr<const float>(node_.ins[1]);
    auto* const ids = ctx.ptr<int64_t>(node_.outs[0]);
    auto* const highest = ctx.ptr<float>(node_.outs[1]);
    parallel_for(logits.shape[0], std::max<int64_t>(1, kGrainElements / n), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row)
        std::tie(ids[row], highest[row]) = vec::draw(x + row * stride, n, settings + row * 5);
    });
  }

 private:
  Node node_;
};

Refusal accept_draw(const Problem& p) {
  const Node& node = p.root();
  if (node.ins[0].strides[1] != 1 && node.ins[0].shape[1] > 1) return "takes rows of adjacent logits only";
  if (!node.ins[1].contiguous) return "takes contiguous settings only";
  return accept_single(p);
}
std::unique_ptr<Executable> make_draw(const Problem& p) { return std::make_unique<DrawTokens>(p.root()); }

}  // namespace

std::span<const Impl> draw_tokens_impls() {
  static const Impl impl{"cpu.draw_tokens", accept_draw, make_draw};
  return {&impl, 1};
}

}  // namespace pyflame::cpu
#endif
