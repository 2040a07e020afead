// Linear algebra on the host: operands are copied there, LAPACK computes, and results are copied back, in the order of the stream. A message
// says so once. Such a step is not part of a replay.
#include <string>
#include <vector>

#include "pyflame/backends/gpu/driver/device.h"
#include "pyflame/backends/gpu/ops/impls.h"
#include "pyflame/backends/lapack/lapack.h"
#include "pyflame/base/fallbacks.h"

namespace pyflame::gpu {

namespace {

class OnHost final : public Executable {
 public:
  explicit OnHost(const Problem& p) : node_(p.root()), device_(device(p.graph.device.type, p.graph.device.index)) {
    const std::string op(op_name(node_.op));
    fallback_ = &note_fallback(op, p.graph.device.str(), "LAPACK on the host", "there is no kernel of it for GPUs",
                               op + ": matrices are factorized on the host, by LAPACK");
  }
  bool capturable() const override { return false; }
  void run(const RunContext& ctx) override {
    const FallbackRun counted(fallback_);
    Copies ins(node_.ins), outs(node_.outs);
    for (size_t i = 0; i < ins.bytes.size(); ++i)
      if (!ins.bytes[i].empty())
        device_.to_host(ins.bytes[i].data(), ctx.bindings[node_.ins[i].binding], ins.bytes[i].size());
    lapack::run(node_, node_.ins[0].dtype, ins.pointers.data(), outs.pointers.data(), ctx.params);
    for (size_t i = 0; i < outs.bytes.size(); ++i)
      if (!outs.bytes[i].empty())
        device_.from_host(ctx.bindings[node_.outs[i].binding], outs.bytes[i].data(), outs.bytes[i].size());
  }

 private:
  // Host memory for the extents of operands, gaps included. Outputs have no gaps.
  struct Copies {
    explicit Copies(const std::vector<Operand>& operands) {
      for (const Operand& o : operands) {
        if (o.is_param) break;
        int64_t last = o.numel() == 0 ? -1 : 0;
        for (int d = 0; d < o.shape.size() && last >= 0; ++d) last += (o.shape[d] - 1) * o.strides[d];
        bytes.emplace_back(static_cast<size_t>((last + 1) * dtype_size(o.dtype)));
      }
      for (auto& b : bytes) pointers.push_back(b.data());
    }
    std::vector<std::vector<char>> bytes;
    std::vector<void*> pointers;
  };
  Node node_;
  GpuDevice& device_;
  FallbackEntry* fallback_;
};

constexpr Impl kHost{"gpu.host_lapack", accepts_all, make_of<OnHost>};

}  // namespace

#define OP(...)
#define LINALG(name, ...) \
  std::span<const Impl> name##_impls(DeviceType) { return {&kHost, 1}; }
#include "pyflame/ops/ops.def"

}  // namespace pyflame::gpu
