// attention and its gradient. Implementations, best first: the library (sdpa.h); matrix cores (16-bit types, head sizes
// to 256); a kernel that takes everything. If there are few queries and many keys, the keys are split among workgroups,
// because one workgroup per head would leave most of the device idle. Packed sequences use the same kernels, which find
// their rows through the offsets. Tuning measures other tiles and other splits of the keys (attention_tiles.h).
#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "pyflame/backends/gpu/jit/kernel.h"
#include "pyflame/backends/gpu/libs/sdpa.h"
#include "pyflame/backends/gpu/ops/attention_kernels.h"
#include "pyflame/backends/gpu/ops/impls.h"
#include "pyflame/base/error.h"
#include "pyflame/kernels/attention/common_args.h"

namespace pyflame::gpu {

namespace {

using Strides4 = pf::Strides4;
using Shape = pf::Attention;

// Strides of [B, H, T, D], and of packed [T, H, D].
Strides4 strides_of(const Dims& s) {
  return s.size() == 3 ? Strides4{0, s[1], s[0], s[2]} : Strides4{s[0], s[1], s[2], s[3]};
}
bool is_packed(OpId op) { return op == OpId::varlen_attn || op == OpId::varlen_attn_grad; }
bool is_forward(OpId op) { return op == OpId::attention || op == OpId::varlen_attn; }
constexpr int64_t kMostGroups = int64_t{1} << 30;

// `first` is the index of q among the inputs, `mask_at` that of the mask, if there is one.
AttentionKind kind_of(const Problem& p, size_t first, size_t mask_at) {
  const auto attrs = p.root().attr<AttentionAttrs>();
  const Operand& q = p.root().ins[first];
  const Arch& arch = device(p.graph.device.type, p.graph.device.index).arch();
  const GpuArch* known = find_gpu_arch(arch.name);
  AttentionKind a;
  a.dtype = q.dtype;
  a.dim = q.shape[q.shape.size() - 1];
  a.packed = is_packed(p.root().op);
  a.causal = attrs.causal != 0;
  if (attrs.has_mask)
    a.mask = p.root().ins[mask_at].dtype == DType::bool_ ? AttentionMask::boolean : AttentionMask::added;
  if (p.graph.device.type == DeviceType::cuda) a.units = MatrixKind::mma;
  else if (known) a.units = known->matrix;
  a.wave = arch.wave;
  return a;
}

// The shared memory that a workgroup may have. On AMD it is 64 KiB for all tiles, although gfx950 has more.
int shared_bytes_of(const Problem& p) {
  constexpr int kAmdBytes = 64 * 1024;
  const int bytes = device(p.graph.device.type, p.graph.device.index).arch().shared_bytes;
  return p.graph.device.type == DeviceType::rocm ? std::min(bytes, kAmdBytes) : bytes;
}
// Most of the rows of a workgroup would be beyond the last one, although tiles with fewer rows exist.
bool mostly_empty(int tile_rows, int64_t rows) {
  constexpr int kFewest = 64;
  return tile_rows > kFewest && tile_rows / 2 >= rows;
}

// How an executable computes it: what tuning can change. The names are those of docs/tuning.md.
struct ForwardPlan {
  AttentionForwardTiles tiles;
  int64_t splits;  // workgroups that share the keys, at most
  std::string name() const {
    return fmt::format("tile={}x{},waves={},stages={},held={},splits={}", tiles.rows(), tiles.keys, tiles.waves,
                       tiles.stages, tiles.held ? 1 : 0, splits);
  }
};
struct GradPlan {
  AttentionGradTiles keys, queries;
  std::string name() const {
    return fmt::format(
        "keys={}x{},keys_waves={},keys_stages={},keys_passes={},queries={}x{},queries_waves={},queries_stages={}",
        keys.rows(), keys.step, keys.waves, keys.stages, keys.at_once ? 1 : 2, queries.rows(), queries.step,
        queries.waves, queries.stages);
  }
};

// In how many respects two plans differ.
int differences(const ForwardPlan& a, const ForwardPlan& b) { return (a.tiles != b.tiles) + (a.splits != b.splits); }
int differences(const GradPlan& a, const GradPlan& b) { return (a.keys != b.keys) + (a.queries != b.queries); }

// What the forward and the backward executable have in common.
class AttentionBase : public Executable {
 public:
  AttentionBase(const Problem& p, size_t first, size_t mask_at)
      : device_type_(p.graph.device.type), node_(p.root()), kind_(kind_of(p, first, mask_at)) {
    const Operand &q = node_.ins[first], &k = node_.ins[first + 1], &v = node_.ins[first + 2];
    shape_.heads = q.shape[1], shape_.kv_heads = k.shape[1], shape_.dim = kind_.dim;
    shape_.batch = kind_.packed ? 1 : q.shape[0];
    shape_.queries = q.shape[kind_.packed ? 0 : 2], shape_.keys = k.shape[kind_.packed ? 0 : 2];
    shape_.q = strides_of(q.strides), shape_.k = strides_of(k.strides), shape_.v = strides_of(v.strides);
    params_ = mask_at;
    if (kind_.packed) {
      offsets_ = mask_at;
      shape_.packed.sequences = node_.ins[offsets_].shape[0] - 1;
      params_ += 2;
    }
    shape_.padding = node_.attr<AttentionAttrs>().padding;
    if (kind_.mask != AttentionMask::none) {
      mask_ = static_cast<int>(mask_at);
      ++params_;
      const Dims scores{shape_.batch, shape_.heads, shape_.queries, shape_.keys};
      shape_.mask = strides_of(over(node_.ins[mask_at], scores, 0));
    }
    const Arch& arch = device(device_type_, p.graph.device.index).arch();
    compute_units_ = arch.compute_units, figures_ = Figures::of(arch.name, arch.wave, arch.compute_units, true);
  }

