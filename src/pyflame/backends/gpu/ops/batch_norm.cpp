// Statistics and gradient of batch_norm in training mode: kernels/norm/batch_norm.h.
#include "pyflame/backends/gpu/ops/batch_norm.h"

#include <algorithm>
#include <bit>

#include "pyflame/backends/gpu/jit/kernel.h"
#include "pyflame/backends/gpu/ops/impls.h"
#include "pyflame/base/error.h"
#include "pyflame/kernels/norm/batch_norm_args.h"

namespace pyflame::gpu {

namespace {

constexpr int64_t kChannels = 64;  // kNormChannels; kGroupThreads is kNormThreads

// Selects a kernel: by dtype, forward or gradient, layout, and the elements per access.
struct Variant {
  DType dtype, weight;
  bool grad, last;
  int vec;
};

std::string sums_source(const Variant& v) {
  return kernel_source(
      {"norm/batch_norm.h"}, kGroupThreads,
      fmt::format("(const {0}* x, const {0}* g, const pf::C<{0}>* mean, pf::C<{0}>* parts, "
                  "pf::BatchNorm p) {{ pf::batch_norm_sums<{0}, {1}, {2}, {3}>(x, g, mean, parts, p); }}",
                  stored_type(v.dtype), v.grad, v.last, v.vec));
}
std::string join_source(const Variant& v) {
  return kernel_source(
      {"norm/batch_norm.h"}, kGroupThreads,
      fmt::format(
          "(const {0}* x, const {1}* w, const {1}* b, const pf::C<{0}>* parts, pf::C<{0}>* mean, pf::C<{0}>* "
          "variance, {1}* dw, {1}* db, pf::C<{0}>* factors, double eps, pf::BatchNorm p) {{ "
          "pf::batch_norm_join<{0}, {1}, {2}, {3}>(x, w, b, parts, mean, variance, dw, db, factors, eps, p); }}",
          stored_type(v.dtype), stored_type(v.weight), v.grad, v.last));
}
std::string apply_source(const Variant& v) {
  return kernel_source(
      {"norm/batch_norm.h"}, kGroupThreads,
      fmt::format("(const {0}* x, const {0}* g, const pf::C<{0}>* factors, {0}* y, pf::BatchNorm p) {{ "
                  "pf::batch_norm_apply<{0}, {1}, {2}, {3}>(x, g, factors, y, p); }}",
                  stored_type(v.dtype), v.grad, v.last, v.vec));
}

bool channels_last(const Operand& x) { return x.shape.size() > 1 && x.strides[1] == 1; }

// [outer][channels][inner] in memory order: all other dims of x are merged.
pf::BatchNorm shape_of(const Operand& x) {
  constexpr int64_t kGroups = 1024, kMostSegments = 256;
  pf::BatchNorm s{};
  s.outer = x.shape[0], s.channels = x.shape[1], s.inner = 1;
  for (int d = 2; d < x.shape.size(); ++d) s.inner *= x.shape[d];
  const bool last = channels_last(x);
  const int64_t rows = last ? s.outer * s.inner : s.outer;
  const int64_t across = last ? (s.channels + kChannels - 1) / kChannels : s.channels;
  const int64_t least = last ? 32 : 1;
  const int64_t wanted = std::clamp<int64_t>(kGroups / std::max<int64_t>(across, 1), 1, kMostSegments);
  s.segment = std::max((rows + wanted - 1) / wanted, least);
  s.segments = static_cast<int32_t>((rows + s.segment - 1) / s.segment);
  return s;
}

class BatchNorm final : public Executable {
 public:
  explicit BatchNorm(const Problem& p)
      : node_(p.root()),
        grad_(node_.op == OpId::batch_norm_grad),
        has_weight_(node_.attr<NormAttrs>().has_weight != 0),
        has_bias_(node_.attr<NormAttrs>().has_bias != 0),
        x_(node_.ins[grad_ ? 1 : 0]),
        shape_(shape_of(x_)),
        wide_(variant(true)),
        sums_(p.graph.device.type, kGroupThreads, sums_source(wide_)),
        join_(p.graph.device.type, kGroupThreads, join_source(wide_)),
        apply_(p.graph.device.type, kGroupThreads, apply_source(wide_)),
        type_(p.graph.device.type) {
    const auto vectors = static_cast<uint64_t>((shape_.inner + wide_.vec - 1) / wide_.vec);
    shape_.along =
        static_cast<int32_t>(std::min<uint64_t>(std::bit_ceil(std::max<uint64_t>(vectors, 1)), kGroupThreads));
  }
  size_t workspace() const override {
    const size_t element = x_.dtype == DType::float64 ? 8 : 4;
    return static_cast<size_t>((2 * shape_.segments + 4) * shape_.channels) * element;
  }
  void run(const RunContext& ctx) override {
    if (x_.numel() == 0) return;
    const auto at = [&](const Operand& o) { return ctx.bindings[o.binding]; };
    const auto& n = node_;
    const void *x = at(x_), *g = grad_ ? at(n.ins[0]) : x;
    void* made = at(n.outs[0]);
    void *mean = grad_ ? at(n.ins[2]) : at(n.outs[1]), *variance = grad_ ? at(n.ins[3]) : at(n.outs[2]);
    const void* weight = has_weight_ ? at(n.ins[grad_ ? 4 : 1]) : nullptr;
    const void* bias = has_bias_ && !grad_ ? at(n.ins[2]) : nullptr;
    void *dw = grad_ ? at(n.outs[1]) : nullptr, *db = grad_ ? at(n.outs[2]) : nullptr;
    const double eps = ctx.params[n.ins.back().param].as_f64();
    const size_t element = x_.dtype == DType::float64 ? 8 : 4;
    char* parts = static_cast<char*>(ctx.workspace);
    void* factors = parts + static_cast<size_t>(2 * shape_.segments * shape_.channels) * element;
    const uintptr_t bits =
        reinterpret_cast<uintptr_t>(x) | reinterpret_cast<uintptr_t>(g) | reinterpret_cast<uintptr_t>(made);
    if (bits % 16 != 0 && wide_.vec > 1) narrow();
    const bool last = wide_.last;
    const auto groups = static_cast<unsigned>(last ? (shape_.channels + kChannels - 1) / kChannels : shape_.channels);
    const std::array<unsigned, 3> grid{groups, static_cast<unsigned>(shape_.segments), 1};
    sums_.launch(ctx.device, grid, x, g, mean, parts, shape_);
    join_.launch(ctx.device, {static_cast<unsigned>(shape_.channels), 1, 1}, x, weight, bias, parts, mean, variance, dw,
                 db, factors, eps, shape_);
    apply_.launch(ctx.device, grid, x, g, factors, made, shape_);
  }

