// resample: weighted sums of adjacent rows, or along rows. The taps of an element are added in order.
#include <algorithm>
#include <vector>

#include "pyflame/backends/cpu/common.h"
#include "pyflame/backends/cpu/vec.h"

namespace pyflame::cpu {

namespace {

template <class T>
class Resample : public Exec {
 public:
  explicit Resample(const Node& node)
      : x_(node.ins[0], ws_), weight_(node.ins[2], ws_), y_(node.outs[0], ws_), begin_(node.ins[1]) {
    const int dim = static_cast<int>(node.attr<DimAttrs>().dim);
    const Dims &x = node.ins[0].shape, &y = node.outs[0].shape;
    from_ = x[dim], to_ = y[dim], taps_ = node.ins[2].shape[1];
    for (int d = 0; d < dim; ++d) outer_ *= x[d];
    for (int d = dim + 1; d < x.size(); ++d) inner_ *= x[d];
    columns_ = ws_.take(static_cast<size_t>(to_ * taps_) * sizeof(T));
  }
  void run(const RunContext& ctx) override {
    const T *x = x_.get(ctx), *weight = weight_.get(ctx);
    T* y = y_.begin(ctx);
    const auto* begin = ctx.ptr<const int64_t>(begin_);
    const int64_t step = begin_.strides[0];
    if (inner_ == 1) lines(x, begin, step, weight, at<T>(ctx, columns_), y);
    else
      parallel_for(outer_ * to_, std::max<int64_t>(1, kGrainElements / (inner_ * taps_)),
                   [&](int64_t first, int64_t end) {
                     for (int64_t r = first; r < end; ++r) {
                       const int64_t i = r % to_;
                       vec::weighted_rows(x + (r / to_ * from_ + begin[i * step]) * inner_, inner_, weight + i * taps_,
                                          taps_, y + r * inner_, inner_);
                     }
                   });
    y_.finish(ctx);
  }

 private:
  // Along the last dim: neighbouring results are computed together, so the weights of a tap have to lie side by side.
  void lines(const T* x, const int64_t* begin, int64_t step, const T* weight, T* columns, T* y) const {
    std::vector<int32_t> first(static_cast<size_t>(to_));
    for (int64_t i = 0; i < to_; ++i) {
      first[static_cast<size_t>(i)] = static_cast<int32_t>(begin[i * step]);
      for (int64_t t = 0; t < taps_; ++t) columns[t * to_ + i] = weight[i * taps_ + t];
    }
    parallel_for(outer_, std::max<int64_t>(1, kGrainElements / (to_ * taps_)), [&](int64_t from, int64_t end) {
      for (int64_t o = from; o < end; ++o)
        vec::weighted_taps(x + o * from_, first.data(), columns, taps_, y + o * to_, to_);
    });
  }
  In<T> x_, weight_;
  Out<T> y_;
  Operand begin_;
  int64_t from_ = 0, to_ = 0, taps_ = 1, outer_ = 1, inner_ = 1;
  size_t columns_ = 0;
};

Refusal accept_resample(const Problem& p) {
  if (auto r = accept_float(p)) return r;
  if (p.root().ins[0].numel() > INT32_MAX) return "takes at most 2^31 elements";
  return accept_single(p);
}
std::unique_ptr<Executable> make_resample(const Problem& p) { return make_by_type<Resample>(p); }

}  // namespace

std::span<const Impl> resample_impls() {
  static const Impl impl{"cpu.resample", accept_resample, make_resample};
  return {&impl, 1};
}

}  // namespace pyflame::cpu