 protected:
  Shape shape_at(const RunContext& ctx) const {
    Shape s = shape_;
    s.scale = ctx.params[node_.ins[params_].param].as_f64();
    if (kind_.packed) {
      s.packed.from_q = static_cast<const int*>(in(ctx, offsets_));
      s.packed.from_k = static_cast<const int*>(in(ctx, offsets_ + 1));
      s.packed.max_q = ctx.params[node_.ins[params_ + 1].param].as_i64();
      s.packed.max_k = ctx.params[node_.ins[params_ + 2].param].as_i64();
      s.packed.fault = fault_of(ctx), s.packed.site = ctx.site;
      return s;
    }
    s.kv_length = ctx.params[node_.ins[params_ + 1].param].as_i64();
    PF_CHECK(s.kv_length >= 0 && s.kv_length <= s.keys, Value,
             "scaled_dot_product_attention: kv_length is out of range; got {}; expected 0 <= kv_length <= {}",
             s.kv_length, s.keys);
    return s;
  }
  const void* in(const RunContext& ctx, size_t i) const { return ctx.bindings[node_.ins[i].binding]; }
  void* out(const RunContext& ctx, size_t i) const { return ctx.bindings[node_.outs[i].binding]; }
  const void* mask(const RunContext& ctx) const { return mask_ < 0 ? nullptr : in(ctx, static_cast<size_t>(mask_)); }
  // Whether all rows begin at multiples of 16 bytes if the first one does.
  static bool by_vectors(const Operand& o) {
    const int last = o.shape.size() - 1;
    bool ok = o.shape[last] % 8 == 0 && o.strides[last] == 1;
    for (int d = 0; d < last; ++d) ok &= o.shape[d] == 1 || o.strides[d] % 8 == 0;
    return ok;
  }
  static bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }
  unsigned groups(int64_t blocks) const {
    PF_CHECK(blocks <= kMostGroups, NotImplemented, "attention: too many rows for one launch; got {} workgroups",
             blocks);
    return static_cast<unsigned>(blocks);
  }
  static int64_t blocks(int64_t n, unsigned each) { return (n + each - 1) / static_cast<int64_t>(each); }
  // The number of blocks of queries or keys, per head and batch entry: blocks_of() of kernels/attention/common.h.
  int64_t row_blocks(int64_t rows, unsigned each) const {
    return kind_.packed && each > 1 ? rows / each + shape_.packed.sequences : blocks(rows, each);
  }

