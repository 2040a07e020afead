// paged_attention: kernels/attention/paged.h.
#include <algorithm>
#include <array>
#include <bit>
#include <optional>

#include "pyflame/backends/gpu/driver/arch.h"
#include "pyflame/backends/gpu/jit/kernel.h"
#include "pyflame/backends/gpu/ops/attention_kernels.h"
#include "pyflame/backends/gpu/ops/impls.h"
#include "pyflame/kernels/attention/paged_args.h"

namespace pyflame::gpu {

namespace {

constexpr int64_t kPagedThreads = 128, kMostTeam = 32, kMostHeads = 8;
constexpr int64_t kRegisters = 64;  // elements of queries that a lane holds, and as many sums; half as many of keys
constexpr int64_t kMostAhead = 4;

bool has_scales(const Node& n) { return static_cast<DType>(n.attr<PagedAttrs>().stored) != n.ins[0].dtype; }

// The type of keys and values in the kernel's text.
std::string pages_type(const Node& n) {
  const auto stored = static_cast<DType>(n.attr<PagedAttrs>().stored);
  return is_float8(stored) ? fmt::format("pf::PagedCode<pf::{}>", dtype_name(stored)) : stored_type(stored);
}

class PagedAttention final : public Executable {
 public:
  explicit PagedAttention(const Problem& p, std::optional<AttentionKind> on_matrix_cores = std::nullopt)
      : node_(p.root()), type_(p.graph.device.type), on_matrix_cores_(on_matrix_cores) {
    const Dims &q = node_.ins[0].shape, &k = node_.ins[1].shape;
    shape_.sequences = q[0], shape_.heads = q[1], shape_.dim = q[2];
    shape_.pages = k[0], shape_.kv_heads = k[2], shape_.columns = node_.ins[3].shape[1];
    shape_.page_log2 = std::countr_zero(static_cast<uint64_t>(k[1]));
    const int64_t room = shape_.columns * k[1];
    shape_.most_parts = static_cast<int>(std::clamp<int64_t>(ceil_div(room, pf::kPagedKeys), 1, pf::kPagedParts));
    stored_ = stored_type(node_.ins[0].dtype);
    params_ = node_.ins.size() - 3;
    const int64_t vec = 16 / dtype_size(node_.ins[0].dtype);
    vec_ = shape_.dim % vec == 0 ? vec : 1;
    together_ = shape_.heads / shape_.kv_heads;
    if (on_matrix_cores_) tiles();
    else kernel(vec_);
    if (shape_.most_parts > 1)
      combine_.emplace(type_, kPagedThreads,
                       kernel_source({"device/mma.h", "device/float8.h", "attention/paged.h"}, kPagedThreads,
                                     fmt::format("(const pf::C<{0}>* parts, const int* lengths, {0}* out, "
                                                 "pf::PagedAttention p) {{ pf::paged_combine<{0}, {1}>(parts, lengths, "
                                                 "out, p); }}",
                                                 stored_, kPagedThreads)));
  }
  size_t workspace() const override {
    if (shape_.most_parts < 2) return 0;
    const size_t size = node_.ins[0].dtype == DType::float64 ? sizeof(double) : sizeof(float);
    return static_cast<size_t>(shape_.sequences * shape_.heads * shape_.most_parts * (shape_.dim + 2)) * size;
  }
  void run(const RunContext& ctx) override {
    pf::PagedAttention s = shape_;
    s.scale = ctx.params[node_.ins[params_].param].as_f64();
    s.window = ctx.params[node_.ins[params_ + 1].param].as_i64();
    s.cap = ctx.params[node_.ins[params_ + 2].param].as_f64();
    s.fault = fault_of(ctx), s.site = ctx.site;
    const auto in = [&](size_t i) -> const void* { return ctx.bindings[node_.ins[i].binding]; };
    void* const out = ctx.bindings[node_.outs[0].binding];
    int64_t vec = vec_;
    for (const size_t i : {0, 1, 2})
      if (reinterpret_cast<uintptr_t>(in(i)) % 16 != 0) vec = 1;
    const bool tiled = on_matrix_cores_ && vec == vec_;
    const int64_t chunks = ceil_div(together_, tiled ? 16 : lanes_of(vec).heads);
    const std::array<unsigned, 3> grid{static_cast<unsigned>(s.sequences * s.kv_heads * chunks),
                                       static_cast<unsigned>(s.most_parts), 1};
    if (tiled) {
      tiles().launch(ctx.device, grid, in(0), in(1), in(2), in(3), in(4), out, ctx.workspace, s);
    } else {
      const void *key_scale = has_scales(node_) ? in(5) : nullptr, *value_scale = has_scales(node_) ? in(6) : nullptr;
      kernel(vec).launch(ctx.device, grid, in(0), in(1), in(2), in(3), in(4), key_scale, value_scale, out,
                         ctx.workspace, s);
    }
    if (combine_)
      combine_->launch(ctx.device, {static_cast<unsigned>(s.sequences * s.heads), 1, 1}, ctx.workspace, in(4), out, s);
  }