 private:
  Variant variant(bool vectors) const {
    const bool last = channels_last(x_);
    const int vec = static_cast<int>(16 / dtype_size(x_.dtype));
    const Operand& weight = grad_ ? node_.outs[1] : node_.ins[1];
    return {x_.dtype, has_weight_ || grad_ ? weight.dtype : x_.dtype, grad_, last,
            vectors && (last ? shape_.channels : shape_.inner) % vec == 0 ? vec : 1};
  }
  // Used from the first run with unaligned pointers on.
  void narrow() {
    wide_ = variant(false);
    sums_ = Kernel(type_, kGroupThreads, sums_source(wide_));
    apply_ = Kernel(type_, kGroupThreads, apply_source(wide_));
  }
  Node node_;
  bool grad_, has_weight_, has_bias_;
  Operand x_;
  pf::BatchNorm shape_;
  Variant wide_;
  Kernel sums_, join_, apply_;
  DeviceType type_;
};

// The op gives its operands one layout without gaps; other layouts do not occur.
Refusal accepts(const Problem& p) {
  const bool grad = p.root().op == OpId::batch_norm_grad;
  const Operand& x = p.root().ins[grad ? 1 : 0];
  for (const Operand* o : {grad ? &p.root().ins[0] : &x, &p.root().outs[0]})
    for (int d = 0; d < x.shape.size(); ++d)
      if (x.shape[d] > 1 && o->strides[d] != x.strides[d]) return "operands lie in different orders";
  for (const Operand& o : p.root().ins)
    if (!o.is_param && o.shape.size() == 1 && !o.contiguous) return "a channel's values are not contiguous";
  return std::nullopt;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> batch_norm_sources(DType dtype) {
  std::vector<std::pair<std::string, std::string>> all;
  for (const bool grad : {false, true})
    for (const bool last : {false, true})
      for (const int vec : {static_cast<int>(16 / dtype_size(dtype)), 1}) {
        const Variant v{dtype, dtype, grad, last, vec};
        const std::string name = fmt::format("batch_norm{}{}_{}", grad ? "_grad" : "", last ? "_last" : "", vec);
        all.emplace_back(name + "_sums", sums_source(v));
        all.emplace_back(name + "_apply", apply_source(v));
        if (vec == 1) all.emplace_back(name + "_join", join_source(v));
      }
  return all;
}

std::span<const Impl> batch_norm_impls(DeviceType) {
  static const Impl impl{"gpu.batch_norm", accepts, make_of<BatchNorm>};
  return {&impl, 1};
}
std::span<const Impl> batch_norm_grad_impls(DeviceType type) { return batch_norm_impls(type); }

}  // namespace pyflame::gpu