  AttentionSizes sizes() const {
    const auto number = [](int64_t x) { return static_cast<double>(std::max<int64_t>(x, 1)); };
    const double packed = kind_.packed ? number(shape_.packed.sequences) : 1;
    return {number(shape_.batch) * packed, number(shape_.heads), number(shape_.kv_heads),
            number(shape_.queries) / packed, number(shape_.keys) / packed};
  }
  // Those with the shortest estimates first.
  template <class Plan, class Estimate>
  static void sort_by(std::vector<Plan>& plans, Estimate estimate) {
    std::vector<std::pair<double, Plan>> all;
    for (const Plan& plan : plans) all.emplace_back(estimate(plan), plan);
    std::stable_sort(all.begin(), all.end(), [](const auto& x, const auto& y) { return x.first < y.first; });
    for (size_t i = 0; i < all.size(); ++i) plans[i] = all[i].second;
  }

  // A kernel for aligned operands with whole vectors, and one for any others, which is made at the first need.
  class Pair {
   public:
    template <class Make>
    Kernel& get(bool wide, DeviceType type, Make&& make) {
      std::unique_ptr<Kernel>& k = kernels_[wide ? 1 : 0];
      if (!k) {
        AttentionSource s = make(wide);
        rows_ = s.rows;
        k = std::make_unique<Kernel>(type, s.threads, std::move(s.text), s.shared_bytes);
      }
      return *k;
    }
    unsigned rows() const { return rows_; }

   private:
    std::unique_ptr<Kernel> kernels_[2];
    unsigned rows_ = 1;
  };

  DeviceType device_type_;
  Node node_;
  AttentionKind kind_;
  size_t params_ = 0, offsets_ = 0;
  int mask_ = -1, compute_units_ = 1;
  Figures figures_;
  Shape shape_;
};

// --- forward

class MatrixForward final : public AttentionBase {
 public:
  using Plan = ForwardPlan;
  // `ready`: with its kernels already compiled. plan: one of others().
  explicit MatrixForward(const Problem& p, bool ready = true, const std::optional<Plan>& plan = std::nullopt)
      : AttentionBase(p, 0, 3), shared_bytes_(shared_bytes_of(p)) {
    shape_.out = strides_of(node_.outs[0].strides);
    vectors_ = by_vectors(node_.outs[0]);
    for (size_t i = 0; i < 3; ++i) vectors_ &= by_vectors(node_.ins[i]);
    plan_split();
    if (plan) tiles_ = plan->tiles, splits_ = plan->splits;
    if (!ready) return;
    if (folds_at_once()) kernel(true, true, splits_ > 1);
    if (splits_ > 1) combine();
  }
  size_t workspace() const override {
    if (splits_ < 2) return 0;
    return static_cast<size_t>(splits_ * shape_.batch * shape_.heads * shape_.queries * (shape_.dim + 2)) *
           sizeof(float);
  }
  Plan own() const { return {attention_forward_tiles(kind_, splits_ > 1), splits_}; }
  // All other plans, those with the shortest estimates first.
  std::vector<Plan> others() const {
    const int64_t together = shape_.heads / std::max<int64_t>(1, shape_.kv_heads);
    std::vector<int64_t> splits{splits_};
    for (int64_t n = 1; n <= most_splits(); n *= 2)
      if (n != splits_ && (n == 1 || (n * 4 >= splits_ && n <= splits_ * 4))) splits.push_back(n);
    std::vector<Plan> all;
    if (shape_.padding) return all;  // the tiles decide which of the queries of padding have results of 0
    for (const int64_t n : splits) {
      const int64_t rows = shape_.queries * (n > 1 && !kind_.packed ? together : 1);
      for (const AttentionForwardTiles& tiles : all_attention_forward_tiles(kind_, shared_bytes_)) {
        const Plan plan{tiles, n};
        if (!mostly_empty(tiles.rows(), rows) && differences(plan, own()) > 0) all.push_back(plan);
      }
    }
    sort_by(all, [&](const Plan& plan) {
      return attention_forward_us(kind_, sizes(), plan.tiles, static_cast<double>(plan.splits), figures_);
    });
    return all;
  }
  void run(const RunContext& ctx) override {
    if (shape_.batch * shape_.heads * shape_.queries == 0) return;
    Shape s = shape_at(ctx);
    int64_t splits = splits_;
    if (kind_.packed) splits = std::clamp<int64_t>(s.packed.max_k / kLeastKeys, 1, splits);
    const bool split = splits > 1;
    if (split && !kind_.packed && s.queries == 1) s.q.t = s.q.h;  // the rows are the heads
    const bool wide =
        vectors_ && aligned(in(ctx, 0)) && aligned(in(ctx, 1)) && aligned(in(ctx, 2)) && aligned(out(ctx, 0));
    const bool folded = s.scale > 0 && kind_.mask != AttentionMask::added;
    Kernel& k = kernel(wide, folded, split);
    const int64_t together = split && !kind_.packed ? s.heads / s.kv_heads : 1;
    const unsigned grid =
        groups(row_blocks(s.queries * together, kernels_[split][folded].rows()) * s.batch * s.heads / together);
    void* const o = out(ctx, 0);
    void* const lse = out(ctx, 1);
    k.launch(ctx.device, {grid, static_cast<unsigned>(splits), 1}, in(ctx, 0), in(ctx, 1), in(ctx, 2), mask(ctx), o,
             lse, ctx.workspace, s);
    if (split)
      combine().launch(ctx.device, {groups(s.batch * s.heads * s.queries), 1, 1}, ctx.workspace, o, lse,
                       static_cast<int>(splits), s);
  }