 private:
  Kernel& tiles() {
    if (!tiles_) {
      const AttentionSource source = attention_paged_tiles(*on_matrix_cores_);
      tiles_.emplace(type_, source.threads, source.text, source.shared_bytes);
    }
    return *tiles_;
  }

  // How the elements of a head are divided among lanes, and how many query heads a workgroup has.
  struct Lanes {
    int64_t team = 1, pieces = 1, heads = 1, ahead = 1, threads = kPagedThreads;  // ahead: keys at a time
  };
  Lanes lanes_of(int64_t vec) const {
    Lanes l;
    while (l.team < kMostTeam && l.team * vec < shape_.dim) l.team *= 2;
    l.pieces = ceil_div(shape_.dim, l.team * vec);
    // A lane has at most one score at a time, so a team has a lane for each.
    const int64_t most = std::clamp<int64_t>(kRegisters / (l.pieces * vec), 1, std::min(kMostHeads, l.team));
    l.heads = ceil_div(together_, ceil_div(together_, most));
    const auto scores = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(l.heads)));
    const int64_t most_ahead = dtype_size(node_.ins[0].dtype) == 8 ? 1 : kMostAhead;
    while (l.ahead < most_ahead && 2 * l.ahead * scores <= l.team && 2 * l.ahead * l.pieces * vec <= kRegisters / 2)
      l.ahead *= 2;
    if (l.pieces * vec > kRegisters / 2) l.threads = kPagedThreads / 2;  // what the teams add lies in shared memory
    return l;
  }
  Kernel& kernel(int64_t vec) {
    std::optional<Kernel>& k = kernels_[vec > 1 ? 1 : 0];
    if (k) return *k;
    const Lanes l = lanes_of(vec);
    k.emplace(
        type_, l.threads,
        kernel_source({"device/mma.h", "device/float8.h", "attention/paged.h"}, l.threads,
                      fmt::format("(const {0}* q, const {7}* keys, const {7}* values, const int* table, const int* "
                                  "lengths, const float* key_scale, const float* value_scale, {0}* out, pf::C<{0}>* "
                                  "parts, pf::PagedAttention p) {{ "
                                  "pf::paged_attention<{0}, {7}, {1}, {2}, {3}, {4}, {5}, {6}>(q, keys, values, "
                                  "table, lengths, key_scale, value_scale, out, parts, p); }}",
                                  stored_, vec, l.team, l.pieces, l.heads, l.ahead, l.threads, pages_type(node_))));
    return *k;
  }

  Node node_;
  DeviceType type_;
  std::optional<AttentionKind> on_matrix_cores_;
  pf::PagedAttention shape_;
  const char* stored_ = "";
  int64_t vec_ = 1, together_ = 1;
  size_t params_ = 5;  // where they begin among the inputs
  std::optional<Kernel> kernels_[2], combine_, tiles_;
};

AttentionKind kind_of(const Problem& p) {
  const Operand& q = p.root().ins[0];
  AttentionKind a;
  a.dtype = q.dtype, a.dim = q.shape[2];
  a.wave = device(p.graph.device.type, p.graph.device.index).arch().wave;
  return a;
}
Refusal accept_tiles(const Problem& p) {
  const Operand &q = p.root().ins[0], &keys = p.root().ins[1];
  if (dtype_size(q.dtype) != 2) return "takes float16 and bfloat16";
  if (has_scales(p.root())) return "takes keys of the queries' dtype";
  if (q.shape[2] % 8 != 0 || q.shape[2] > kMostPagedWidth)
    return fmt::format("takes head sizes that are multiples of 8, up to {}", kMostPagedWidth);
  if (keys.shape[0] * keys.shape[1] * keys.shape[2] * q.shape[2] / 8 >= int64_t{1} << 32)
    return "the pages have more than 2^35 elements";
  if (!has_matrix_units(device(p.graph.device.type, p.graph.device.index).arch().name))
    return "the GPU has no matrix cores";
  return std::nullopt;
}
std::unique_ptr<Executable> make_tiles(const Problem& p) { return std::make_unique<PagedAttention>(p, kind_of(p)); }

}  // namespace

std::span<const Impl> paged_attention_impls(DeviceType) {
  static const Impl impls[] = {{"gpu.paged_tiles", accept_tiles, make_tiles},
                               {"gpu.paged_attention", accepts_all, make_of<PagedAttention>}};
  return impls;
}

}  // namespace pyflame::gpu
