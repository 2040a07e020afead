// rotary_store: kernels/attention/rotary.h.
#include <optional>

#include "pyflame/backends/gpu/jit/kernel.h"
#include "pyflame/backends/gpu/ops/impls.h"
#include "pyflame/kernels/attention/rotary_args.h"

namespace pyflame::gpu {

namespace {

constexpr int64_t kRotaryThreads = 128;

class RotaryStores final : public Executable {
 public:
  explicit RotaryStores(const Problem& p) : node_(p.root()), type_(p.graph.device.type) {
    const Dims &q = node_.ins[0].shape, &k = node_.ins[1].shape;
    shape_.rows = q[0], shape_.heads = q[1], shape_.dim = q[2], shape_.kv_heads = k[1];
    shape_.positions = node_.ins[3].shape[0], shape_.rotary_dim = node_.ins[3].shape[1];
    shape_.slots = node_.ins[7].shape[0];
    stored_ = stored_type(node_.ins[0].dtype);
    const int64_t vec = 16 / dtype_size(node_.ins[0].dtype);
    bool vectors = shape_.dim % vec == 0 && shape_.rotary_dim % (2 * vec) == 0;
    for (size_t i = 0; i < 3; ++i) {
      const Dims &shape = node_.ins[i].shape, &strides = node_.ins[i].strides;
      shape_.row[i] = shape[0] > 1 ? strides[0] : 0, shape_.head[i] = shape[1] > 1 ? strides[1] : 0;
      vectors &= shape_.row[i] % vec == 0 && shape_.head[i] % vec == 0;
    }
    vec_ = vectors ? vec : 1;
    kernel(vec_);
  }
  void run(const RunContext& ctx) override {
    pf::RotaryStore s = shape_;
    s.fault = fault_of(ctx), s.site = ctx.site;
    const auto in = [&](size_t i) -> const void* { return ctx.bindings[node_.ins[i].binding]; };
    const auto out = [&](size_t i) -> void* { return ctx.bindings[node_.outs[i].binding]; };
    int64_t vec = vec_;
    for (const void* p : {in(0), in(1), in(2), in(3), in(4), in(7), in(8)})
      if (reinterpret_cast<uintptr_t>(p) % 16 != 0) vec = 1;
    const int64_t pieces = s.rows * (s.heads + 2 * s.kv_heads) * (s.dim / vec);
    kernel(vec).launch(ctx.device, {groups_for(pieces, kRotaryThreads), 1, 1}, in(0), in(1), in(2), in(3), in(4), in(5),
                       in(6), out(0), out(1), out(2), s);
  }

 private:
  Kernel& kernel(int64_t vec) {
    std::optional<Kernel>& k = kernels_[vec > 1 ? 1 : 0];
    if (!k)
      k.emplace(type_, kRotaryThreads,
                kernel_source({"attention/rotary.h"}, kRotaryThreads,
                              fmt::format("(const {0}* q, const {0}* k, const {0}* v, const {0}* cos, const {0}* sin, "
                                          "const pf::i64* positions, const pf::i64* slots, {0}* out, {0}* keys, {0}* "
                                          "values, pf::RotaryStore p) {{ pf::rotary_store<{0}, {1}, {2}>(q, k, v, cos, "
                                          "sin, positions, slots, out, keys, values, p); }}",
                                          stored_, vec, kRotaryThreads)));
    return *k;
  }

  Node node_;
  DeviceType type_;
  pf::RotaryStore shape_;
  const char* stored_ = "";
  int64_t vec_ = 1;
  std::optional<Kernel> kernels_[2];
};

}  // namespace

std::span<const Impl> rotary_store_impls(DeviceType) {
  static const Impl impl{"gpu.rotary_store", accepts_all, make_of<RotaryStores>};
  return {&impl, 1};
}

}  // namespace pyflame::gpu