 private:
  static constexpr int64_t kLeastKeys = 256;  // per workgroup

  // Sets in how many parts the keys are computed, at most, and whether workgroups have fewer rows than usual.
  void plan_split() {
    const int64_t together = shape_.heads / std::max<int64_t>(1, shape_.kv_heads), rows = shape_.queries * together;
    const int64_t heads = shape_.batch * shape_.heads;
    // Less than two workgroups for each compute unit would leave it without work while they wait for memory.
    constexpr int64_t kUsualRows = 128, kFewRows = 64, kMostSplits = 16;
    kind_.few_rows = blocks(shape_.queries, kUsualRows) * heads < 2 * compute_units_;
    if (kind_.packed) {  // run() knows how many keys a sequence has
      const int64_t all = blocks(shape_.queries, kFewRows) * heads;
      if (all > 0 && shape_.keys >= 2 * kLeastKeys)
        splits_ =
            std::clamp<int64_t>(3 * compute_units_ / all, 1, std::min<int64_t>(kMostSplits, shape_.keys / kLeastKeys));
      return;
    }
    if (rows > kSplitRows || rows == 0 || shape_.keys < 2 * kLeastKeys || !rows_in_one_run()) return;
    const int64_t key_heads = std::max<int64_t>(1, shape_.batch * shape_.kv_heads);
    splits_ = std::clamp<int64_t>(2 * compute_units_ / key_heads, 1, shape_.keys / kLeastKeys);
  }
  // Whether the queries of all heads that share keys are the rows of one matrix.
  bool rows_in_one_run() const {
    return shape_.heads == shape_.kv_heads || shape_.queries == 1 || shape_.q.h == shape_.queries * shape_.q.t;
  }
  // In how many parts the keys may be computed when tuning asks. A workgroup that shares keys also visits those that
  // its queries do not see (causal), so this is for short problems.
  int64_t most_splits() const {
    constexpr int64_t kMostRows = 512, kMost = 64, kMostPacked = 16;
    if (shape_.queries == 0 || shape_.keys < 2 * kLeastKeys) return 1;
    const int64_t most = std::min<int64_t>(kind_.packed ? kMostPacked : kMost, shape_.keys / kLeastKeys);
    if (kind_.packed) return most;
    const int64_t rows = shape_.queries * (shape_.heads / std::max<int64_t>(1, shape_.kv_heads));
    return rows <= kMostRows && rows_in_one_run() ? most : 1;
  }
  bool folds_at_once() const { return vectors_ && kind_.mask != AttentionMask::added; }
  Kernel& kernel(bool wide, bool folded, bool split) {
    return kernels_[split][folded].get(wide, device_type_, [&](bool w) {
      const AttentionForwardTiles tiles = tiles_ ? *tiles_ : attention_forward_tiles(kind_, split);
      return attention_forward(kind_, tiles, w, folded, split);
    });
  }
  Kernel& combine() {
    return combine_.get(true, device_type_, [&](bool) { return attention_combine(kind_); });
  }
  bool vectors_ = true;
  int shared_bytes_ = 0;
  int64_t splits_ = 1;
  std::optional<AttentionForwardTiles> tiles_;  // those of a plan
  Pair kernels_[2][2], combine_;                // by `split` and `folded`
};

class PlainForward final : public AttentionBase {
 public:
  explicit PlainForward(const Problem& p) : AttentionBase(p, 0, 3) {
    shape_.out = strides_of(node_.outs[0].strides);
    kernel();
  }
  void run(const RunContext& ctx) override {
    const int64_t rows = shape_.batch * shape_.heads * shape_.queries;
    if (rows == 0) return;
    void* const o = out(ctx, 0);
    void* const lse = out(ctx, 1);
    kernel().launch(ctx.device, {groups(rows), 1, 1}, in(ctx, 0), in(ctx, 1), in(ctx, 2), mask(ctx), o, lse,
                    shape_at(ctx));
  }

