// What comes between a decoder's product for q, k and v and its attention: rotary embedding of q and k, and the new keys and values to their rows
// of the cache. A task is some heads of some rows. Numbers are read and written in their own dtype.
#include <algorithm>

#include "pyflame/backends/cpu/common.h"
#include "pyflame/backends/cpu/vec_rotary.h"

namespace pyflame::cpu {

namespace {

class RotaryStore final : public Exec {
 public:
  explicit RotaryStore(const Node& node) : node_(node) {
    const Dims &q = node.ins[0].shape, &table = node.ins[3].shape;
    rows_ = q[0], heads_ = q[1], dim_ = q[2], kv_heads_ = node.ins[1].shape[1];
    positions_ = table[0], turns_ = table[1], slots_ = node.ins[7].shape[0];
  }

  void run(const RunContext& ctx) override {
    check(ctx.ptr<const int64_t>(node_.ins[5]), 0, positions_);
    check(ctx.ptr<const int64_t>(node_.ins[6]), -1, slots_);
    switch (node_.ins[0].dtype) {
      case DType::float64: return compute<double>(ctx);
      case DType::float32: return compute<float>(ctx);
      case DType::bfloat16: return compute<bfloat16>(ctx);
      default: return compute<float16>(ctx);
    }
  }

 private:
  // Before anything is written.
  void check(const int64_t* index, int64_t least, int64_t n) const {
    for (int64_t t = 0; t < rows_; ++t)
      PF_CHECK(index[t] >= least && index[t] < n, Index,
               "rotary_store: index out of range; got {}; expected {} <= index < {}", index[t], least, n);
  }

  template <class S>
  void compute(const RunContext& ctx) const {
    const auto* at = ctx.ptr<const int64_t>(node_.ins[5]);
    const auto* slots = ctx.ptr<const int64_t>(node_.ins[6]);
    const S *cos = ctx.ptr<const S>(node_.ins[3]), *sin = ctx.ptr<const S>(node_.ins[4]);
    const S* const in[] = {ctx.ptr<const S>(node_.ins[0]), ctx.ptr<const S>(node_.ins[1]),
                           ctx.ptr<const S>(node_.ins[2])};
    S* const out[] = {ctx.ptr<S>(node_.outs[0]), ctx.ptr<S>(node_.outs[1]), ctx.ptr<S>(node_.outs[2])};
    const int64_t each = heads_ + 2 * kv_heads_;  // heads of a row: of q, then of k, then of v
    parallel_for(rows_ * each, std::max<int64_t>(1, kGrainElements / std::max<int64_t>(1, dim_)),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t i = begin; i < end; ++i) {
                     const int64_t t = i / each, line = i % each;
                     const int which = line < heads_ ? 0 : line < heads_ + kv_heads_ ? 1 : 2;
                     const int64_t head = line - (which == 0 ? 0 : which == 1 ? heads_ : heads_ + kv_heads_);
                     const int64_t row = which == 0 ? t : slots[t], heads = which == 0 ? heads_ : kv_heads_;
                     if (row < 0) continue;
                     const Dims& strides = node_.ins[static_cast<size_t>(which)].strides;
                     const S* const x = in[which] + t * strides[0] + head * strides[1];
                     S* const y = out[which] + (row * heads + head) * dim_;
                     const int64_t turns = which == 2 ? 0 : turns_;
                     if (turns > 0) vec::rotate(x, cos + at[t] * turns, sin + at[t] * turns, y, turns);
                     std::copy(x + turns, x + dim_, y + turns);
                   }
                 });
  }

  Node node_;
  int64_t rows_ = 0, heads_ = 0, dim_ = 0, kv_heads_ = 0, positions_ = 0, turns_ = 0, slots_ = 0;
};

Refusal accept_rotary(const Problem& p) {
  const Node& node = p.root();
  for (size_t i = 0; i < 3; ++i)
    if (node.ins[i].strides[2] != 1 && node.ins[i].shape[2] > 1) return "takes heads whose numbers are contiguous only";
  for (size_t i = 3; i < node.ins.size(); ++i)
    if (!node.ins[i].contiguous) return "takes contiguous tables and caches only";
  if (!node.outs[0].contiguous) return "makes a contiguous result only";
  return accept_single(p);
}
std::unique_ptr<Executable> make_rotary(const Problem& p) { return std::make_unique<RotaryStore>(p.root()); }

}  // namespace

std::span<const Impl> rotary_store_impls() {
  static const Impl impl{"cpu.rotary_store", accept_rotary, make_rotary};
  return {&impl, 1};
}

}  // namespace pyflame::cpu
