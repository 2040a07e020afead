// bin_sums. The elements are divided into parts by their number and that of the bins, each with sums of its own, which are added in order: the
// result does not depend on the number of threads.
#include <algorithm>
#include <vector>

#include "pyflame/backends/cpu/indexing.h"
#include "pyflame/backends/cpu/vec_bins.h"

namespace pyflame::cpu {

namespace {

template <class V, class W>
class BinSums : public Exec {
  using Sum = std::conditional_t<std::is_floating_point_v<W>, double, uint64_t>;

 public:
  explicit BinSums(const Node& node)
      : values_(node.ins[0], ws_),
        weights_(node.ins[1], ws_),
        scale_(node.ins[2]),
        start_(node.ins[3]),
        sums_(node.outs[0]),
        stats_(node.outs[1]),
        divide_(node.attr<BinAttrs>().divide != 0),
        n_(node.ins[0].numel()),
        bins_(node.outs[0].numel()) {
    // Sums are made, cleared and added up in a small share of the time that the elements take.
    parts_ = std::clamp<int64_t>(n_ / std::max(kPart, kEach * bins_), 1, kMostParts);
    if (n_ / parts_ >= kEach * bins_) copies_ = 4;
    if (parts_ > 1) of_parts_ = ws_.take(static_cast<size_t>(parts_ * bins_) * sizeof(Sum));
  }
  void run(const RunContext& ctx) override {
    const vec::Bins bins{ctx.param(scale_).as_f64(), divide_, ctx.param(start_).as_i64(), bins_};
    const auto* values = reinterpret_cast<const V*>(values_.get(ctx));
    const auto* weights = reinterpret_cast<const W*>(weights_.get(ctx));
    Sum* const out = ctx.ptr<Sum>(sums_);
    Sum* const of_parts = parts_ > 1 ? at<Sum>(ctx, of_parts_) : out;
    std::vector<vec::BinRange> ranges(static_cast<size_t>(parts_));
    const int64_t each = ceil_div(n_, parts_);
    parallel_for(parts_, 1, [&](int64_t begin, int64_t end) {
      std::vector<Sum> copies(static_cast<size_t>(copies_ * (bins_ + 1)));
      for (int64_t part = begin; part < end; ++part) {
        std::fill(copies.begin(), copies.end(), Sum{0});
        const int64_t first = std::min(n_, part * each), count = std::min(n_, first + each) - first;
        vec::add_to_bins(values + first, weights + first, count, bins, copies_, copies.data(),
                         ranges[static_cast<size_t>(part)]);
        Sum* const to = of_parts + part * bins_;
        const Sum* const from = copies.data();
        const int64_t row = bins_ + 1;
        if (copies_ == 1) std::copy_n(from, bins_, to);
        else
          for (int64_t i = 0; i < bins_; ++i)
            to[i] = (from[i] + from[i + row]) + (from[i + 2 * row] + from[i + 3 * row]);
      }
    });
    if (parts_ > 1)
      parallel_for(bins_, std::max<int64_t>(1, kGrainElements / parts_), [&](int64_t begin, int64_t end) {
        std::copy(of_parts + begin, of_parts + end, out + begin);
        for (int64_t part = 1; part < parts_; ++part)
          for (int64_t i = begin; i < end; ++i) out[i] += of_parts[part * bins_ + i];
      });
    put_stats(ranges, ctx.ptr<int64_t>(stats_));
  }

 private:
  static constexpr int64_t kPart = 1 << 18, kEach = 16, kMostParts = 64;
  static void put_stats(const std::vector<vec::BinRange>& ranges, int64_t* to) {
    vec::BinRange all;
    for (const vec::BinRange& r : ranges) {
      all.lowest = std::min(all.lowest, r.lowest), all.highest = std::max(all.highest, r.highest);
      all.most = std::max(all.most, r.most), all.unusable += r.unusable;
    }
    const bool none = all.lowest > all.highest;
    to[0] = none ? std::numeric_limits<int64_t>::max() : static_cast<int64_t>(all.lowest);
    to[1] = none ? std::numeric_limits<int64_t>::min() : static_cast<int64_t>(all.highest);
    to[2] = all.most, to[3] = all.unusable;
  }
  InBytes values_, weights_;
  Operand scale_, start_, sums_, stats_;
  bool divide_;
  int64_t n_, bins_, parts_ = 1, copies_ = 1;
  size_t of_parts_ = 0;
};

template <class V>
std::unique_ptr<Executable> make_bin_sums_of(const Node& node) {
  switch (node.ins[1].dtype) {
    case DType::float64: return std::make_unique<BinSums<V, double>>(node);
    case DType::float32: return std::make_unique<BinSums<V, float>>(node);
    case DType::int64: return std::make_unique<BinSums<V, int64_t>>(node);
    default: return std::make_unique<BinSums<V, int32_t>>(node);
  }
}
std::unique_ptr<Executable> make_bin_sums(const Problem& p) {
  const Node& node = p.root();
  return node.ins[0].dtype == DType::float64 ? make_bin_sums_of<double>(node) : make_bin_sums_of<float>(node);
}
Refusal accept_bins(const Problem& p) {
  if (auto r = accept_single(p)) return r;
  for (const Operand& o : p.root().outs)
    if (!o.contiguous) return "writes contiguous sums only";
  return {};
}

}  // namespace

std::span<const Impl> bin_sums_impls() {
  static const Impl impl{"cpu.bin_sums", accept_bins, make_bin_sums};
  return {&impl, 1};
}

}  // namespace pyflame::cpu