 private:
  Kernel& kernel() {
    return kernel_.get(false, device_type_, [&](bool) { return attention_plain(kind_); });
  }
  Pair kernel_;
};

// --- backward: (grad, q, k, v, out, lse, mask? or offsets) -> dq, dk, dv

class GradBase : public AttentionBase {
 public:
  explicit GradBase(const Problem& p) : AttentionBase(p, 1, 6) {
    shape_.grad = strides_of(node_.ins[0].strides);
    shape_.out = strides_of(node_.ins[4].strides);
    shape_.dq = strides_of(node_.outs[0].strides);
    shape_.dk = strides_of(node_.outs[1].strides);
    shape_.dv = strides_of(node_.outs[2].strides);
  }
};

class MatrixGrad final : public GradBase {
 public:
  using Plan = GradPlan;
  explicit MatrixGrad(const Problem& p, bool ready = true, const std::optional<Plan>& plan = std::nullopt)
      : GradBase(p),
        shared_bytes_(shared_bytes_of(p)),
        plan_(plan ? *plan : Plan{attention_keys_tiles(kind_), attention_queries_tiles(kind_)}) {
    for (size_t i = 0; i < 4; ++i) vectors_ &= by_vectors(node_.ins[i]);
    for (size_t i = 0; i < 3; ++i) vectors_ &= by_vectors(node_.outs[i]);
    padded_ = row_blocks(shape_.queries, kStatsPadding) * kStatsPadding;
    if (!ready) return;
    stats();
    if (vectors_) kernels(true);
  }
  size_t workspace() const override {
    return static_cast<size_t>(2 * shape_.batch * shape_.heads * padded_) * sizeof(float);
  }
  const Plan& own() const { return plan_; }
  // All other plans, those with the shortest estimates first.
  std::vector<Plan> others() const {
    const auto with_own_first = [](std::vector<AttentionGradTiles> tiles, const AttentionGradTiles& own, int64_t rows) {
      std::erase_if(tiles, [&](const AttentionGradTiles& t) { return t == own || mostly_empty(t.rows(), rows); });
      tiles.insert(tiles.begin(), own);
      return tiles;
    };
    const auto keys = with_own_first(all_attention_keys_tiles(kind_, shared_bytes_), plan_.keys, shape_.keys),
               queries =
                   with_own_first(all_attention_queries_tiles(kind_, shared_bytes_), plan_.queries, shape_.queries);
    std::vector<Plan> all;
    if (shape_.padding) return all;  // the tiles decide which of the queries of padding have results of 0
    for (size_t i = 0; i < keys.size(); ++i)
      for (size_t j = 0; j < queries.size(); ++j)
        if (i + j > 0) all.push_back({keys[i], queries[j]});
    sort_by(all, [&](const Plan& plan) {
      return attention_keys_us(kind_, sizes(), plan.keys, figures_) +
             attention_queries_us(kind_, sizes(), plan.queries, figures_);
    });
    return all;
  }
  void run(const RunContext& ctx) override {
    const Shape s = shape_at(ctx);
    bool wide = vectors_;
    for (size_t i = 0; i < 4; ++i) wide &= aligned(in(ctx, i));
    for (size_t i = 0; i < 3; ++i) wide &= aligned(out(ctx, i));
    kernels(wide);
    const void *g = in(ctx, 0), *q = in(ctx, 1), *k = in(ctx, 2), *v = in(ctx, 3), *m = mask(ctx);
    void *dq = out(ctx, 0), *dk = out(ctx, 1), *dv = out(ctx, 2);
    const int64_t heads = s.batch * s.heads;
    if (heads * s.queries > 0) {
      stats().launch(ctx.device, {groups(blocks(heads * padded_, stats_.rows())), 1, 1}, g, in(ctx, 4), in(ctx, 5),
                     ctx.workspace, padded_, s);
      queries(wide).launch(ctx.device, {groups(row_blocks(s.queries, queries_.rows()) * heads), 1, 1}, g, q, k, v,
                           ctx.workspace, padded_, m, dq, s);
    }
    if (s.batch * s.kv_heads * s.keys == 0) return;
    for (size_t i = 0; i < parts(); ++i)
      keys(wide, i).launch(ctx.device, {groups(row_blocks(s.keys, keys_[i].rows()) * s.batch * s.kv_heads), 1, 1}, g, q,
                           k, v, ctx.workspace, padded_, m, dk, dv, s);
  }

