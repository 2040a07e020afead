// pdist: each row is compared with the rows after it, several at a time.
#include "pyflame/backends/cpu/common.h"
#include "pyflame/backends/cpu/vec.h"

namespace pyflame::cpu {

namespace {

template <class T>
class PairDistances : public Exec {
 public:
  explicit PairDistances(const Node& node)
      : x_(node.ins[0], ws_), y_(node.outs[0], ws_), rows_(node.ins[0].shape[0]), width_(node.ins[0].shape[1]) {}
  void run(const RunContext& ctx) override {
    const T* x = x_.get(ctx);
    T* y = y_.begin(ctx);
    const int64_t grain = std::max<int64_t>(1, kGrainElements / std::max<int64_t>(1, width_));
    parallel_for(y_.numel(), grain, [&](int64_t begin, int64_t end) {
      int64_t i = 0, first = 0;  // the pairs of row i begin at `first`
      while (first + rows_ - 1 - i <= begin) first += rows_ - 1 - i++;
      for (int64_t at = begin; at < end; first += rows_ - 1 - i++) {
        const int64_t last = std::min(end, first + rows_ - 1 - i), j = i + 1 + at - first;
        vec::distances(x + i * width_, x + j * width_, width_, last - at, y + at);
        at = last;
      }
    });
    y_.finish(ctx);
  }

 private:
  In<T> x_;
  Out<T> y_;
  int64_t rows_, width_;
};

Refusal accept_pairs(const Problem& p) {
  if (auto r = accept_float(p)) return r;
  return accept_single(p);
}

}  // namespace

std::span<const Impl> pdist_impls() {
  static const Impl impl{"cpu.pairs", accept_pairs, make_by_type<PairDistances>};
  return {&impl, 1};
}

}  // namespace pyflame::cpu