 private:
  size_t parts() const { return plan_.keys.at_once ? 1 : 2; }
  Kernel& stats() {
    return stats_.get(true, device_type_, [&](bool) { return attention_query_stats(kind_); });
  }
  Kernel& queries(bool wide) {
    return queries_.get(wide, device_type_, [&](bool w) { return attention_queries_grad(kind_, plan_.queries, w); });
  }
  Kernel& keys(bool wide, size_t part) {
    return keys_[part].get(wide, device_type_, [&](bool w) {
      return attention_keys_grad(kind_, plan_.keys, w, parts() == 1 ? 3 : static_cast<int>(part) + 1);
    });
  }
  void kernels(bool wide) {
    queries(wide);
    for (size_t i = 0; i < parts(); ++i) keys(wide, i);
  }
  bool vectors_ = true;
  int shared_bytes_;
  Plan plan_;
  int64_t padded_ = 0;
  Pair stats_, queries_, keys_[2];
};

class PlainGrad final : public GradBase {
 public:
  explicit PlainGrad(const Problem& p) : GradBase(p) { stats(), queries(), keys(); }
  size_t workspace() const override {
    return static_cast<size_t>(3 * shape_.batch * shape_.heads * shape_.queries) *
           (kind_.dtype == DType::float64 ? sizeof(double) : sizeof(float));
  }
  void run(const RunContext& ctx) override {
    const Shape s = shape_at(ctx);
    const void *g = in(ctx, 0), *q = in(ctx, 1), *k = in(ctx, 2), *v = in(ctx, 3), *m = mask(ctx);
    void *dq = out(ctx, 0), *dk = out(ctx, 1), *dv = out(ctx, 2);
    const int64_t rows = s.batch * s.heads * s.queries, key_rows = s.batch * s.kv_heads * s.keys;
    if (rows > 0) {
      stats().launch(ctx.device, {groups(rows), 1, 1}, g, q, k, v, ctx.workspace, m, s);
      queries().launch(ctx.device, {groups(rows), 1, 1}, g, q, k, v, ctx.workspace, m, dq, s);
    }
    if (key_rows > 0) keys().launch(ctx.device, {groups(key_rows), 1, 1}, g, q, k, v, ctx.workspace, m, dk, dv, s);
  }

 private:
  Kernel& stats() {
    return stats_.get(false, device_type_, [&](bool) { return attention_plain_query_stats(kind_); });
  }
  Kernel& queries() {
    return queries_.get(false, device_type_, [&](bool) { return attention_plain_queries_grad(kind_); });
  }
  Kernel& keys() {
    return keys_.get(false, device_type_, [&](bool) { return attention_plain_keys_grad(kind_); });
  }
  Pair stats_, queries_, keys_;
};

Refusal matrix_accepts(const Problem& p) {
  std::string why;
  const bool forward = is_forward(p.root().op);
  if (attention_on_matrix_units(kind_of(p, forward ? 0 : 1, forward ? 3 : 6), &why)) return std::nullopt;
  return why;
}
Refusal plain(const Problem& p) {
  const Dims& q = p.root().ins[is_forward(p.root().op) ? 0 : 1].shape;
  const int64_t dim = q[q.size() - 1];
  if (4 * dim * static_cast<int64_t>(sizeof(double)) > kMostPlainBytes)
    return "the head is too large for shared memory";
  return std::nullopt;
}

template <bool any_order>
Refusal library(const Problem& p) {
  if (Refusal no = matrix_accepts(p)) return no;
  return sdpa_refuses(p, any_order);
}
template <class Own, bool any_order>
std::unique_ptr<Executable> make_library(const Problem& p) {
  return make_sdpa(p, any_order, std::make_unique<Own>(p, false));
}

// The list has the plans that differ from the own one in one respect. Tuning combines what was the fastest.
template <class Own>
class PlanConfigurations final : public Configurations {
 public:
  using Plan = typename Own::Plan;
  std::vector<std::string> list(const Problem& p) const override { return neighbours(p, ""); }
  std::unique_ptr<Executable> make(const Problem& p, const std::string& name) const override {
    const Own own(p, false);
    if (const auto plan = named(own, name)) return std::make_unique<Own>(p, true, *plan);
    const std::vector<std::string> names = list(p);
    PF_FAIL(Value, "attention: no such configuration; got '{}'; expected {}", name,
            names.empty() ? "none, since the device has no matrix cores, or queries of padding are left out"
                          : one_of(names));
  }
  bool has(const Problem& p, const std::string& name) const override { return named(Own(p, false), name).has_value(); }
  std::vector<std::string> neighbours(const Problem& p, const std::string& name) const override {
    const Own own(p, false);
    const Plan of = named(own, name).value_or(own.own());
    std::vector<std::string> all;
    for (const Plan& plan : own.others())
      if (differences(plan, of) == 1) all.push_back(plan.name());
    return all;
  }
  bool for_any_size() const override { return true; }

 private:
  static std::optional<Plan> named(const Own& own, const std::string& name) {
    if (name == Plan(own.own()).name()) return own.own();
    for (const Plan& plan : own.others())
      if (plan.name() == name) return plan;
    return std::nullopt;
  }
};
constexpr PlanConfigurations<MatrixForward> kForwardPlans;
constexpr PlanConfigurations<MatrixGrad> kGradPlans;

}  // namespace

std::span<const Impl> attention_impls(DeviceType) {
  static const Impl impls[] = {{"gpu.sdpa", library<false>, make_library<MatrixForward, false>},
                               {"gpu.attention", matrix_accepts, make_of<MatrixForward>, &kForwardPlans},
                               {"gpu.attention_plain", plain, make_of<PlainForward>}};
  return impls;
}
std::span<const Impl> attention_grad_impls(DeviceType) {
  static const Impl impls[] = {{"gpu.sdpa_grad_any_order", library<true>, make_library<MatrixGrad, true>},
                               {"gpu.sdpa_grad", library<false>, make_library<MatrixGrad, false>},
                               {"gpu.attention_grad", matrix_accepts, make_of<MatrixGrad>, &kGradPlans},
                               {"gpu.attention_grad_plain", plain, make_of<PlainGrad>}};
  return impls;
}
std::span<const Impl> varlen_attn_impls(DeviceType type) { return attention_impls(type); }
std::span<const Impl> varlen_attn_grad_impls(DeviceType type) { return attention_grad_impls(type); }

}  // namespace pyflame::gpu
